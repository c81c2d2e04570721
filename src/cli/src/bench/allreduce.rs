//! Ring all-reduce of 32-bit floats, in the messages that NCCL's ring with the Simple protocol
//! sends: pieces of at most 512 KiB through the slots, each channel working on its own part of the
//! vector, the sum formed by the CPU.
//!
//! A ring of N hosts cuts a channel's part into N chunks. In steps 0 to N-2 each host sends a chunk
//! on that it has just added its own share to (reduce-scatter), in steps N-1 to 2N-3 it passes the
//! finished chunks round (all-gather). Up to four pieces of a chunk are under way at once.

use super::host::{Host, RunError};
use super::link::{Flow, Layout, Receiver, Watch};
use super::message::{Go, Measured};

/// Largest message in bytes: NCCL's step of the Simple protocol.
const PIECE_MAX: usize = 512 << 10;
/// Smallest piece that a chunk is cut into, in bytes.
const PIECE_MIN: usize = 16 << 10;
/// Pieces of a chunk that are under way at once.
const BLOCK: usize = 4;
/// Bytes of an element.
const ELEMENT: usize = 4;

/// One message of the ring: which elements, in which step, and which received message it passes on.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Piece {
    step: usize,
    first: usize,
    count: usize,
    /// Host whose share starts the sum in this chunk.
    owner: usize,
    needs: Option<usize>,
}

/// What a host sends, or receives, for one all-reduce of `elements` elements on one channel.
/// `shift` is 0 for what host `me` sends and 1 for what it receives.
fn pieces(elements: usize, hosts: usize, me: usize, shift: usize) -> Vec<Piece> {
    let chunk = elements.div_ceil(hosts).next_multiple_of(32);
    let quarter = chunk.div_ceil(BLOCK).next_multiple_of(32);
    let piece = quarter.clamp(PIECE_MIN / ELEMENT, PIECE_MAX / ELEMENT);
    let per_chunk = chunk.div_ceil(piece).max(1);
    let steps = 2 * (hosts - 1);
    let mut all = Vec::with_capacity(per_chunk * steps);
    for block in (0..per_chunk).step_by(BLOCK) {
        let width = BLOCK.min(per_chunk - block);
        for step in 0..steps {
            // In step s host h sends chunk h - s, whose first summand is host h - s; in the
            // all-gather the chunks go round once more.
            let owner = (me + 3 * hosts - step - shift) % hosts;
            for at in block..block + width {
                let end = ((owner + 1) * chunk).min(elements);
                let first = (owner * chunk + at * piece).min(end);
                let count = piece.min(end - first).min(chunk.saturating_sub(at * piece));
                let needs = (step > 0).then(|| all.len() - width);
                all.push(Piece {
                    step,
                    first,
                    count,
                    owner,
                    needs,
                });
            }
        }
    }
    all
}

/// A channel's part of the vector.
struct Part {
    hosts: usize,
    me: usize,
    iteration: u64,
    input: Vec<f32>,
    output: Vec<f32>,
    sends: Vec<Piece>,
    receives: Vec<Piece>,
}

/// What elements hold, from element `first` on, that are the sum over `hosts` of their shares.
/// Shares are small whole numbers, so that sums are exact in any order, and differ between hosts,
/// neighbouring elements and all-reduces.
fn sums(hosts: &[usize], first: usize, iteration: u64) -> impl Iterator<Item = f32> + use<> {
    /// Elements after which shares repeat: a prime, so that no piece begins like another.
    const PERIOD: u64 = 1021;
    let own: usize = hosts.iter().map(|host| 3 * host).sum();
    let (own, times) = (own as f32, hosts.len() as f32);
    let mut base = ((first as u64 + 7 * iteration) % PERIOD) as f32;
    std::iter::repeat_with(move || {
        let value = times * base + own;
        base = if base + 1.0 < PERIOD as f32 {
            base + 1.0
        } else {
            0.0
        };
        value
    })
}

impl Part {
    fn new(elements: usize, host: &Host) -> Self {
        let (hosts, me) = (host.plan.hosts, host.plan.host);
        let mut part = Part {
            hosts,
            me,
            iteration: 0,
            input: vec![0.0; elements],
            output: vec![0.0; elements],
            sends: pieces(elements, hosts, me, 0),
            receives: pieces(elements, hosts, me, 1),
        };
        part.refill();
        part
    }

