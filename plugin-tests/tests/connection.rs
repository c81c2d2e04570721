//! A connection inside one process, in every version: what a message may look like, what is
//! refused, and that a refusal leaves the connection as it was.

use std::ffi::{c_int, c_void};
use std::ptr::{null_mut, without_provenance_mut};
use std::time::{Duration, Instant};

use r2ccl_abi::*;
use r2ccl_plugin_tests::plugin;
use r2ccl_plugin_tests::table::{self, Opaque, Table};

const DEADLINE: Duration = Duration::from_secs(20);
const POISON_INT: c_int = 0xAAAA_AAAA_u32 as c_int;
const BUFFER_BYTES: usize = 1 << 16;

fn poison<T>() -> *mut T {
    without_provenance_mut(0xAAAA_AAAA_AAAA_AAA0)
}

/// Repeats a call until it gives something.
fn until<T>(what: &str, mut call: impl FnMut() -> Option<T>) -> T {
    let start = Instant::now();
    loop {
        if let Some(value) = call() {
            return value;
        }
        assert!(
            start.elapsed() < DEADLINE,
            "{what}: nothing after {DEADLINE:?}"
        );
        std::thread::yield_now();
    }
}

/// Both ends of a connection, each with a registered buffer.
struct Pair<'a> {
    table: &'a dyn Table,
    send: Opaque,
    recv: Opaque,
    source: Box<[u8; BUFFER_BYTES]>,
    sink: Box<[u8; BUFFER_BYTES]>,
    source_mr: Opaque,
    sink_mr: Opaque,
}

impl<'a> Pair<'a> {
    fn new(table: &'a dyn Table) -> Self {
        let (mut handle, mut listener) = ([0_u8; 128], null_mut());
        let place: Opaque = (&raw mut handle).cast();
        let (mut send, mut recv): (Opaque, Opaque) = (null_mut(), null_mut());
        // SAFETY: as NCCL calls it, both sides on one thread.
        unsafe {
            assert_eq!(table.listen(0, place, &raw mut listener), ncclSuccess);
            until("connection", || {
                if send.is_null() {
                    // The other device: the two sides choose independently.
                    assert_eq!(
                        table.connect(1, place, &raw mut send, null_mut()),
                        ncclSuccess
                    );
                }
                if recv.is_null() {
                    assert_eq!(
                        table.accept(listener, &raw mut recv, null_mut()),
                        ncclSuccess
                    );
                }
                (!send.is_null() && !recv.is_null()).then_some(())
            });
            assert_eq!(table.close_listen(listener), ncclSuccess);
        }
        let mut pair = Self {
            table,
            send,
            recv,
            source: Box::new([0; BUFFER_BYTES]),
            sink: Box::new([0; BUFFER_BYTES]),
            source_mr: null_mut(),
            sink_mr: null_mut(),
        };
        for (index, byte) in pair.source.iter_mut().enumerate() {
            *byte = (index % 251) as u8;
        }
        pair.source_mr = pair.register(send, pair.source.as_ptr().cast());
        pair.sink_mr = pair.register(recv, pair.sink.as_ptr().cast());
        pair
    }

    fn register(&self, comm: Opaque, data: *const c_void) -> Opaque {
        let mut mr = poison();
        // SAFETY: a live buffer of this size.
        let code = unsafe {
            self.table.reg_mr(
                comm,
                data.cast_mut(),
                BUFFER_BYTES,
                NCCL_PTR_HOST,
                &raw mut mr,
            )
        };
        assert_eq!(code, ncclSuccess);
        assert!(!mr.is_null() && mr != poison());
        mr
    }

    fn source(&self) -> Opaque {
        self.source.as_ptr().cast_mut().cast()
    }

    fn sink(&self, offset: usize) -> Opaque {
        self.sink[offset..].as_ptr().cast_mut().cast()
    }

    /// One attempt to send; `None` is "not now".
    fn try_send(&self, data: Opaque, bytes: i64, tag: c_int, mr: Opaque) -> Option<Opaque> {
        let mut request = poison();
        // SAFETY: `data` holds the bytes, or there are none.
        let code = unsafe {
            self.table
                .isend(self.send, data, bytes, tag, mr, &raw mut request)
        };
        assert_eq!(code, ncclSuccess);
        assert_ne!(request, poison());
        (!request.is_null()).then_some(request)
    }

