//! Every error path of files, with a kernel that fails on request.

use std::collections::VecDeque;
use std::io::{self, IoSlice, IoSliceMut};
use std::os::fd::RawFd;
use std::sync::{Arc, Mutex};

use super::*;
use crate::error::ErrorKind;
use crate::health::Identity;
use crate::info::{DeviceKind, Engine};

const LEN: usize = 64 << 10;

/// What the next system call does.
#[derive(Debug, Clone, Copy)]
enum Answer {
    /// Transfers at most this many bytes.
    AtMost(usize),
    /// Fails.
    Errno(i32),
}

#[derive(Debug, Default)]
struct Script {
    answers: VecDeque<Answer>,
    bytes: Vec<u8>,
    /// (offset, length, durable) of each write that reached the file.
    writes: Vec<(u64, usize, bool)>,
    syncs: usize,
}

/// A kernel in memory that follows a script, and without one completes every request.
#[derive(Debug, Clone, Default)]
struct FakeIo(Arc<Mutex<Script>>);

impl FakeIo {
    fn script(&self, answers: &[Answer]) {
        self.0.lock().unwrap().answers = answers.iter().copied().collect();
    }

    fn next(script: &mut Script, len: usize) -> io::Result<usize> {
        match script.answers.pop_front() {
            None => Ok(len),
            Some(Answer::AtMost(most)) => Ok(len.min(most)),
            Some(Answer::Errno(errno)) => Err(io::Error::from_raw_os_error(errno)),
        }
    }
}

impl RawIo for FakeIo {
    fn read(&self, offset: u64, buf: &mut [u8]) -> io::Result<usize> {
        let mut script = self.0.lock().unwrap();
        let len = FakeIo::next(&mut script, buf.len())?;
        let start = offset as usize;
        buf[..len].copy_from_slice(&script.bytes[start..start + len]);
        Ok(len)
    }

