//! Every capacity of the protocol, with the relations between them asserted at compile time.

/// Messages that may be open on a connection at a time: 32 requests of [`GROUP_MAX`] receives.
pub const WINDOW: usize = 256;

/// Receives that one grouped request may hold (NCCL's `maxRecvs`).
pub const GROUP_MAX: usize = 8;

/// Bits of a message's number in an immediate.
pub const IMMEDIATE_SEQ_BITS: u32 = 10;

/// Bits of a segment's index, and of the count minus one, in an immediate.
pub const IMMEDIATE_SEGMENT_BITS: u32 = 6;

/// Bits of a generation in an immediate and in a credit line.
pub const IMMEDIATE_GENERATION_BITS: u32 = 10;

/// Segments of one message at the most.
pub const SEGMENTS_MAX: usize = 64;

/// Bytes of one segment at the most; a device with a smaller limit lowers it per connection.
pub const SEGMENT_BYTES_MAX: u32 = 16 << 20;

/// Cuts inside a message lie at multiples of this: one line of NCCL's LL128.
pub const SEGMENT_ALIGN: u32 = 128;

/// Smallest share of a message that is worth a path of its own, in bytes.
pub const STRIPE_BYTES_MIN: u32 = 64 << 10;

/// Bytes of one message at the most (NCCL's `maxP2pBytes`).
pub const MESSAGE_BYTES_MAX: u32 = 1 << 30;

/// Bytes of a credit line.
pub const CREDIT_BYTES: usize = 32;

/// Bytes of the credit ring of one generation: one line for each slot of the window.
pub const CREDIT_RING_BYTES: usize = WINDOW * CREDIT_BYTES;

/// Credit lines that travel in one write: together they fit the inline limit of 64 bytes.
pub const CREDIT_LINES_MAX: usize = 2;

/// Bytes of a counter word.
pub const COUNTER_BYTES: usize = 8;

/// Bytes of the largest send that may go ahead of its credit: what NCCL's LL protocol needs for a
/// few hundred elements, and little enough to be copied.
pub const EAGER_BYTES_MAX: usize = 2048;

/// Sends that may be ahead of their credits at a time: `NCCL_STEPS`, the depth of NCCL's queue.
pub const EAGER_SLOTS: usize = 8;

/// Bytes of the head that follows an eager payload in the slot.
pub const EAGER_HEAD_BYTES: usize = 32;

/// Paths of one connection at the most, standby ones included.
pub const PATHS_MAX: usize = 16;

/// Paths that one route spreads over at the most.
pub const SHARES_MAX: usize = 8;

/// Largest weight in a route; keeps products with [`MESSAGE_BYTES_MAX`] inside 64 bits.
pub const WEIGHT_MAX: u32 = 1 << 20;

/// Work requests outstanding on the send queue of one queue pair at the most.
pub const SEND_DEPTH: u32 = 256;

/// Every so many-th work request of a queue pair is signalled, so that a full queue always holds
/// one whose completion frees a part of it.
pub const SIGNAL_EVERY: u32 = 32;

/// Receives to keep posted on a queue pair that takes segments: one full send queue of the peer,
/// and as many again while completions are being taken in batches.
pub const RECEIVE_DEPTH: u32 = 2 * SEND_DEPTH;

// PROTOCOL R3: the window stays below half of the numbers an immediate can tell apart.
const _: () = assert!(WINDOW < 1 << (IMMEDIATE_SEQ_BITS - 1));
const _: () = assert!(2 * IMMEDIATE_SEGMENT_BITS + IMMEDIATE_SEQ_BITS == 22);
const _: () = assert!(22 + IMMEDIATE_GENERATION_BITS == u32::BITS);
const _: () = assert!(WINDOW.is_power_of_two() && WINDOW == 32 * GROUP_MAX);
// A segment's index fits its bits, and the bitmap of a message fits 64 of them.
const _: () = assert!(SEGMENTS_MAX == 1 << IMMEDIATE_SEGMENT_BITS);
const _: () = assert!(SEGMENTS_MAX == u64::BITS as usize);
const _: () = assert!(SEGMENTS_MAX as u32 * (SEGMENT_BYTES_MAX / 2) == MESSAGE_BYTES_MAX / 2);
const _: () = assert!(SEGMENT_BYTES_MAX % SEGMENT_ALIGN == 0);
const _: () = assert!(STRIPE_BYTES_MIN % SEGMENT_ALIGN == 0);
const _: () = assert!(STRIPE_BYTES_MIN <= SEGMENT_BYTES_MAX);
const _: () = assert!(CREDIT_LINES_MAX * CREDIT_BYTES == 64);
const _: () = assert!(EAGER_BYTES_MAX % 8 == 0 && EAGER_BYTES_MAX < STRIPE_BYTES_MIN as usize);
const _: () = assert!(SHARES_MAX <= PATHS_MAX && SHARES_MAX < SEGMENTS_MAX);
// Products of a cut: bytes times the sum of all weights.
const _: () = assert!(
    (MESSAGE_BYTES_MAX as u64)
        .checked_mul(WEIGHT_MAX as u64 * 8)
        .is_some()
);
// A full send queue holds several signalled work requests.
const _: () = assert!(SEND_DEPTH % SIGNAL_EVERY == 0 && SEND_DEPTH >= 2 * SIGNAL_EVERY);
