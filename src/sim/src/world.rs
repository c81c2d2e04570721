//! A world: hosts, NICs, connections, users and faults, from one seed.

use r2ccl_core::wire::path_frame::PathFrame;
use r2ccl_core::{Generation, PathId};

use crate::bug::Bug;
use crate::character::Character;
use crate::check::{Class, Violation};
use crate::connection::{Connection, Side};
use crate::control::Control;
use crate::coverage::Coverage;
use crate::eager::EagerCounts;
use crate::endings::Leave;
use crate::fabric::{Fabric, NicId, Topology};
use crate::fault::{self, Fault, Kind};
use crate::memory::{BufferId, Memory};
use crate::nic::{Effect, NicEvent, Nics, QpId, Surroundings};
use crate::queue::{MICROSECOND, Nanos, Queue, SECOND};
use crate::random::Random;
use crate::slot::Slots;
use crate::window::Window;

/// When all faults end.
const HEAL_AT: Nanos = 6 * SECOND;
/// From then on everything must finish, and all paths be back, within this time: the longest
/// back-off, the longest hold-down, a quarantine, and time to work.
pub const CONVERGENCE: Nanos = 200 * SECOND;
/// Events that a world may take; a queue pair without receives is tried again every few
/// microseconds, for as long as that lasts.
const EVENTS_MAX: u64 = 16_000_000;

/// What a host hears about its own NIC.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Hint {
    /// The port has a link.
    LinkUp,
    /// The port has lost its link.
    LinkDown,
    /// The device is gone.
    DeviceLost,
}

/// Which end of which connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EndId {
    /// The connection.
    pub connection: usize,
    /// Its end.
    pub side: Side,
}

/// What happens in a world.
#[derive(Clone, Debug)]
pub enum Event {
    /// In a NIC or between NICs.
    Nic(NicEvent),
    /// The owner of an end looks at it, if that was the time it meant.
    Wake(EndId),
    /// A control frame arrives.
    Frame(EndId, Box<PathFrame>),
    /// A helper tries to move a queue pair to error.
    Fence(EndId, PathId, Generation),
    /// A helper has made a queue pair.
    Created(EndId, PathId, Generation),
    /// A helper has connected a queue pair.
    Connected(EndId, PathId, Generation),
    /// A probe between two NICs has come back.
    Probed(EndId, (PathId, Generation), u32),
    /// A retired queue pair is destroyed.
    Destroy(QpId),
    /// A GPU looks at a buffer.
    Poll(BufferId),
    /// The receiver goes on with a copy from a slot.
    Copy(EndId),
    /// An end hears about the NIC of a path.
    Told(EndId, PathId, Hint),
    /// A host hears about its NIC.
    Hint {
        /// The NIC.
        nic: NicId,
        /// What it hears.
        hint: Hint,
    },
    /// A port has an address again.
    Address(NicId),
    /// The process at the other end is known to be gone.
    PeerGone(EndId),
    /// Memory of an end is deregistered when its queue pairs are silent.
    Deregister(EndId),
    /// A receiver that closes says so once more.
    Goodbye {
        /// Its end.
        end: EndId,
        /// Messages that it has.
        count: u64,
        /// Times that are left.
        left: u32,
    },
    /// A connection is to be made.
    Connect,
    /// A fault strikes.
    Strike(usize),
    /// A fault ends.
    Relent(usize),
    /// A flapping port changes.
    Flap {
        /// The fault.
        index: usize,
        /// Changes that are left.
        times: u32,
        /// Time between changes.
        period: Nanos,
        /// What it changes to.
        up: bool,
    },
    /// All faults end.
    Heal,
}

impl From<NicEvent> for Event {
    fn from(event: NicEvent) -> Self {
        Self::Nic(event)
    }
}

/// A host with the one process that runs on it.
#[derive(Clone, Debug)]
pub struct Host {
    /// The process runs.
    pub alive: bool,
    /// It stands still.
    pub paused: bool,
    /// What waits for it to go on.
    pub waiting: Vec<Event>,
    /// It has been told to end.
    pub leaving: Option<Leave>,
}

/// Whose a queue pair is.
#[derive(Clone, Copy, Debug)]
pub struct Owner {
    /// The end.
    pub end: EndId,
    /// What the other end's small writes go to: a mailbox at the sender, slots at the receiver.
    pub memory: usize,
}