    fn read_vectored(&self, offset: u64, parts: &mut [IoSliceMut<'_>]) -> io::Result<usize> {
        let mut joined = vec![0; parts.iter().map(|part| part.len()).sum()];
        let len = self.read(offset, &mut joined)?;
        let mut rest = &joined[..len];
        for part in parts {
            let (head, tail) = rest.split_at(part.len().min(rest.len()));
            part[..head.len()].copy_from_slice(head);
            rest = tail;
        }
        Ok(len)
    }

    fn write_vectored(&self, offset: u64, parts: &[IoSlice<'_>], dsync: bool) -> io::Result<usize> {
        let mut script = self.0.lock().unwrap();
        let joined = parts.iter().flat_map(|part| part.iter().copied()).collect::<Vec<_>>();
        let len = FakeIo::next(&mut script, joined.len())?;
        let start = offset as usize;
        script.bytes[start..start + len].copy_from_slice(&joined[..len]);
        script.writes.push((offset, len, dsync));
        Ok(len)
    }

    fn sync(&self) -> io::Result<()> {
        let mut script = self.0.lock().unwrap();
        script.syncs += 1;
        FakeIo::next(&mut script, 0).map(drop)
    }

    fn discard(&self, _: u64, _: u64) -> io::Result<()> {
        FakeIo::next(&mut self.0.lock().unwrap(), 0).map(drop)
    }

    fn zero(&self, _: u64, _: u64) -> io::Result<()> {
        FakeIo::next(&mut self.0.lock().unwrap(), 0).map(drop)
    }

    fn len_bytes(&self) -> io::Result<u64> {
        Ok(self.0.lock().unwrap().bytes.len() as u64)
    }

    fn raw_fd(&self) -> Option<RawFd> {
        None
    }
}

fn info(is_direct: bool) -> DeviceInfo {
    DeviceInfo {
        name: "fake".into(),
        len_bytes: LEN as u64,
        logical_block_bytes: 512,
        physical_block_bytes: 4096,
        memory_align_bytes: if is_direct { 512 } else { 1 },
        is_read_only: false,
        can_discard: true,
        discard_zeroes: true,
        fences_others: false,
        is_direct,
        write_cache: crate::WriteCache::PageCache,
        kind: DeviceKind::File,
        engine: Engine::Psync,
        notes: Vec::new(),
    }
}

fn device_with(is_direct: bool, health: Arc<Health>) -> (FileDevice, FakeIo) {
    let fake = FakeIo::default();
    fake.0.lock().unwrap().bytes = (0..LEN).map(|at| (at / 512) as u8).collect();
    (FileDevice::new(info(is_direct), Box::new(fake.clone()), None, health), fake)
}

fn device() -> (FileDevice, FakeIo) {
    device_with(false, Health::alone())
}

#[test]
fn short_transfers_and_interruptions_are_completed() {
    for is_direct in [false, true] {
        let (device, fake) = device_with(is_direct, Health::alone());
        let data: Vec<u8> = (0..4096u32).map(|at| (at * 7) as u8).collect();
        let script = [
            Answer::AtMost(700),
            Answer::Errno(libc::EINTR),
            Answer::AtMost(2000),
            Answer::Errno(libc::EINTR),
        ];
        fake.script(&script);
        device.write_at(1024, &data).unwrap();
        // Direct I/O continues at a block border; the kernel would refuse anything else.
        let second = if is_direct { 1024 + 512 } else { 1024 + 700 };
        assert_eq!(fake.0.lock().unwrap().writes[1].0, second);
        fake.script(&script);
        let mut read = vec![0; 4096];
        device.read_at(1024, &mut read).unwrap();
        assert_eq!(read, data);

        fake.script(&script);
        let (left, right) = data.split_at(1536);
        device
            .write_vectored_at(8192, &[IoSlice::new(left), IoSlice::new(&[]), IoSlice::new(right)])
            .unwrap();
        fake.script(&script);
        let (mut left, mut right) = (vec![0; 1000], vec![0; 3096]);
        device
            .read_vectored_at(8192, &mut [IoSliceMut::new(&mut left), IoSliceMut::new(&mut right)])
            .unwrap();
        left.extend(right);
        assert_eq!(left, data);
        assert_eq!(device.stats().of(Operation::Write).ops, 2);
        assert_eq!(device.stats().of(Operation::Write).bytes, 8192);
    }
}

#[test]
fn more_parts_than_a_system_call_takes() {
    let (device, _) = device();
    let parts = vec![[7u8; 8]; 4096];
    let slices: Vec<_> = parts.iter().map(|part| IoSlice::new(part)).collect();
    device.write_vectored_at(512, &slices).unwrap();
    let mut read = vec![0; 8 * 4096];
    let mut slices: Vec<_> = read.chunks_mut(8).map(IoSliceMut::new).collect();
    device.read_vectored_at(512, &mut slices).unwrap();
    assert!(read.iter().all(|&byte| byte == 7));
}

#[test]
fn an_error_says_where_and_why() {
    type IsCause = fn(&Cause) -> bool;
    let causes: [(i32, ErrorKind, IsCause); 9] = [
        (libc::EIO, ErrorKind::MediaFailed, |cause| matches!(cause, Cause::Media(_))),
        (libc::EREMOTEIO, ErrorKind::MediaFailed, |cause| matches!(cause, Cause::Media(_))),
        (libc::ENODEV, ErrorKind::MediaFailed, |cause| matches!(cause, Cause::Gone(_))),
        (libc::ENXIO, ErrorKind::MediaFailed, |cause| matches!(cause, Cause::Gone(_))),
        (libc::ENOSPC, ErrorKind::NoSpace, |cause| matches!(cause, Cause::NoSpace(_))),
        (libc::EDQUOT, ErrorKind::NoSpace, |cause| matches!(cause, Cause::NoSpace(_))),
        (libc::EROFS, ErrorKind::Invalid, |cause| matches!(cause, Cause::ReadOnly)),
        (libc::ENOMEM, ErrorKind::Retry, |cause| matches!(cause, Cause::Busy(_))),
        (libc::EINVAL, ErrorKind::Invalid, |cause| matches!(cause, Cause::Other(_))),
    ];
    for (errno, kind, is_cause) in causes {
        let (device, fake) = device();
        fake.script(&[Answer::AtMost(1000), Answer::Errno(errno)]);
        let error = device.write_at(2048, &[1; 4096]).unwrap_err();
        assert_eq!((error.offset, error.len_bytes), (3048, 3096));
        assert_eq!((error.operation, error.kind()), (Operation::Write, kind));
        assert!(is_cause(&error.cause), "{error}");
        assert!(
            error.to_string().contains("write on fake failed at offset 0xbe8 (3096 bytes left)"),
            "{error}"
        );
        fake.script(&[Answer::AtMost(512), Answer::Errno(errno)]);
        let error = device.read_at(0, &mut [0; 1024]).unwrap_err();
        assert_eq!((error.offset, error.len_bytes, error.kind()), (512, 512, kind));
        assert!(!device.is_poisoned(), "a failed write may be tried again");
        assert_eq!(device.stats().of(Operation::Write).errors, 1);
    }
}

#[test]
fn a_file_that_was_truncated_under_us_is_reported() {
    let (device, fake) = device();
    fake.script(&[Answer::AtMost(512), Answer::AtMost(0)]);
    let error = device.read_at(1024, &mut [0; 1024]).unwrap_err();
    assert!(matches!(error.cause, Cause::Ended));
    assert_eq!((error.offset, error.kind()), (1536, ErrorKind::MediaFailed));
}

#[test]
fn a_bounced_transfer_keeps_its_offsets() {
    let (device, fake) = device_with(true, Health::alone());
    let data: Vec<u8> = (0..8193u32).map(|at| at as u8).collect();
    device.write_at(4096, &data[1..]).unwrap();
    let mut read = vec![0; 8193];
    device.read_at(4096, &mut read[1..]).unwrap();
    assert_eq!(read[1..], data[1..]);
    fake.script(&[Answer::AtMost(1024), Answer::Errno(libc::EIO)]);
    let error = device.read_at(4096, &mut read[1..]).unwrap_err();
    assert_eq!(error.offset, 4096 + 1024);
}

fn assert_refused(outcome: Result<(), BlockError>) {
    let error = outcome.unwrap_err();
    assert!(matches!(error.cause, Cause::Poisoned), "{error}");
    assert_eq!(error.kind(), ErrorKind::Closed);
}

fn assert_poisoned(device: &FileDevice, fake: &FakeIo) {
    fake.script(&[]);
    let syncs = fake.0.lock().unwrap().syncs;
    assert!(device.is_poisoned());
    assert_refused(device.flush());
    assert_refused(device.write_at(0, &[0; 512]));
    assert_refused(device.write_fua(0, &[0; 512]));
    assert_refused(device.discard(0, 512));
    assert_refused(device.write_zeroes(0, 512));
    assert_refused(device.write_vectored_at(0, &[IoSlice::new(&[0; 512])]));
    let mut batch = [
        Request::Write { offset: 0, data: &[0; 512], fua: false },
        Request::Write { offset: 512, data: &[0; 512], fua: true },
    ];
    device.run_batch(&mut batch).into_iter().for_each(assert_refused);
    device.read_at(0, &mut [0; 512]).unwrap();
    assert_eq!(fake.0.lock().unwrap().syncs, syncs, "the kernel is not asked again: it would say yes");
}

#[test]
fn a_failed_flush_poisons() {
    for errno in [libc::EIO, libc::ENOSPC, libc::EINTR, libc::ENODEV] {
        let (device, fake) = device();
        device.write_at(0, &[1; 512]).unwrap();
        fake.script(&[Answer::Errno(errno)]);
        assert!(!matches!(device.flush().unwrap_err().cause, Cause::Poisoned));
        assert_poisoned(&device, &fake);
    }
}

#[test]
fn a_failed_fua_write_poisons() {
    for answers in [&[Answer::Errno(libc::EIO)][..], &[Answer::AtMost(512), Answer::Errno(libc::EIO)]] {
        let (device, fake) = device();
        fake.script(answers);
        let error = device.write_fua(1024, &[1; 1024]).unwrap_err();
        assert_eq!(error.offset, 1024 + 512 * (answers.len() as u64 - 1));
        assert_poisoned(&device, &fake);
    }
}

#[test]
fn an_invalid_request_does_not_poison() {
    let (device, _) = device();
    assert!(matches!(
        device.write_fua(1, &[1; 512]).unwrap_err().cause,
        Cause::Misaligned { block_bytes: 512 }
    ));
    assert!(matches!(device.write_fua(LEN as u64, &[1; 512]).unwrap_err().cause, Cause::OutOfRange { .. }));
    let wrapping = u64::MAX - 511;
    assert!(matches!(device.read_at(wrapping, &mut [1; 1024]).unwrap_err().cause, Cause::OutOfRange { .. }));
    device.flush().unwrap();
    assert_eq!(device.stats().of(Operation::WriteFua).ops, 0);
}

#[test]
fn all_handles_of_a_device_share_the_poison() {
    let identity = Identity::File { device: u64::MAX, inode: 77 };
    let (first, fake) = device_with(false, Health::join(identity).unwrap().0);
    let (second, other_fake) = device_with(true, Health::join(identity).unwrap().0);
    let first = Arc::new(first);
    let clone: Arc<dyn BlockDevice> = first.clone();
    fake.script(&[Answer::Errno(libc::EIO)]);
    first.flush().unwrap_err();
    assert_refused(clone.flush());
    assert_poisoned(&second, &other_fake);
    assert!(Health::join(identity).is_err(), "no new handle while old ones live");
    drop((first, clone, second));
    let (health, was_poisoned) = Health::join(identity).unwrap();
    assert!(was_poisoned);
    let (reopened, _) = device_with(false, health);
    reopened.flush().unwrap();
}

#[test]
fn fua_asks_for_durability_and_nothing_else_does() {
    let (device, fake) = device();
    device.write_at(0, &[1; 512]).unwrap();
    device.write_fua(512, &[1; 512]).unwrap();
    assert_eq!(fake.0.lock().unwrap().writes, [(0, 512, false), (512, 512, true)]);
    assert_eq!(fake.0.lock().unwrap().syncs, 0);
}

#[test]
fn what_the_medium_cannot_do_is_done_otherwise() {
    let (device, fake) = device();
    fake.script(&[Answer::Errno(libc::EOPNOTSUPP)]);
    device.discard(0, 4096).unwrap();
    fake.script(&[Answer::Errno(libc::EOPNOTSUPP)]);
    device.write_zeroes(512, 40960).unwrap();
    assert!(fake.0.lock().unwrap().bytes[512..512 + 40960].iter().all(|&byte| byte == 0));
    fake.script(&[Answer::Errno(libc::EOPNOTSUPP), Answer::AtMost(1024), Answer::Errno(libc::EIO)]);
    let error = device.write_zeroes(512, 40960).unwrap_err();
    assert_eq!((error.operation, error.offset), (Operation::WriteZeroes, 1536));
    for errno in [libc::EIO, libc::ENOSPC] {
        fake.script(&[Answer::Errno(errno)]);
        assert_eq!(device.discard(0, 512).unwrap_err().operation, Operation::Discard);
        fake.script(&[Answer::Errno(errno)]);
        device.write_zeroes(0, 512).unwrap_err();
    }
}

#[test]
fn of_two_flushes_at_a_time_none_claims_what_the_other_lost() {
    /// The first flush consumes the error, slowly; the second succeeds, as it does in the kernel.
    #[derive(Debug, Default)]
    struct Gate {
        calls: Mutex<usize>,
        changed: std::sync::Condvar,
    }
    impl Gate {
        fn wait_for(&self, calls: usize) {
            let guard = self.calls.lock().unwrap();
            drop(self.changed.wait_while(guard, |seen| *seen < calls).unwrap());
        }
    }
    #[derive(Debug)]
    struct Kernel(FakeIo, Arc<Gate>);
    impl RawIo for Kernel {
        fn len_bytes(&self) -> io::Result<u64> {
            self.0.len_bytes()
        }
        fn read(&self, offset: u64, buf: &mut [u8]) -> io::Result<usize> {
            self.0.read(offset, buf)
        }
        fn read_vectored(&self, offset: u64, parts: &mut [IoSliceMut<'_>]) -> io::Result<usize> {
            self.0.read_vectored(offset, parts)
        }
        fn write_vectored(&self, offset: u64, parts: &[IoSlice<'_>], dsync: bool) -> io::Result<usize> {
            self.0.write_vectored(offset, parts, dsync)
        }
        fn sync(&self) -> io::Result<()> {
            let call = {
                let mut calls = self.1.calls.lock().unwrap();
                *calls += 1;
                self.1.changed.notify_all();
                *calls
            };
            // The error is reported once, to the first flush, which returns last.
            self.1.wait_for(2);
            if call == 1 {
                std::thread::yield_now();
                return Err(io::Error::from_raw_os_error(libc::EIO));
            }
            Ok(())
        }
        fn discard(&self, _: u64, _: u64) -> io::Result<()> {
            Ok(())
        }
        fn zero(&self, _: u64, _: u64) -> io::Result<()> {
            Ok(())
        }
        fn raw_fd(&self) -> Option<RawFd> {
            None
        }
    }
    for _ in 0..200 {
        let gate = Arc::new(Gate::default());
        let kernel = Kernel(FakeIo::default(), gate.clone());
        let device = FileDevice::new(info(false), Box::new(kernel), None, Health::alone());
        std::thread::scope(|scope| {
            let first = scope.spawn(|| device.flush());
            gate.wait_for(1);
            let second = scope.spawn(|| device.flush());
            assert!(first.join().unwrap().is_err());
            assert!(second.join().unwrap().is_err());
        });
    }
}
