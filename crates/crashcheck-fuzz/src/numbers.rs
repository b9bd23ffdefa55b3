//! Offsets and lengths at which code goes another way: limits, and what lies beside them.

use fastness_pm_model::Rng;

use crate::pick;

/// Sizes of what storage is made of: words, lines, media blocks, sectors, pages, huge pages.
const UNITS: [u64; 9] = [1, 8, 16, 64, 256, 512, 4096, 65_536, 2 << 20];
/// Ends of integers.
const ENDS: [u64; 6] = [1 << 7, 1 << 8, 1 << 16, 1 << 31, 1 << 32, 1 << 40];

/// A number of at most `max` in the place of `number`.
///
/// Most are small: 0, 1, beside a multiple of a unit, beside `number`. Large ones, up to `max`, come as well.
pub fn odd(number: u64, max: u64, rng: &mut Rng) -> u64 {
    let beside = |number: u64, rng: &mut Rng| {
        let distance = *pick(rng, &[0, 1, 1, 1, 2, 3, 7, 8]);
        if rng.one_in(2) { number.saturating_add(distance) } else { number.saturating_sub(distance) }
    };
    let odd = match rng.below(12) {
        0 => 0,
        1 => 1,
        2..=4 => {
            let unit = *pick(rng, &UNITS);
            let count = 1 + rng.below(3);
            beside(unit * count, rng)
        }
        5..=6 => beside(number, rng),
        7 => number.saturating_mul(2 + rng.below(31)),
        8 => number / 2,
        9 => rng.below(number.saturating_mul(2).max(16)),
        10 => {
            let end = *pick(rng, &ENDS);
            beside(end, rng)
        }
        _ => max.saturating_sub(rng.below(2)),
    };
    odd.min(max)
}

/// How long a name is: what file systems take, and one more than that.
pub fn name_bytes(rng: &mut Rng) -> usize {
    *pick(rng, &[1, 2, 7, 8, 15, 16, 31, 63, 64, 100, 128, 200, 254, 255, 255, 256])
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn what_is_odd_comes_soon() {
        let mut rng = Rng::new(1);
        let numbers: BTreeSet<u64> = (0..4000).map(|_| odd(128, 1 << 26, &mut rng)).collect();
        for wanted in [0, 1, 63, 64, 65, 127, 129, 4095, 4097, 1 << 26, (1 << 26) - 1] {
            assert!(numbers.contains(&wanted), "{wanted}");
        }
        assert!(numbers.iter().all(|number| *number <= 1 << 26));
        let unaligned = numbers.iter().filter(|number| *number % 8 != 0).count();
        assert!(unaligned * 2 > numbers.len(), "{unaligned} of {}", numbers.len());
    }

    #[test]
    fn nothing_is_too_large() {
        let mut rng = Rng::new(2);
        assert!((0..1000).any(|_| odd(u64::MAX, u64::MAX, &mut rng) == u64::MAX));
        assert!((0..1000).all(|_| odd(u64::MAX, 7, &mut rng) <= 7));
        assert!((0..1000).all(|_| odd(0, 0, &mut rng) == 0));
    }
}
