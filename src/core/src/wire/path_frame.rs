//! Frames by which two ends of a connection end and re-create generations of a path.
//!
//! They may be lost, doubled, reordered and late: each says something that stays true, and who
//! needs an answer asks again. They may travel on the control connection and on queue pairs of
//! healthy NICs at the same time.
//!
//! Body, little endian: path u8, generation u32, then what the kind needs; see
//! [`PathFrame::encode`].

use core::ops::RangeInclusive;

use super::bytes::Reader;
use crate::ids::{Generation, PathId, Seq};
use crate::limits::WINDOW;
use crate::recovery::{Answer, EagerReport};

/// Bytes of a queue pair's address, opaque to everybody but the device.
pub const QUEUE_PAIR_ADDRESS_BYTES: usize = 64;
/// Bytes of the largest encoded [`PathFrame`]: a full answer.
pub const PATH_FRAME_BYTES_MAX: usize = 5 + 1 + 8 + 1 + 8 + 2 + 8 * WINDOW;

const FENCE: u8 = 32;
const ANSWER: u8 = 33;
const OFFER: u8 = 34;
const ACCEPT: u8 = 35;
const READY: u8 = 36;
const KNOCK: u8 = 37;
const RESEND: u8 = 38;
const GOODBYE: u8 = 39;
const DRAIN: u8 = 40;
const DRAINED: u8 = 41;
/// Kinds of these frames on the wire.
pub(super) const PATH_FRAME_KINDS: RangeInclusive<u8> = FENCE..=DRAINED;

/// One end of a generation, for the other end to connect to. The core only carries it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Endpoint {
    /// Address of the queue pair.
    pub queue_pair: [u8; QUEUE_PAIR_ADDRESS_BYTES],
    /// Address of the memory of this generation that the other end writes to: credit ring and
    /// counter word from the sender, the eager slot from the receiver.
    pub memory_address: u64,
    /// Its remote key.
    pub memory_rkey: u32,
}

/// What one end tells the other about a path. A generation is one attempt: each attempt to
/// re-create a path has a new number, so that late words about an older one are told apart.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[expect(
    clippy::large_enum_variant,
    reason = "no allocation; frames are rare and short-lived"
)]
pub enum PathFrame {
    /// The generation is over at this end, for good. From the sender it also asks for the
    /// receiver's [`Answer`].
    Fence {
        /// The path.
        path: PathId,
        /// The generation.
        generation: Generation,
    },
    /// The receiver's answer.
    Answer(Answer),
    /// The sender proposes a new generation.
    Offer {
        /// The path.
        path: PathId,
        /// The new generation.
        generation: Generation,
        /// The sender's end.
        endpoint: Endpoint,
    },
    /// The receiver agrees.
    Accept {
        /// The path.
        path: PathId,
        /// The generation of the offer.
        generation: Generation,
        /// The receiver's end.
        endpoint: Endpoint,
    },
    /// This end is connected to the other end's queue pair and ready to receive on it.
    Ready {
        /// The path.
        path: PathId,
        /// The generation.
        generation: Generation,
        /// This end's own probes on this queue pair have passed for the hold-down.
        is_proved: bool,
        /// This end has the path in service: it needs no reply.
        is_active: bool,
    },
    /// This end has a reason to believe that the path works again: try now.
    Knock {
        /// The path.
        path: PathId,
    },
    /// The sender lacks credits: the receiver writes them and its counter again.
    Resend,
    /// The receiver closes, or the sender does.
    Goodbye {
        /// Messages delivered (from the receiver) or submitted (from the sender).
        count: u64,
    },
    /// This end has been told to keep off the path, or that it may use it again.
    Drain {
        /// The path.
        path: PathId,
        /// Counts these words about the path; the path is drained while it is odd.
        serial: u32,
    },
    /// The answer to [`PathFrame::Drain`]: this end has heard it, and has nothing under way there
    /// any more if the path is drained.
    Drained {
        /// The path.
        path: PathId,
        /// Which of the words it answers.
        serial: u32,
    },
}

/// Appends to a buffer that is large enough by construction.
struct Writer<'a> {
    bytes: &'a mut [u8; PATH_FRAME_BYTES_MAX],
    len: usize,
}

