//! Copying small payloads to where a GPU or another core may be polling them (PROTOCOL R37).

use std::sync::atomic::{AtomicU8, AtomicU64, Ordering};

/// Copies `bytes` from `source` to `destination` in ascending order; every aligned 8-byte word of
/// the destination that lies wholly inside changes at once. Somebody may be watching the
/// destination while it changes: NCCL's LL protocol keeps a flag in each such word.
///
/// # Safety
/// Both ranges must be mapped and must not overlap, and the destination must be writable.
pub unsafe fn copy_words(destination: *mut u8, source: *const u8, bytes: usize) {
    let head = ((destination as usize).wrapping_neg() & 7).min(bytes);
    // SAFETY: `head` is at most `bytes`.
    unsafe { copy_bytes(destination, source, head) };
    let words = (bytes - head) / 8;
    for word in 0..words {
        let offset = head + word * 8;
        // SAFETY: the word lies inside both ranges, and `head` made the destination aligned. The
        // release order keeps the words ascending for observers on weakly ordered machines.
        unsafe {
            let value = source.add(offset).cast::<u64>().read_unaligned();
            AtomicU64::from_ptr(destination.add(offset).cast()).store(value, Ordering::Release);
        }
    }
    let done = head + words * 8;
    // SAFETY: what is left is inside both ranges.
    unsafe { copy_bytes(destination.add(done), source.add(done), bytes - done) };
}

/// # Safety
/// As [`copy_words`].
unsafe fn copy_bytes(destination: *mut u8, source: *const u8, bytes: usize) {
    for at in 0..bytes {
        // SAFETY: `at` lies inside both ranges.
        unsafe {
            AtomicU8::from_ptr(destination.add(at)).store(source.add(at).read(), Ordering::Release);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn copies_exactly_for_all_alignments_and_lengths() {
        let source: Vec<u8> = (0..64).map(|value| value as u8 + 1).collect();
        for to in 0..9 {
            for from in 0..9 {
                for bytes in 0..40 {
                    let mut destination = [0u8; 64];
                    // SAFETY: both ranges lie inside their buffers.
                    unsafe {
                        copy_words(
                            destination.as_mut_ptr().add(to),
                            source.as_ptr().add(from),
                            bytes,
                        );
                    }
                    assert_eq!(destination[to..to + bytes], source[from..from + bytes]);
                    assert!(destination[..to].iter().all(|byte| *byte == 0));
                    assert!(destination[to + bytes..].iter().all(|byte| *byte == 0));
                }
            }
        }
    }
}
