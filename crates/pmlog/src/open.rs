//! Opening a log: reads its contents, makes them durable, and claims the records.

use std::sync::Arc;

use fastness_prb::{Clock, Config, Entropy, HdlHeader, OnLoss, Prb, SLOTS_MAX, Txg};

use crate::error::OpenError;
use crate::front::{Front, choose_slot, choose_superblock, divide, read_slots, read_superblocks};
use crate::geometry::{DATA_OFFSET, Geometry};
use crate::hidden::Hidden;
use crate::log::RecordLog;
use crate::medium::LogMedium;
use crate::recovery::{Findings, Recovery};

/// How to use a log; none of this is stored on the medium.
#[derive(Debug, Clone)]
pub struct OpenOptions {
    prb: Config,
    on_loss: OnLoss,
}

impl Default for OpenOptions {
    fn default() -> Self {
        Self { prb: Config::default(), on_loss: OnLoss::Fail }
    }
}

impl OpenOptions {
    /// The default options.
    pub fn new() -> Self {
        Self::default()
    }

    /// Sets how many threads may write at a time (1 to 32; at most one for each chunk). Two to four for each
    /// Optane module; as many as cores for media that behave like DRAM. Default: 4.
    #[must_use]
    pub fn committers(mut self, committers: u32) -> Self {
        self.prb.ncommitters = committers;
        self
    }

    /// Sets what to do if records are missing or unreadable. Default: [`OnLoss::Fail`].
    #[must_use]
    pub fn on_loss(mut self, on_loss: OnLoss) -> Self {
        self.on_loss = on_loss;
        self
    }

    /// Sets whether a trim reads chunks back and compares them with what was written. Default: it does.
    #[must_use]
    pub fn verify_trimmed(mut self, verify: bool) -> Self {
        self.prb.verify_collected = verify;
        self
    }

    /// Sets the source of random numbers. Default: the operating system.
    #[must_use]
    pub fn entropy(mut self, entropy: Arc<dyn Entropy>) -> Self {
        self.prb.entropy = entropy;
        self
    }

    /// Sets the clock of the statistics.
    #[must_use]
    pub fn clock(mut self, clock: Clock) -> Self {
        self.prb.clock = clock;
        self
    }

    /// The PRB's parameters for a log of this geometry.
    pub(crate) fn config(&self, geometry: &Geometry) -> Config {
        let most = geometry.chunks.min(u64::from(SLOTS_MAX)) as u32;
        let ncommitters = self.prb.ncommitters.clamp(1, most);
        Config { ncommitters, alignment: geometry.alignment, checksum: geometry.checksum, ..self.prb.clone() }
    }
}

impl<R: LogMedium> RecordLog<R> {
    /// Opens the log in `range`, which starts at the region's first byte, for recovery.
    ///
    /// Every record is read and checked. The contents of the medium are not changed; what was visible but not
    /// durable is made durable. Dropping the [`Recovery`] leaves everything unchanged.
    ///
    /// # Errors
    /// [`OpenError`]; nothing was changed. [`OpenError::is_loss`] tells whether another [`OnLoss`] may help.
    ///
    /// # Panics
    /// Caller bug only: `range` starts elsewhere.
    pub fn open(mut range: R, options: &OpenOptions) -> Result<Recovery<R>, OpenError> {
        assert_eq!(range.region_offset(), 0, "a log takes the whole of a region");
        let found_bytes = range.len_bytes() as u64;
        let (superblock, damaged_superblock) = choose_superblock(read_superblocks(&range))?;
        let geometry = superblock.geometry;
        if found_bytes < geometry.region_bytes {
            return Err(OpenError::Truncated { found_bytes, expected_bytes: geometry.region_bytes });
        }
        range.write_back(0, DATA_OFFSET as usize);
        // PERSIST: orders the superblock and the header (read below) before everything that recovery does
        // because of them. Without it a power cut could bring back the previous header, whose records are
        // already overwritten, or leave no log where a killed creation was opened and written to.
        range.fence()?;
        let (trusted, slot, damaged_slot) = choose_slot(read_slots(&range, Some(superblock.uuid)))?;
        let (front, chunks) = divide(range, &geometry);

        let config = options.config(&geometry);
        let committers = config.ncommitters;
        let prb = Prb::open(config, chunks)?;
        let mut hdl = prb.setup_hdl(&slot.header).expect("the only log of a PRB that was just opened");
        let first_txg = Txg(slot.synced.0 + 1);
        let mut findings = Findings {
            damaged_blocks: damaged_superblock.into_iter().chain(damaged_slot).collect(),
            ends: prb.chunk_ends(),
            hidden: Vec::new(),
        };
        // After a claim, entries that were given up may be anywhere.
        if let HdlHeader::Logging { log } = slot.header {
            let tails = prb.chunk_tails(first_txg);
            findings.hidden.extend(tails.iter().filter_map(|tail| tail.hides(log)).map(Hidden::End));
        }
        let claimed = hdl.claim(first_txg, options.on_loss).map_err(OpenError::Claim)?;
        let in_flight = u64::from(slot.committers);
        if matches!(slot.header, HdlHeader::Logging { .. }) && claimed.gaps > in_flight {
            findings.hidden.push(Hidden::Gaps { missing: claimed.gaps, in_flight });
        }
        match findings.hidden.first() {
            Some(&hidden) if options.on_loss == OnLoss::Fail => Err(OpenError::Hidden(hidden)),
            _ => {
                let front = Front::new(front, trusted, slot);
                Ok(Recovery::new(prb, hdl, front, superblock, committers, claimed, findings))
            }
        }
    }
}
