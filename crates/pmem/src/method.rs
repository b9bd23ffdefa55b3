//! How bytes are stored: what a caller may ask for, and the kernel that a region settles on.

use std::fmt;

use crate::cpu::CpuFeatures;

/// How stores are to reach the persistence domain.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub enum WriteMethod {
    /// Non-temporal stores on PM with volatile caches and on emulated PM, plain stores where the caches are
    /// persistent or where `msync` follows.
    ///
    /// Source: Werling, *PM file systems* (2025), section 3.3: non-temporal stores won 4.3 to 1.4 GiB/s.
    #[default]
    Auto,
    /// Non-temporal stores with the widest registers that the CPU has.
    NonTemporal,
    /// Cached stores, each line then written back with `clwb`, `clflushopt` or `clflush`.
    StoreFlush,
    /// Cached stores alone. Refused on PM whose CPU caches are not known to be persistent.
    PlainStore,
    /// One `movdir64b` a line: the only store for which the specification promises 64 bytes at once.
    Movdir64b,
    /// This kernel and no other; for tests and measurements.
    Exactly(Kernel),
}

/// One copy loop, chosen once when a region is opened.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Kernel {
    /// Non-temporal, 64 bytes a store.
    NtAvx512,
    /// Non-temporal, 32 bytes a store.
    NtAvx2,
    /// Non-temporal, 16 bytes a store.
    NtSse2,
    /// Cached stores and `clwb`.
    FlushClwb,
    /// Cached stores and `clflushopt`.
    FlushClflushopt,
    /// Cached stores and `clflush`.
    FlushClflush,
    /// `movdir64b`.
    Movdir64b,
    /// Cached stores, compiled for AVX2.
    PlainAvx2,
    /// Cached stores for any CPU.
    Plain,
}

impl Kernel {
    /// Every kernel there is, usable here or not.
    pub const ALL: [Kernel; 9] = [
        Kernel::NtAvx512,
        Kernel::NtAvx2,
        Kernel::NtSse2,
        Kernel::FlushClwb,
        Kernel::FlushClflushopt,
        Kernel::FlushClflush,
        Kernel::Movdir64b,
        Kernel::PlainAvx2,
        Kernel::Plain,
    ];

    /// The kernels that this CPU can run.
    pub fn available() -> impl Iterator<Item = Kernel> {
        let cpu = CpuFeatures::get();
        Kernel::ALL.into_iter().filter(move |kernel| kernel.runs_on(&cpu))
    }

    /// Whether `cpu` has every instruction that the kernel was compiled with.
    pub(crate) fn runs_on(self, cpu: &CpuFeatures) -> bool {
        let x86 = cfg!(target_arch = "x86_64");
        match self {
            Kernel::NtAvx512 => x86 && cpu.avx512,
            Kernel::NtAvx2 | Kernel::PlainAvx2 => x86 && cpu.avx2,
            Kernel::NtSse2 | Kernel::FlushClflush => x86,
            Kernel::FlushClwb => x86 && cpu.avx2 && cpu.clwb,
            Kernel::FlushClflushopt => x86 && cpu.clflushopt,
            Kernel::Movdir64b => x86 && cpu.avx2 && cpu.movdir64b,
            Kernel::Plain => true,
        }
    }

    /// Whether the stores stay in the CPU caches, so that only a persistent cache or `msync` saves them.
    pub(crate) fn leaves_lines_in_cache(self) -> bool {
        matches!(self, Kernel::PlainAvx2 | Kernel::Plain)
    }
}

impl fmt::Display for Kernel {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Kernel::NtAvx512 => "non-temporal stores (AVX-512)",
            Kernel::NtAvx2 => "non-temporal stores (AVX2)",
            Kernel::NtSse2 => "non-temporal stores (SSE2)",
            Kernel::FlushClwb => "stores and clwb",
            Kernel::FlushClflushopt => "stores and clflushopt",
            Kernel::FlushClflush => "stores and clflush",
            Kernel::Movdir64b => "movdir64b",
            Kernel::PlainAvx2 => "plain stores (AVX2)",
            Kernel::Plain => "plain stores",
        })
    }
}

/// What the region says about plain stores.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum PlainStores {
    /// They are lost in the caches at a power cut: never use them.
    Refused,
    /// They do no harm (emulated PM), but other stores should be exercised.
    Allowed,
    /// They suffice: persistent caches, or a system call writes them back.
    Preferred,
}

