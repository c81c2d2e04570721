//! What goes wrong outside the plugin: settings, limits, strangers, peers. For each: the log names
//! the thing and the remedy, the process lives, and other connections of it go on with their data.
//!
//! Each test runs in a process of its own ([`r2ccl_plugin_tests::process::alone`]), because
//! settings are read once, limits are the process's, and a crash is then a failure of one test.

mod handles;
mod limits;
mod load;
mod memory;
mod peers;
mod settings;
mod strangers;

use r2ccl_plugin_tests::peer::{self, Peer};

/// Not a test of its own: what a process that [`peer`] starts runs.
#[test]
fn peer_process() {
    peer::serve();
}

fn start_peer(settings: &[(&str, &str)]) -> Peer {
    Peer::start("peer_process", settings)
}
