//! Records made by hand, and programs whose stores are known.

use std::sync::Arc;

use super::estimate::Processes;
use super::maps::Mapped;
use super::record::{IpIs, Sample};
use crate::accounting::RegionName;

/// A sample as the kernel writes it.
pub(super) fn record_of(sample: &Sample) -> Vec<u8> {
    let exact = if sample.ip_is == IpIs::Exact { 1 << 14 } else { 0 };
    with_flags(sample, 2 | exact, 4)
}

pub(super) fn with_flags(sample: &Sample, flags: u16, operation: u64) -> Vec<u8> {
    let words = 5_u16;
    let mut bytes = 9_u32.to_ne_bytes().to_vec();
    bytes.extend(flags.to_ne_bytes());
    bytes.extend((8 + 8 * words).to_ne_bytes());
    bytes.extend(sample.ip.to_ne_bytes());
    bytes.extend(sample.pid.to_ne_bytes());
    bytes.extend(sample.thread.to_ne_bytes());
    for word in [sample.address, sample.period, operation] {
        bytes.extend(word.to_ne_bytes());
    }
    bytes
}

/// Where programs have their region and their code.
pub(super) const REGION: std::ops::Range<u64> = 0x7000_0000_0000..0x7000_4000_0000;
pub(super) const CODE: u64 = 0x40_0000;

pub(super) fn name() -> Arc<RegionName> {
    Arc::new(RegionName {
        kind: "devdax device".to_owned(),
        path: Some("/dev/dax0.0".into()),
        numa_node: Some(0),
    })
}

/// Processes that all have one region mapped, and this code.
pub(super) struct OneProgram(pub(super) Vec<u8>);

impl Processes for OneProgram {
    fn regions(&mut self, _pid: u32) -> Vec<Mapped> {
        vec![Mapped { start: REGION.start, end: REGION.end, region: name() }]
    }

    fn code(&mut self, _pid: u32, address: u64, into: &mut [u8]) -> usize {
        let Some(at) = address.checked_sub(CODE) else { return 0 };
        let rest = self.0.get(at as usize..).unwrap_or_default();
        let len = rest.len().min(into.len());
        into[..len].copy_from_slice(&rest[..len]);
        len
    }
}

/// Instructions of a loop, each with where it stores to.
pub(super) enum Step {
    /// An instruction that stores to the region: its code, and the bytes that it stores.
    Store(&'static [u8], u64),
    /// One that flushes a line of the region, and that the event counts.
    Flush(&'static [u8]),
    /// One that stores elsewhere.
    Elsewhere(&'static [u8]),
}

pub(super) mod code {
    /// `mov [rdi], rax`.
    pub(crate) const MOV8: &[u8] = &[0x48, 0x89, 0x07];
    /// `movnti [rdi], rax`.
    pub(crate) const MOVNTI8: &[u8] = &[0x48, 0x0f, 0xc3, 0x07];
    /// `movdqu [rax], xmm0`: the source's.
    pub(crate) const MOVDQU16: &[u8] = &[0xf3, 0x0f, 0x7f, 0x00];
    /// `movntdq [rax], xmm0`: the source's.
    pub(crate) const MOVNTDQ16: &[u8] = &[0x66, 0x0f, 0xe7, 0x00];
    /// `vmovntdq [rdi], ymm0`.
    pub(crate) const VMOVNTDQ32: &[u8] = &[0xc5, 0xfd, 0xe7, 0x07];
    /// `vmovdqu [rdi], ymm0`.
    pub(crate) const VMOVDQU32: &[u8] = &[0xc5, 0xfe, 0x7f, 0x07];
    /// `vmovntdq [rdi], zmm0`.
    pub(crate) const VMOVNTDQ64: &[u8] = &[0x62, 0xf1, 0x7d, 0x48, 0xe7, 0x07];
    /// `vmovdqu64 [rdi], zmm0`.
    pub(crate) const VMOVDQU64: &[u8] = &[0x62, 0xf1, 0xfe, 0x48, 0x7f, 0x07];
    /// `movdir64b rdi, [rsi]`.
    pub(crate) const MOVDIR64B: &[u8] = &[0x66, 0x0f, 0x38, 0xf8, 0x3e];
    /// `clwb [rax]`.
    pub(crate) const CLWB: &[u8] = &[0x66, 0x0f, 0xae, 0x30];
    /// `clflushopt [rdi]`.
    pub(crate) const CLFLUSHOPT: &[u8] = &[0x66, 0x0f, 0xae, 0x3f];
    /// `clflush [rdi]`.
    pub(crate) const CLFLUSH: &[u8] = &[0x0f, 0xae, 0x3f];
    /// `push rax`.
    pub(crate) const PUSH8: &[u8] = &[0x50];
    /// `rep stosq`.
    pub(crate) const REP_STOSQ: &[u8] = &[0xf3, 0x48, 0xab];
    /// `rep movsb`.
    pub(crate) const REP_MOVSB: &[u8] = &[0xf3, 0xa4];
    /// `mov rax, [rdi]`.
    pub(crate) const LOAD: &[u8] = &[0x48, 0x8b, 0x07];
    /// `lock add [rdi], eax`.
    pub(crate) const LOCK_ADD4: &[u8] = &[0xf0, 0x01, 0x07];
}

/// Records of a loop that runs so many times, sampled with a period as the CPU does it, and the bytes that
/// it has stored to the region.
pub(super) fn sampled(steps: &[Step], times: u64, period: u64) -> (Vec<u8>, Vec<Vec<u8>>, u64) {
    let mut code = Vec::new();
    let mut places = Vec::new();
    for step in steps {
        let (Step::Store(bytes, _) | Step::Flush(bytes) | Step::Elsewhere(bytes)) = step;
        places.push(CODE + code.len() as u64);
        code.extend_from_slice(bytes);
    }
    let per_turn: u64 =
        steps.iter().map(|step| if let Step::Store(_, size) = step { *size } else { 0 }).sum();
    let count = steps.len() as u64;
    let mut records = Vec::new();
    let mut event = period;
    while event <= times * count {
        let step = ((event - 1) % count) as usize;
        let address = match steps[step] {
            Step::Elsewhere(_) => 0x7fff_0000_0000,
            _ => REGION.start + (event * 64) % (REGION.end - REGION.start),
        };
        let sample = Sample { pid: 100, thread: 101, ip: places[step], ip_is: IpIs::Exact, address, period };
        records.push(record_of(&sample));
        event += period;
    }
    (code, records, per_turn * times)
}
