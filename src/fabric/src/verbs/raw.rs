//! A stream of RDMA writes with nothing of ours on top: what a device gives at the best, as a
//! measure for what the protocol costs. For measurements only.
//!
//! Sender and receiver are two processes, as in the product: writes with immediate, one completion
//! each at both ends, whoever has nothing to do yields. No credits, no confirmation by the
//! receiver's software, and each slot is written over as soon as the device has acknowledged it.

use std::io;
use std::sync::Arc;
use std::time::{Duration, Instant};

use ibverbs_sys as sys;
use sys::ibv_wr_opcode::IBV_WR_RDMA_WRITE_WITH_IMM;

use super::address::Address;
use super::connect;
use super::device::VerbsDevice;
use super::endpoint::Endpoint;
use crate::{
    Access, Device, DeviceError, QueuePairAddress, QueuePairConfig, Registration, Traffic,
};

/// Receives that are posted at the most: a receiver that sleeps for so many writes stops them.
const RECEIVES: u32 = 1024;
/// Completions taken in one call.
const POLL_MAX: usize = 32;

/// What is written, how often.
#[derive(Clone, Copy, Debug)]
pub struct Stream {
    /// Writes.
    pub count: u64,
    /// Bytes of a write.
    pub bytes: u32,
    /// Writes that are under way at a time, each in a slot of its own.
    pub depth: u32,
}

/// Slots of the other end.
#[derive(Clone, Copy, Debug)]
pub struct Target {
    /// Address of the first.
    pub address: u64,
    /// Key for all.
    pub rkey: u32,
}

/// One end of the stream.
pub struct RawEnd {
    device: Arc<VerbsDevice>,
    endpoint: Endpoint,
    slots: Box<[u8]>,
    registration: Registration,
    /// Receives that are posted.
    receives: u32,
}

impl RawEnd {
    /// An end on `device` with memory for `stream`.
    ///
    /// # Errors
    /// The device gives no queue pair or registration.
    pub fn new(device: Arc<VerbsDevice>, stream: Stream) -> Result<Self, DeviceError> {
        let config = QueuePairConfig {
            send_depth: stream.depth,
            receive_depth: RECEIVES,
            traffic: Traffic::Data,
        };
        let endpoint = Endpoint::new(device.port(), config)?;
        let mut slots =
            vec![0xa5; stream.bytes as usize * stream.depth as usize].into_boxed_slice();
        // SAFETY: `drop` deregisters the memory before it is freed.
        let registration =
            unsafe { device.register(slots.as_mut_ptr(), slots.len(), Access::RemoteWrite) }?;
        Ok(Self {
            device,
            endpoint,
            slots,
            registration,
            receives: 0,
        })
    }

    /// What the peer's [`RawEnd::connect`] wants.
    pub fn address(&self) -> QueuePairAddress {
        self.endpoint.address.encode()
    }

    /// Where the peer may write.
    pub fn target(&self) -> Target {
        Target {
            address: self.slots.as_ptr() as u64,
            rkey: self.registration.rkey,
        }
    }

    /// Connects; blocks.
    ///
    /// # Errors
    /// There is no way to the peer.
    pub fn connect(&mut self, remote: &QueuePairAddress) -> Result<(), DeviceError> {
        let remote = Address::decode(remote).ok_or_else(|| self.error("not an address"))?;
        connect::bring_up(&self.endpoint, &remote)?;
        self.post_receives()
            .map_err(|error| self.error(&error.to_string()))
    }

    /// Writes, and how long it took until all were acknowledged.
    ///
    /// # Errors
    /// A write failed.
    pub fn send(&mut self, stream: Stream, target: Target) -> Result<Duration, DeviceError> {
        let start = Instant::now();
        let (mut posted, mut done) = (0, 0);
        while done < stream.count {
            while posted < stream.count && posted - done < u64::from(stream.depth) {
                self.post_write(stream, target, posted)
                    .map_err(|error| self.error(&error.to_string()))?;
                posted += 1;
            }
            done += self.take()?;
        }
        Ok(start.elapsed())
    }

    /// Receives `count` writes, and how long it took until all were here.
    ///
    /// # Errors
    /// A receive failed.
    pub fn receive(&mut self, count: u64) -> Result<Duration, DeviceError> {
        let start = Instant::now();
        let mut done = 0;
        while done < count {
            let taken = self.take()?;
            done += taken;
            self.receives -= taken as u32;
            self.post_receives()
                .map_err(|error| self.error(&error.to_string()))?;
        }
        Ok(start.elapsed())
    }

    fn post_write(&mut self, stream: Stream, target: Target, number: u64) -> io::Result<()> {
        let offset = number % u64::from(stream.depth) * u64::from(stream.bytes);
        let mut source = sys::ibv_sge {
            addr: self.slots.as_ptr() as u64 + offset,
            length: stream.bytes,
            lkey: self.registration.lkey,
        };
        let mut write = sys::ibv_send_wr {
            wr_id: number,
            sg_list: &mut source,
            num_sge: 1,
            opcode: IBV_WR_RDMA_WRITE_WITH_IMM,
            send_flags: sys::ibv_send_flags::IBV_SEND_SIGNALED.0,
            ..Default::default()
        };
        write.wr.rdma.remote_addr = target.address + offset;
        write.wr.rdma.rkey = target.rkey;
        // SAFETY: this is the owner; the slots stay until `drop`.
        unsafe { self.endpoint.post_send(&mut write) }.map_err(|(error, _)| error)
    }

    fn post_receives(&mut self) -> io::Result<()> {
        while self.receives < RECEIVES {
            // SAFETY: this is the owner; a receive without buffer.
            unsafe { self.endpoint.post_receive(&mut sys::ibv_recv_wr::default()) }?;
            self.receives += 1;
        }
        Ok(())
    }

    /// Completions that are there; gives the CPU away if there are none.
    fn take(&mut self) -> Result<u64, DeviceError> {
        let mut entries = [sys::ibv_wc::default(); POLL_MAX];
        // SAFETY: this is the owner.
        let count = unsafe { self.endpoint.poll(&mut entries) };
        if let Some((status, _)) = entries[..count].iter().find_map(sys::ibv_wc::error) {
            return Err(self.error(&format!("a completion has status {status}")));
        }
        if count == 0 {
            std::thread::yield_now();
        }
        Ok(count as u64)
    }

    fn error(&self, text: &str) -> DeviceError {
        self.endpoint.port.error(text)
    }
}

impl Drop for RawEnd {
    fn drop(&mut self) {
        // Nobody writes through it any more, so that the memory may go.
        let _ = self.endpoint.close();
        self.device.deregister(self.registration);
    }
}