impl Writer<'_> {
    fn put(&mut self, bytes: &[u8]) {
        self.bytes[self.len..self.len + bytes.len()].copy_from_slice(bytes);
        self.len += bytes.len();
    }

    fn path(&mut self, path: PathId, generation: Generation) {
        // Below PATHS_MAX.
        self.put(&[path.index() as u8]);
        self.put(&generation.0.to_le_bytes());
    }

    fn endpoint(&mut self, endpoint: &Endpoint) {
        self.put(&endpoint.queue_pair);
        self.put(&endpoint.memory_address.to_le_bytes());
        self.put(&endpoint.memory_rkey.to_le_bytes());
    }

    fn answer(&mut self, answer: &Answer) {
        let count = usize::from(answer.count).min(WINDOW);
        self.path(answer.path, answer.generation);
        self.put(&[u8::from(answer.is_fenced)]);
        self.put(&answer.eager.seen.to_le_bytes());
        self.put(&[answer.eager.matched]);
        self.put(&answer.first.0.to_le_bytes());
        self.put(&(count as u16).to_le_bytes());
        for bits in &answer.arrived[..count] {
            self.put(&bits.to_le_bytes());
        }
    }
}

impl PathFrame {
    /// Kind on the wire; apart from those of [`super::frame::Frame`].
    pub const fn kind(&self) -> u8 {
        match self {
            Self::Fence { .. } => FENCE,
            Self::Answer(_) => ANSWER,
            Self::Offer { .. } => OFFER,
            Self::Accept { .. } => ACCEPT,
            Self::Ready { .. } => READY,
            Self::Knock { .. } => KNOCK,
            Self::Resend => RESEND,
            Self::Goodbye { .. } => GOODBYE,
            Self::Drain { .. } => DRAIN,
            Self::Drained { .. } => DRAINED,
        }
    }

    /// Writes the body and returns its bytes. Flags are bytes of 0 or 1; an answer is followed by
    /// its eager report u64 and u8, its first message u64, its count u16 and one u64 for each; an
    /// endpoint is address, ring address u64, key u32.
    pub fn encode(&self, out: &mut [u8; PATH_FRAME_BYTES_MAX]) -> usize {
        let mut writer = Writer { bytes: out, len: 0 };
        match self {
            Self::Fence { path, generation } => writer.path(*path, *generation),
            Self::Answer(answer) => writer.answer(answer),
            Self::Offer {
                path,
                generation,
                endpoint,
            }
            | Self::Accept {
                path,
                generation,
                endpoint,
            } => {
                writer.path(*path, *generation);
                writer.endpoint(endpoint);
            }
            Self::Ready {
                path,
                generation,
                is_proved,
                is_active,
            } => {
                writer.path(*path, *generation);
                writer.put(&[u8::from(*is_proved), u8::from(*is_active)]);
            }
            Self::Knock { path } => writer.put(&[path.index() as u8]),
            Self::Resend => {}
            Self::Goodbye { count } => writer.put(&count.to_le_bytes()),
            Self::Drain { path, serial } | Self::Drained { path, serial } => {
                writer.put(&[path.index() as u8]);
                writer.put(&serial.to_le_bytes());
            }
        }
        writer.len
    }

    /// Reads a body; `None` unless every byte of it belongs to a frame of this kind.
    pub fn decode(kind: u8, body: &[u8]) -> Option<Self> {
        let mut reader = Reader::new(body);
        let frame = match kind {
            FENCE => {
                let (path, generation) = read_path(&mut reader)?;
                Self::Fence { path, generation }
            }
            ANSWER => Self::Answer(read_answer(&mut reader)?),
            OFFER | ACCEPT => {
                let (path, generation) = read_path(&mut reader)?;
                let endpoint = read_endpoint(&mut reader)?;
                if kind == OFFER {
                    Self::Offer {
                        path,
                        generation,
                        endpoint,
                    }
                } else {
                    Self::Accept {
                        path,
                        generation,
                        endpoint,
                    }
                }
            }
            READY => {
                let (path, generation) = read_path(&mut reader)?;
                Self::Ready {
                    path,
                    generation,
                    is_proved: read_flag(&mut reader)?,
                    is_active: read_flag(&mut reader)?,
                }
            }
            KNOCK => Self::Knock {
                path: PathId::new(reader.u8()?)?,
            },
            RESEND => Self::Resend,
            GOODBYE => Self::Goodbye {
                count: reader.u64()?,
            },
            DRAIN | DRAINED => {
                let path = PathId::new(reader.u8()?)?;
                let serial = reader.u32()?;
                match kind {
                    DRAIN => Self::Drain { path, serial },
                    _ => Self::Drained { path, serial },
                }
            }
            _ => return None,
        };
        reader.is_at_end().then_some(frame)
    }
}