    /// Posts a receive of slots of `bytes` each, `BUFFER_BYTES / 8` apart.
    fn receive(&self, bytes: &[i64], tags: &mut [c_int]) -> Opaque {
        let count = bytes.len();
        let mut data: Vec<Opaque> = (0..count)
            .map(|i| self.sink(i * BUFFER_BYTES / 8))
            .collect();
        let mut mrs = vec![self.sink_mr; count];
        let request = until("receive", || {
            // What NCCL leaves there as a hint.
            let mut request = without_provenance_mut(1);
            let (data, mrs) = (data.as_mut_ptr(), mrs.as_mut_ptr());
            // SAFETY: arrays of `count` entries, buffers of that size.
            let code = unsafe {
                let n = count as c_int;
                let tags = tags.as_mut_ptr();
                self.table
                    .irecv(self.recv, n, data, Some(bytes), tags, mrs, &raw mut request)
            };
            assert_eq!(code, ncclSuccess);
            (!request.is_null()).then_some(request)
        });
        self.turn(request);
        request
    }

    /// Tests a receive that cannot be done. NCCL tests in each turn what is posted; credits count
    /// on that.
    fn turn(&self, receive: Opaque) {
        let mut done = POISON_INT;
        // SAFETY: as NCCL calls it.
        let code = unsafe { self.table.test(receive, &raw mut done, null_mut()) };
        assert_eq!((code, done), (ncclSuccess, 0));
    }

    /// Tests requests, oldest first, until all are done; the sizes that each reported.
    fn finish(&self, requests: &[Opaque]) -> Vec<[c_int; 8]> {
        let mut sizes = vec![[POISON_INT; 8]; requests.len()];
        let mut is_done = vec![false; requests.len()];
        until("requests", || {
            for (index, request) in requests.iter().enumerate() {
                if is_done[index] {
                    continue;
                }
                let mut done = POISON_INT;
                // SAFETY: as NCCL calls it.
                let code = unsafe {
                    self.table
                        .test(*request, &raw mut done, sizes[index].as_mut_ptr())
                };
                assert_eq!(code, ncclSuccess);
                assert!(done == 0 || done == 1, "done is {done}");
                is_done[index] = done == 1;
            }
            is_done.iter().all(|done| *done).then_some(())
        });
        sizes
    }

    /// Moves one message and checks it.
    fn exchange(&mut self, bytes: usize) {
        self.sink.fill(0xEE);
        let receive = self.receive(&[BUFFER_BYTES as i64], &mut [7]);
        let source = self.source();
        let send = until("send", || {
            self.turn(receive);
            self.try_send(source, bytes as i64, 7, self.source_mr)
        });
        let sizes = self.finish(&[send, receive]);
        assert_eq!((sizes[0][0], sizes[1][0]), (bytes as c_int, bytes as c_int));
        // One int each: what is behind belongs to NCCL.
        assert!(sizes.iter().all(|sizes| sizes[1..] == [POISON_INT; 7]));
        assert!(self.sink[..bytes] == self.source[..bytes]);
        assert!(
            self.sink[bytes..].iter().all(|byte| *byte == 0xEE),
            "written behind the message"
        );
    }

    fn close(self) {
        // SAFETY: as NCCL calls it.
        unsafe {
            assert_eq!(self.table.dereg_mr(self.send, self.source_mr), ncclSuccess);
            assert_eq!(self.table.dereg_mr(self.recv, self.sink_mr), ncclSuccess);
            assert_eq!(self.table.close_send(self.send), ncclSuccess);
            assert_eq!(self.table.close_recv(self.recv), ncclSuccess);
        }
    }
}

fn each(test: impl Fn(Pair)) {
    for table in table::all(plugin::load()) {
        // SAFETY: as NCCL calls it.
        let code = unsafe { table.init(null_mut(), plugin::logger()) };
        assert_eq!(code, ncclSuccess);
        test(Pair::new(table));
    }
}

#[test]
fn messages_of_ordinary_sizes_arrive() {
    each(|mut pair| {
        for bytes in [1, 8, 127, 128, 129, 4096, BUFFER_BYTES] {
            pair.exchange(bytes);
        }
        pair.close();
    });
}

#[test]
fn absurd_sizes_are_refused_and_change_nothing() {
    each(|mut pair| {
        let (source, mut sink, mut mr) = (pair.source(), pair.sink(0), pair.sink_mr);
        // As int these are negative, as size_t they are above any limit.
        for bytes in [-1, i64::from(i32::MIN), (1 << 30) + 1, i64::from(i32::MAX)] {
            let mut request = poison();
            // SAFETY: the size is refused before anything is read.
            unsafe {
                let request_place = &raw mut request;
                let code =
                    pair.table
                        .isend(pair.send, source, bytes, 0, pair.source_mr, request_place);
                assert_eq!(
                    (code, request),
                    (ncclInvalidArgument, null_mut()),
                    "isend {bytes}"
                );
                request = poison();
                let (data, mrs, tags) = (&raw mut sink, &raw mut mr, &mut 0);
                let sizes = Some(&[bytes][..]);
                let code = pair
                    .table
                    .irecv(pair.recv, 1, data, sizes, tags, mrs, request_place);
                assert_eq!(
                    (code, request),
                    (ncclInvalidArgument, null_mut()),
                    "irecv {bytes}"
                );
                request = poison();
                let size = &mut (bytes as c_int);
                let code = pair
                    .table
                    .iflush(pair.recv, 1, data, size, mrs, request_place);
                assert_eq!(
                    (code, request),
                    (ncclInvalidArgument, null_mut()),
                    "iflush {bytes}"
                );
            }
        }
        pair.exchange(100);
        pair.close();
    });
}

