//! What goes in and out of an end.

use crate::health::Health;
use crate::ids::{Generation, PathId};
use crate::limits::PATHS_MAX;
use crate::time::Time;
use crate::wire::path_frame::{Endpoint, PathFrame};

const MILLISECOND: u64 = 1_000_000;
const SECOND: u64 = 1_000 * MILLISECOND;

/// How the share of a lost path is spread.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Routing {
    /// Not at all: messages wait for their path.
    Static,
    /// The first path in service takes everything.
    HotRepair,
    /// All paths in service take a part by their capacity.
    #[default]
    Balance,
}

/// Times (nanoseconds) and limits of an [`super::End`]. Both ends of a connection use the same.
#[derive(Clone, Copy, Debug)]
pub struct EndConfig {
    /// How the share of a lost path is spread.
    pub routing: Routing,
    /// Start of the pseudo-random numbers behind every jitter.
    pub seed: u64,
    /// A control frame that waits for an answer is sent again after this long.
    pub repeat_ns: u64,
    /// A fence without an outcome counts as unknown after this long.
    pub fence_deadline_ns: u64,
    /// A packet does not live longer than this once its source is silent (`R2CCL_QUARANTINE`).
    pub quarantine_ns: u64,
    /// Only the receiver's fence counts, the quarantine does not (`R2CCL_FENCE=strict`).
    pub is_fence_strict: bool,
    /// Work without progress for this long makes a path suspect.
    pub stall_ns: u64,
    /// Slowest rate that counts as progress, in bytes a second: outstanding bytes lengthen
    /// `stall_ns` by what they take at this rate.
    pub rate_min: u64,
    /// A probe that has not come back after this long has failed.
    pub probe_ns: u64,
    /// The same on a queue pair from the moment on at which its NICs are known to talk.
    pub own_probe_ns: u64,
    /// The same between the NICs of a path that somebody spoke against: its port has lost its link.
    pub hint_probe_ns: u64,
    /// First back-off between attempts to re-create a path.
    pub back_off_ns: u64,
    /// Longest back-off.
    pub back_off_max_ns: u64,
    /// An attempt that is not connected after this long has failed.
    pub attempt_ns: u64,
    /// First hold-down (`R2CCL_HOLD_DOWN`).
    pub hold_down_ns: u64,
    /// Longest hold-down.
    pub hold_down_max_ns: u64,
    /// A path that fails this soon after its return has flapped: its hold-down doubles.
    pub flap_ns: u64,
    /// A path in service for this long has the first hold-down again.
    pub stable_ns: u64,
    /// A path that came back reaches its full weight after this long.
    pub ramp_ns: u64,
    /// Requests fail this long after the last path was lost or fell silent (`R2CCL_GIVEUP`).
    pub give_up_ns: u64,
    /// The watchdog evicts at most [`EndConfig::evictions_max`] paths in this time that nobody has
    /// spoken against.
    pub eviction_window_ns: u64,
    /// See `eviction_window_ns`.
    pub evictions_max: u8,
}

impl Default for EndConfig {
    fn default() -> Self {
        Self {
            routing: Routing::Balance,
            seed: 1,
            repeat_ns: 5 * MILLISECOND,
            fence_deadline_ns: 50 * MILLISECOND,
            quarantine_ns: 2 * SECOND,
            is_fence_strict: false,
            stall_ns: 25 * MILLISECOND,
            rate_min: 125_000_000,
            probe_ns: 50 * MILLISECOND,
            own_probe_ns: 8 * MILLISECOND,
            hint_probe_ns: MILLISECOND,
            back_off_ns: 10 * MILLISECOND,
            back_off_max_ns: 60 * SECOND,
            attempt_ns: 5 * SECOND,
            hold_down_ns: SECOND,
            hold_down_max_ns: 60 * SECOND,
            flap_ns: 60 * SECOND,
            stable_ns: 600 * SECOND,
            ramp_ns: SECOND,
            give_up_ns: 60 * SECOND,
            eviction_window_ns: 10 * SECOND,
            evictions_max: 4,
        }
    }
}

