//! Sums bytes without copying them, with the CPU features that the copy kernels have.

use crate::medium::Summer;

/// Hands `bytes` to `summer` block by block, compiled for the widest vectors that this CPU has.
///
/// A checksum that is fused into a copy runs inside a kernel; this is its counterpart for reading back.
pub fn sum<S: Summer>(bytes: &[u8], summer: &mut S) {
    #[cfg(target_arch = "x86_64")]
    {
        if is_x86_feature_detected!("avx512f") && is_x86_feature_detected!("avx512dq") {
            // SAFETY: the CPU has the features.
            return unsafe { sum_avx512(bytes, summer) };
        }
        if is_x86_feature_detected!("avx2") {
            // SAFETY: the CPU has the feature.
            return unsafe { sum_avx2(bytes, summer) };
        }
    }
    bytes.chunks(S::BLOCK_BYTES).for_each(|block| summer.update(block));
}

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx512f,avx512dq")]
fn sum_avx512<S: Summer>(bytes: &[u8], summer: &mut S) {
    bytes.chunks(S::BLOCK_BYTES).for_each(|block| summer.update(block));
}

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx2")]
fn sum_avx2<S: Summer>(bytes: &[u8], summer: &mut S) {
    bytes.chunks(S::BLOCK_BYTES).for_each(|block| summer.update(block));
}
