//! A place in the memory of a generation where the peer leaves its latest mail (see
//! [`super::control::MAIL_BYTES_MAX`]), and one where ours is written from.
//!
//! The head says which mail it is and holds a checksum: a mail counts when all of it has landed, in
//! whatever order, and one that is replaced while it is read does not.

use std::sync::atomic::Ordering;

use r2ccl_fabric::WriteSource;

use super::control::MAIL_BYTES_MAX;
use super::words::Words;
use crate::config::first_eight_bytes;

/// Checksum, number of the mail, bytes of the mail: a word each.
const HEAD_BYTES: usize = 24;
/// Bytes of a place, whole cache lines. The peer writes to the first one of a generation's memory.
const PLACE_BYTES: usize = (HEAD_BYTES + MAIL_BYTES_MAX).next_multiple_of(64);
/// Bytes of both places, at the beginning of that memory.
pub const MAILBOX_BYTES: usize = 2 * PLACE_BYTES;

/// The mail that has come, with its number, unless it is that numbered `seen`. One load while
/// nothing has come.
pub fn read(words: &Words, seen: u64) -> Option<(u64, Vec<u8>)> {
    let word = |index: usize| words.word(index).load(Ordering::Acquire);
    let number = u64::from_le(word(1));
    if number == seen {
        return None;
    }
    let len = usize::try_from(u64::from_le(word(2))).ok();
    let len = len.filter(|len| *len <= MAIL_BYTES_MAX)?;
    let rest = HEAD_BYTES / 8..(HEAD_BYTES + len).div_ceil(8);
    let mut mail: Vec<u8> = rest.flat_map(|index| word(index).to_ne_bytes()).collect();
    mail.truncate(len);
    (checksum(number, &mail) == u64::from_le(word(0))).then_some((number, mail))
}

/// Puts a mail where it is written from, and tells the source of the write.
///
/// # Safety
/// No device may read the mail before.
pub unsafe fn stage(words: &Words, number: u64, mail: &[u8]) -> WriteSource {
    let mail = &mail[..mail.len().min(MAIL_BYTES_MAX)];
    let mut bytes = Vec::with_capacity(HEAD_BYTES + mail.len());
    bytes.extend(checksum(number, mail).to_le_bytes());
    bytes.extend(number.to_le_bytes());
    bytes.extend((mail.len() as u64).to_le_bytes());
    bytes.extend(mail);
    bytes.resize(bytes.len().next_multiple_of(8), 0);
    let place = words.at(PLACE_BYTES);
    // SAFETY: a place is that long, both lie inside the block, and the caller vouches that nobody
    // reads this one.
    unsafe { place.copy_from_nonoverlapping(bytes.as_ptr(), bytes.len()) };
    WriteSource::Registered {
        address: place as u64,
        len: bytes.len() as u32,
        lkey: words.registration().lkey,
    }
}

fn checksum(number: u64, mail: &[u8]) -> u64 {
    let mut hasher = blake3::Hasher::new();
    hasher.update(&number.to_le_bytes()).update(mail);
    first_eight_bytes(&hasher.finalize())
}
