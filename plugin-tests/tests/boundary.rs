//! Every entry of every version against NULL, foreign and stale pointers, absurd sizes and poisoned
//! outputs. NCCL does none of that; a defect somewhere else in the process may.
//!
//! Every output is poisoned before a call and must have been written after it. A wrong argument is
//! an error, never a crash, and disturbs nothing else.

use std::ffi::{c_int, c_void};
use std::ptr::{null_mut, without_provenance_mut};
use std::sync::atomic::Ordering;

use r2ccl_abi::*;
use r2ccl_plugin_tests::plugin;
use r2ccl_plugin_tests::table::{self, Opaque, Table};

/// What an output holds before a call.
fn poison<T>() -> *mut T {
    without_provenance_mut(0xAAAA_AAAA_AAAA_AAA0)
}
const POISON_INT: c_int = 0xAAAA_AAAA_u32 as c_int;

/// Runs a test on each version, initialised.
fn each(test: impl Fn(&dyn Table)) {
    for table in table::all(plugin::load()) {
        let mut ctx = poison();
        // SAFETY: as NCCL calls it.
        let code = unsafe { table.init(&raw mut ctx, plugin::logger()) };
        assert_eq!(code, ncclSuccess, "v{}: init", table.version());
        test(table);
    }
}

fn devices(table: &dyn Table) -> c_int {
    let mut count = POISON_INT;
    // SAFETY: as NCCL calls it.
    assert_eq!(unsafe { table.devices(&raw mut count) }, ncclSuccess);
    count
}

/// Pointers that are no object of ours: NULL, small, on the stack, on the heap, code, all ones, and
/// some that look like ids.
fn foreign_pointers(on_stack: &mut u64, on_heap: &mut u64) -> Vec<Opaque> {
    let mut pointers: Vec<Opaque> = vec![
        null_mut(),
        (on_stack as *mut u64).cast(),
        (on_heap as *mut u64).cast(),
        (foreign_pointers as *const c_void).cast_mut(),
    ];
    let numbers = [
        1,
        0x10,
        0xDEAD_BEEF,
        u64::MAX,
        1 << 63,
        0x7FFF_FFFF_FFFF_FFFF,
    ];
    // Ids of every kind whose serial nothing that lives can have reached.
    let kinds = (0xA0..=0xAF_u64)
        .flat_map(|kind| [0x5A5A_5A5A_5A00_0000, u64::MAX].map(|id| kind << 56 | id >> 8));
    pointers.extend(
        numbers
            .into_iter()
            .chain(kinds)
            .map(|id| without_provenance_mut(id as usize)),
    );
    pointers
}

fn each_foreign(test: impl Fn(&dyn Table, Opaque)) {
    let (mut on_stack, mut on_heap) = (u64::MAX, Box::new(u64::MAX));
    let pointers = foreign_pointers(&mut on_stack, &mut on_heap);
    each(|table| pointers.iter().for_each(|pointer| test(table, *pointer)));
    assert_eq!(
        (on_stack, *on_heap),
        (u64::MAX, u64::MAX),
        "a foreign object was written to"
    );
}

#[test]
fn init_may_be_called_any_number_of_times_and_writes_the_context() {
    for _ in 0..3 {
        each(|table| {
            let mut ctx = poison();
            // SAFETY: as NCCL calls it, and once without a logger.
            let code = unsafe { table.init(&raw mut ctx, None) };
            assert_eq!(code, ncclSuccess);
            assert_eq!(
                ctx == poison(),
                table.version() < 11,
                "v{}",
                table.version()
            );
            // SAFETY: NULL is for a caller who has no place for the context.
            assert_eq!(unsafe { table.init(null_mut(), None) }, ncclSuccess);
        });
    }
}

#[test]
fn finalize_takes_any_context() {
    each_foreign(|table, pointer| {
        assert_eq!(table.finalize().is_some(), table.version() >= 11);
        if let Some(finalize) = table.finalize() {
            // SAFETY: contexts are never followed.
            assert_eq!(unsafe { finalize(pointer) }, ncclSuccess);
        }
    });
}

#[test]
fn devices_are_counted_the_same_in_every_version() {
    each(|table| {
        assert_eq!(devices(table), 2, "v{}", table.version());
        // SAFETY: NULL must be found.
        assert_eq!(unsafe { table.devices(null_mut()) }, ncclInvalidArgument);
    });
}

/// Offset and size of the fields of the properties, by version.
fn property_fields(version: u32) -> Vec<(usize, usize)> {
    let mut fields = vec![(0, 8), (8, 8), (16, 8)];
    let ints = if version == 8 { 24..60 } else { 24..64 };
    fields.extend(ints.step_by(4).map(|offset| (offset, 4)));
    match version {
        8 => {}
        9 | 10 => fields.extend([(64, 20), (88, 8), (96, 8)]),
        11 => fields.extend([(64, 20), (88, 8), (96, 8), (104, 4)]),
        _ => fields.extend([(64, 36), (104, 8), (112, 8), (120, 4), (124, 2), (126, 2)]),
    }
    fields
}

