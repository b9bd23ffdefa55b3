//! The gate: what each policy stores, how many write at a time, and what the direct one costs.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use fastness_pmem::gate::{Gate, GateError, Policy, SMALL_BYTES};
use fastness_pmem::model::{DeviceModel, Modelled, Node, ONE_MODULE, SimulatedQueue, Stall};
use fastness_pmem::{ErrorKind, Medium, MsyncMode, NoSum, OpenOptions, PmRange, Region};

const BLOCK: usize = 16 * 1024;

fn engine() -> Arc<SimulatedQueue> {
    Arc::new(SimulatedQueue::new(2, 1 << 20, None))
}

/// Every policy, with two writers at a time.
fn policies() -> Vec<Policy> {
    let mut policies = vec![Policy::Direct, Policy::Semaphore { writers_max: 2 }];
    for is_adaptive in [false, true] {
        policies.push(Policy::Workers { writers_max: 2, is_adaptive, cpus: Vec::new() });
        policies.push(Policy::Dma { writers_max: 2, is_adaptive, queue: engine() });
    }
    policies
}

fn region(len: usize) -> Region {
    Region::anonymous(len as u64).unwrap()
}

/// Ranges of one region, one for each of so many threads.
fn shares(region: Region, count: usize) -> Vec<PmRange> {
    let mut rest = region.into_range();
    let each = rest.len_bytes() / count;
    let mut shares = Vec::new();
    for _ in 1..count {
        let (share, after) = rest.split_at(each).unwrap();
        shares.push(share);
        rest = after;
    }
    shares.push(rest);
    shares
}

#[test]
fn every_policy_stores_the_same_bytes_from_many_threads() {
    const THREADS: usize = 8;
    const EACH: usize = 128 * 1024;
    for policy in policies() {
        let said = format!("{policy:?}");
        let gate = Arc::new(Gate::new(policy).unwrap());
        let shares = shares(region(THREADS * EACH).with_gate(gate.clone()), THREADS);
        std::thread::scope(|scope| {
            for (thread, mut share) in shares.into_iter().enumerate() {
                let said = &said;
                scope.spawn(move || {
                    let mut expected = vec![0; EACH];
                    for round in 0..60_usize {
                        let len = [100, SMALL_BYTES - 1, SMALL_BYTES, 5000, BLOCK][round % 5];
                        let at = (round * 7919 * 64 + thread * 64) % (EACH - BLOCK) / 64 * 64;
                        let src = vec![(round * 16 + thread) as u8; len];
                        share.write_pm(at, &src).unwrap();
                        expected[at..at + len.next_multiple_of(64)].fill(0);
                        expected[at..at + len].copy_from_slice(&src);
                    }
                    let mut stored = vec![0; EACH];
                    share.read(0, &mut stored).unwrap();
                    assert!(stored == expected, "{said}, thread {thread}");
                });
            }
        });
    }
}

#[test]
fn no_more_write_at_a_time_than_the_limit_allows() {
    for policy in policies().into_iter().skip(1) {
        let said = format!("{policy:?}");
        let device = Arc::new(DeviceModel::new(ONE_MODULE, Stall::Sleep { slower: 20 }));
        let gate = Gate::new(policy).unwrap();
        std::thread::scope(|scope| {
            for _ in 0..8 {
                scope.spawn(|| {
                    let range = region(1 << 20).into_range();
                    let mut medium = Modelled::new(range, device.clone(), Node::Local);
                    (0..10).for_each(|at| gate.write_pm(&mut medium, at * BLOCK, &[1; BLOCK]).unwrap());
                });
            }
        });
        assert!(device.most_writers() <= 2, "{said}: {}", device.most_writers());
    }
}

#[test]
fn as_long_as_the_medium_is_not_loaded_writers_write_themselves() {
    for is_adaptive in [false, true] {
        let workers = Policy::Workers { writers_max: 2, is_adaptive, cpus: Vec::new() };
        let dma = Policy::Dma { writers_max: 2, is_adaptive, queue: engine() };
        for policy in [workers, dma] {
            let gate = Gate::new(policy).unwrap();
            let mut range = region(1 << 20).into_range();
            let handed_over = |gate: &Gate| gate.stats().by_workers + gate.stats().by_engine;
            gate.write_pm(&mut range, 0, &[1; BLOCK]).unwrap();
            assert_eq!(handed_over(&gate), u64::from(!is_adaptive));
            gate.write_pm(&mut range, 0, &[1; SMALL_BYTES - 1]).unwrap();
            assert_eq!(handed_over(&gate), u64::from(!is_adaptive), "small ones always do");
            // Loaded: one slot is left, then none.
            let slots = gate.slots().unwrap().clone();
            let one = slots.enter();
            gate.write_pm(&mut range, 0, &[1; BLOCK]).unwrap();
            assert_eq!(handed_over(&gate), 2 * u64::from(!is_adaptive));
            let two = slots.enter();
            std::thread::scope(|scope| {
                let writing = scope.spawn(|| gate.write_pm(&mut range, 0, &[1; BLOCK]));
                // It waits for a slot: as a worker, or for a transfer.
                while slots.waits() == 0 {
                    std::thread::yield_now();
                }
                drop((one, two));
                writing.join().unwrap().unwrap();
            });
            assert_eq!(handed_over(&gate), 2 * u64::from(!is_adaptive) + 1);
        }
    }
}

