//! Devices of every kind, for tests that hold for all.
#![allow(dead_code, unreachable_pub)]

use std::path::Path;

use fastness_blkdev::{
    BlockDevice, Direct, EngineChoice, FaultPlan, Faulty, MemDevice, OpenError, OpenOptions,
};
use tempfile::TempDir;

/// A folder on the file system of the build, which is a real one more often than that of `/tmp`.
pub fn folder() -> TempDir {
    TempDir::new_in(env!("CARGO_TARGET_TMPDIR")).unwrap()
}

/// Says why something is not tested here.
pub fn skip(what: &str, error: &OpenError) {
    use std::io::Write;
    // Past the test harness, which would hide it.
    writeln!(std::io::stderr(), "SKIPPED {what}: {error}").unwrap();
}

pub fn file_options() -> Vec<(&'static str, OpenOptions)> {
    let options = OpenOptions::new;
    vec![
        ("psync", options().engine(EngineChoice::Psync).direct(Direct::Off)),
        ("psync direct", options().engine(EngineChoice::Psync).direct(Direct::On)),
        ("uring", options().engine(EngineChoice::Uring).direct(Direct::Off)),
        ("uring direct", options().engine(EngineChoice::Uring).direct(Direct::On)),
        ("uring shallow", options().engine(EngineChoice::Uring).queue_depth(2)),
        ("auto", options()),
    ]
}

/// One device of each kind, of `len_bytes`; those that this machine cannot have are skipped.
pub fn devices(folder: &Path, len_bytes: u64) -> Vec<(&'static str, Box<dyn BlockDevice>)> {
    let mut devices: Vec<(_, Box<dyn BlockDevice>)> = vec![
        ("memory", Box::new(MemDevice::new("memory", len_bytes))),
        ("faulty", Box::new(Faulty::new(MemDevice::new("faulty", len_bytes), FaultPlan::new(1)))),
    ];
    for (name, options) in file_options() {
        match options.create(folder.join(name), len_bytes) {
            Ok(device) => devices.push((name, Box::new(device))),
            Err(error @ (OpenError::DirectUnavailable { .. } | OpenError::UringUnavailable { .. })) => {
                skip(name, &error);
            }
            Err(error) => panic!("{name}: {error}"),
        }
    }
    devices
}
