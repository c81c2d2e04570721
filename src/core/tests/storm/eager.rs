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
            self.copy_eagers();
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
            let before = self.eager[write.slot].replace(nth);
            assert_eq!(before, None, "PROTOCOL R40: its slot is free");
            self.wire.post_eager(write, nth);
            self.submitted += 1;
        }
        self.sender.request_credits(now);
    }

    /// The receiver looks at slots, those of the past included; the sender, which message it is.
    pub(super) fn read_slots(&mut self) {
        let now = self.at();
        for (slot, nth) in self.eager.iter().enumerate() {
            if let Some(seq) = self.sender.half().eager_seq(slot) {
                assert_eq!(Some(seq.0), *nth, "PROTOCOL R41");
            } else if nth.is_some() {
                self.sender.request_credits(now);
            }
        }
        if self.random.once_in(2) {
            return;
        }
        for pair in &self.wire.pairs {
            let half = self.receiver.half_mut();
            while let Some(slot) = half.eager_slot(pair.path) {
                let Some((write, _)) = &pair.slots[slot] else {
                    break;
                };
                let taken = half.handle_eager(pair.path, pair.generation, &write.head);
                if !taken.expect("legal") {
                    break;
                }
            }
        }
        self.copy_eagers();
    }

    fn copy_eagers(&mut self) {
        let half = self.receiver.half_mut();
        while let Some(copy) = half.poll_eager() {
            let generation = half.generation(copy.path);
            let pairs = self.wire.pairs.iter();
            let pair = pairs
                .rev()
                .find(|pair| (pair.path, Some(pair.generation)) == (copy.path, generation));
            let lying = pair.and_then(|pair| pair.slots[copy.slot]);
            let (_, nth) = lying.expect("it lies there");
            self.buffers.copy(&copy, nth);
        }
    }
}