/// How a world is made.
#[derive(Clone, Copy, Debug, Default)]
pub struct Options {
    /// The seed.
    pub seed: u64,
    /// Hears, line by line, what happens.
    pub trace: Option<fn(&str)>,
    /// A deliberate bug.
    pub bug: Option<Bug>,
    /// A small world: two hosts of two NICs, one connection, two messages, and only these faults,
    /// each before the event of its number.
    pub small: Option<[(u64, Kind, u64); 2]>,
}

/// What ends did.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Times at which an end had asked to be told the time.
    pub timeouts: u64,
    /// Control frames that were sent.
    pub frames: u64,
    /// Of those, knocks.
    pub knocks: u64,
}

/// A world.
pub struct World {
    pub(crate) seed: u64,
    pub(crate) character: Character,
    pub(crate) trace: Option<fn(&str)>,
    pub(crate) bug: Option<Bug>,
    pub(crate) is_small: bool,
    pub(crate) handled: u64,
    /// Where the order of events is chosen.
    pub(crate) window: Option<Window>,
    /// Frames that were sent, for the bug that sends them once.
    pub(crate) said: Vec<(EndId, PathFrame)>,
    pub(crate) queue: Queue<Event>,
    pub(crate) random: Random,
    pub(crate) fabric: Fabric,
    pub(crate) nics: Nics,
    pub(crate) owners: Vec<Owner>,
    pub(crate) control: Control,
    pub(crate) memory: Memory,
    pub(crate) mailboxes: Vec<crate::connection::Mailbox>,
    pub(crate) slots: Vec<Slots>,
    pub(crate) eager: EagerCounts,
    pub(crate) hosts: Vec<Host>,
    pub(crate) connections: Vec<Connection>,
    pub(crate) faults: Vec<Fault>,
    pub(crate) armed: Vec<bool>,
    pub(crate) struck: u32,
    pub(crate) recoveries: u32,
    pub(crate) counts: Counts,
    pub(crate) is_healed: bool,
    /// A process stands still at times: then it may be late.
    pub(crate) has_pauses: bool,
    /// Until then it is seen whether somebody fails who has been left alone without requests.
    pub(crate) alone_until: Nanos,
    pub(crate) coverage: Coverage,
    pub(crate) violation: Option<Violation>,
}

/// What became of a world.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Outcome {
    /// The rule that was broken.
    pub violation: Option<Violation>,
    /// Which faults met which states.
    pub coverage: Coverage,
    /// Events.
    pub events: u64,
    /// Generations that were given up.
    pub recoveries: u32,
    /// Faults that struck.
    pub struck: u32,
    /// Virtual time that it took.
    pub took: Nanos,
    /// Messages received.
    pub messages: u64,
    /// What became of messages that went ahead of their credit.
    pub eager: EagerCounts,
}

impl World {
    /// The world of a seed.
    pub fn new(options: Options) -> Self {
        let seed = options.seed;
        let mut random = Random::new(seed, 0);
        let mut hosts = random.between(2, 3) as usize;
        let mut nics = random.pick(&[2, 2, 3, 4, 4, 6, 8]);
        let mut topology =
            random.pick(&[Topology::FullMesh, Topology::RailOnly, Topology::TwoPlanes]);
        let mut count = random.between(1, 3) as usize;
        if options.small.is_some() {
            (hosts, nics, topology, count) = (2, 2, Topology::RailOnly, 1);
        }
        let fabric = Fabric::new(hosts, nics, topology, &mut random);
        let character = match options.small {
            Some(_) => Character::SMALL,
            None => Character::draw(&mut Random::new(seed, 2)),
        };
        let mut faults = match options.small {
            Some(script) => script.map(fault::scripted).to_vec(),
            None => fault::draw(count, &mut Random::new(seed, 1)),
        };
        if character.is_calm {
            faults.clear();
        }
        if options.small.is_none() {
            let drains = fault::drains(count, &mut Random::new(seed, 3));
            // Without control frames paths are not set up.
            let is_wanted = |fault: &Fault| fault.kind == Kind::Drain || !character.is_calm;
            faults.extend(drains.into_iter().filter(is_wanted));
        }
        let nic_state = Nics::new(&mut random);
        let mut world = Self::bare(options, fabric, nic_state, random);
        world.nics.bus_delay = character.bus_delay.unwrap_or(world.nics.bus_delay);
        world.character = character;
        world.armed = vec![false; faults.len()];
        world.has_pauses = faults.iter().any(|fault| fault.kind == Kind::Paused);
        world.faults = faults;
        for index in 0..count {
            world.connect(index, nics);
        }
        world.arm_faults();
        world.queue.at(HEAL_AT, Event::Heal);
        world
    }