#[test]
fn groups_of_impossible_size_and_missing_arrays_are_refused() {
    each(|mut pair| {
        let mut data = [pair.sink(0); 16];
        let mut mrs = [pair.sink_mr; 16];
        let (sizes, mut tags) = ([64_i64; 16], [0; 16]);
        let (recv, table) = (pair.recv, pair.table);
        let (data, mrs, tags) = (data.as_mut_ptr(), mrs.as_mut_ptr(), tags.as_mut_ptr());
        let expect_refusal = |n: c_int, data, sizes, tags, mrs| {
            let mut request = poison();
            // SAFETY: arrays are NULL or hold 16 entries.
            let code = unsafe { table.irecv(recv, n, data, sizes, tags, mrs, &raw mut request) };
            assert_eq!(
                (code, request),
                (ncclInvalidArgument, null_mut()),
                "n = {n}"
            );
        };
        for n in [0, -1, 9, 16, c_int::MAX, c_int::MIN] {
            expect_refusal(n, data, Some(&sizes[..]), tags, mrs);
        }
        expect_refusal(2, null_mut(), Some(&sizes), tags, mrs);
        expect_refusal(2, data, None, tags, mrs);
        expect_refusal(2, data, Some(&sizes), null_mut(), mrs);
        expect_refusal(2, data, Some(&sizes), tags, null_mut());
        // SAFETY: as above; nowhere to write.
        let code = unsafe { table.irecv(recv, 1, data, Some(&sizes), tags, mrs, null_mut()) };
        assert_eq!(code, ncclInvalidArgument);
        pair.exchange(100);
        pair.close();
    });
}

#[test]
fn memory_that_cannot_be_is_not_registered() {
    each(|mut pair| {
        for (data, bytes, kind) in [
            (pair.source(), 64, 0),
            (pair.source(), 64, NCCL_PTR_HOST | NCCL_PTR_CUDA),
            (pair.source(), 64, -1),
            (pair.source(), usize::MAX, NCCL_PTR_HOST),
            (pair.source(), isize::MAX as usize + 1, NCCL_PTR_HOST),
            (null_mut(), 64, NCCL_PTR_HOST),
        ] {
            let mut mr = poison();
            // SAFETY: refused before anything is touched.
            let code = unsafe { pair.table.reg_mr(pair.send, data, bytes, kind, &raw mut mr) };
            assert_eq!(
                (code, mr),
                (ncclInvalidArgument, null_mut()),
                "{data:p} {bytes} {kind}"
            );
        }
        // SAFETY: nowhere to write.
        let code = unsafe {
            pair.table
                .reg_mr(pair.send, pair.source(), 64, NCCL_PTR_HOST, null_mut())
        };
        assert_eq!(code, ncclInvalidArgument);
        pair.exchange(100);
        pair.close();
    });
}

#[test]
fn an_empty_message_needs_neither_buffer_nor_registration() {
    each(|mut pair| {
        let receive = pair.receive(&[4096], &mut [0]);
        let send = until("send", || pair.try_send(null_mut(), 0, 0, null_mut()));
        let sizes = pair.finish(&[receive, send]);
        assert_eq!((sizes[0][0], sizes[1][0]), (0, 0));
        pair.exchange(100);
        pair.close();
    });
}

#[test]
fn a_message_that_is_not_empty_needs_a_registration_of_its_connection() {
    each(|mut pair| {
        // Of nobody, of the other side, and none of ours.
        for mr in [null_mut(), pair.sink_mr, without_provenance_mut(0x10)] {
            let receive = pair.receive(&[4096], &mut [0]);
            let mut request = poison();
            // The registration may be looked at only once the message can go.
            let code = until("refusal", || {
                // SAFETY: a live buffer.
                let code = unsafe {
                    pair.table
                        .isend(pair.send, pair.source(), 64, 0, mr, &raw mut request)
                };
                assert!(request.is_null(), "a send from {mr:p} was taken");
                (code != ncclSuccess).then_some(code)
            });
            assert_eq!(code, ncclInvalidArgument);
            let send = until("send", || {
                pair.try_send(pair.source(), 64, 0, pair.source_mr)
            });
            pair.finish(&[receive, send]);
        }
        pair.exchange(100);
        pair.close();
    });
}

