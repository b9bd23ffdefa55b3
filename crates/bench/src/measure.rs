//! Timing in alternating turns.

use std::sync::Barrier;
use std::time::Instant;

use crate::error::{Result, foreign, wrong};

/// Times of two jobs that took turns, in ns for one operation.
#[derive(Debug, Clone, Default)]
pub(crate) struct Pair {
    pub(crate) a: Vec<f64>,
    pub(crate) b: Vec<f64>,
}

/// Runs `a` and `b` in turns (A B B A A B ...), `turns` times each, after a warm-up turn that does not count.
///
/// Each performs `operations` operations and returns their time in ns, so that set-up is not in the figure.
pub(crate) fn by_turns(
    turns: usize,
    operations: usize,
    mut a: impl FnMut() -> Result<f64>,
    mut b: impl FnMut() -> Result<f64>,
) -> Result<Pair> {
    let mut pair = Pair::default();
    for turn in 0..=turns {
        let (of_a, of_b) = if turn % 2 == 0 {
            let of_a = a()?;
            (of_a, b()?)
        } else {
            let of_b = b()?;
            (a()?, of_b)
        };
        if turn > 0 {
            pair.a.push(of_a / operations as f64);
            pair.b.push(of_b / operations as f64);
        }
    }
    Ok(pair)
}

/// Time of `work` in ns.
pub(crate) fn time_ns<T>(work: impl FnOnce() -> Result<T>) -> Result<f64> {
    let start = Instant::now();
    work()?;
    Ok(start.elapsed().as_nanos() as f64)
}

/// Resident memory of this process.
pub(crate) fn rss_bytes() -> Result<u64> {
    let text = std::fs::read_to_string("/proc/self/statm")?;
    let pages: u64 = text.split(' ').nth(1).unwrap_or_default().parse().map_err(foreign)?;
    Ok(pages * rustix::param::page_size() as u64)
}

impl Pair {
    /// Median of the turns' ratios a / b, with the quartiles.
    pub(crate) fn ratio(&self) -> Spread {
        Spread::of(self.a.iter().zip(&self.b).map(|(a, b)| a / b).collect())
    }
}

/// A median and the quartiles around it.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Spread {
    pub(crate) low: f64,
    pub(crate) median: f64,
    pub(crate) high: f64,
}

impl Spread {
    pub(crate) fn of(mut values: Vec<f64>) -> Self {
        values.sort_by(f64::total_cmp);
        let at = |quarter: usize| values[(values.len() - 1) * quarter / 4];
        Self { low: at(1), median: at(2), high: at(3) }
    }
}

/// CPU time that the calling process has used so far, in ns.
pub(crate) fn process_cpu_ns() -> f64 {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::ProcessCPUTime);
    time.tv_sec as f64 * 1e9 + time.tv_nsec as f64
}

/// Wall and CPU time of one turn, in ns.
#[derive(Clone, Copy)]
pub(crate) struct Cost {
    pub(crate) wall: f64,
    pub(crate) cpu: f64,
}

/// Runs `work` for each item on a thread of its own, from a common start to the end of the last.
pub(crate) fn in_parallel<T: Send>(
    items: impl ExactSizeIterator<Item = T>,
    work: impl Fn(T) -> Result<()> + Sync,
) -> Result<Cost> {
    let start = Barrier::new(items.len() + 1);
    std::thread::scope(|scope| {
        let spawn = |item| {
            let (start, work) = (&start, &work);
            scope.spawn(move || {
                start.wait();
                work(item)
            })
        };
        let threads: Vec<_> = items.map(spawn).collect();
        let (wall, cpu) = (Instant::now(), process_cpu_ns());
        start.wait();
        for thread in threads {
            thread.join().map_err(|_| wrong("a writer panicked"))??;
        }
        Ok(Cost { wall: wall.elapsed().as_nanos() as f64, cpu: process_cpu_ns() - cpu })
    })
}
