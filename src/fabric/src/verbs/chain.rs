//! Work requests in the form that libibverbs takes: linked lists, posted with one doorbell.

use std::io;
use std::ptr::{from_mut, null_mut};

use ibverbs_sys as sys;
use sys::ibv_send_flags as flags;
use sys::ibv_wr_opcode as opcode;

use super::endpoint::Endpoint;
use crate::{SendWork, WriteSource};

/// Room for one chain. Its pointers are set for each post and mean nothing in between.
pub(super) struct Chain {
    works: Box<[sys::ibv_send_wr]>,
    sources: Box<[sys::ibv_sge]>,
    receives: Box<[sys::ibv_recv_wr]>,
    count: usize,
}

// SAFETY: the pointers inside are only followed during a post, which sets them first.
unsafe impl Send for Chain {}

impl Default for Chain {
    fn default() -> Self {
        Self {
            works: vec![sys::ibv_send_wr::default(); Self::ROOM].into(),
            sources: vec![sys::ibv_sge::default(); Self::ROOM].into(),
            receives: vec![sys::ibv_recv_wr::default(); Self::ROOM].into(),
            count: 0,
        }
    }
}

impl Chain {
    /// Work requests in a chain at the most.
    pub(super) const ROOM: usize = 32;

    /// Adds work, which must stay where it is until it is posted. It has `number`, and the device
    /// reports its success if `is_reported`.
    pub(super) fn add(
        &mut self,
        endpoint: &Endpoint,
        number: u64,
        work: &SendWork,
        is_reported: bool,
    ) {
        let mut send_flags = sys::ibv_send_flags(0);
        if is_reported {
            send_flags |= flags::IBV_SEND_SIGNALED;
        }
        let source = &mut self.sources[self.count];
        match &work.source {
            WriteSource::Inline { bytes, len } => {
                let bytes = &bytes[..usize::from(*len)];
                *source = endpoint.bounce(number, bytes).unwrap_or_else(|| {
                    send_flags |= flags::IBV_SEND_INLINE;
                    sys::ibv_sge {
                        addr: bytes.as_ptr() as u64,
                        length: bytes.len() as u32,
                        lkey: 0,
                    }
                });
            }
            WriteSource::Registered { address, len, lkey } => {
                *source = sys::ibv_sge {
                    addr: *address,
                    length: *len,
                    lkey: *lkey,
                }
            }
        }
        let request = &mut self.works[self.count];
        request.wr_id = number;
        request.num_sge = i32::from(!work.source.is_empty());
        request.send_flags = send_flags.0;
        request.opcode = match work.immediate {
            Some(_) => opcode::IBV_WR_RDMA_WRITE_WITH_IMM,
            None => opcode::IBV_WR_RDMA_WRITE,
        };
        request.__bindgen_anon_1.imm_data = work.immediate.unwrap_or(0).to_be();
        request.wr.rdma.remote_addr = work.remote_address;
        request.wr.rdma.rkey = work.rkey;
        self.count += 1;
    }

    /// Posts what was added, and forgets it. On failure: why, and how many were taken.
    ///
    /// # Safety
    /// Only the owner of the endpoint posts. Work that was added is where it was, and its buffers
    /// stay registered until it is done.
    pub(super) unsafe fn post(&mut self, endpoint: &Endpoint) -> Result<(), (io::Error, usize)> {
        let count = std::mem::take(&mut self.count);
        let (works, sources) = (self.works.as_mut_ptr(), self.sources.as_mut_ptr());
        for index in 0..count {
            // SAFETY: both have room for the whole chain.
            unsafe {
                (*works.add(index)).sg_list = sources.add(index);
                let is_last = index + 1 == count;
                (*works.add(index)).next = if is_last {
                    null_mut()
                } else {
                    works.add(index + 1)
                };
            }
        }
        if count == 0 {
            return Ok(());
        }
        // SAFETY: the chain is well formed; the rest is the caller's promise.
        let result = unsafe { endpoint.post_send(&mut *works) };
        result.map_err(|(error, refused)| {
            let bytes = (refused as usize).saturating_sub(works as usize);
            (error, (bytes / size_of::<sys::ibv_send_wr>()).min(count))
        })
    }

    /// Posts `count` receives without buffer, at most [`Chain::ROOM`].
    ///
    /// # Safety
    /// Only the owner of the endpoint posts.
    pub(super) unsafe fn post_receives(
        &mut self,
        endpoint: &Endpoint,
        id: u64,
        count: usize,
    ) -> io::Result<()> {
        let mut next = null_mut();
        for receive in self.receives[..count].iter_mut().rev() {
            receive.wr_id = id;
            receive.next = next;
            next = from_mut(receive);
        }
        // SAFETY: the chain is well formed; the caller is the owner.
        unsafe { next.as_mut() }.map_or(Ok(()), |first| unsafe { endpoint.post_receive(first) })
    }
}
