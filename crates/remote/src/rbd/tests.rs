//! An image as a device, on a cluster in memory.

use std::error::Error;

use fastness_blkdev::{BlockDevice, Cause, ErrorKind, Operation, Request};

use crate::access::Access;
use crate::error::OpenError;
use crate::name::{Name, RbdName, parse};
use crate::rbd::RbdDevice;
use crate::rbd::fake::{FUNCTIONS, Fake};

const LEN: usize = 1 << 20;

fn name(text: &str) -> RbdName {
    match parse(text).unwrap() {
        Name::Rbd(name) => name,
        _ => unreachable!(),
    }
}

fn open(text: &str) -> Result<RbdDevice, OpenError> {
    RbdDevice::open(&FUNCTIONS, &name(text), Access::Write)
}

fn device() -> RbdDevice {
    open("rbd:tank/disk").unwrap()
}

#[test]
fn bytes_go_to_the_image_and_come_back() {
    let fake = Fake::with_image(LEN);
    let device = device();
    assert_eq!((device.len_bytes(), device.logical_block_bytes()), (LEN as u64, 512));
    assert!(device.info().fences_others && !device.is_read_only());
    device.write_at(4096, &[7; 512]).unwrap();
    device.write_fua(8192, &[8; 512]).unwrap();
    device.flush().unwrap();
    assert_eq!(fake.world().flushes, 1);
    let mut buf = [0; 512];
    device.read_at(4096, &mut buf).unwrap();
    assert_eq!(buf, [7; 512]);
    fake.change(|image| assert_eq!(image.bytes[8192..8704], [8; 512]));
    assert_eq!(device.stats().of(Operation::Write).bytes, 512);
}

#[test]
fn zeroes_are_written_where_a_discard_keeps_the_old_bytes() {
    let fake = Fake::with_image(LEN);
    let device = device();
    device.write_at(0, &[9; 8192]).unwrap();
    device.discard(0, 4096).unwrap();
    device.write_zeroes(4096, 4096).unwrap();
    assert!(device.info().can_discard && !device.info().discard_zeroes);
    fake.change(|image| assert!(image.bytes[4096..8192].iter().all(|byte| *byte == 0)));
    let calls = &fake.world().calls;
    assert!(calls.contains(&"rbd_aio_discard") && calls.contains(&"rbd_aio_write_zeroes"));
}

#[test]
fn long_ranges_go_in_parts() {
    let fake = Fake::with_image(300 << 20);
    let device = device();
    fake.change(|image| image.bytes[299 << 20] = 1);
    device.write_zeroes(0, 300 << 20).unwrap();
    fake.change(|image| assert_eq!(image.bytes[299 << 20], 0));
    fake.fail("rbd_aio_write_zeroes", 0);
    fake.fail("rbd_aio_write_zeroes", libc::EIO);
    let error = device.write_zeroes(0, 300 << 20).unwrap_err();
    assert_eq!((error.offset, error.len_bytes), (256 << 20, 44 << 20));
}

#[test]
fn handles_are_closed_in_order_and_none_is_left() {
    let fake = Fake::with_image(LEN);
    drop(device());
    let ends = ["rbd_close", "rados_ioctx_destroy", "rados_shutdown"];
    let calls = fake.world().calls.clone();
    assert_eq!(calls[calls.len() - 3..], ends);
    assert_eq!(fake.world().open, 0);
    fake.change(|image| assert_eq!(image.owner, None, "the lock is given up"));
}

#[test]
fn each_call_of_opening_can_fail_and_leaves_nothing_open() {
    let fake = Fake::with_image(LEN);
    let calls = [
        "rados_create",
        "rados_conf_read_file",
        "rados_conf_set",
        "rados_connect",
        "rados_ioctx_create",
        "rbd_open",
        "rbd_config_image_list",
        "rbd_get_features",
        "rbd_lock_acquire",
        "rbd_is_exclusive_lock_owner",
        "rbd_get_size",
    ];
    for call in calls {
        fake.fail(call, libc::ETIMEDOUT);
        let error = open("rbd:tank/disk").unwrap_err();
        assert!(error.to_string().contains(call), "{call}: {error}");
        assert_eq!(error.kind(), ErrorKind::MediaFailed, "{call}");
        assert_eq!(fake.world().open, 0, "{call}");
    }
    assert_eq!(open("rbd:other/disk").unwrap_err().kind(), ErrorKind::Invalid);
    assert_eq!(open("rbd:tank/other").unwrap_err().kind(), ErrorKind::Invalid);
    assert!(matches!(open("rbd:tank"), Err(OpenError::Unfit { .. })));
    assert_eq!(fake.world().open, 0);
    open("rbd:tank/disk").unwrap();
}