    /// A world without connections and faults.
    pub(crate) fn bare(options: Options, fabric: Fabric, nics: Nics, random: Random) -> Self {
        let hosts = fabric.nics.last().map_or(0, |nic| nic.host + 1);
        let host = Host {
            alive: true,
            paused: false,
            waiting: Vec::new(),
            leaving: None,
        };
        Self {
            seed: options.seed,
            character: Character::SMALL,
            trace: options.trace,
            bug: options.bug,
            is_small: options.small.is_some(),
            said: Vec::new(),
            handled: 0,
            window: None,
            queue: Queue::default(),
            nics,
            fabric,
            owners: Vec::with_capacity(64),
            control: Control::new(hosts),
            memory: Memory::default(),
            mailboxes: Vec::new(),
            slots: Vec::new(),
            eager: EagerCounts::default(),
            hosts: vec![host; hosts],
            connections: Vec::with_capacity(4),
            faults: Vec::new(),
            armed: Vec::new(),
            struck: 0,
            recoveries: 0,
            counts: Counts::default(),
            is_healed: false,
            has_pauses: false,
            alone_until: 0,
            coverage: Coverage::default(),
            violation: None,
            random,
        }
    }

    /// Lets everything happen.
    pub fn run(mut self) -> Outcome {
        self.run_on();
        self.count_lost();
        Outcome {
            violation: self.violation,
            coverage: self.coverage,
            events: self.queue.made(),
            recoveries: self.recoveries,
            struck: self.struck,
            took: self.queue.now(),
            messages: self.connections.iter().map(|one| one.received as u64).sum(),
            eager: self.eager,
        }
    }

    /// The same, for those who look at the world afterwards.
    pub(crate) fn run_on(&mut self) {
        while self.violation.is_none() && self.step() {}
        if self.violation.is_none() {
            self.check_the_end();
        }
    }

    /// The next event. False: there is none, or none is needed.
    pub(crate) fn step(&mut self) -> bool {
        let Some(event) = self.take_next(HEAL_AT + CONVERGENCE) else {
            return false;
        };
        if self.is_small {
            self.on_event();
        }
        self.handled += 1;
        let is_wake = matches!(event, Event::Wake(_));
        self.handle(event);
        if self.queue.made() > EVENTS_MAX {
            self.fail(Class::Liveness, format!("more than {EVENTS_MAX} events"));
        }
        !(is_wake && self.is_finished())
    }

    /// A rule is broken; the first counts.
    pub(crate) fn fail(&mut self, class: Class, text: String) {
        let at = self.queue.now();
        self.violation.get_or_insert(Violation { class, at, text });
    }

    /// Tells people who asked for it.
    pub(crate) fn say(&self, text: impl FnOnce() -> String) {
        if let Some(trace) = self.trace {
            trace(&format!("{:>14} {}", self.queue.now(), text()));
        }
    }

    pub(crate) fn handle(&mut self, event: Event) {
        if !matches!(
            event,
            Event::Nic(_) | Event::Wake(_) | Event::Poll(_) | Event::Copy(_)
        ) {
            self.say(|| format!("{event:?}"));
        }
        let Some(event) = self.defer(event) else {
            return;
        };
        match event {
            Event::Nic(event) => self.handle_nic(event),
            Event::Wake(end) => self.wake_now(end),
            Event::Frame(end, frame) => self.deliver(end, &frame),
            Event::Fence(end, path, generation) => self.try_fence(end, path, generation),
            Event::Created(end, path, generation) => self.created(end, path, generation),
            Event::Connected(end, path, generation) => self.connected(end, path, generation),
            Event::Probed(end, of, id) => self.probed(end, of, id, true),
            Event::Destroy(qp) => self.destroy(qp),
            Event::Poll(buffer) => {
                let now = self.queue.now();
                if let Err(text) = self.memory.poll_lines(now, buffer) {
                    self.fail(Class::Safety, text);
                }
            }
            Event::Copy(end) => self.copy(end),
            Event::Told(end, path, hint) => self.told(end, path, hint),
            Event::Hint { nic, hint } => self.hint(nic, hint),
            Event::Address(nic) => self.fabric.nics[nic].nameless = false,
            Event::PeerGone(end) => self.peer_gone(end),
            Event::Deregister(end) => self.deregister(end),
            Event::Goodbye { end, count, left } => self.say_goodbye(end, count, left),
            Event::Connect => self.connect_late(),
            Event::Strike(index) => self.strike(index),
            Event::Relent(index) => self.relent(index),
            Event::Flap {
                index,
                times,
                period,
                up,
            } => self.flap(index, times, period, up),
            Event::Heal => self.heal(),
        }
    }

