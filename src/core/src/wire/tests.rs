//! Handles, hellos and frames: there and back, and whatever else may come.

use alloc::boxed::Box;
use alloc::string::{String, ToString};
use alloc::vec;
use alloc::vec::Vec;
use core::net::{IpAddr, SocketAddr};

use proptest::prelude::*;

use super::frame::{
    Accept, BODY_BYTES_MAX, Frame, FrameError, HEADER_BYTES, Header, Open, PATHS_MAX, PathEnd,
    RECORD_BYTES_MAX,
};
use super::greeting::Greeting;
use super::handle::{Handle, HandleError, PROTOCOL_VERSION};
use super::hello::{HELLO_BYTES, Hello, Reply, SecretOf, Verdict};
use super::path_frame::PathFrame;

fn address() -> impl Strategy<Value = SocketAddr> {
    (any::<IpAddr>(), any::<u16>()).prop_map(|(ip, port)| SocketAddr::new(ip, port))
}

fn handle() -> impl Strategy<Value = Handle> {
    let ids = (
        any::<u64>(),
        any::<[u8; 16]>(),
        any::<u64>(),
        any::<u64>(),
        any::<u32>(),
    );
    let addresses = proptest::collection::vec(address(), 0..=3);
    (ids, "[a-z0-9é]{0,20}", addresses).prop_map(|(ids, host, addresses)| {
        let (nonce, secret, host_id, instance, pid) = ids;
        Handle {
            nonce,
            secret,
            host_id,
            instance,
            pid,
            host,
            addresses,
        }
    })
}

fn sample_handle() -> Handle {
    Handle {
        nonce: 1,
        secret: [2; 16],
        host_id: 3,
        instance: 4,
        pid: 5,
        host: "node".to_string(),
        addresses: vec![SocketAddr::from(([10, 0, 0, 1], 0x1234))],
    }
}

#[test]
fn a_handle_has_its_documented_layout() {
    let bytes = sample_handle().encode();
    assert_eq!(&bytes[..8], b"R2CH\x06\x00\x01\x04");
    assert_eq!(bytes[8..16], 1_u64.to_le_bytes());
    assert_eq!(bytes[16..32], [2; 16]);
    assert_eq!(bytes[32..40], 3_u64.to_le_bytes());
    assert_eq!(bytes[40..48], 4_u64.to_le_bytes());
    assert_eq!(bytes[48..52], 5_u32.to_le_bytes());
    assert_eq!(bytes[52..62], *b"\x0a\x00\x00\x01\x34\x12node");
    assert_eq!(bytes[62..108], [0; 46]);
    assert_eq!(bytes[112..], [0; 16]);
}

#[test]
fn what_is_no_handle_is_told_apart() {
    let good = sample_handle().encode();
    let mut foreign = good;
    foreign[0] = b'X';
    assert_eq!(
        Handle::decode(&foreign),
        Err(HandleError::Foreign(*b"X2CH"))
    );
    assert_eq!(Handle::decode(&[0; 128]), Err(HandleError::Foreign([0; 4])));
    let mut other = good;
    other[4] = 9;
    let expected = HandleError::Version {
        theirs: 9,
        ours: PROTOCOL_VERSION,
    };
    assert_eq!(Handle::decode(&other), Err(expected));
    for length in 0..Handle::STATE_OFFSET {
        assert_eq!(
            Handle::decode(&good[..length]),
            Err(HandleError::Corrupt),
            "{length} bytes"
        );
    }
    assert_eq!(
        Handle::decode(&good[..Handle::STATE_OFFSET]),
        Ok(sample_handle())
    );
    for position in 6..Handle::STATE_OFFSET {
        for bit in 0..8 {
            let mut bytes = good;
            bytes[position] ^= 1 << bit;
            assert_eq!(
                Handle::decode(&bytes),
                Err(HandleError::Corrupt),
                "byte {position}"
            );
        }
    }
}

#[test]
fn a_handle_never_shows_its_secret() {
    let text = alloc::format!(
        "{:?}",
        Handle {
            secret: [0xab; 16],
            ..sample_handle()
        }
    );
    assert!(!text.contains("171"), "{text}");
}