#[test]
fn an_image_whose_own_settings_turn_the_cache_on_is_refused() {
    let fake = Fake::with_image(LEN);
    for (setting, value) in [
        ("rbd_cache", "true"),
        ("rbd_blocklist_on_break_lock", "false"),
        ("rbd_persistent_cache_mode", "ssd"),
    ] {
        fake.change(|image| drop(image.settings.insert(setting.to_owned(), value.to_owned())));
        let error = open("rbd:tank/disk").unwrap_err();
        assert!(matches!(&error, OpenError::Unfit { why, .. } if why.contains(setting)), "{error}");
        fake.change(|image| image.settings.clear());
    }
    // A library that does not know the setting: what holds is not known.
    fake.change(|image| drop(image.settings.insert("rbd_cache".to_owned(), String::new())));
    assert!(open("rbd:tank/disk").is_err());
}

#[test]
fn an_image_without_a_lock_or_with_the_lock_of_another_is_refused() {
    let fake = Fake::with_image(LEN);
    fake.change(|image| image.features = 1);
    let error = open("rbd:tank/disk").unwrap_err();
    assert!(error.to_string().contains("rbd feature enable tank/disk exclusive-lock"), "{error}");
    fake.change(|image| image.features = 5);
    let first = device();
    let error = open("rbd:tank/disk").unwrap_err();
    assert!(matches!(error, OpenError::InUse { .. }) && error.kind() == ErrorKind::Retry);
    // To look, no lock is needed; and nothing can be changed.
    let look = RbdDevice::open(&FUNCTIONS, &name("rbd:tank/disk"), Access::Look).unwrap();
    look.read_at(0, &mut [0; 512]).unwrap();
    assert!(!look.info().fences_others);
    assert!(matches!(look.write_at(0, &[0; 512]).unwrap_err().cause, Cause::ReadOnly));
    look.flush().unwrap();
    drop(first);
    device();
}

#[test]
fn a_device_whose_lock_was_broken_does_nothing_any_more() {
    let fake = Fake::with_image(LEN);
    let device = device();
    device.write_at(0, &[1; 512]).unwrap();
    fake.fence();
    let error = device.write_at(512, &[2; 512]).unwrap_err();
    assert!(matches!(error.cause, Cause::Fenced(_)) && error.kind() == ErrorKind::Closed, "{error}");
    let source = error.cause.source().expect("it has a source").to_string();
    assert!(source.ends_with(&format!("(os error {})", libc::ESHUTDOWN)), "{source}");
    assert!(device.is_poisoned());
    // Whatever the library would say now.
    let calls = fake.world().calls.len();
    assert!(matches!(device.read_at(0, &mut [0; 512]).unwrap_err().cause, Cause::Fenced(_)));
    assert!(matches!(device.flush().unwrap_err().cause, Cause::Fenced(_)));
    assert!(matches!(device.write_fua(0, &[3; 512]).unwrap_err().cause, Cause::Fenced(_)));
    let mut batch = [Request::Write { offset: 0, data: &[4; 512], fua: false }];
    assert!(matches!(device.run_batch(&mut batch).remove(0).unwrap_err().cause, Cause::Fenced(_)));
    assert_eq!(fake.world().calls.len(), calls, "nothing is asked any more");
    fake.change(|image| assert_eq!(image.bytes[..1024], [[1; 512], [0; 512]].concat()));
}