#[test]
fn a_group_is_filled_by_tag_and_reports_a_size_for_each_slot() {
    each(|pair| {
        let receive = pair.receive(&[1000, 2000, 3000], &mut [5, -6, c_int::MAX]);
        // In another order than the slots, with an empty one between.
        let sends: Vec<Opaque> = [(c_int::MAX, 300), (5, 0), (-6, 200)]
            .into_iter()
            .map(|(tag, bytes)| {
                until("send", || {
                    pair.try_send(pair.source(), bytes, tag, pair.source_mr)
                })
            })
            .collect();
        let sizes = pair.finish(&[receive, sends[0], sends[1], sends[2]]);
        assert_eq!(
            sizes[0],
            [
                0, 200, 300, POISON_INT, POISON_INT, POISON_INT, POISON_INT, POISON_INT
            ]
        );
        assert_eq!([sizes[1][0], sizes[2][0], sizes[3][0]], [300, 0, 200]);
        for (slot, bytes) in [(1, 200), (2, 300)] {
            let at = slot * BUFFER_BYTES / 8;
            assert!(pair.sink[at..at + bytes] == pair.source[..bytes]);
        }
        pair.close();
    });
}

#[test]
fn sizes_may_be_missing_from_test() {
    each(|pair| {
        let receive = pair.receive(&[4096], &mut [0]);
        let send = until("send", || {
            pair.try_send(pair.source(), 64, 0, pair.source_mr)
        });
        for request in [receive, send] {
            until("request", || {
                // A test of either makes progress on its own side only.
                let mut done = POISON_INT;
                for other in [receive, send]
                    .into_iter()
                    .filter(|other| *other != request)
                {
                    // SAFETY: as NCCL calls it; an error says that the other is done already.
                    unsafe { pair.table.test(other, &mut 0, null_mut()) };
                }
                // SAFETY: as NCCL calls it.
                let code = unsafe { pair.table.test(request, &raw mut done, null_mut()) };
                (code != ncclSuccess || done == 1).then_some(())
            });
        }
        pair.close();
    });
}

#[test]
fn what_has_ended_is_an_error_afterwards() {
    each(|pair| {
        let receive = pair.receive(&[4096], &mut [0]);
        let send = until("send", || {
            pair.try_send(pair.source(), 64, 0, pair.source_mr)
        });
        pair.finish(&[send, receive]);
        for request in [send, receive] {
            let mut done = POISON_INT;
            // SAFETY: requests are never followed.
            let code = unsafe { pair.table.test(request, &raw mut done, null_mut()) };
            assert_eq!(
                (code, done),
                (ncclInvalidArgument, 0),
                "a request that was done already"
            );
        }
        let (table, comms) = (pair.table, [pair.send, pair.recv]);
        let (source, sink, source_mr, mut sink_mr) =
            (pair.source(), pair.sink(0), pair.source_mr, pair.sink_mr);
        let buffers = (pair.source.clone(), pair.sink.clone());
        pair.close();
        let (mut request, mut data) = (poison(), sink);
        // SAFETY: communicators are never followed, and what they knew of is not touched.
        unsafe {
            let code = table.isend(comms[0], source, 64, 0, source_mr, &raw mut request);
            assert_eq!((code, request), (ncclInvalidArgument, null_mut()));
            request = poison();
            let (data, mrs) = (&raw mut data, &raw mut sink_mr);
            let code = table.irecv(
                comms[1],
                1,
                data,
                Some(&[64]),
                &mut 0,
                mrs,
                &raw mut request,
            );
            assert_eq!((code, request), (ncclInvalidArgument, null_mut()));
            assert_eq!(table.dereg_mr(comms[0], source_mr), ncclInvalidArgument);
            assert_eq!(table.close_send(comms[0]), ncclInvalidArgument);
            assert_eq!(table.close_recv(comms[1]), ncclInvalidArgument);
        }
        drop(buffers);
    });
}

#[test]
fn a_connection_closes_with_requests_in_flight() {
    each(|pair| {
        // An abort: NCCL leaves its loop and closes what is open.
        let receives = [(); 4].map(|()| pair.receive(&[4096], &mut [0]));
        assert!(receives.iter().all(|request| !request.is_null()));
        until("send", || {
            pair.try_send(pair.source(), 64, 0, pair.source_mr)
        });
        pair.close();
    });
}