const BUFFER_BYTES: usize = 256;

/// The bytes that getProperties leaves in poisoned memory.
fn properties(table: &dyn Table, dev: c_int) -> (ncclResult_t, [u8; BUFFER_BYTES]) {
    #[repr(align(16))]
    struct Buffer([u8; BUFFER_BYTES]);
    let mut buffer = Buffer([0xAA; BUFFER_BYTES]);
    // SAFETY: the buffer is larger than the properties of any version.
    let code = unsafe { table.get_properties(dev, (&raw mut buffer).cast()) };
    (code, buffer.0)
}

#[test]
fn properties_are_written_whole_and_nothing_behind_them() {
    each(|table| {
        let mut names = Vec::new();
        for dev in 0..devices(table) {
            let (code, bytes) = properties(table, dev);
            assert_eq!(code, ncclSuccess);
            for (offset, size) in property_fields(table.version()) {
                let field = &bytes[offset..offset + size];
                assert!(
                    field != vec![0xAA; size],
                    "v{}, offset {offset}",
                    table.version()
                );
            }
            let behind = &bytes[table.properties_bytes()..];
            assert!(
                behind.iter().all(|byte| *byte == 0xAA),
                "v{}: too long",
                table.version()
            );
            names.push(u64::from_ne_bytes(bytes[..8].try_into().unwrap()));
            let again = properties(table, dev).1;
            for (offset, size) in property_fields(table.version()) {
                let field = offset..offset + size;
                assert_eq!(
                    bytes[field.clone()],
                    again[field],
                    "not a pure function of dev"
                );
            }
            if table.version() >= 9 {
                let members: Vec<i32> = bytes[64..72]
                    .chunks(4)
                    .map(|int| i32::from_ne_bytes(int.try_into().unwrap()))
                    .collect();
                assert_eq!(members, [1, dev], "a physical device consists of itself");
            }
        }
        assert!(
            names[0] != 0 && names[0] != names[1],
            "the names are one string"
        );
    });
}

#[test]
fn properties_of_no_device_are_an_error_and_all_zero() {
    each(|table| {
        for dev in [-1, devices(table), c_int::MAX, c_int::MIN] {
            let (code, bytes) = properties(table, dev);
            assert_eq!(
                code,
                ncclInvalidArgument,
                "v{}: device {dev}",
                table.version()
            );
            assert!(
                bytes[..table.properties_bytes()]
                    .iter()
                    .all(|byte| *byte == 0)
            );
        }
        // SAFETY: NULL must be found.
        let code = unsafe { table.get_properties(0, null_mut()) };
        assert_eq!(code, ncclInvalidArgument);
    });
}

#[test]
fn listen_refuses_what_cannot_be() {
    each(|table| {
        let mut handle = [0xAA_u8; 128];
        let place: Opaque = (&raw mut handle).cast();
        for dev in [-1, devices(table), c_int::MAX, c_int::MIN] {
            let mut comm = poison();
            // SAFETY: as NCCL calls it, but for the device.
            let code = unsafe { table.listen(dev, place, &raw mut comm) };
            assert_eq!(
                (code, comm),
                (ncclInvalidArgument, null_mut()),
                "device {dev}"
            );
        }
        let mut comm = poison();
        // SAFETY: NULL must be found, for either pointer.
        unsafe {
            assert_eq!(
                table.listen(0, null_mut(), &raw mut comm),
                ncclInvalidArgument
            );
            assert_eq!(table.listen(0, place, null_mut()), ncclInvalidArgument);
        }
        assert_eq!(comm, null_mut());
    });
}

#[test]
fn a_listener_lives_from_listen_to_close_and_no_longer() {
    each(|table| {
        let (mut handle, mut listener) = ([0xAA_u8; 128], poison());
        let (mut comm, mut side) = (poison(), poison());
        // SAFETY: as NCCL calls it; afterwards the listener is stale.
        unsafe {
            let code = table.listen(0, (&raw mut handle).cast(), &raw mut listener);
            assert_eq!(code, ncclSuccess);
            assert!(!listener.is_null() && listener != poison());
            // Nobody has connected: not yet, and no device side.
            let code = table.accept(listener, &raw mut comm, &raw mut side);
            assert_eq!((code, comm, side), (ncclSuccess, null_mut(), null_mut()));
            assert_eq!(
                table.accept(listener, &raw mut comm, null_mut()),
                ncclSuccess
            );
            assert_eq!(
                table.accept(listener, null_mut(), null_mut()),
                ncclInvalidArgument
            );
            // It is a listener and nothing else.
            assert_eq!(table.close_send(listener), ncclInvalidArgument);
            assert_eq!(table.close_recv(listener), ncclInvalidArgument);

            assert_eq!(table.close_listen(listener), ncclSuccess);
            assert_eq!(table.close_listen(listener), ncclInvalidArgument);
            comm = poison();
            let code = table.accept(listener, &raw mut comm, null_mut());
            assert_eq!((code, comm), (ncclInvalidArgument, null_mut()));
        }
        assert!(
            handle.iter().any(|byte| *byte != 0xAA),
            "the handle was not filled"
        );
    });
}

