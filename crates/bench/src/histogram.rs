//! A histogram of fixed size whose buckets grow with the value.

/// Buckets of an octave: a value is off by at most a 32nd.
const STEPS: usize = 32;
const STEP_BITS: u32 = STEPS.trailing_zeros();

/// Counts of values, exact below 32 and within 3 % above. Adding one allocates nothing.
#[derive(Debug, Clone)]
pub(crate) struct Histogram {
    counts: Box<[u64]>,
    count: u64,
    max: u64,
}

impl Default for Histogram {
    fn default() -> Self {
        let buckets = bucket(u64::MAX) + 1;
        Self { counts: vec![0; buckets].into_boxed_slice(), count: 0, max: 0 }
    }
}

fn bucket(value: u64) -> usize {
    if value < STEPS as u64 {
        return value as usize;
    }
    let octave = value.ilog2() - STEP_BITS;
    // The leading bit is the octave's; the next five say where in it.
    octave as usize * STEPS + (value >> octave) as usize
}

/// The greatest value of a bucket.
fn upper(bucket: usize) -> u64 {
    let octave = (bucket / STEPS).saturating_sub(1) as u32;
    let step = (bucket - octave as usize * STEPS) as u64;
    (step << octave) + ((1 << octave) - 1)
}

impl Histogram {
    pub(crate) fn add(&mut self, value: u64) {
        self.counts[bucket(value)] += 1;
        self.count += 1;
        self.max = self.max.max(value);
    }

    pub(crate) fn merge(&mut self, other: &Histogram) {
        self.counts.iter_mut().zip(&other.counts).for_each(|(to, from)| *to += from);
        self.count += other.count;
        self.max = self.max.max(other.max);
    }

    /// The value below or at which this share of all lies; 0 of nothing.
    pub(crate) fn quantile(&self, share: f64) -> u64 {
        let wanted = ((self.count as f64 * share).ceil() as u64).max(1);
        let mut seen = 0;
        let reaches = |&(_, &count): &(usize, &u64)| {
            seen += count;
            seen >= wanted
        };
        self.counts.iter().enumerate().find(reaches).map_or(0, |(index, _)| upper(index).min(self.max))
    }

    pub(crate) fn max(&self) -> u64 {
        self.max
    }

    pub(crate) fn count(&self) -> u64 {
        self.count
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_value_is_in_a_bucket_that_is_at_most_a_32nd_wide() {
        let values = (0..5000).chain([1 << 20, (1 << 20) - 1, 1 << 40, u64::MAX - 1, u64::MAX]);
        for value in values {
            let upper = upper(bucket(value));
            assert!(upper >= value && upper - value <= value / 32, "{value} is counted as {upper}");
        }
    }

    #[test]
    fn quantiles_of_a_line() {
        let mut all = Histogram::default();
        for half in [0..500, 500..1000u64] {
            let mut one = Histogram::default();
            half.for_each(|value| one.add(value));
            all.merge(&one);
        }
        assert_eq!((all.count(), all.max()), (1000, 999));
        let near = |share: f64, value: u64| all.quantile(share).abs_diff(value) <= value / 32 + 1;
        assert!(near(0.5, 499) && near(0.99, 989) && near(1.0, 999) && near(0.001, 0));
        assert_eq!(Histogram::default().quantile(0.5), 0);
    }
}
