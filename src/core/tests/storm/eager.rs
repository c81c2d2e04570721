//! Users that are ahead of each other, and sends that go ahead of their credit.

use super::World;
use r2ccl_core::{ReceiveBuffer, RegionId};

impl World {
    pub(super) fn draw_sizes(&mut self) {
        for _ in 0..self.plan.messages {
            let bytes = match self.random.below(8) {
                0 => self.random.below(self.plan.bytes_max + 1),
                _ => self.random.below(300),
            };
            self.sizes.push(bytes);
        }
    }

    /// Opens a message.
    pub(super) fn open_message(&mut self) {
        let now = self.at();
        let seq = self.buffers.opened();
        if self.random.once_in(100) {
            self.lead = [0, 1, 4, 256][self.random.below(4)];
        }
        let is_ahead = seq - self.receiver.half().delivered() > self.lead;
        if seq == self.plan.messages || is_ahead || !self.random.once_in(2) {
            return;
        }
        let bytes = self.sizes[seq as usize];
        let buffer = ReceiveBuffer {
            region: RegionId(1),
            address: (seq + 1) << 32,
            capacity: bytes as u64,
            tag: 0,
        };
        let receiver = self.receiver.half_mut();
        if receiver.post_recv(now, &[buffer]).expect("legal").is_some() {
            self.buffers.open(bytes);
            self.copy_eager();
        }
    }

    /// Submits a message, whether its receive is there or not.
    pub(super) fn submit_message(&mut self) {
        let now = self.at();
        if self.submitted == self.plan.messages {
            return;
        }
        let nth = self.submitted;
        let bytes = self.sizes[nth as usize] as u64;
        let local = (RegionId(0), (nth + 1) << 32);
        let sender = self.sender.half_mut();
        if let Some(seq) = sender.submit_send(now, local, bytes, 0).expect("legal") {
            assert_eq!(seq.0, nth, "PROTOCOL R7: in the order of the tag");
            self.submitted += 1;
            return;
        }
        let write = sender.submit_eager(now, local, bytes, 0).expect("legal");
        if let Some(write) = write {
            assert!(self.eager.is_none(), "PROTOCOL R40: one at a time");
            self.wire.post_eager(write, nth);
            self.eager = Some(nth);
            self.submitted += 1;
        }
        self.sender.request_credits(now);
    }

    /// The receiver looks at slots, those of the past included; the sender, which message it is.
    pub(super) fn read_slots(&mut self) {
        if let Some(seq) = self.sender.half().eager_seq() {
            assert_eq!(Some(seq.0), self.eager, "PROTOCOL R41");
        } else if self.sender.half().is_busy() && self.eager.is_some() {
            let now = self.at();
            self.sender.request_credits(now);
        }
        if self.random.once_in(2) {
            return;
        }
        for pair in &self.wire.pairs {
            let Some((write, _)) = &pair.slot else {
                continue;
            };
            let half = self.receiver.half_mut();
            let taken = half.handle_eager(pair.path, pair.generation, &write.head);
            if taken.expect("legal") {
                break;
            }
        }
        self.copy_eager();
    }

    fn copy_eager(&mut self) {
        let half = self.receiver.half_mut();
        let Some(copy) = half.poll_eager().expect("legal") else {
            return;
        };
        let generation = half.generation(copy.path);
        let pairs = self.wire.pairs.iter();
        let pair = pairs
            .rev()
            .find(|pair| (pair.path, Some(pair.generation)) == (copy.path, generation));
        let (_, nth) = pair.and_then(|pair| pair.slot).expect("it lies there");
        self.buffers.copy(&copy, nth);
    }
}
