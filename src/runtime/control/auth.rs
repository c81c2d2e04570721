//! Secrets, keys and MACs of the control plane.
//!
//! Each process has one random secret; its handles carry it to the peers over NCCL's bootstrap.
//! Both nonces of a handshake go into the keys of a connection, one key a direction, and the MAC
//! of a record covers its number on the connection: a record recorded elsewhere never fits
//! (PROTOCOL R32).

use r2ccl_core::wire::frame::MAC_BYTES;
use r2ccl_core::wire::hello::{HELLO_BYTES, HELLO_CHECKED_BYTES, NONCE_BYTES};

use crate::runtime::error::{Error, Result};

const HELLO_CONTEXT: &str = "r2ccl control plane, version 1: hello";
const DIALLER_CONTEXT: &str = "r2ccl control plane, version 1: records of the dialling side";
const LISTENER_CONTEXT: &str = "r2ccl control plane, version 1: records of the listening side";

/// Secret of a process.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) struct Secret(pub(super) [u8; 16]);

/// Key of one direction of one connection.
#[derive(Clone)]
pub(super) struct Key([u8; 32]);

/// Random bytes from the system.
pub(super) fn random<const N: usize>() -> Result<[u8; N]> {
    let mut bytes = [0; N];
    match getrandom::fill(&mut bytes) {
        Ok(()) => Ok(bytes),
        Err(error) => Err(Error::System(format!(
            "the system gives no random numbers: {error}"
        ))),
    }
}

/// A random number other than 0.
pub(super) fn random_id() -> Result<u64> {
    Ok(u64::from_le_bytes(random()?) | 1 << 63)
}

/// Key that hellos and replies are made with.
pub(super) fn hello_key(secret: Secret) -> Key {
    Key(blake3::derive_key(HELLO_CONTEXT, &secret.0))
}

/// Keys of the records of the dialling and of the listening side.
pub(super) fn record_keys(
    secret: Secret,
    hello: &[u8; HELLO_BYTES],
    reply: &[u8; HELLO_BYTES],
) -> (Key, Key) {
    let mut material = Vec::with_capacity(16 + 2 * HELLO_BYTES);
    material.extend_from_slice(&secret.0);
    material.extend_from_slice(hello);
    material.extend_from_slice(reply);
    let dialler = Key(blake3::derive_key(DIALLER_CONTEXT, &material));
    let listener = Key(blake3::derive_key(LISTENER_CONTEXT, &material));
    (dialler, listener)
}

impl Key {
    /// MAC over a number and bytes.
    pub(super) fn mac(&self, number: u64, bytes: &[u8]) -> [u8; MAC_BYTES] {
        let mut hasher = blake3::Hasher::new_keyed(&self.0);
        hasher.update(&number.to_le_bytes());
        hasher.update(bytes);
        let mut mac = [0; MAC_BYTES];
        mac.copy_from_slice(&hasher.finalize().as_bytes()[..MAC_BYTES]);
        mac
    }

    /// Whether `mac` is the right one; takes the same time for any wrong one.
    pub(super) fn verify(&self, number: u64, bytes: &[u8], mac: &[u8]) -> bool {
        let right = self.mac(number, bytes);
        mac.len() == MAC_BYTES && right.iter().zip(mac).fold(0, |sum, (a, b)| sum | (a ^ b)) == 0
    }

    /// Puts the MAC into a hello or reply.
    pub(super) fn seal_hello(&self, bytes: &mut [u8; HELLO_BYTES]) {
        let mac = self.mac(0, &bytes[..HELLO_CHECKED_BYTES]);
        bytes[HELLO_CHECKED_BYTES..].copy_from_slice(&mac);
    }

    /// Whether a hello or reply carries the right MAC.
    pub(super) fn verify_hello(&self, bytes: &[u8; HELLO_BYTES]) -> bool {
        self.verify(
            0,
            &bytes[..HELLO_CHECKED_BYTES],
            &bytes[HELLO_CHECKED_BYTES..],
        )
    }
}

const _: () = assert!(NONCE_BYTES == MAC_BYTES && HELLO_CHECKED_BYTES + MAC_BYTES == HELLO_BYTES);
