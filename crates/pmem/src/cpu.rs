//! What the CPU can do for persistence, asked once.

use std::sync::OnceLock;

/// The instructions that the kernels, the flushes and the protection need.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct CpuFeatures {
    /// AVX-512 F, BW, DQ and VL together.
    pub(crate) avx512: bool,
    /// AVX2 and BMI2 together.
    pub(crate) avx2: bool,
    pub(crate) clwb: bool,
    pub(crate) clflushopt: bool,
    pub(crate) movdir64b: bool,
    /// The CPU has protection keys for user pages.
    pub(crate) pku: bool,
    /// The kernel has switched protection keys on.
    pub(crate) ospke: bool,
}

impl CpuFeatures {
    /// Features of this machine.
    pub(crate) fn get() -> CpuFeatures {
        static FEATURES: OnceLock<CpuFeatures> = OnceLock::new();
        *FEATURES.get_or_init(detect)
    }
}

#[cfg(target_arch = "x86_64")]
fn detect() -> CpuFeatures {
    use std::arch::x86_64::{__cpuid, __cpuid_count};
    let highest_leaf = __cpuid(0).eax;
    let (ebx, ecx) = if highest_leaf >= 7 {
        let leaf = __cpuid_count(7, 0);
        (leaf.ebx, leaf.ecx)
    } else {
        (0, 0)
    };
    let bit = |register: u32, index: u32| register >> index & 1 == 1;
    CpuFeatures {
        avx512: is_x86_feature_detected!("avx512f")
            && is_x86_feature_detected!("avx512bw")
            && is_x86_feature_detected!("avx512dq")
            && is_x86_feature_detected!("avx512vl")
            && is_x86_feature_detected!("bmi2"),
        avx2: is_x86_feature_detected!("avx2") && is_x86_feature_detected!("bmi2"),
        clwb: bit(ebx, 24),
        clflushopt: bit(ebx, 23),
        movdir64b: bit(ecx, 28),
        pku: bit(ecx, 3),
        ospke: bit(ecx, 4),
    }
}

#[cfg(not(target_arch = "x86_64"))]
fn detect() -> CpuFeatures {
    CpuFeatures::default()
}