/// Settles on the kernel for `method`; an error says why there is none.
pub(crate) fn choose(
    method: WriteMethod,
    cpu: &CpuFeatures,
    plain: PlainStores,
) -> Result<Kernel, &'static str> {
    const NON_TEMPORAL: &[Kernel] = &[Kernel::NtAvx512, Kernel::NtAvx2, Kernel::NtSse2];
    const FLUSH: &[Kernel] = &[Kernel::FlushClwb, Kernel::FlushClflushopt, Kernel::FlushClflush];
    const PLAIN: &[Kernel] = &[Kernel::PlainAvx2, Kernel::Plain];
    let exact;
    let candidates = match method {
        WriteMethod::Auto if plain == PlainStores::Preferred || !Kernel::NtSse2.runs_on(cpu) => PLAIN,
        WriteMethod::Auto | WriteMethod::NonTemporal => NON_TEMPORAL,
        WriteMethod::StoreFlush => FLUSH,
        WriteMethod::PlainStore => PLAIN,
        WriteMethod::Movdir64b => &[Kernel::Movdir64b],
        WriteMethod::Exactly(kernel) => {
            exact = [kernel];
            &exact
        }
    };
    let kernel = candidates
        .iter()
        .copied()
        .find(|kernel| kernel.runs_on(cpu))
        .ok_or("this CPU lacks the instructions")?;
    if kernel.leaves_lines_in_cache() && plain == PlainStores::Refused {
        return Err("plain stores stay in CPU caches that are not known to survive a power cut");
    }
    Ok(kernel)
}

#[cfg(test)]
mod tests {
    use super::*;

    const OLD: CpuFeatures = CpuFeatures {
        avx512: false,
        avx2: false,
        clwb: false,
        clflushopt: false,
        movdir64b: false,
        pku: false,
        ospke: false,
    };

    #[test]
    #[cfg(target_arch = "x86_64")]
    fn choice_follows_method_cpu_and_medium() {
        use PlainStores::{Allowed, Preferred, Refused};
        let new =
            CpuFeatures { avx512: true, avx2: true, clwb: true, clflushopt: true, movdir64b: true, ..OLD };
        let haswell = CpuFeatures { avx2: true, ..OLD };
        let cases = [
            (WriteMethod::Auto, new, Refused, Kernel::NtAvx512),
            (WriteMethod::Auto, haswell, Allowed, Kernel::NtAvx2),
            (WriteMethod::Auto, OLD, Refused, Kernel::NtSse2),
            (WriteMethod::Auto, new, Preferred, Kernel::PlainAvx2),
            (WriteMethod::Auto, OLD, Preferred, Kernel::Plain),
            (WriteMethod::NonTemporal, new, Preferred, Kernel::NtAvx512),
            (WriteMethod::StoreFlush, new, Refused, Kernel::FlushClwb),
            (
                WriteMethod::StoreFlush,
                CpuFeatures { clflushopt: true, ..OLD },
                Refused,
                Kernel::FlushClflushopt,
            ),
            (WriteMethod::StoreFlush, OLD, Refused, Kernel::FlushClflush),
            (WriteMethod::PlainStore, new, Allowed, Kernel::PlainAvx2),
            (WriteMethod::Movdir64b, new, Refused, Kernel::Movdir64b),
            (WriteMethod::Exactly(Kernel::NtSse2), new, Preferred, Kernel::NtSse2),
        ];
        for (method, cpu, plain, expected) in cases {
            assert_eq!(choose(method, &cpu, plain).unwrap(), expected, "{method:?} {plain:?}");
        }
    }

    #[test]
    fn what_would_lose_data_or_cannot_run_is_refused() {
        for method in [WriteMethod::PlainStore, WriteMethod::Exactly(Kernel::Plain)] {
            let error = choose(method, &OLD, PlainStores::Refused).unwrap_err();
            assert!(error.contains("power cut"), "{error}");
        }
        for method in [WriteMethod::Movdir64b, WriteMethod::Exactly(Kernel::NtAvx512)] {
            let error = choose(method, &OLD, PlainStores::Allowed).unwrap_err();
            assert!(error.contains("CPU lacks"), "{error}");
        }
    }
}