    /// Sets the input of the current all-reduce, and spoils the output.
    fn refill(&mut self) {
        let shares = sums(&[self.me], 0, self.iteration);
        self.input
            .iter_mut()
            .zip(shares)
            .for_each(|(value, share)| *value = share);
        self.output.fill(-1.0);
    }

    fn messages(&self) -> u64 {
        self.sends.len() as u64
    }

    fn at(pieces: &[Piece], message: u64) -> (Piece, u64) {
        let count = pieces.len() as u64;
        (pieces[(message % count) as usize], message / count)
    }

    /// Hosts whose shares a received piece holds.
    fn summands(&self, piece: &Piece) -> Vec<usize> {
        let count = (piece.step + 1).min(self.hosts);
        (0..count).map(|i| (piece.owner + i) % self.hosts).collect()
    }

    /// Elements of the output that are not the sum over all hosts, in bytes.
    fn wrong_output(&self) -> u64 {
        let all: Vec<usize> = (0..self.hosts).collect();
        let expected = sums(&all, 0, self.iteration);
        let differs = |(value, sum): &(&f32, f32)| value.to_bits() != sum.to_bits();
        self.output.iter().zip(expected).filter(differs).count() as u64 * ELEMENT as u64
    }
}

/// What a channel sends.
struct Sends<'a>(&'a mut Part);
/// What a channel receives.
struct Receives<'a>(&'a mut Part);

impl Flow for Sends<'_> {
    fn size(&self, message: u64) -> usize {
        Part::at(&self.0.sends, message).0.count * ELEMENT
    }

    fn fill(&mut self, message: u64, slot: &mut [u8]) {
        let (piece, _) = Part::at(&self.0.sends, message);
        let source = if piece.step == 0 {
            &self.0.input
        } else {
            &self.0.output
        };
        let values = &source[piece.first..piece.first + piece.count];
        for (bytes, value) in slot.chunks_exact_mut(ELEMENT).zip(values) {
            bytes.copy_from_slice(&value.to_le_bytes());
        }
    }

    fn verify(&self, _message: u64, _bytes: &[u8]) -> u64 {
        0
    }

    fn take(&mut self, _message: u64, _bytes: &[u8]) {}
}

/// Reads a little-endian element.
fn element(bytes: &[u8]) -> f32 {
    f32::from_le_bytes([bytes[0], bytes[1], bytes[2], bytes[3]])
}

impl Flow for Receives<'_> {
    fn size(&self, message: u64) -> usize {
        Part::at(&self.0.receives, message).0.count * ELEMENT
    }

    fn fill(&mut self, _message: u64, _slot: &mut [u8]) {}

    fn verify(&self, message: u64, bytes: &[u8]) -> u64 {
        let (piece, iteration) = Part::at(&self.0.receives, message);
        let expected = sums(&self.0.summands(&piece), piece.first, iteration);
        let elements = bytes.chunks_exact(ELEMENT).map(element);
        let wrong = elements
            .zip(expected)
            .filter(|(value, sum)| value.to_bits() != sum.to_bits());
        wrong.count() as u64 * ELEMENT as u64
    }

    fn take(&mut self, message: u64, bytes: &[u8]) {
        let (piece, _) = Part::at(&self.0.receives, message);
        let range = piece.first..piece.first + piece.count;
        let elements = bytes.chunks_exact(ELEMENT).map(element);
        let output = self.0.output[range.clone()].iter_mut();
        if piece.step + 1 < self.0.hosts {
            let own = &self.0.input[range];
            output
                .zip(own)
                .zip(elements)
                .for_each(|((out, own), value)| *out = own + value);
        } else {
            output.zip(elements).for_each(|(out, value)| *out = value);
        }
    }
}

/// Messages that may be sent by now: everything whose input has been received.
fn sendable(part: &Part, start: u64, sent: u64, received: u64) -> u64 {
    let mut limit = sent;
    while let Some(piece) = part.sends.get((limit - start) as usize) {
        if piece
            .needs
            .is_some_and(|needed| received <= start + needed as u64)
        {
            break;
        }
        limit += 1;
    }
    limit
}

