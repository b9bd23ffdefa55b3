//! Errors of a pool's log.

use std::path::{Path, PathBuf};

use fastness_base::ErrorKind;
use fastness_pmem::{PersistError, ReadError, RegionError};
use fastness_pool::{DatasetKind, Mark, Pool, PoolError};
use fastness_prb::SetupError;
use fastness_zil::{ClaimProblem, LogError, ReplayFailure};

use crate::config::ConfigFault;
use crate::config::RegionId;
use crate::marks::Mismatch;

/// Why a pool's log cannot be used.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum StoreError {
    /// The pool failed.
    #[error(transparent)]
    Pool(#[from] PoolError),
    /// The region cannot be opened or created.
    #[error("the log's region cannot be used")]
    Region(#[source] Box<RegionError>),
    /// The region is shorter than a log needs, or shorter than it was.
    #[error("the log's region has {found_bytes} bytes, it needs {least_bytes}")]
    TooSmall {
        /// Its length.
        found_bytes: u64,
        /// What it must have.
        least_bytes: u64,
    },
    /// Neither superblock is valid.
    #[error("the region holds no log of a pool: {0}")]
    NoLog(&'static str),
    /// The pool has a different log device.
    #[error(
        "{} is another: it is log {found}, and the pool has log {expected}{}",
        place(*.found, path.as_deref()), was_at(last)
    )]
    OtherLog {
        /// In the region.
        found: RegionId,
        /// Where it is.
        path: Option<PathBuf>,
        /// Where that of the pool was last; empty if that is not known.
        last: PathBuf,
        /// In the pool.
        expected: RegionId,
    },
    /// The region is an earlier copy of itself, or the pool is one: what was acknowledged since may be in
    /// neither.
    #[error("{} {}", place(*.region, path.as_deref()), of_when(*mismatch, *synced, devices))]
    Copy {
        /// The region.
        region: RegionId,
        /// Where it is.
        path: Option<PathBuf>,
        /// What differs.
        mismatch: Mismatch,
        /// The pool's last txg.
        synced: Mark,
        /// The pool's devices, if they are the copy.
        devices: Vec<String>,
    },
    /// The pool has a log device, and it is not among those given; of a mirror, neither side is.
    #[error(
        "the pool has log device {expected}{}, and it is not here; what was acknowledged since the last synced txg is \
         in it. Import with it (`--log PATH` if it has moved), or without what only it has by --missing-log (`fastness \
         up`: --drop-log)",
        was_at(last)
    )]
    Missing {
        /// Where it was last; empty if that is not known.
        last: PathBuf,
        /// In the pool.
        expected: RegionId,
    },
    /// A superblock cannot be read.
    #[error("the region's superblock cannot be read")]
    Read(#[from] ReadError),
    /// Writing a superblock to the medium failed.
    #[error("the region's superblock cannot be written")]
    Persist(#[from] PersistError),
    /// The PRB in the region cannot be set up.
    #[error("the region cannot be set up")]
    Setup(#[source] SetupError),
    /// Logs are damaged.
    #[error("{volume}: {problem}{}", more(*.count))]
    Claim {
        /// The name of the first volume.
        volume: String,
        /// What is wrong with its log.
        problem: Box<ClaimProblem>,
        /// How many there are.
        count: usize,
    },
    /// The pool's stored description of its log is damaged.
    #[error("the pool's description of its log cannot be used: {0}")]
    Config(ConfigFault),
    /// The pool has log devices of another kind.
    #[error("{0}")]
    Mixed(&'static str),
    /// The regions of the log were being changed, and the second half of that failed.
    #[error(
        "the log's regions are not as they were to be; the log is on the pool's vdevs now, and nothing is lost"
    )]
    LeftOnVdevs(#[source] Box<StoreError>),
    /// Two callers are changing the pool's log at once.
    #[error("the pool's log is being changed by somebody else")]
    Busy,
    /// A volume's log stops in the middle.
    #[error(transparent)]
    Replay(Box<ReplayFailure>),
    /// The log is not in a state that allows this operation.
    #[error(transparent)]
    Log(#[from] LogError),
    /// The dataset is of a kind that this store was not told how to replay, or that is for no front end.
    #[error("{dataset} is a dataset of kind {kind}, which cannot be opened here")]
    UnknownKind {
        /// The dataset.
        dataset: String,
        /// Its kind.
        kind: DatasetKind,
    },
    /// Only a suspended pool is resumed.
    #[error("pool {0} is not suspended")]
    NotSuspended(String),
}

impl StoreError {
    /// Whether the region of the pool's log is missing, or is no longer that region.
    pub(crate) fn is_missing_region(&self) -> bool {
        matches!(
            self,
            StoreError::Missing { .. }
                | StoreError::OtherLog { .. }
                | StoreError::NoLog(_)
                | StoreError::Copy { .. }
                | StoreError::TooSmall { .. }
                | StoreError::Read(_)
        )
    }

    /// With the paths of the pool's devices, if these are what is wrong.
    pub(crate) fn naming_devices(mut self, pool: &Pool) -> StoreError {
        if let StoreError::Copy { mismatch: Mismatch::Newer(_), devices, .. } = &mut self {
            let sides = pool.status().vdevs.into_iter().flat_map(|(.., sides)| sides);
            *devices = sides.filter(|side| !side.is_stale).map(|side| side.path).collect();
        }
        self
    }

    /// What the caller must do.
    pub fn kind(&self) -> ErrorKind {
        match self {
            StoreError::Pool(error) => error.kind(),
            StoreError::Region(error) => error.kind(),
            StoreError::TooSmall { .. } | StoreError::OtherLog { .. } => ErrorKind::Invalid,
            StoreError::NoLog(_) | StoreError::Copy { .. } => ErrorKind::Corrupt,
            StoreError::Missing { .. } | StoreError::Read(_) | StoreError::Persist(_) => {
                ErrorKind::MediaFailed
            }
            StoreError::Setup(_) => ErrorKind::Invalid,
            StoreError::Claim { problem, .. } => problem.kind(),
            StoreError::Config(ConfigFault::Version(_)) | StoreError::Mixed(_) | StoreError::Busy => {
                ErrorKind::Invalid
            }
            StoreError::LeftOnVdevs(error) => error.kind(),
            StoreError::Config(_) => ErrorKind::Corrupt,
            StoreError::Replay(failure) => failure.kind(),
            StoreError::Log(error) => error.kind(),
            StoreError::UnknownKind { .. } | StoreError::NotSuspended(_) => ErrorKind::Invalid,
        }
    }
}

fastness_base::has_kind!(StoreError);

fn place(region: RegionId, path: Option<&Path>) -> String {
    match path {
        Some(path) => format!("the log's region {}", path.display()),
        None => format!("the log's region {region}"),
    }
}

fn was_at(path: &Path) -> String {
    match path.as_os_str().is_empty() {
        true => String::new(),
        false => format!(" (last at {})", path.display()),
    }
}

fn of_when(mismatch: Mismatch, synced: Mark, devices: &[String]) -> String {
    let pool = synced.txg;
    match mismatch {
        Mismatch::Older(Some(Mark { txg, .. })) if txg < pool => {
            let behind = pool.0 - txg.0;
            format!("is a copy from earlier: it ends with {txg}, {behind} before the pool's {pool}")
        }
        Mismatch::Older(Some(_)) => {
            format!("is a copy from another import of the pool: its {pool} is not the pool's")
        }
        Mismatch::Older(None) => {
            format!("does not say which of the pool's txgs it has seen; the pool is at {pool}")
        }
        Mismatch::Newer(Mark { txg, .. }) => {
            let devices = devices.join(", ");
            format!(
                "has seen {txg} become durable, and the pool is at {pool}: its devices are a copy from earlier \
                 ({devices})"
            )
        }
    }
}

fn more(count: usize) -> String {
    if count > 1 { format!("; and {} more logs", count - 1) } else { String::new() }
}

impl From<RegionError> for StoreError {
    fn from(error: RegionError) -> StoreError {
        StoreError::Region(Box::new(error))
    }
}

impl From<SetupError> for StoreError {
    fn from(error: SetupError) -> StoreError {
        StoreError::Setup(error)
    }
}

impl From<ConfigFault> for StoreError {
    fn from(fault: ConfigFault) -> StoreError {
        StoreError::Config(fault)
    }
}

impl From<ReplayFailure> for StoreError {
    fn from(failure: ReplayFailure) -> StoreError {
        StoreError::Replay(Box::new(failure))
    }
}