fn read_path(reader: &mut Reader<'_>) -> Option<(PathId, Generation)> {
    Some((PathId::new(reader.u8()?)?, Generation(reader.u32()?)))
}

fn read_flag(reader: &mut Reader<'_>) -> Option<bool> {
    match reader.u8()? {
        0 => Some(false),
        1 => Some(true),
        _ => None,
    }
}

fn read_endpoint(reader: &mut Reader<'_>) -> Option<Endpoint> {
    Some(Endpoint {
        queue_pair: reader.array()?,
        memory_address: reader.u64()?,
        memory_rkey: reader.u32()?,
    })
}

fn read_answer(reader: &mut Reader<'_>) -> Option<Answer> {
    let (path, generation) = read_path(reader)?;
    let is_fenced = read_flag(reader)?;
    let eager = EagerReport {
        seen: reader.u64()?,
        matched: reader.u8()?,
    };
    let first = Seq(reader.u64()?);
    let count = reader.u16()?;
    let mut arrived = [0; WINDOW];
    for bits in arrived.get_mut(..usize::from(count))? {
        *bits = reader.u64()?;
    }
    Some(Answer {
        path,
        generation,
        is_fenced,
        eager,
        first,
        count,
        arrived,
    })
}

#[cfg(test)]
mod tests {
    use super::{Endpoint, PATH_FRAME_BYTES_MAX, PathFrame};
    use crate::ids::{Generation, PathId, Seq};
    use crate::limits::WINDOW;
    use crate::recovery::{Answer, EagerReport};
    use proptest::prelude::*;

    fn frame() -> impl Strategy<Value = PathFrame> {
        let path = (0u8..16).prop_map(|index| PathId::new(index).expect("in range"));
        let bits = prop::collection::vec(any::<u64>(), 0..=WINDOW);
        let words = (any::<u32>(), any::<u64>(), any::<bool>(), any::<bool>());
        (0u8..10, path, words, bits).prop_map(|(kind, path, words, bits)| {
            let (generation, count, flag, other) = words;
            let generation = Generation(generation);
            let endpoint = Endpoint {
                queue_pair: [count as u8; 64],
                memory_address: count,
                memory_rkey: generation.0,
            };
            match kind {
                0 => PathFrame::Fence { path, generation },
                1 => {
                    let mut arrived = [0; WINDOW];
                    arrived[..bits.len()].copy_from_slice(&bits);
                    PathFrame::Answer(Answer {
                        path,
                        generation,
                        is_fenced: flag,
                        eager: EagerReport {
                            seen: count / 2,
                            matched: count as u8,
                        },
                        first: Seq(count),
                        count: bits.len() as u16,
                        arrived,
                    })
                }
                2 => PathFrame::Offer {
                    path,
                    generation,
                    endpoint,
                },
                3 => PathFrame::Accept {
                    path,
                    generation,
                    endpoint,
                },
                4 => PathFrame::Ready {
                    path,
                    generation,
                    is_proved: flag,
                    is_active: other,
                },
                5 => PathFrame::Knock { path },
                6 => PathFrame::Resend,
                7 => PathFrame::Goodbye { count },
                8 => PathFrame::Drain {
                    path,
                    serial: generation.0,
                },
                _ => PathFrame::Drained {
                    path,
                    serial: generation.0,
                },
            }
        })
    }

    proptest! {
        #[test]
        fn there_and_back(frame in frame()) {
            let mut bytes = [0; PATH_FRAME_BYTES_MAX];
            let len = frame.encode(&mut bytes);
            prop_assert_eq!(PathFrame::decode(frame.kind(), &bytes[..len]), Some(frame));
            if len > 0 {
                prop_assert_eq!(PathFrame::decode(frame.kind(), &bytes[..len - 1]), None);
            }
        }

        /// PROTOCOL R18: whatever comes is a frame or is not, and never more than its bytes.
        #[test]
        fn nonsense_never_panics(
            kind in 30u8..44,
            body in prop::collection::vec(any::<u8>(), 0..90),
        ) {
            if let Some(frame) = PathFrame::decode(kind, &body) {
                let mut bytes = [0; PATH_FRAME_BYTES_MAX];
                let len = frame.encode(&mut bytes);
                prop_assert_eq!(&bytes[..len], &body[..]);
            }
        }
    }
}