    fn handle_nic(&mut self, event: NicEvent) {
        let memory = &self.memory;
        let mut around = Surroundings {
            fabric: &mut self.fabric,
            queue: &mut self.queue,
            random: &mut self.random,
        };
        let mut is_read = Ok(());
        let read = |at: u64, bytes: u64| {
            let (payload, result) = memory.read(at, bytes);
            is_read = result;
            payload
        };
        let reachable = |at: u64| memory.resolve(at).is_some();
        let effect = self.nics.handle(event, &mut around, read, reachable);
        if let Err(text) = is_read {
            self.fail(Class::Safety, text);
        }
        match effect {
            Effect::None => {}
            Effect::Wake(qp) => self.wake_owner(qp),
            Effect::Land(qp, at, payload) => {
                if let Err(text) = self.memory.land(self.queue.now(), at, payload) {
                    self.fail(Class::Safety, format!("{text} (queue pair {qp})"));
                }
                self.wake_owner(qp);
            }
            Effect::Mail(qp, offset, bytes, count) => {
                let mailbox = self.owners[qp].memory;
                self.mailboxes[mailbox].land(offset as usize, &bytes[..usize::from(count)]);
                self.wake_owner(qp);
            }
            Effect::Slot(packet) => self.land_eager(&packet),
            Effect::Mistaken(text) => self.fail(Class::Safety, text),
        }
    }

    /// Runs `act` with the NICs and what they need.
    pub(crate) fn with_nics<T>(
        &mut self,
        act: impl FnOnce(&mut Nics, &mut Surroundings<'_, Event>) -> T,
    ) -> T {
        let mut around = Surroundings {
            fabric: &mut self.fabric,
            queue: &mut self.queue,
            random: &mut self.random,
        };
        act(&mut self.nics, &mut around)
    }

    /// The owner of a queue pair will look at it soon.
    pub(crate) fn wake_owner(&mut self, qp: QpId) {
        let end = self.owners[qp].end;
        let delay = self.random.below(2 * MICROSECOND);
        self.wake_at(end, self.queue.now() + delay);
    }

    /// All ends on a host will look soon.
    pub(crate) fn wake_host(&mut self, host: usize) {
        for connection in 0..self.connections.len() {
            for side in [Side::Sender, Side::Receiver] {
                if self.connections[connection].host(side) == host {
                    let end = EndId { connection, side };
                    self.wake_at(end, self.queue.now());
                }
            }
        }
    }

    /// Counts a fault against the states of the paths of its victim.
    pub(crate) fn record(&mut self, kind: Kind, number: u64) {
        let end = self.victim_end(number);
        let connection = &self.connections[end.connection];
        for health in connection.healths(end.side) {
            self.coverage.record(kind, health);
        }
        let is_eager = connection
            .open_sends
            .iter()
            .any(|open| open.eager.is_some());
        self.coverage.record_eager(kind, is_eager);
    }

    fn heal(&mut self) {
        self.is_healed = true;
        let downs: Vec<NicId> = (0..self.fabric.nics.len())
            .filter(|&nic| !self.fabric.nics[nic].up || self.fabric.nics[nic].dead)
            .collect();
        self.fabric.heal();
        self.control.heal();
        for nic in downs {
            self.move_address(nic);
            self.hint(nic, Hint::LinkUp);
        }
        for host in 0..self.hosts.len() {
            self.pause(host, false);
        }
        for connection in &mut self.connections {
            connection.is_starved = false;
        }
        self.undrain_some();
    }

    /// Everything is done and every path is back.
    fn is_finished(&self) -> bool {
        let is_seen = self.queue.now() >= self.alone_until;
        is_seen && self.is_healed && self.connections.iter().all(Connection::is_finished)
    }

    fn check_the_end(&mut self) {
        self.check_calm();
        for index in 0..self.connections.len() {
            if let Some(text) = self.connections[index].unfinished() {
                self.fail(Class::Liveness, format!("connection {index}: {text}"));
            }
        }
    }
}