#[test]
fn errors_that_fence_are_told_from_those_that_do_not() {
    for (error, fences) in [
        (libc::EROFS, true),
        (libc::ESHUTDOWN, true),
        (libc::ETIMEDOUT, true),
        (libc::EIO, false),
        (libc::EDQUOT, false),
        (libc::ENOMEM, false),
        (libc::ENOENT, false),
    ] {
        let fake = Fake::with_image(LEN);
        let device = device();
        fake.fail("rbd_aio_write", error);
        let failed = device.write_at(0, &[1; 512]).unwrap_err();
        assert_eq!(matches!(failed.cause, Cause::Fenced(_)), fences, "{failed}");
        assert_eq!(device.is_poisoned(), fences, "{error}");
        assert_eq!(device.write_at(0, &[2; 512]).is_ok(), !fences, "{error}");
        let kind = match error {
            libc::EDQUOT => ErrorKind::NoSpace,
            libc::ENOMEM => ErrorKind::Retry,
            _ if fences => ErrorKind::Closed,
            _ => ErrorKind::MediaFailed,
        };
        assert_eq!(failed.kind(), kind, "{error}");
    }
}

#[test]
fn a_flush_that_fails_is_the_last_one() {
    for (call, is_flush) in [("rbd_aio_flush", true), ("rbd_aio_write", false)] {
        let fake = Fake::with_image(LEN);
        let device = device();
        fake.fail(call, libc::EIO);
        let failed = if is_flush { device.flush() } else { device.write_fua(0, &[1; 512]) };
        assert_eq!(failed.unwrap_err().kind(), ErrorKind::MediaFailed);
        assert!(device.is_poisoned());
        assert!(matches!(device.flush().unwrap_err().cause, Cause::Poisoned));
        assert!(matches!(device.write_at(0, &[1; 512]).unwrap_err().cause, Cause::Poisoned));
        assert!(matches!(device.discard(0, 512).unwrap_err().cause, Cause::Poisoned));
        device.read_at(0, &mut [0; 512]).unwrap();
    }
}

#[test]
fn a_request_that_cannot_be_made_is_an_error_and_leaves_no_completion() {
    let fake = Fake::with_image(LEN);
    let device = device();
    let open = fake.world().open;
    for call in ["rbd_aio_create_completion", "!rbd_aio_read"] {
        fake.fail(call, libc::ENOMEM);
        assert_eq!(device.read_at(0, &mut [0; 512]).unwrap_err().kind(), ErrorKind::Retry);
        assert_eq!(fake.world().open, open, "{call}");
    }
    for call in ["!rbd_aio_write", "!rbd_aio_discard", "!rbd_aio_write_zeroes", "!rbd_aio_flush"] {
        fake.fail(call, libc::ENOMEM);
        let failed = [
            device.write_at(0, &[0; 512]).is_err(),
            device.discard(0, 512).is_err(),
            device.write_zeroes(0, 512).is_err(),
            device.flush().is_err(),
        ];
        assert_eq!(failed.iter().filter(|failed| **failed).count(), 1, "{call}");
    }
}

#[test]
fn an_image_that_became_shorter_acknowledges_nothing_after_its_end() {
    let fake = Fake::with_image(LEN);
    let device = device();
    fake.change(|image| image.bytes.truncate(8192));
    device.write_at(4096, &[1; 4096]).unwrap();
    // librbd cuts both off, and calls the write a success.
    assert!(matches!(device.write_at(4096, &[1; 8192]).unwrap_err().cause, Cause::Ended));
    assert!(matches!(device.write_zeroes(8192, 4096).unwrap_err().cause, Cause::Ended));
    let error = device.read_at(4096, &mut [0; 8192]).unwrap_err();
    assert!(matches!(error.cause, Cause::Ended));
    assert_eq!((error.offset, error.len_bytes), (8192, 4096));
    let mut batch = [Request::Write { offset: 16384, data: &[4; 512], fua: true }];
    assert!(matches!(device.run_batch(&mut batch).remove(0).unwrap_err().cause, Cause::Ended));
    assert!(device.is_poisoned(), "a FUA write has failed");
}

#[test]
fn what_is_not_whole_blocks_or_not_in_the_image_does_not_reach_it() {
    let fake = Fake::with_image(LEN);
    let device = open("rbd:tank/disk@block=4096").unwrap();
    assert_eq!(device.logical_block_bytes(), 4096);
    let calls = fake.world().calls.len();
    assert!(matches!(device.write_at(512, &[0; 4096]).unwrap_err().cause, Cause::Misaligned { .. }));
    assert!(matches!(device.write_at(LEN as u64, &[0; 4096]).unwrap_err().cause, Cause::OutOfRange { .. }));
    assert!(device.read_at(u64::MAX - 4095, &mut [0; 4096]).is_err());
    assert_eq!(fake.world().calls.len(), calls);
    fake.change(|image| image.bytes.truncate(LEN - 512));
    drop(device);
    assert!(matches!(open("rbd:tank/disk@block=4096"), Err(OpenError::Unfit { .. })));
}