/// The error of a fence on a worker is the caller's, and the region stays poisoned.
#[test]
fn a_fence_that_fails_fails_the_write() {
    for policy in policies() {
        let said = format!("{policy:?}");
        let dir = tempfile::tempdir_in("/dev/shm").or_else(|_| tempfile::tempdir()).unwrap();
        let fails = Arc::new(AtomicBool::new(false));
        let hook = fails.clone();
        let options = OpenOptions::new().msync(MsyncMode::Always).testing_msync_hook(Arc::new(move |_| {
            if hook.load(Ordering::SeqCst) { Err(io::Error::other("no medium")) } else { Ok(()) }
        }));
        let region = Region::create_file(dir.path().join("pm"), 1 << 20, &options).unwrap();
        let mut range = region.with_gate(Arc::new(Gate::new(policy).unwrap())).into_range();
        range.write_pm(0, &[1; BLOCK]).unwrap();
        fails.store(true, Ordering::SeqCst);
        let error = range.write_pm(0, &[2; BLOCK]).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::MediaFailed, "{said}");
        fails.store(false, Ordering::SeqCst);
        assert_eq!(range.write_pm(0, &[3; BLOCK]).unwrap_err().kind(), ErrorKind::Closed, "{said}");
    }
}

#[test]
fn callers_bugs_panic_in_the_caller() {
    for policy in policies() {
        let said = format!("{policy:?}");
        let gate = Gate::new(policy).unwrap();
        let mut range = region(1 << 20).into_range();
        let write = std::panic::AssertUnwindSafe(|| gate.write_pm(&mut range, 1, &[1; BLOCK]));
        assert!(std::panic::catch_unwind(write).is_err(), "{said}");
        gate.write_pm(&mut range, 64, &[1; BLOCK]).unwrap();
    }
}

#[test]
fn limits_that_are_none_are_refused() {
    for writers_max in [0, 33] {
        let error = Gate::new(Policy::Semaphore { writers_max }).unwrap_err();
        assert!(matches!(error, GateError::Limit { .. }) && error.kind() == ErrorKind::Invalid, "{error}");
    }
    let elsewhere = Policy::Workers { writers_max: 1, is_adaptive: true, cpus: vec![1023] };
    assert!(matches!(Gate::new(elsewhere), Err(GateError::Cpus { .. })));
    assert_eq!(Gate::new(Policy::Direct).unwrap().slots().map(|slots| slots.count()), None);
}

mod direct {
    use super::*;

    use std::alloc::{GlobalAlloc, Layout, System};
    use std::cell::Cell;

    thread_local!(static ALLOCATIONS: Cell<u64> = const { Cell::new(0) });

    struct Counting;

    // SAFETY: the system's allocator does all of it.
    #[allow(unsafe_code)]
    unsafe impl GlobalAlloc for Counting {
        unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
            let _ = ALLOCATIONS.try_with(|count| count.set(count.get() + 1));
            // SAFETY: the caller's promise.
            unsafe { System.alloc(layout) }
        }

        unsafe fn dealloc(&self, memory: *mut u8, layout: Layout) {
            // SAFETY: the caller's promise.
            unsafe { System.dealloc(memory, layout) }
        }
    }

    #[global_allocator]
    static COUNTING: Counting = Counting;

    fn write_many(gate: Option<&Gate>, range: &mut PmRange) {
        for at in 0..1000 {
            match gate {
                Some(gate) => gate.write_pm(range, at % 100 * 4096, &[1; 4096]).unwrap(),
                None => range.write_pm(at % 100 * 4096, &[1; 4096]).unwrap(),
            }
        }
    }

    #[test]
    fn a_direct_write_allocates_nothing() {
        let gate = Gate::new(Policy::Direct).unwrap();
        let mut range = region(1 << 20).into_range();
        // A thread's first write to a region gets it a counter.
        range.copy(0, &[], 4096, &mut NoSum);
        let before = ALLOCATIONS.get();
        write_many(Some(&gate), &mut range);
        write_many(None, &mut range);
        assert_eq!(ALLOCATIONS.get(), before);
        drop(vec![1]);
        assert!(ALLOCATIONS.get() > before, "allocations are counted");
    }

    /// In strict mode the kernel kills a process for any system call but `read`, `write` and `exit`.
    #[test]
    #[allow(unsafe_code)]
    fn a_direct_write_makes_no_system_call() {
        let gate = Gate::new(Policy::Direct).unwrap();
        let limited = Gate::new(Policy::Semaphore { writers_max: 1 }).unwrap();
        let mut range = region(1 << 20).into_range();
        range.copy(0, &[], 1 << 20, &mut NoSum);
        let run = |prepare: bool, work: &mut dyn FnMut()| {
            // SAFETY: the child uses its own copy of the memory and ends by a system call; its first writes
            // take locks and memory that no other thread of this process has at the time: this crate's, and
            // the C library's, which a fork leaves free. The parent waits for it.
            unsafe {
                let child = libc::fork();
                if child == 0 {
                    if prepare {
                        // A process's first write makes its table of counters.
                        work();
                    }
                    if libc::prctl(libc::PR_SET_SECCOMP, libc::SECCOMP_MODE_STRICT) == 0 {
                        work();
                        libc::syscall(libc::SYS_exit, 7);
                    }
                    libc::_exit(1);
                }
                let mut status = 0;
                assert_eq!(libc::waitpid(child, &mut status, 0), child);
                status
            }
        };
        let ended = run(true, &mut || {
            write_many(Some(&gate), &mut range);
            write_many(None, &mut range);
            // A free slot costs none either.
            write_many(Some(&limited), &mut range);
        });
        if libc::WIFEXITED(ended) && libc::WEXITSTATUS(ended) == 1 {
            return; // A kernel without seccomp.
        }
        assert!(libc::WIFEXITED(ended) && libc::WEXITSTATUS(ended) == 7, "status {ended:#x}");
        let killed = run(false, &mut || std::thread::yield_now());
        assert!(libc::WIFSIGNALED(killed) && libc::WTERMSIG(killed) == libc::SIGKILL, "status {killed:#x}");
    }
}
