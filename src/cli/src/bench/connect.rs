//! Connecting all links of a host, as NCCL's service thread does: connect and accept of all
//! connections in turn on one thread, none of them blocking.

use super::host::{Host, RunError};
use super::link::{Receiver, Sender, Watch};
use super::message::{FromHost, Link, ToHost};
use crate::net::{Handle, ListenComm};

/// An accept that has not succeeded yet.
struct Accepting {
    link: Link,
    listen: ListenComm,
}

/// A connect that has not succeeded yet. The handle stays at its place between attempts: its
/// address is part of the contract.
struct Connecting {
    link: Link,
    handle: Option<Box<Handle>>,
}

/// Listens for the links to this host, and connects and accepts until all links stand.
pub fn all(host: &mut Host) -> Result<(), RunError> {
    let me = host.plan.host;
    let links = host.plan.links.clone();
    let mut accepting = Vec::new();
    let mut connecting = Vec::new();
    for link in links {
        if link.to == me {
            let (listen, handle) = host.net.listen(host.device(link.channel))?;
            let bytes = handle.to_vec();
            host.wire.send(&FromHost::Handle {
                link: link.id,
                bytes,
            })?;
            accepting.push(Accepting {
                link: link.clone(),
                listen,
            });
        }
        if link.from == me {
            connecting.push(Connecting { link, handle: None });
        }
    }
    let mut watch = Watch::new(host.plan.stall_ms);
    while !accepting.is_empty() || !connecting.is_empty() {
        let mut moved = take_handles(host, &mut connecting)?;
        moved |= connect_round(host, &mut connecting)?;
        moved |= accept_round(host, &mut accepting)?;
        if !watch.round(moved) {
            return Err(RunError::Other(stalled(host, &accepting, &connecting)));
        }
    }
    host.senders.sort_by_key(|sender| sender.link);
    host.receivers.sort_by_key(|receiver| receiver.link);
    Ok(())
}

/// Puts handles that have come in at their links.
fn take_handles(host: &mut Host, connecting: &mut [Connecting]) -> Result<bool, RunError> {
    if connecting.iter().all(|connect| connect.handle.is_some()) {
        return Ok(false);
    }
    let Some(message) = host.wire.try_receive()? else {
        return Ok(false);
    };
    let ToHost::Handle { link, bytes } = message else {
        return Err(RunError::Other(
            "the driver sent something else than a handle".into(),
        ));
    };
    let handle = Handle::try_from(bytes.as_slice());
    let wanted = connecting
        .iter_mut()
        .find(|connect| connect.link.id == link);
    match (handle, wanted) {
        (Ok(handle), Some(connect)) => connect.handle = Some(Box::new(handle)),
        _ => {
            return Err(RunError::Other(format!(
                "a handle for link {link} is out of place"
            )));
        }
    }
    Ok(true)
}

fn connect_round(host: &mut Host, connecting: &mut Vec<Connecting>) -> Result<bool, RunError> {
    let mut moved = false;
    let mut index = 0;
    while let Some(Connecting { link, handle }) = connecting.get_mut(index) {
        let dev = host.device(link.channel);
        let comm = match handle {
            Some(handle) => host.net.connect(dev, handle)?,
            None => None,
        };
        match comm {
            Some(comm) => {
                host.senders
                    .push(Sender::new(link.id, comm, host.plan.check));
                connecting.remove(index);
                moved = true;
            }
            None => index += 1,
        }
    }
    Ok(moved)
}

fn accept_round(host: &mut Host, accepting: &mut Vec<Accepting>) -> Result<bool, RunError> {
    let mut moved = false;
    let mut index = 0;
    while let Some(Accepting { link, listen }) = accepting.get(index) {
        match host.net.accept(*listen)? {
            Some(comm) => {
                host.net.close_listen(*listen)?;
                let receiver = Receiver::new(link.id, link.channel, comm, host.plan.check);
                host.receivers.push(receiver);
                accepting.remove(index);
                moved = true;
            }
            None => index += 1,
        }
    }
    Ok(moved)
}

fn stalled(host: &Host, accepting: &[Accepting], connecting: &[Connecting]) -> String {
    let mut text = format!(
        "no connection came up for {} ms; waiting for",
        host.plan.stall_ms
    );
    for Connecting { link, handle } in connecting {
        let what = if handle.is_some() {
            "connect"
        } else {
            "the handle"
        };
        text.push_str(&format!(" {what} of link {} to h{};", link.id, link.to));
    }
    for Accepting { link, .. } in accepting {
        text.push_str(&format!(" accept of link {} from h{};", link.id, link.from));
    }
    text
}
