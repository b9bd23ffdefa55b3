//! Latencies in buckets, and their exact maximum.

use histogram::Histogram as Buckets;

/// Counts of values, exact below 64 and within 3 % above. Adding one allocates nothing.
#[derive(Debug, Clone)]
pub(crate) struct Histogram {
    buckets: Buckets,
    count: u64,
    max: u64,
}

impl Default for Histogram {
    fn default() -> Self {
        // 32 buckets for each power of two, for all values.
        let buckets = Buckets::new(5, 64).expect("powers within their bounds");
        Self { buckets, count: 0, max: 0 }
    }
}

impl Histogram {
    pub(crate) fn add(&mut self, value: u64) {
        self.buckets.increment(value).expect("every value has a bucket");
        self.count += 1;
        self.max = self.max.max(value);
    }

    pub(crate) fn merge(&mut self, other: &Histogram) {
        self.buckets.checked_add_assign(&other.buckets).expect("the same buckets, and few counts");
        self.count += other.count;
        self.max = self.max.max(other.max);
    }

    /// The value that this share of all values does not exceed; 0 if there are none.
    pub(crate) fn quantile(&self, share: f64) -> u64 {
        let bucket = self.buckets.quantile_bucket(share).expect("a share of 0 to 1");
        bucket.map_or(0, |bucket| bucket.end().min(self.max))
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