fn paths() -> impl Strategy<Value = Vec<PathEnd>> {
    let path = (
        any::<[u16; 2]>(),
        any::<u8>(),
        any::<[u8; 32]>(),
        any::<u64>(),
        any::<u32>(),
    );
    let path = path.prop_map(
        |([path, generation], nic, half, memory_address, memory_rkey)| {
            let mut queue_pair = [0; 64];
            queue_pair[..32].copy_from_slice(&half);
            PathEnd {
                path,
                generation,
                nic,
                queue_pair,
                memory_address,
                memory_rkey,
            }
        },
    );
    proptest::collection::vec(path, 0..=PATHS_MAX)
}

fn greeting() -> impl Strategy<Value = Frame> {
    let ids = (any::<[u64; 4]>(), any::<u32>(), "[a-zé]{0,30}");
    let settings = proptest::collection::vec(("[A-Z_]{1,48}", "[ -~]{0,48}"), 0..=32);
    (ids, proptest::collection::vec(address(), 0..=3), settings).prop_map(
        |(([instance, link, known_link, fingerprint], pid, host), addresses, settings)| {
            Frame::Greeting(Greeting {
                instance,
                pid,
                host,
                link,
                known_link,
                addresses,
                fingerprint,
                settings,
            })
        },
    )
}

