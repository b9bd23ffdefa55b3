//! What a sample costs the program that takes it, in CPU time: records made by hand, parsed, resolved and
//! added up. Not in it: what the CPU and the kernel need to write them.
//!
//! `cargo run --release -p fastness-efficiency --example sample_cost`

#![allow(clippy::print_stdout)]

use std::sync::Arc;
use std::time::Instant;

use fastness_efficiency::accounting::RegionName;
use fastness_efficiency::sampler::{Estimator, Mapped, Processes, records};

const SAMPLES: u64 = 1 << 20;
const PERIOD: u64 = 9973;
const START: u64 = 0x7000_0000_0000;
const END: u64 = START + (1 << 30);

/// 32 processes with the same region, and code of `movntdq [rax], xmm0`.
struct Programs;

impl Processes for Programs {
    fn regions(&mut self, _pid: u32) -> Vec<Mapped> {
        let region = RegionName { kind: "devdax".into(), path: Some("/dev/dax0.0".into()), numa_node: None };
        vec![Mapped { start: START, end: END, region: Arc::new(region) }]
    }

    fn code(&mut self, _pid: u32, _address: u64, into: &mut [u8]) -> usize {
        into.fill(0x90);
        into[..4].copy_from_slice(&[0x66, 0x0f, 0xe7, 0x00]);
        into.len()
    }
}

fn main() {
    let mut bytes = Vec::new();
    for number in 0..SAMPLES {
        let pid = number as u32 % 32 + 100;
        bytes.extend(9_u32.to_ne_bytes());
        bytes.extend((2_u16 | 1 << 14).to_ne_bytes());
        bytes.extend(48_u16.to_ne_bytes());
        bytes.extend((0x40_0000 + number % 1000 * 4).to_ne_bytes());
        bytes.extend(pid.to_ne_bytes());
        bytes.extend(pid.to_ne_bytes());
        for word in [START + number * 64 % (END - START), PERIOD, 4] {
            bytes.extend(word.to_ne_bytes());
        }
    }
    let mut costs: Vec<f64> = (0..9)
        .map(|_| {
            let mut estimator = Estimator::new(Programs);
            let begun = Instant::now();
            records(&bytes).for_each(|record| estimator.add(record));
            let ns = begun.elapsed().as_nanos() as f64 / SAMPLES as f64;
            assert_eq!(estimator.tally().stores, SAMPLES, "all of them count");
            ns
        })
        .collect();
    costs.sort_by(f64::total_cmp);
    let median = costs[costs.len() / 2];
    println!("{median:.0} ns a sample (best {:.0}, of {} turns)", costs[0], costs.len());
    for size in [8_u64, 16, 32, 64] {
        for period in [1999, 4999, PERIOD] {
            let samples = (1_u64 << 30) / size / period;
            let ms = samples as f64 * median / 1e6;
            println!("stores of {size} B, period {period}: {samples} samples a GiB, computed {ms:.2} ms/GiB");
        }
    }
}
