//! The pattern that every checked message carries: a function of connection, message and offset.

/// Step from one 8-byte word to the next: odd and far from any small multiple of itself.
const STEP: u64 = 0x9e37_79b9_7f4a_7c15;

/// First word of message `message` on connection `link`. Every bit depends on both.
fn first_word(link: u64, message: u64) -> u64 {
    let mut word = (link << 48) ^ message.wrapping_mul(STEP) ^ STEP;
    // The finaliser of a 64-bit hash: two multiplications by odd constants with shifts between.
    word = (word ^ (word >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    word = (word ^ (word >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    word ^ (word >> 31)
}

/// Writes the pattern.
pub fn fill(link: u64, message: u64, bytes: &mut [u8]) {
    let mut word = first_word(link, message);
    let mut chunks = bytes.chunks_exact_mut(8);
    for chunk in &mut chunks {
        chunk.copy_from_slice(&word.to_le_bytes());
        word = word.wrapping_add(STEP);
    }
    let rest = chunks.into_remainder();
    let length = rest.len();
    rest.copy_from_slice(&word.to_le_bytes()[..length]);
}

/// Number of bytes that differ from the pattern.
pub fn wrong(link: u64, message: u64, bytes: &[u8]) -> u64 {
    let mut word = first_word(link, message);
    let mut differ = false;
    let chunks = bytes.chunks_exact(8);
    let rest = chunks.remainder();
    for chunk in chunks {
        differ |= *chunk != word.to_le_bytes();
        word = word.wrapping_add(STEP);
    }
    differ |= *rest != word.to_le_bytes()[..rest.len()];
    if differ {
        count(link, message, bytes)
    } else {
        0
    }
}

/// The slow way round, taken only when something is wrong.
#[cold]
fn count(link: u64, message: u64, bytes: &[u8]) -> u64 {
    let first = first_word(link, message);
    let differs = |(index, byte): &(usize, &u8)| {
        let word = first.wrapping_add(STEP.wrapping_mul((index / 8) as u64));
        word.to_le_bytes()[index % 8] != **byte
    };
    bytes.iter().enumerate().filter(differs).count() as u64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_changed_byte_is_counted() {
        for length in [0usize, 1, 7, 8, 9, 64, 127, 4097] {
            let mut bytes = vec![0u8; length];
            fill(3, 77, &mut bytes);
            assert_eq!(wrong(3, 77, &bytes), 0, "{length}");
            for at in [0, length / 2, length.saturating_sub(1)] {
                if let Some(byte) = bytes.get_mut(at) {
                    *byte ^= 0x10;
                    assert_eq!(wrong(3, 77, &bytes), 1, "{length}, byte {at}");
                    bytes[at] ^= 0x10;
                }
            }
        }
    }

    #[test]
    fn messages_connections_and_offsets_differ() {
        let mut bytes = vec![0u8; 4096];
        fill(1, 8, &mut bytes);
        assert!(wrong(1, 0, &bytes) > 4000);
        assert!(wrong(2, 8, &bytes) > 4000);
        assert!(wrong(1, 8, &bytes[8..]) > 4000);
        assert!(wrong(1, 8, &bytes[1..]) > 4000);
    }
}
