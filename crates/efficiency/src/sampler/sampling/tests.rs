use super::*;

use std::os::unix::fs::MetadataExt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use fastness_pmem::{Medium, MsyncMode, NoSum, OpenOptions, Region};

use crate::accounting::RegionName;

/// Breakpoints that were met and that the kernel has not counted. Under some hypervisors (Firecracker, on a
/// CPU of Intel's) the trap sometimes comes without the register that says why: the kernel then leaves the
/// event out, and sends SIGTRAP to the thread.
static UNCOUNTED: AtomicU64 = AtomicU64::new(0);

/// Counts these instead of ending the process.
#[allow(unsafe_code)]
fn count_uncounted() {
    extern "C" fn count(_signal: libc::c_int) {
        UNCOUNTED.fetch_add(1, Ordering::Relaxed);
    }
    // SAFETY: the handler does nothing but add to an atomic; nothing else here uses the signal.
    let before = unsafe { libc::signal(libc::SIGTRAP, count as *const () as libc::sighandler_t) };
    assert_ne!(before, libc::SIG_ERR);
}

/// Records of the kernel's own, with known counts: a watched address of a region in this process stands in
/// for the event. It records every store to 8 bytes (the kernel knows no period of such an event), of
/// instructions that it names by the address after them, so the whole way is exercised: opening, the ring
/// and its end, decoding backwards, mappings, lost records.
#[test]
#[allow(clippy::print_stdout, unsafe_code, reason = "a test that is skipped says why")]
fn stores_of_this_process_are_sampled_by_the_kernel_and_estimated_to_a_percent() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("region");
    let options = OpenOptions::new().msync(MsyncMode::Never);
    let mut range = Region::create_file(&path, 1 << 16, &options).unwrap().into_range();
    let base = range.mapped(0, 64).unwrap();
    let file = std::fs::metadata(&path).unwrap();
    let name = Arc::new(RegionName { kind: "test".to_owned(), path: Some(path), numa_node: None });
    let known = vec![KnownRegion { device: file.dev(), inode: file.ino(), name: name.clone() }];

    // Less than the buffer has room for, and no whole number of times: the ring's end is in a record.
    const TURN: u64 = 4001;
    count_uncounted();
    let machine = Machine::default();
    // With the number of stores that the kernel has counted.
    let sample = |turns: u64, store: &dyn Fn()| -> Option<(Sampler, u64)> {
        let target = Target::Process(std::process::id());
        let sampler = SamplerOptions { target, period: 1, buffer_pages: 64 };
        let event = StoreEvent::breakpoint(base.as_ptr().addr() as u64);
        let mut sampler = match Sampler::with_events(&machine, vec![event], sampler) {
            Ok(sampler) => sampler,
            Err(why) => {
                println!("SKIPPED: {why}: {:?}", std::error::Error::source(&why));
                return None;
            }
        };
        sampler.know(known.clone());
        UNCOUNTED.store(0, Ordering::Relaxed);
        for _ in 0..turns {
            (0..TURN).for_each(|_| store());
            sampler.sample_until(&machine, Instant::now()).unwrap();
        }
        Some((sampler, turns * TURN - UNCOUNTED.load(Ordering::Relaxed)))
    };
    let address = base.as_ptr();
    // SAFETY: the line is inside of the mapped range, and nothing else uses it.
    let eight = || unsafe { std::ptr::write_volatile(address.cast::<u64>(), 7) };
    #[cfg(target_arch = "x86_64")]
    // SAFETY: as above; every x86-64 CPU has the instruction, and the line is aligned.
    let sixteen = || unsafe {
        use std::arch::x86_64::{_mm_set1_epi8, _mm_stream_si128};
        _mm_stream_si128(address.cast(), _mm_set1_epi8(7));
    };
    for (size, store) in [(8, &eight as &dyn Fn()), (16, &sixteen)] {
        let Some((sampler, stores)) = sample(7, store) else { return };
        assert!(stores > 7 * TURN * 9 / 10, "{stores} of {}", 7 * TURN);
        let (written, tally) = (sampler.written(), sampler.tally());
        assert_eq!(written.len(), 1, "{written:?} {tally:?}");
        assert_eq!(written[0].region, name);
        assert_eq!(written[0].pid, std::process::id());
        let error = (written[0].bytes as f64 / (stores * size) as f64 - 1.0).abs();
        assert!(error < 0.01, "{} for {stores} of {size}, {tally:?}", written[0].bytes);
        assert_eq!((tally.lost, tally.undecoded), (0, 0), "{tally:?}");
        assert_eq!(tally.stores, stores);
        assert_eq!(tally.non_temporal, if size == 16 { tally.stores } else { 0 });
    }
    // A buffer of one page has room for 85 records: the rest is lost, and said to be.
    let options = SamplerOptions { target: Target::Process(std::process::id()), period: 1, buffer_pages: 1 };
    let event = StoreEvent::breakpoint(address.addr() as u64);
    let mut sampler = Sampler::with_events(&machine, vec![event], options).unwrap();
    sampler.know(known);
    UNCOUNTED.store(0, Ordering::Relaxed);
    (0..1000).for_each(|_| eight());
    sampler.sample_until(&machine, Instant::now()).unwrap();
    // The kernel says how many were lost with the next record that has room: of three, one has it.
    (0..3).for_each(|_| eight());
    sampler.sample_until(&machine, Instant::now()).unwrap();
    let tally = sampler.tally();
    assert_eq!(tally.stores + tally.lost + UNCOUNTED.load(Ordering::Relaxed), 1003, "{tally:?}");
    assert!(tally.lost > 800, "{tally:?}");
    range.copy(0, &[0; 64], 64, &mut NoSum);
}

