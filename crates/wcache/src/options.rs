//! How a cache works.

use std::sync::Arc;
use std::time::Duration;

use fastness_prb::{Alignment, Config, Entropy, OnLoss, SLOTS_MAX};

use crate::geometry::Geometry;

/// What writes do while the log is full and the origin takes nothing.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum WhenFull {
    /// They wait until the origin takes something again.
    #[default]
    Wait,
    /// They fail ([`Error::Full`](crate::Error::Full)).
    Fail,
}

/// How a cache works; none of this is stored.
#[derive(Debug, Clone)]
pub struct Options {
    pub(crate) prb: Config,
    pub(crate) when_full: WhenFull,
    pub(crate) on_loss: OnLoss,
    pub(crate) is_forced: bool,
    pub(crate) is_degraded: bool,
    pub(crate) period: Duration,
    pub(crate) is_paced: bool,
}

impl Default for Options {
    fn default() -> Options {
        // A read-back of chunks would double what is read of the medium: every byte is checked when it is
        // written to the origin.
        let prb = Config { verify_collected: false, alignment: Alignment::Optane, ..Config::default() };
        Options {
            prb,
            when_full: WhenFull::Wait,
            on_loss: OnLoss::Fail,
            is_forced: false,
            is_degraded: false,
            period: Duration::from_millis(50),
            is_paced: true,
        }
    }
}

impl Options {
    /// The default options.
    pub fn new() -> Options {
        Options::default()
    }

    /// How many threads may write to the region at a time (1 to 32). Default: 4.
    #[must_use]
    pub fn committers(mut self, committers: u32) -> Options {
        self.prb.ncommitters = committers;
        self
    }

    /// What writes do while the log is full and the origin takes nothing.
    #[must_use]
    pub fn when_full(mut self, when_full: WhenFull) -> Options {
        self.when_full = when_full;
        self
    }

    /// What opening does about entries that are missing or damaged. Default: it fails.
    #[must_use]
    pub fn on_loss(mut self, on_loss: OnLoss) -> Options {
        self.on_loss = on_loss;
        self
    }

    /// Whether a cache may be made over another one, and taken up although its origin does not confirm that
    /// they belong together.
    #[must_use]
    pub fn force(mut self, is_forced: bool) -> Options {
        self.is_forced = is_forced;
        self
    }

    /// Whether a side of a mirror is taken up alone although the other may be newer. Default: no.
    #[must_use]
    pub fn degraded(mut self, is_degraded: bool) -> Options {
        self.is_degraded = is_degraded;
        self
    }

    /// How long a change may stay in the log alone while the origin has nothing else to do. Default: 50 ms.
    #[must_use]
    pub fn period(mut self, period: Duration) -> Options {
        self.period = period;
        self
    }

    /// Whether writers are slowed down as the log fills; otherwise they stop when it is full. For tests.
    #[must_use]
    pub fn paced(mut self, is_paced: bool) -> Options {
        self.is_paced = is_paced;
        self
    }

    /// The source of random numbers. Default: the operating system.
    #[must_use]
    pub fn entropy(mut self, entropy: Arc<dyn Entropy>) -> Options {
        self.prb.entropy = entropy;
        self
    }

    /// How entries are aligned: 64 bytes wastes less, 256 suits Optane (default).
    #[must_use]
    pub fn alignment(mut self, alignment: Alignment) -> Options {
        self.prb.alignment = alignment;
        self
    }

    pub(crate) fn config(&self, geometry: &Geometry) -> Config {
        // One chunk stays for those who come after the committers.
        let most = (geometry.chunks - 1).min(u64::from(SLOTS_MAX)) as u32;
        Config { ncommitters: self.prb.ncommitters.clamp(1, most), ..self.prb.clone() }
    }

    pub(crate) fn random(&self) -> u64 {
        self.prb.entropy.next_u64()
    }
}
