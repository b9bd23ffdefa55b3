//! How many images there are, without making them.

use crate::machine::Machine;
use crate::memory::Memory;
use crate::states::line_states;

/// Most contents of a line that are made to be counted: with
/// [`Config::strict_nt`](crate::Config::strict_nt) there can be very many.
const LINE_CONTENTS_MAX: usize = 4096;

/// A number of images, which can be astronomic.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct ImageCount {
    /// Its logarithm to base 2, rounded.
    pub log2: u32,
    /// The number itself, saturating.
    pub images: u64,
}

impl ImageCount {
    /// One for each combination of these and of as many others.
    #[must_use]
    pub fn times(self, others: u128) -> ImageCount {
        let log2 = (others.max(1) as f64).log2().round() as u32;
        let others = u64::try_from(others).unwrap_or(u64::MAX);
        ImageCount { log2: self.log2 + log2, images: self.images.saturating_mul(others) }
    }
}

impl<M: Memory> Machine<M> {
    /// How many images a crash can leave now, by what each line can hold. Exact where lines do not depend on
    /// each other; where they do (`clflush`, eADR, the dissertation's rules), and for a line with more than
    /// 4,096 contents, there are no more than this.
    pub fn count_images(&self) -> ImageCount {
        let context = self.context();
        let (mut log2, mut images) = (0.0, 1_u64);
        for (number, line) in self.lines() {
            let base = self.persistent().line(number);
            let contents = match line_states(line, &base, context, LINE_CONTENTS_MAX) {
                Ok(states) => states.len() as u128,
                Err(_) => self.line_upper_bound(line),
            };
            log2 += (contents.max(1) as f64).log2();
            images = images.saturating_mul(u64::try_from(contents).unwrap_or(u64::MAX));
        }
        ImageCount { log2: log2.round() as u32, images }
    }
}

#[cfg(test)]
mod tests {
    use std::ops::ControlFlow;

    use super::*;
    use crate::{Config, Op, Rng};

    #[test]
    fn as_many_are_counted_as_there_are() {
        let mut rng = Rng::new(5);
        for strict_nt in [false, true] {
            for _ in 0..200 {
                let mut machine = Machine::new(vec![0; 512], Config { strict_nt, ..Config::default() });
                for at in 1..9 {
                    let address = rng.below(3) * 64 + rng.below(7) * 8;
                    let op = match rng.below(4) {
                        0 => Op::nt_store(address, [at; 8]),
                        1 => Op::clwb(address),
                        _ => Op::store(address, [at; 12]),
                    };
                    machine.apply(&op).unwrap();
                }
                let mut made = 0;
                machine
                    .for_each_crash_image(1 << 20, &mut |_| {
                        made += 1;
                        ControlFlow::Continue(())
                    })
                    .unwrap();
                let count = machine.count_images();
                assert_eq!((count.images, count.log2), (made, (made as f64).log2().round() as u32));
            }
        }
    }

    #[test]
    fn astronomic_numbers_have_a_logarithm() {
        let mut machine = Machine::new(vec![0; 64 << 10], Config::default());
        (0..1000).for_each(|line| machine.apply(&Op::store(line * 64, [1; 8])).unwrap());
        assert_eq!(machine.count_images(), ImageCount { log2: 1000, images: u64::MAX });
        // So does a single line, of unordered non-temporal stores.
        let config = Config { strict_nt: true, ..Config::default() };
        let mut machine = Machine::new(vec![0; 64], config);
        (1..=64).for_each(|value| machine.apply(&Op::nt_store(0, [value; 64])).unwrap());
        let count = machine.count_images();
        assert!(count.images > 1 << 60 && count.log2 > 60, "{count:?}");
        let few = ImageCount { log2: 3, images: 8 };
        assert_eq!(few.times(1 << 70), ImageCount { log2: 73, images: u64::MAX });
        assert_eq!(few.times(4), ImageCount { log2: 5, images: 32 });
        // Where lines depend on each other there are no more than this.
        let mut machine = Machine::new(vec![0; 256], Config::default());
        for op in [Op::store(0, [1; 8]), Op::clflush(0), Op::store(64, [1; 8])] {
            machine.apply(&op).unwrap();
        }
        assert_eq!(machine.count_images().images, 4);
    }
}
