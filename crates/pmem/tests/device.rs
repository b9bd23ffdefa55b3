//! A device or file of the tester's choice, overwritten: for machines that have PM.
//!
//! `FASTNESS_PMEM_SCRATCH=/dev/dax0.0 cargo test -p fastness-pmem --test device -- --nocapture`

mod common;

use common::{pattern, skipped};
use fastness_pmem::{
    Kernel, Medium, NoSum, OpenOptions, Protection, Region, RegionError, WriteMethod,
    protection_keys_available,
};

const SCRATCH: &str = "FASTNESS_PMEM_SCRATCH";
/// Bytes overwritten at each end of the region.
const SPAN: usize = 4096;

fn exercise(path: &std::path::Path, options: &OpenOptions) -> Result<String, RegionError> {
    let region = Region::open(path, options)?;
    let text = region.info().to_string();
    assert!(matches!(Region::open(path, options), Err(RegionError::AlreadyOpen { .. })));
    let mut range = region.into_range();
    let last = range.len_bytes() - SPAN;
    for (round, offset) in [0, last].into_iter().enumerate() {
        range.copy(offset, &pattern(SPAN - 9, round), SPAN, &mut NoSum);
        range.fence().unwrap();
    }
    drop(range);
    let range = Region::open(path, options)?.into_range();
    for (round, offset) in [0, last].into_iter().enumerate() {
        let mut back = vec![0; SPAN - 9];
        range.read(offset, &mut back).unwrap();
        assert_eq!(back, pattern(SPAN - 9, round));
    }
    Ok(text)
}

#[test]
#[allow(clippy::print_stderr)]
fn a_real_region_keeps_what_is_copied() {
    let Some(path) = std::env::var_os(SCRATCH).map(std::path::PathBuf::from) else {
        return skipped("a real region", &format_args!("{SCRATCH} names none"));
    };
    eprintln!("{}", exercise(&path, &OpenOptions::new()).unwrap());
    if protection_keys_available().is_ok() {
        exercise(&path, &OpenOptions::new().protection(Protection::Keys)).unwrap();
        eprintln!("with protection keys: passed");
    }
    for kernel in Kernel::available() {
        match exercise(&path, &OpenOptions::new().write_method(WriteMethod::Exactly(kernel))) {
            Ok(_) => eprintln!("{kernel}: passed"),
            Err(error @ RegionError::MethodUnavailable { .. }) => eprintln!("{kernel}: {error}"),
            Err(error) => panic!("{kernel}: {error}"),
        }
    }
}
