//! The greeting: the first frame of each side of a control connection.

use alloc::string::String;
use alloc::vec::Vec;
use core::net::SocketAddr;

/// Most settings in a greeting.
pub const SETTINGS_MAX: usize = 32;
/// Most bytes of a setting's name or value.
pub const SETTING_BYTES_MAX: usize = 48;

/// Who speaks, where it can be reached and which settings it runs with.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Greeting {
    /// Instance id of the speaker.
    pub instance: u64,
    /// Process id of the speaker.
    pub pid: u32,
    /// Host name of the speaker.
    pub host: String,
    /// The speaker's number of this link.
    pub link: u64,
    /// The listener's number of this link as far as the speaker knows it, else 0.
    pub known_link: u64,
    /// Addresses of the speaker's control plane, at most three.
    pub addresses: Vec<SocketAddr>,
    /// Hash over `settings`.
    pub fingerprint: u64,
    /// Settings that both ends must share, as (name, value), sorted by name.
    pub settings: Vec<(String, String)>,
}