#[test]
fn options_that_make_no_sense_are_refused() {
    let machine = Machine::default();
    let refused = |options: SamplerOptions| {
        let event = StoreEvent::breakpoint(4096);
        Sampler::with_events(&machine, vec![event], options).err().expect("refused").to_string()
    };
    let all = SamplerOptions::new(Target::All);
    for buffer_pages in [0, 3, PAGES_MAX * 2] {
        assert!(refused(SamplerOptions { buffer_pages, ..all }).contains("power of two"), "{buffer_pages}");
    }
    let gone = SamplerOptions::new(Target::Process(u32::MAX));
    assert!(refused(gone).contains("process 4294967295"));
}

#[test]
fn what_the_kernel_says_becomes_a_reason() {
    let dir = tempfile::tempdir().unwrap();
    std::fs::create_dir_all(dir.path().join("sys/kernel")).unwrap();
    std::fs::write(dir.path().join("sys/kernel/perf_event_paranoid"), "2\n").unwrap();
    let files = dir.path().join("bus/event_source/devices/cpu");
    std::fs::create_dir_all(&files).unwrap();
    std::fs::write(files.join("type"), "4").unwrap();
    std::fs::write(dir.path().join("cpuinfo"), "vendor_id : GenuineIntel\n").unwrap();
    let machine = Machine::testing(dir.path(), dir.path());
    let event = StoreEvent::find(&machine).unwrap().remove(0);
    let why = |number: i32| {
        refused(&machine, &event, "all processes", io::Error::from_raw_os_error(number)).to_string()
    };
    assert!(why(libc::EACCES).contains("perf_event_paranoid is 2"), "{}", why(libc::EACCES));
    assert!(why(libc::EPERM).contains("CAP_PERFMON"));
    assert!(why(libc::EOPNOTSUPP).contains("precise_ip") && why(libc::EOPNOTSUPP).contains("PEBS"));
    assert!(why(libc::ENOENT).contains("the kernel does not have it"));
    assert!(why(libc::EMFILE).contains("cannot sample"));
}

/// Another thread's stores count for it, and those of one that begins later are seen.
#[test]
#[allow(clippy::print_stdout, reason = "a test that is skipped says why")]
fn threads_that_begin_later_are_opened_and_those_that_end_are_closed() {
    let machine = Machine::default();
    let target = Target::Process(std::process::id());
    let options = SamplerOptions { target, period: 100, buffer_pages: 1 };
    let event = StoreEvent::breakpoint(4096);
    let Ok(mut sampler) = Sampler::with_events(&machine, vec![event], options) else {
        println!("SKIPPED: no breakpoints");
        return;
    };
    let (go_on, wait) = std::sync::mpsc::channel::<()>();
    let (says, hears) = std::sync::mpsc::channel();
    static IS_OVER: AtomicBool = AtomicBool::new(false);
    let thread = std::thread::spawn(move || {
        says.send(rustix::thread::gettid().as_raw_nonzero().get() as u32).unwrap();
        wait.recv().unwrap();
        IS_OVER.store(true, Ordering::Relaxed);
    });
    let id = hears.recv().unwrap();
    assert!(!sampler.rings.contains_key(&id));
    sampler.sample_until(&machine, Instant::now()).unwrap();
    assert!(sampler.rings.contains_key(&id));
    go_on.send(()).unwrap();
    thread.join().unwrap();
    while std::path::Path::new(&format!("/proc/self/task/{id}")).exists() {
        std::thread::yield_now();
    }
    sampler.sample_until(&machine, Instant::now() + Duration::from_millis(20)).unwrap();
    assert!(!sampler.rings.contains_key(&id) && IS_OVER.load(Ordering::Relaxed));
}