fn frame() -> impl Strategy<Value = Frame> {
    let accept = |(to, connection, nics), nic, paths| {
        Frame::Accept(Accept {
            to,
            connection,
            nic,
            nics,
            paths,
        })
    };
    let open = |(listen_nonce, connection, nics), nic: String, paths| {
        let steps = nic.bytes().take(PATHS_MAX).collect();
        Frame::Open(Open {
            listen_nonce,
            connection,
            nic,
            nics,
            steps,
            paths,
        })
    };
    let ids = any::<(u64, u64)>;
    let ends = || (any::<(u64, u64, u8)>(), "[a-z0-9_]{0,64}", paths());
    let path = |to, frame| Frame::Path {
        to,
        frame: Box::new(frame),
    };
    prop_oneof![
        greeting(),
        Just(Frame::Ack),
        "[ -~]{0,200}".prop_map(|reason| Frame::Reset { reason }),
        ends().prop_map(move |(ids, nic, paths)| open(ids, nic, paths)),
        ends().prop_map(move |(ids, nic, paths)| accept(ids, nic, paths)),
        (any::<u64>(), "[ -~]{0,1024}", any::<u8>()).prop_map(|(to, reason, nics)| Frame::Refuse {
            to,
            reason,
            nics
        }),
        any::<(u64, u32, u8, u32)>().prop_map(|(to, region, path, rkey)| Frame::RegionKey {
            to,
            region,
            path,
            rkey
        }),
        ids().prop_map(|(to, count)| Frame::Goodbye { to, count }),
        ids().prop_map(move |(to, count)| path(to, PathFrame::Goodbye { count })),
        any::<u64>().prop_map(move |to| path(to, PathFrame::Resend)),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..Default::default() })]

    #[test]
    fn handles_go_there_and_back(handle in handle(), state: [u8; 16]) {
        let mut bytes = handle.encode();
        prop_assert_eq!(&bytes[Handle::STATE_OFFSET..], [0; 16]);
        bytes[Handle::STATE_OFFSET..].copy_from_slice(&state);
        let decoded = Handle::decode(&bytes).expect("decoded");
        prop_assert!(handle.host.starts_with(&decoded.host));
        prop_assert!(decoded.host.len() >= handle.host.len().min(1));
        prop_assert_eq!(Handle { host: handle.host.clone(), ..decoded }, handle);
    }

    #[test]
    fn any_bytes_may_be_decoded(mut bytes in proptest::collection::vec(any::<u8>(), 0..300)) {
        let _ = Handle::decode(&bytes);
        for (slot, byte) in bytes.iter_mut().zip(b"R2CH\x01\x00") {
            *slot = *byte;
        }
        prop_assert!(Handle::decode(&bytes).is_err());
    }

    #[test]
    fn frames_go_there_and_back(frame in frame()) {
        let body = frame.encode().expect("encoded");
        prop_assert!(body.len() <= BODY_BYTES_MAX);
        prop_assert_eq!(Frame::decode(frame.kind(), &body), Ok(frame.clone()));
        for length in 0..body.len() {
            let cut = Frame::decode(frame.kind(), &body[..length]);
            prop_assert_eq!(cut, Err(FrameError::Malformed(frame.kind())));
        }
        let longer = [&body[..], &[0]].concat();
        prop_assert!(Frame::decode(frame.kind(), &longer).is_err());
    }

    #[test]
    fn any_body_may_be_decoded(kind: u8, body in proptest::collection::vec(any::<u8>(), 0..4096)) {
        if let Ok(frame) = Frame::decode(kind, &body) {
            prop_assert_eq!(frame.encode(), Ok(body));
        }
    }

    #[test]
    fn changed_frames_may_be_decoded(frame in frame(), position: usize, byte: u8) {
        let mut body = frame.encode().expect("encoded");
        if !body.is_empty() {
            let position = position % body.len();
            body[position] = byte;
        }
        if let Ok(other) = Frame::decode(frame.kind(), &body) {
            prop_assert_eq!(other.encode(), Ok(body));
        }
    }

    #[test]
    fn any_header_may_be_decoded(bytes: [u8; HEADER_BYTES]) {
        if let Some(header) = Header::decode(&bytes) {
            prop_assert_eq!(header.encode(), bytes);
            prop_assert!((40..=RECORD_BYTES_MAX).contains(&(header.length as usize)));
        }
    }

    #[test]
    fn hellos_go_there_and_back(ids: [u64; 3], nonce: [u8; 16], version: u16, ours: bool) {
        let [dialler, target, round] = ids;
        let secret_of = if ours { SecretOf::Dialler } else { SecretOf::Target };
        let hello = Hello { version, secret_of, dialler, target, round, nonce };
        prop_assert_eq!(Hello::decode(&hello.encode()), Some(hello));
        prop_assert_eq!(Reply::decode(&hello.encode()), None);
        let verdict = if ours { Verdict::Welcome } else { Verdict::OtherVersion };
        let reply = Reply { version, verdict, instance: target, dialler, round, nonce };
        prop_assert_eq!(Reply::decode(&reply.encode()), Some(reply));
        prop_assert_eq!(Hello::decode(&reply.encode()), None);
    }

    #[test]
    fn any_hello_may_be_decoded(mut bytes: [[u8; 32]; 2]) {
        bytes[0][..4].copy_from_slice(b"R2CC");
        let mut whole = [0; HELLO_BYTES];
        whole.copy_from_slice(bytes.as_flattened());
        let _ = (Hello::decode(&whole), Reply::decode(&whole));
    }
}

#[test]
fn limits_are_errors_or_cuts() {
    let path = PathEnd {
        path: 0,
        generation: 0,
        nic: 0,
        queue_pair: [0; 64],
        memory_address: 0,
        memory_rkey: 0,
    };
    let accept = |count| {
        let paths = vec![path; count];
        Frame::Accept(Accept {
            to: 1,
            connection: 2,
            nic: "n".repeat(999),
            nics: 1,
            paths,
        })
        .encode()
    };
    assert!(accept(PATHS_MAX).is_ok_and(|body| body.len() < BODY_BYTES_MAX));
    assert_eq!(
        accept(PATHS_MAX + 1),
        Err(FrameError::TooLarge(PATHS_MAX + 1))
    );
    let refuse = Frame::Refuse {
        to: 1,
        reason: "é".repeat(4000),
        nics: 0,
    };
    let body = refuse.encode().expect("cut");
    let Ok(Frame::Refuse { reason, .. }) = Frame::decode(refuse.kind(), &body) else {
        panic!("not decoded")
    };
    assert_eq!(reason, "é".repeat(512));
    assert_eq!(Frame::decode(99, &[]), Err(FrameError::UnknownKind(99)));
}
