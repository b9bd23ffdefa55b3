//! A process that gets no io_uring. Alone in its binary, because it takes the descriptors away from the
//! process.
#![allow(unsafe_code)]

mod support;

use std::fs::File;
use std::os::fd::AsRawFd;

use fastness_blkdev::{BlockDevice, Direct, Engine, EngineChoice, OpenError, OpenOptions, Request};

#[test]
fn without_io_uring_batches_still_run_and_the_info_says_why() {
    let folder = support::folder();
    let path = folder.path().join("device");
    let options = OpenOptions::new().direct(Direct::Off);
    drop(options.create(&path, 1 << 20).unwrap());
    // One more descriptor is allowed, for the device: none is left for a ring.
    let next = File::open(&path).unwrap().as_raw_fd();
    let mut limit = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
    // SAFETY: both calls only read or fill the struct, which lives during them.
    let results = unsafe {
        let got = libc::getrlimit(libc::RLIMIT_NOFILE, &raw mut limit);
        limit.rlim_cur = u64::try_from(next).unwrap() + 1;
        (got, libc::setrlimit(libc::RLIMIT_NOFILE, &raw const limit))
    };
    assert_eq!(results, (0, 0));

    let error = options.clone().engine(EngineChoice::Uring).open(&path).unwrap_err();
    assert!(matches!(error, OpenError::UringUnavailable { .. }), "{error}");
    let device = match OpenOptions::new().direct(Direct::On).open(&path) {
        Ok(device) => {
            assert!(device.info().notes.iter().any(|note| note.starts_with("io_uring refused")));
            device
        }
        Err(error) => {
            support::skip("fallback to psync", &error);
            options.open(&path).unwrap()
        }
    };
    assert_eq!(device.info().engine, Engine::Psync);
    let data = [7; 4096];
    let mut batch: Vec<_> =
        (0..8).map(|at| Request::Write { offset: at * 4096, data: &data, fua: false }).collect();
    device.run_batch(&mut batch).into_iter().for_each(|result| result.unwrap());
}
