//! The moment when a socket has said or heard its hello and goes to its queue pair.

use std::os::fd::AsRawFd;

use socket2::Socket;

use super::device::Inner;
use super::port;
use super::shared::{Arrival, Shared};
use super::sys;
use super::wire::Hello;

/// Gives a socket with a whole hello to the queue pair that it names.
pub(super) fn admit(device: &Inner, socket: Socket, bytes: &[u8; Hello::BYTES]) {
    let hello = Hello::decode(bytes);
    let shared = hello.and_then(|hello| device.queue_pair(hello.target));
    let (Some(hello), Some(shared)) = (hello, shared) else {
        device.count_stranger();
        return;
    };
    let prepared = sys::prepare(&socket, device.silence()).is_ok();
    if !prepared || hello.target_secret != shared.secret || hello.index > device.lanes() {
        device.count_stranger();
        return;
    }
    let Hello {
        index,
        source_secret,
        ..
    } = hello;
    let peer = socket.peer_addr().ok().and_then(|peer| peer.as_socket());
    if peer.is_none_or(|peer| port::interface_of(peer.ip()).is_none()) {
        sys::set_remote(&socket);
    }
    shared.deliver(Arrival {
        index,
        source_secret,
        socket,
    });
}

/// A connection stands or has failed.
pub(super) fn finish_dial(shared: &Shared, socket: Socket, hello: Hello) {
    let connected = matches!(socket.take_error(), Ok(None))
        && sys::prepare(&socket, shared.device.silence()).is_ok();
    let bytes = hello.encode();
    let mut buffers = [sys::buffer(bytes.as_ptr(), bytes.len())];
    // SAFETY: the buffer lives for the call.
    let said = connected
        && unsafe { sys::send(socket.as_raw_fd(), &mut buffers) }
            .is_ok_and(|sent| sent == bytes.len());
    if said {
        let Hello {
            index,
            source_secret,
            ..
        } = hello;
        shared.deliver(Arrival {
            index,
            source_secret,
            socket,
        });
    } else {
        shared.set_broken();
    }
}
