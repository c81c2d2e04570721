//! The memory of the receiver's in which messages land that come ahead of their credit.

use r2ccl_core::EagerWrite;
use r2ccl_core::limits::{EAGER_BYTES_MAX, EAGER_HEAD_BYTES, EAGER_SLOTS};
use r2ccl_core::wire::eager::{EAGER_SLOT_BYTES, eager_padded};

/// The slots of one generation of a path.
pub type Slots = [Slot; EAGER_SLOTS];

/// One slot.
pub struct Slot(Vec<u8>);

impl Default for Slot {
    fn default() -> Self {
        Self(vec![0; EAGER_SLOT_BYTES])
    }
}

impl Slot {
    pub fn land(&mut self, write: &EagerWrite, payload: &[u8]) {
        assert_eq!(payload.len(), write.bytes as usize);
        let start = EAGER_BYTES_MAX - eager_padded(write.bytes);
        self.0[start..start + payload.len()].copy_from_slice(payload);
        self.0[EAGER_BYTES_MAX..].copy_from_slice(&write.head);
    }

    pub fn head(&self) -> &[u8; EAGER_HEAD_BYTES] {
        self.0[EAGER_BYTES_MAX..].try_into().expect("the size")
    }

    /// The payload of a message that had `bytes`.
    pub fn payload(&self, bytes: u32) -> &[u8] {
        let start = EAGER_BYTES_MAX - eager_padded(bytes);
        &self.0[start..start + bytes as usize]
    }
}