#[test]
fn connect_refuses_foreign_handles() {
    each(|table| {
        for fill in [0x00, 0x01, 0xAA, 0xFF] {
            let (mut handle, mut comm, mut side) = ([fill; 128], poison(), poison());
            // SAFETY: as NCCL calls it, with the handle of another plugin.
            let code =
                unsafe { table.connect(0, (&raw mut handle).cast(), &raw mut comm, &raw mut side) };
            assert_ne!(code, ncclSuccess, "a handle full of {fill:#x}");
            assert_eq!((comm, side), (null_mut(), null_mut()));
        }
        let (mut handle, mut comm) = ([0; 128], poison());
        // SAFETY: NULL must be found, for either pointer.
        unsafe {
            let code = table.connect(0, null_mut(), &raw mut comm, null_mut());
            assert_eq!((code, comm), (ncclInvalidArgument, null_mut()));
            let code = table.connect(0, (&raw mut handle).cast(), null_mut(), null_mut());
            assert_eq!(code, ncclInvalidArgument);
        }
    });
}

#[test]
fn foreign_objects_are_refused_by_set_up_and_teardown() {
    each_foreign(|table, object| {
        let (mut data, mut comm, mut mhandle) = ([0_u64; 8], poison(), poison());
        // SAFETY: objects are never followed; all else is as NCCL calls it.
        unsafe {
            let code = table.accept(object, &raw mut comm, null_mut());
            assert_eq!(
                (code, comm),
                (ncclInvalidArgument, null_mut()),
                "accept {object:p}"
            );
            let code = table.reg_mr(
                object,
                (&raw mut data).cast(),
                64,
                NCCL_PTR_HOST,
                &raw mut mhandle,
            );
            assert_eq!(
                (code, mhandle),
                (ncclInvalidArgument, null_mut()),
                "regMr {object:p}"
            );
            assert_eq!(
                table.dereg_mr(object, object),
                ncclInvalidArgument,
                "deregMr {object:p}"
            );
            assert_eq!(
                table.close_send(object),
                ncclInvalidArgument,
                "closeSend {object:p}"
            );
            assert_eq!(
                table.close_recv(object),
                ncclInvalidArgument,
                "closeRecv {object:p}"
            );
            assert_eq!(
                table.close_listen(object),
                ncclInvalidArgument,
                "closeListen {object:p}"
            );
        }
    });
}

#[test]
fn foreign_objects_are_refused_by_the_data_path() {
    each_foreign(|table, object| {
        let mut data = [0_u64; 8];
        let mut address: Opaque = (&raw mut data).cast();
        let (mut mhandle, mut tag, mut int) = (object, 0, 64);
        let mut request = poison();
        // SAFETY: objects are never followed; all else is as NCCL calls it.
        unsafe {
            let code = table.isend(object, address, 64, 0, mhandle, &raw mut request);
            assert_eq!(
                (code, request),
                (ncclInvalidArgument, null_mut()),
                "isend {object:p}"
            );
            assert_eq!(
                table.isend(object, address, 64, 0, mhandle, null_mut()),
                code
            );

            // NCCL may leave a hint in the slot: "the completion is of no interest".
            request = without_provenance_mut(NCCL_NET_OPTIONAL_RECV_COMPLETION as usize);
            let (addresses, mhandles) = (&raw mut address, &raw mut mhandle);
            let tags = &raw mut tag;
            let sizes = Some(&[64_i64][..]);
            let code = table.irecv(
                object,
                1,
                addresses,
                sizes,
                tags,
                mhandles,
                &raw mut request,
            );
            assert_eq!(
                (code, request),
                (ncclInvalidArgument, null_mut()),
                "irecv {object:p}"
            );

            request = poison();
            let code = table.iflush(
                object,
                1,
                addresses,
                &raw mut int,
                mhandles,
                &raw mut request,
            );
            assert_eq!(
                (code, request),
                (ncclInvalidArgument, null_mut()),
                "iflush {object:p}"
            );

            let mut done = POISON_INT;
            let code = table.test(object, &raw mut done, null_mut());
            assert_eq!((code, done), (ncclInvalidArgument, 0), "test {object:p}");
            assert_eq!(
                table.test(object, null_mut(), null_mut()),
                ncclInvalidArgument
            );
        }
    });
}

#[test]
fn errors_are_warnings_in_the_log_but_not_without_end() {
    each(|table| {
        let before = plugin::WARNINGS.load(Ordering::Relaxed);
        for _ in 0..1000 {
            // SAFETY: an object that is none.
            unsafe { table.test(without_provenance_mut(8), &mut 0, null_mut()) };
        }
        // Other tests warn as well, each from a handful of entries.
        let printed = plugin::WARNINGS.load(Ordering::Relaxed) - before;
        assert!(printed < 500, "{printed} warnings for 1000 errors");
    });
    assert!(
        plugin::WARNINGS.load(Ordering::Relaxed) > 0,
        "no error was printed"
    );
}