#[test]
fn an_image_has_a_number_and_keeps_notes() {
    let fake = Fake::with_image(LEN);
    let first = device();
    assert_eq!(first.identity().unwrap(), "f51d/2/10d5");
    assert_eq!(first.note("us").unwrap(), None);
    first.set_note("us", Some("one")).unwrap();
    assert_eq!(first.note("us").unwrap().as_deref(), Some("one"));
    assert_eq!(first.set_note("us", Some("a\0b")).unwrap_err().kind(), std::io::ErrorKind::InvalidInput);
    first.set_note("us", None).unwrap();
    first.set_note("us", None).unwrap();
    assert_eq!(first.note("us").unwrap(), None);
    fake.change(|image| drop(image.notes.insert("us".to_owned(), "x".repeat(4096))));
    assert_eq!(first.note("us").unwrap_err().raw_os_error(), Some(libc::ERANGE));
    for (call, errno) in [("rbd_get_id", libc::EIO), ("rados_cluster_fsid", libc::ENOTCONN)] {
        fake.fail(call, errno);
        assert_eq!(first.identity().unwrap_err().raw_os_error(), Some(errno));
    }
    fake.fence();
    assert!(first.write_at(0, &[1; 512]).is_err());
    let error = first.set_note("us", Some("two")).unwrap_err();
    assert_eq!(error.kind(), std::io::ErrorKind::PermissionDenied, "another client has the image");
}

#[test]
fn the_requests_of_a_batch_each_have_their_own_result() {
    let fake = Fake::with_image(LEN);
    let device = device();
    fake.change(|image| image.bytes[..512].fill(5));
    let mut buf = vec![0; 512];
    let data = [6; 512];
    fake.fail("rbd_aio_write", libc::EIO);
    let mut batch = vec![
        Request::Read { offset: 0, buf: &mut buf },
        Request::Write { offset: 512, data: &data, fua: false },
        Request::Write { offset: 1, data: &data, fua: false },
        Request::Write { offset: 1024, data: &data, fua: true },
    ];
    // More than are in flight at once.
    batch.extend((0..300).map(|at| Request::Write { offset: 4096 + at * 512, data: &data, fua: false }));
    let results = device.run_batch(&mut batch);
    drop(batch);
    assert_eq!(results.len(), 304);
    assert!(results[0].is_ok() && buf == [5; 512]);
    assert!(matches!(results[1].as_ref().unwrap_err().cause, Cause::Media(_)));
    assert!(matches!(results[2].as_ref().unwrap_err().cause, Cause::Misaligned { .. }));
    assert!(results[3..].iter().all(Result::is_ok));
    fake.change(|image| {
        assert_eq!(image.bytes[512..1024], [0; 512]);
        assert_eq!(image.bytes[1024..1536], data);
        assert!(image.bytes[4096..4096 + 300 * 512].iter().all(|byte| *byte == 6));
    });
    assert_eq!(device.stats().of(Operation::Write).errors, 1);
}

#[test]
fn the_images_of_a_pool_are_listed_with_the_options_given() {
    let fake = Fake::with_image(LEN);
    for index in 0..1000 {
        fake.world().images.insert(format!("image-{index:04}"), super::fake::FakeImage::default());
    }
    fake.world().images.insert("snap@shot".to_owned(), super::fake::FakeImage::default());
    let names = super::images(&FUNCTIONS, &name("rbd:tank@conf=/etc/a")).unwrap();
    assert_eq!(names.len(), 1001);
    assert_eq!(names[0], "rbd:tank/disk@conf=/etc/a");
    assert_eq!(fake.world().open, 0);
    fake.fail("rbd_list", libc::EIO);
    assert!(super::images(&FUNCTIONS, &name("rbd:tank")).is_err());
    assert_eq!(fake.world().open, 0);
}
