//! Each fault that can be planned does what it says.

use fastness_blkdev::{
    BlockDevice, Cause, ErrorKind, Fault, FaultPlan, Faulty, MemDevice, On, Operation, Request, When,
};

const LEN: u64 = 64 << 10;

fn faulty(on: On, when: When, fault: Fault) -> Faulty<MemDevice> {
    Faulty::new(MemDevice::new("faulty", LEN), FaultPlan::new(3).rule(on, when, fault))
}

fn read(device: &dyn BlockDevice, offset: u64, len: usize) -> Vec<u8> {
    let mut buf = vec![0xee; len];
    device.read_at(offset, &mut buf).unwrap();
    buf
}

#[test]
fn the_nth_operation_of_each_kind_fails() {
    for operation in Operation::ALL {
        let device = faulty(On::Only(operation), When::Nth(2), Fault::Errno(libc::EIO));
        let run = || match operation {
            Operation::Write => device.write_at(512, &[1; 512]),
            Operation::WriteFua => device.write_fua(512, &[1; 512]),
            Operation::Flush => device.flush(),
            Operation::Discard => device.discard(512, 512),
            Operation::WriteZeroes => device.write_zeroes(512, 512),
            _ => device.read_at(512, &mut [0; 512]),
        };
        run().unwrap();
        let error = run().unwrap_err();
        assert_eq!((error.operation, error.kind()), (operation, ErrorKind::MediaFailed));
        assert_eq!(error.offset, if operation == Operation::Flush { 0 } else { 512 });
        let is_sync = matches!(operation, Operation::Flush | Operation::WriteFua);
        assert_eq!(device.is_poisoned(), is_sync);
        assert_eq!(run().is_err(), is_sync);
        assert_eq!(device.stats().of(operation).errors, if is_sync { 2 } else { 1 });
    }
}

#[test]
fn rules_count_what_they_listen_to() {
    let errno = Fault::Errno(libc::ENOSPC);
    let device = faulty(On::Changes, When::Every(3), errno);
    let outcomes: Vec<bool> = (0..7).map(|_| device.write_zeroes(0, 512).is_ok()).collect();
    assert_eq!(outcomes, [true, true, false, true, true, false, true]);
    let device = faulty(On::Writes, When::From(2), errno);
    device.discard(0, 512).unwrap();
    device.write_at(0, &[0; 512]).unwrap();
    for _ in 0..3 {
        assert_eq!(device.write_at(0, &[0; 512]).unwrap_err().kind(), ErrorKind::NoSpace);
    }
    let plan = FaultPlan::new(0).rule_in(4096..8192, On::Any, When::From(1), Fault::Errno(libc::EIO));
    let device = Faulty::new(MemDevice::new("bad range", LEN), plan);
    device.write_at(0, &[1; 4096]).unwrap();
    device.read_at(3584, &mut [1; 1024]).unwrap_err();
    device.read_at(8192, &mut [1; 1024]).unwrap();
    device.flush().unwrap();
    let hits = |seed| {
        let plan = FaultPlan::new(seed).rule(On::Any, When::PerMillion(300_000), Fault::Errno(libc::EIO));
        let device = Faulty::new(MemDevice::new("random", LEN), plan);
        (0..1000).filter(|_| device.write_at(0, &[1; 512]).is_err()).count()
    };
    assert!((200..400).contains(&hits(1)), "{}", hits(1));
}

#[test]
fn a_short_write_reports_the_exact_offset() {
    let device = faulty(On::Writes, When::Nth(1), Fault::Short { units: 3 });
    let error = device.write_at(4096, &[1; 4096]).unwrap_err();
    assert_eq!((error.offset, error.len_bytes), (4096 + 1536, 2560));
    let after = read(&device, 4096, 4096);
    assert!(after[..1536].iter().all(|&byte| byte == 1) && after[1536..].iter().all(|&byte| byte == 0));
}

#[test]
fn a_torn_write_leaves_whole_sectors() {
    let device = faulty(On::Writes, When::From(1), Fault::Torn);
    let error = device.write_at(0, &[1; 16 * 512]).unwrap_err();
    let after = read(&device, 0, 16 * 512);
    let applied: Vec<bool> = after.chunks(512).map(|sector| sector == [1; 512]).collect();
    assert!(after.chunks(512).all(|sector| sector == [1; 512] || sector == [0; 512]));
    assert!(applied.contains(&true) && applied.contains(&false));
    assert_eq!(error.offset, 512 * applied.iter().position(|applied| !applied).unwrap() as u64);
}

