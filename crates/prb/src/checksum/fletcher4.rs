//! Fletcher-4 in eight independent lanes, so that the compiler can keep the sums in vector registers.
//!
//! With `w` the little-endian 32-bit words, ZFS computes `a += w; b += a; c += b; d += c` in 64 bits. Lane
//! `i` of `N` runs the same recurrence over the words `i, i + N, i + 2N, ...`; at the end the lanes fold into
//! the scalar sums. A word that is `x` words from the end weighs 1, x, x(x+1)/2, x(x+1)(x+2)/6 in the four
//! sums; in its lane it is `k` words from the end with `x = N k - i`, so every scalar weight is a fixed
//! combination of the lane's weights. The combinations are computed at compile time.

use super::Checksum;

const LANES: usize = 8;
const LANE_BLOCK_BYTES: usize = LANES * 4;

/// Running sums; every piece of input except the last must be a multiple of 32 bytes.
#[derive(Clone, Default)]
pub(super) struct Fletcher4 {
    a: [u64; LANES],
    b: [u64; LANES],
    c: [u64; LANES],
    d: [u64; LANES],
    /// Bytes after the last whole lane block; only the final piece leaves any.
    tail: [u8; LANE_BLOCK_BYTES],
    tail_len: usize,
}

impl Fletcher4 {
    #[inline(always)]
    pub(super) fn update(&mut self, piece: &[u8]) {
        debug_assert_eq!(self.tail_len, 0, "only the last piece may be no multiple of 32 bytes");
        // Locals stay in registers, whatever the compiler can prove about `self`.
        let (mut a, mut b, mut c, mut d) = (self.a, self.b, self.c, self.d);
        let mut blocks = piece.chunks_exact(LANE_BLOCK_BYTES);
        for block in &mut blocks {
            let word = |lane: usize| {
                let bytes = [block[lane * 4], block[lane * 4 + 1], block[lane * 4 + 2], block[lane * 4 + 3]];
                u64::from(u32::from_le_bytes(bytes))
            };
            let words: [u64; LANES] = std::array::from_fn(word);
            add(&mut a, &words);
            add(&mut b, &a);
            add(&mut c, &b);
            add(&mut d, &c);
        }
        (self.a, self.b, self.c, self.d) = (a, b, c, d);
        let rest = blocks.remainder();
        self.tail[..rest.len()].copy_from_slice(rest);
        self.tail_len = rest.len();
    }

    /// The four sums, little endian; a partial last word is padded with zeroes.
    pub(super) fn finish(&self) -> Checksum {
        let mut sums = self.fold();
        for word in self.tail[..self.tail_len].chunks(4) {
            let mut bytes = [0; 4];
            bytes[..word.len()].copy_from_slice(word);
            sums[0] = sums[0].wrapping_add(u64::from(u32::from_le_bytes(bytes)));
            for i in 1..4 {
                sums[i] = sums[i].wrapping_add(sums[i - 1]);
            }
        }
        let mut out = [0; 32];
        for (i, sum) in sums.iter().enumerate() {
            out[i * 8..][..8].copy_from_slice(&sum.to_le_bytes());
        }
        out
    }

    fn fold(&self) -> [u64; 4] {
        let mut sums = [0u64; 4];
        for (lane, factors) in FOLD.iter().enumerate() {
            let lane_sums = [self.a[lane], self.b[lane], self.c[lane], self.d[lane]];
            for (sum, weights) in sums.iter_mut().zip(factors) {
                for (lane_sum, weight) in lane_sums.iter().zip(weights) {
                    *sum = sum.wrapping_add(lane_sum.wrapping_mul(*weight));
                }
            }
        }
        sums
    }
}

#[inline(always)]
fn add(sums: &mut [u64; LANES], terms: &[u64; LANES]) {
    for (sum, term) in sums.iter_mut().zip(terms) {
        *sum = sum.wrapping_add(*term);
    }
}

/// Weight of a word `x` words from the end in sum number `order` (0 to 3); a polynomial in `x`.
const fn weight(order: usize, x: i64) -> i64 {
    match order {
        0 => 1,
        1 => x,
        2 => x * (x + 1) / 2,
        _ => x * (x + 1) * (x + 2) / 6,
    }
}

/// `FOLD[lane][order]`: the factors of the lane's a, b, c, d in the scalar sum `order`.
const FOLD: [[[u64; 4]; 4]; LANES] = {
    let mut fold = [[[0; 4]; 4]; LANES];
    let mut lane = 0;
    while lane < LANES {
        let mut order = 0;
        while order < 4 {
            fold[lane][order] = factors(order, lane as i64);
            order += 1;
        }
        lane += 1;
    }
    fold
};

/// Expresses `f(k) = weight(order, N k - lane)` in the basis `weight(0..=3, k)`.
///
/// The basis polynomials vanish at 0 (orders 1 to 3), at -1 (orders 2 and 3) and at -2 (order 3), so the
/// factors follow from f(0), f(-1), f(-2) and f(-3) in turn.
const fn factors(order: usize, lane: i64) -> [u64; 4] {
    const N: i64 = LANES as i64;
    let f0 = weight(order, -lane);
    let f1 = weight(order, -N - lane);
    let f2 = weight(order, -2 * N - lane);
    let f3 = weight(order, -3 * N - lane);
    let p0 = f0;
    let p1 = p0 - f1;
    let p2 = f2 - p0 + 2 * p1;
    let p3 = p0 - 3 * p1 + 3 * p2 - f3;
    [p0 as u64, p1 as u64, p2 as u64, p3 as u64]
}