/// `count` all-reduces one after the other, in lockstep only as far as the ring demands it.
pub fn run(host: &mut Host, go: &Go) -> Result<Measured, RunError> {
    let elements = usize::try_from(go.size).unwrap_or(usize::MAX) / ELEMENT;
    let per_channel = elements.div_ceil(host.plan.channels);
    let mut parts = Vec::new();
    for channel in 0..host.plan.channels {
        let rest = elements.saturating_sub(channel * per_channel);
        parts.push(Part::new(rest.min(per_channel), host));
    }
    let largest = parts
        .iter()
        .flat_map(|part| &part.sends)
        .map(|piece| piece.count)
        .max();
    let room = largest.unwrap_or(0) * ELEMENT;
    let (window, offset, check) = (host.plan.window, host.plan.offset, host.plan.check);
    host.prepare(&Layout::new(
        room,
        window.max(8 * PIECE_MAX as u64),
        offset,
        check,
    ))?;
    let mut watch = host.begin()?;
    let mut wrong_output = 0;
    for iteration in 0..go.count {
        if check && iteration > 0 {
            for part in &mut parts {
                part.iteration = iteration;
                part.refill();
            }
        }
        once(host, &mut parts, iteration, &mut watch)?;
        if check {
            wrong_output += parts.iter().map(Part::wrong_output).sum::<u64>();
        }
    }
    drain(host, &mut parts, &mut watch)?;
    Ok(finish(host, &mut parts, &watch, wrong_output))
}

/// One all-reduce: ends when this host has received everything of it.
fn once(
    host: &mut Host,
    parts: &mut [Part],
    iteration: u64,
    watch: &mut Watch,
) -> Result<(), RunError> {
    loop {
        let (mut moved, mut complete) = (false, true);
        let ends = host
            .senders
            .iter_mut()
            .zip(&mut host.receivers)
            .zip(parts.iter_mut());
        for ((sender, receiver), part) in ends {
            let start = iteration * part.messages();
            let end = start + part.messages();
            let limit = sendable(part, start, sender.state().0.max(start), receiver.done());
            moved |= sender.step(&host.net, limit, &mut Sends(part))?;
            moved |= receiver.step(&host.net, end, &mut Receives(part))?;
            complete &= receiver.done() == end && sender.state().0 == end;
        }
        if complete {
            return Ok(());
        }
        host.turn(watch, moved)?;
    }
}

/// Waits until the last sends are done.
fn drain(host: &mut Host, parts: &mut [Part], watch: &mut Watch) -> Result<(), RunError> {
    while host.senders.iter().any(|sender| sender.in_flight() > 0) {
        let mut moved = false;
        for (sender, part) in host.senders.iter_mut().zip(parts.iter_mut()) {
            moved |= sender.step(&host.net, 0, &mut Sends(part))?;
        }
        host.turn(watch, moved)?;
    }
    Ok(())
}

fn finish(host: &mut Host, parts: &mut [Part], watch: &Watch, wrong_output: u64) -> Measured {
    let nanoseconds = watch.nanoseconds();
    let mut measured = Measured {
        nanoseconds,
        gap_ns: watch.gap_ns,
        ..host.sums()
    };
    measured.messages = host.receivers.iter().map(Receiver::done).sum();
    for (receiver, part) in host.receivers.iter_mut().zip(parts) {
        receiver.look_again(&Receives(part));
        measured.faults.add(&receiver.faults);
    }
    measured.faults.wrong_bytes += wrong_output;
    measured
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What host h receives is what host h - 1 sends, message by message.
    #[test]
    fn both_ends_agree() {
        for hosts in [2, 3, 5] {
            for elements in [0, 1, 31, 1000, 1 << 20] {
                for me in 0..hosts {
                    let sends = pieces(elements, hosts, (me + hosts - 1) % hosts, 0);
                    assert_eq!(
                        pieces(elements, hosts, me, 1),
                        sends,
                        "{hosts} {elements} {me}"
                    );
                }
            }
        }
    }

    /// A message is sent on only after the piece that it contains has come in, and each host ends
    /// up with every element.
    #[test]
    fn pieces_follow_each_other_and_cover_the_vector() {
        for hosts in [2, 3, 4] {
            let elements = 300_001;
            let (sends, receives) = (pieces(elements, hosts, 1, 0), pieces(elements, hosts, 1, 1));
            let mut seen = vec![0u8; elements];
            for (index, piece) in sends.iter().enumerate() {
                if let Some(needed) = piece.needs {
                    assert!(needed < index);
                    let before = receives[needed];
                    assert_eq!((before.first, before.count), (piece.first, piece.count));
                    assert_eq!(before.step + 1, piece.step);
                }
            }
            // The chunk that is finished here, and then the others from the all-gather.
            for piece in receives.iter().filter(|piece| piece.step + 2 >= hosts) {
                let range = piece.first..piece.first + piece.count;
                seen[range].iter_mut().for_each(|times| *times += 1);
            }
            assert!(seen.iter().all(|&times| times == 1), "{hosts}");
        }
    }
}