/// What a probe goes over.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ProbeKind {
    /// A signalled write of no bytes without immediate on the queue pair of this generation.
    QueuePair,
    /// Anything between the same two NICs that needs no queue pair of this connection.
    NicPair,
}

/// What an end wants its runtime to do. Each is handed out when it is due, so that none can be
/// lost in a queue; none waits for another.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[expect(
    clippy::large_enum_variant,
    reason = "no allocation; actions are rare and short-lived"
)]
pub enum Action {
    /// Bring the frame to the other end, over whatever works. It may be lost, doubled or late.
    Send(PathFrame),
    /// Move the queue pair to the error state and drain it, on a helper thread; then
    /// [`super::End::handle_fenced`].
    Fence {
        /// The path.
        path: PathId,
        /// The generation.
        generation: Generation,
    },
    /// Make a queue pair (and the sender's ring), with receives posted; then
    /// [`super::End::handle_created`].
    Create {
        /// The path.
        path: PathId,
        /// The generation.
        generation: Generation,
    },
    /// Connect it; then [`super::End::handle_connected`].
    Connect {
        /// The path.
        path: PathId,
        /// The generation.
        generation: Generation,
        /// The other end.
        remote: Endpoint,
    },
    /// Queue pairs and rings of all generations of the path up to this one are not needed any
    /// more. Their numbers and memory stay unused for one quarantine.
    Destroy {
        /// The path.
        path: PathId,
        /// The newest of them.
        up_to: Generation,
    },
    /// Probe; then [`super::End::handle_probe`]. No answer counts as failed.
    Probe {
        /// The path.
        path: PathId,
        /// The generation.
        generation: Generation,
        /// What to probe.
        kind: ProbeKind,
        /// Comes back with the result.
        id: u32,
    },
}

/// What speaks against a generation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Evidence {
    /// Final: a completion with an error (receive flushes included), the queue pair in the error
    /// state, the device gone.
    Error,
    /// A hint: port down, carrier lost, another connection's or process's word. The path is probed.
    Hint,
}

/// Why the requests of a connection fail.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Failure {
    /// No path was in service for the give-up time.
    NoPath,
    /// The old generation of this path could not be fenced for the give-up time, at neither end.
    NoFence(PathId),
}

/// One path as its end sees it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HealthSnapshot {
    /// State.
    pub health: Health,
    /// Newest generation.
    pub generation: Generation,
    /// Since when it is in this state.
    pub since: Time,
    /// Taken out of routes by an operator.
    pub is_drained: bool,
    /// Present hold-down in nanoseconds.
    pub hold_down_ns: u64,
    /// Attempts that failed since it was last in service, or since the last knock.
    pub attempts: u32,
    /// Its last generation is settled, so that another may be tried.
    pub is_settled: bool,
    /// Its weight in the present route, and the sum of all.
    pub weight: (u32, u32),
}

/// What an end has been through.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct EndStatistics {
    /// Generations ended.
    pub closed: u64,
    /// Suspicions that a probe or progress cleared.
    pub transients: u64,
    /// Queue-pair faults: own work stalled while the NICs could talk.
    pub queue_pair_faults: u64,
    /// Paths evicted by the watchdog because their NICs could not talk.
    pub evictions: u64,
    /// Of those, where somebody had spoken against the path: these are not limited.
    pub hinted_evictions: u64,
    /// Evictions that did not happen: nowhere better to go.
    pub nowhere_better: u64,
    /// Evictions that did not happen: too many of late.
    pub evictions_limited: u64,
    /// Attempts to re-create a path.
    pub attempts: u64,
    /// Of those, failed.
    pub attempts_failed: u64,
    /// Paths that came back into service.
    pub returns: u64,
    /// Fences that only the quarantine gave.
    pub quarantines: u64,
    /// Frames that said nothing new or belonged to the past.
    pub stale_frames: u64,
}

/// State of an [`super::End`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EndSnapshot {
    /// Paths by index.
    pub paths: [Option<HealthSnapshot>; PATHS_MAX],
    /// Since when no path is in service.
    pub lost_since: Option<Time>,
    /// What it has been through.
    pub statistics: EndStatistics,
}