#[test]
fn lies_are_told() {
    let device = faulty(On::Writes, When::Nth(1), Fault::Dropped);
    device.write_at(0, &[1; 512]).unwrap();
    assert_eq!(read(&device, 0, 512), [0; 512]);

    let device = faulty(On::Only(Operation::Flush), When::Nth(1), Fault::Dropped);
    device.write_at(0, &[1; 512]).unwrap();
    device.flush().unwrap();
    assert_eq!(device.unflushed_units(), 1, "the flush has lied");
    device.flush().unwrap();
    assert_eq!(device.unflushed_units(), 0);

    for (to, lands) in [(8192, 8192), (u64::MAX, LEN - 512)] {
        let device = faulty(On::Writes, When::Nth(1), Fault::Misdirected { to });
        device.write_at(0, &[1; 512]).unwrap();
        assert_eq!((read(&device, 0, 512)[0], read(&device, lands, 512)[0]), (0, 1));
    }
    let device = faulty(On::Only(Operation::Read), When::Nth(1), Fault::Misdirected { to: 512 });
    device.write_at(512, &[1; 512]).unwrap();
    assert_eq!((read(&device, 0, 512)[0], read(&device, 0, 512)[0]), (1, 0));
}

#[test]
fn one_bit_flips() {
    let bits = |bytes: &[u8]| bytes.iter().map(|byte| byte.count_ones()).sum::<u32>();
    let device = faulty(On::Writes, When::Nth(1), Fault::BitFlip);
    device.write_at(0, &[0; 4096]).unwrap();
    assert_eq!(bits(&read(&device, 0, 4096)), 1);
    let device = faulty(On::Only(Operation::Read), When::Nth(1), Fault::BitFlip);
    assert_eq!(bits(&read(&device, 0, 4096)), 1);
    assert_eq!(bits(&read(&device, 0, 4096)), 0, "on the way, not on the medium");
}

#[test]
fn a_device_vanishes_and_comes_back() {
    let device = faulty(On::Any, When::Nth(3), Fault::Vanish);
    device.write_at(0, &[1; 512]).unwrap();
    device.write_at(512, &[2; 512]).unwrap();
    assert!(device.write_at(1024, &[3; 512]).unwrap_err().is_gone());
    let error = device.read_at(0, &mut [0; 512]).unwrap_err();
    assert!(error.is_gone() && error.kind() == ErrorKind::MediaFailed);
    device.come_back();
    assert_eq!(read(&device, 0, 1536), [vec![1; 512], vec![2; 512], vec![0; 512]].concat());
    device.flush().unwrap();
    device.vanish();
    assert!(device.flush().unwrap_err().is_gone());
    device.come_back();
    assert!(matches!(device.flush().unwrap_err().cause, Cause::Poisoned), "that flush has failed");
    device.reopen(0).unwrap();
    device.flush().unwrap();
}

#[test]
fn invalid_requests_count_for_no_rule() {
    let device = faulty(On::Any, When::Nth(1), Fault::Vanish);
    assert!(matches!(device.write_at(1, &[0; 512]).unwrap_err().cause, Cause::Misaligned { .. }));
    assert!(matches!(device.write_at(LEN, &[0; 512]).unwrap_err().cause, Cause::OutOfRange { .. }));
    assert_eq!(device.op_count(), 0);
    assert!(device.flush().unwrap_err().is_gone());
}

#[test]
fn one_failure_stops_no_other_request_of_a_batch() {
    let device = faulty(On::Writes, When::Nth(2), Fault::Errno(libc::EIO));
    let data = [7; 512];
    let mut batch: Vec<_> =
        (0..8).map(|at| Request::Write { offset: at * 512, data: &data, fua: false }).collect();
    let results = device.run_batch(&mut batch);
    assert_eq!(results.iter().filter(|result| result.is_err()).count(), 1);
    for (at, result) in results.iter().enumerate() {
        let offset = at as u64 * 512;
        assert_eq!(read(&device, offset, 512)[0] == 7, result.is_ok());
        assert!(
            result.as_ref().is_ok_and(|()| true)
                || result.as_ref().is_err_and(|error| error.offset == offset)
        );
    }
}

#[test]
fn a_wrapper_can_wrap_a_wrapper() {
    let below = faulty(On::Only(Operation::Flush), When::Nth(1), Fault::Errno(libc::EIO));
    let device = Faulty::new(below, FaultPlan::new(0));
    device.write_at(0, &[1; 512]).unwrap();
    assert!(matches!(device.flush().unwrap_err().cause, Cause::Media(_)));
    assert!(device.is_poisoned() && device.inner().is_poisoned());
    let memory: MemDevice = device.into_inner().into_inner();
    assert_eq!(read(&memory, 0, 512)[0], 1);
}

#[test]
fn read_only_memory_refuses_changes() {
    let device = MemDevice::new("rom", LEN).read_only();
    assert!(device.is_read_only());
    for outcome in [
        device.write_at(0, &[0; 512]),
        device.write_fua(0, &[0; 512]),
        device.discard(0, 512),
        device.write_zeroes(0, 512),
    ] {
        assert!(matches!(outcome.unwrap_err().cause, Cause::ReadOnly));
    }
    device.flush().unwrap();
}
