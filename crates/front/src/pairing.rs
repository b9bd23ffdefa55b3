//! A region and the directory that it belongs to: brought together, checked, recovered, and taken apart.

use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use fastness_base::{HasKind, chain};
use fastness_pmem::{PmRange, RegionInfo};
use fastness_responder::{
    Backing, Cache, Directory, Error, FileId, Inspection, LogError, Options, ProtocolKind, Recovered, Status,
};

use crate::descriptors::Descriptors;
use crate::error::FrontError;
use crate::places::places;
use crate::region::{RegionUse, open_region};
use crate::report::{Report, found};

/// Files that are named in an error.
const NAMED_MAX: usize = 8;
/// Length of a file that is made for a region, unless it is said.
const REGION_BYTES: u64 = 256 << 20;

/// What becomes of a region and a directory that do not know each other.
#[derive(Debug, Clone, Copy)]
pub struct Pair {
    /// Length of a file that is made for the region; one that is there must have it. By default 256 MiB.
    pub region_bytes: Option<u64>,
    /// How the file of the region is used.
    pub region_use: RegionUse,
    /// How writes become durable; by default FR, or what the region has.
    pub protocol: Option<ProtocolKind>,
    /// Other processes may use files directly ([`Service::leases`](crate::Service::leases)).
    pub is_shared: bool,
    /// What the directory says of an earlier cache may be lost, with what that had in its region.
    pub is_forced: bool,
}

/// A region that is open, and the directory that is to belong to it.
struct Parts<'a> {
    range: PmRange,
    /// Of the region.
    path: &'a Path,
    directory: Directory,
    info: RegionInfo,
    /// For other processes.
    for_others: Option<ForOthers>,
}

/// How other processes join the region.
#[derive(Debug)]
pub(crate) struct ForOthers {
    pub(crate) region: OwnedFd,
    pub(crate) how: RegionUse,
}

/// A cache that has been recovered.
#[derive(Debug)]
pub struct Recovery {
    pub(crate) cache: Cache<PmRange>,
    pub(crate) directory: Directory,
    pub(crate) info: RegionInfo,
    pub(crate) inspection: Inspection,
    pub(crate) for_others: Option<ForOthers>,
    pub(crate) descriptors: Descriptors,
    /// What the recovery did; `None` if the cache was made just now.
    pub recovered: Option<Recovered>,
}

fn directory(path: &Path) -> Result<Directory, FrontError> {
    Directory::open(path).map_err(|error| FrontError::io("use", path, error))
}

fn absolute(path: &Path) -> PathBuf {
    path.canonicalize().unwrap_or_else(|_| {
        let (folder, name) = (path.parent().unwrap_or(path), path.file_name().unwrap_or_default());
        let folder = if folder.as_os_str().is_empty() { Path::new(".") } else { folder };
        folder.canonicalize().unwrap_or_else(|_| folder.to_owned()).join(name)
    })
}

impl Pair {
    /// Opens the cache of a directory; makes one if the region is empty, or not there.
    ///
    /// Persistence: as [`Cache::create`] and [`Cache::open`].
    ///
    /// # Errors
    /// [`FrontError`]: they do not belong together, or the region holds something else. Nothing was changed.
    pub fn open(&self, region: &Path, dir: &Path) -> Result<Recovery, FrontError> {
        let directory = directory(dir)?;
        let path = absolute(region);
        if directory.path().is_some_and(|dir| path.starts_with(dir)) {
            let text = format!("the region {} is inside of the directory that it is for", path.display());
            return Err(FrontError::Refused(text));
        }
        let says = directory.mark().map_err(|error| FrontError::io("look for the cache of", dir, error))?;
        if says.is_some() && !self.is_forced && !path.exists() {
            let text = format!(
                "{} belongs to another region: what that holds would be lost with --force",
                dir.display()
            );
            return Err(FrontError::Refused(text));
        }
        let create_bytes = self.region_bytes.unwrap_or(REGION_BYTES);
        let (opened, is_new) = open_region(&path, Some(create_bytes), self.region_use)?;
        let info = opened.info().clone();
        if let Some(wanted) = self.region_bytes.filter(|wanted| !is_new && *wanted != info.len_bytes) {
            let text = format!(
                "{} is there and has {} bytes, not {wanted}: its length cannot be changed; leave --size out, or \
                 detach it and take another file",
                path.display(),
                info.len_bytes
            );
            return Err(FrontError::Refused(text));
        }
        // Without a descriptor they go through the mount.
        let descriptor = if self.is_shared { opened.descriptor().ok() } else { None };
        let for_others = descriptor.map(|region| ForOthers { region, how: self.region_use });
        let range = opened.into_range();
        let is_empty = Inspection::is_empty(&range).map_err(FrontError::cache("cannot read", &path))?;
        let parts = Parts { range, path: &path, directory, info, for_others };
        let made = if is_empty { self.create(parts) } else { self.take_up(parts) };
        if made.is_err() && is_new {
            // Of no use; nothing can be done if it stays.
            let _ = std::fs::remove_file(&path);
        }
        made
    }

    fn create(&self, parts: Parts<'_>) -> Result<Recovery, FrontError> {
        let Parts { range, path, directory, info, for_others } = parts;
        let descriptors = Descriptors::raised()?;
        let options = Options::new()
            .protocol(self.protocol.unwrap_or(ProtocolKind::Fr))
            .overwrite(self.is_forced)
            .shared(for_others.is_some())
            .files_max(descriptors.idle_files_max());
        let fail = |error| FrontError::cache("cannot make a cache in", path)(error);
        let cache = Cache::create(range, Arc::new(directory.clone()), &options).map_err(fail)?;
        let inspection = cache.inspection();
        Ok(Recovery { cache, directory, info, inspection, for_others, descriptors, recovered: None })
    }

    fn take_up(&self, parts: Parts<'_>) -> Result<Recovery, FrontError> {
        let path = parts.path;
        let inspection = Inspection::of(&parts.range).map_err(|error| match error {
            Error::Superblock { .. } => FrontError::Refused(format!(
                "{} holds something that is no cache; take another file, or remove it ({error})",
                path.display()
            )),
            Error::Version { .. } => FrontError::Refused(format!("{}: {error}", path.display())),
            error => FrontError::cache("cannot use", path)(error),
        })?;
        if self.protocol.is_some_and(|protocol| protocol != inspection.protocol) {
            let text = format!("the cache in {} has another protocol; detach it first", path.display());
            return Err(FrontError::Refused(text));
        }
        recover(parts, inspection, TakeUp::default())
    }
}

/// To what somebody has agreed for a cache that is taken up.
#[derive(Debug, Clone, Copy, Default)]
pub struct TakeUp {
    /// Region or directory may be an older copy, or the directory may have lost its mark
    /// ([`Options::pair_anew`]).
    pub is_forced: bool,
    /// What is damaged, or stands after damage in a log of records, is given up ([`Options::drop_tail`]).
    pub drops_tail: bool,
}

/// Words for a pair that is taken up with consent alone, or not at all; `was_at` is where the directory was.
fn recover_failed(path: &Path, was_at: Option<PathBuf>) -> impl FnOnce(Error) -> FrontError {
    move |error| match error {
        Error::WrongDirectory(_) => FrontError::CacheWithHint {
            action: "cannot recover",
            path: path.to_owned(),
            hint: match was_at {
                Some(was_at) => {
                    format!(
                        "its directory was {}; if that was moved, say with --dir to where",
                        was_at.display()
                    )
                }
                None => "say with --dir where its directory is".to_owned(),
            },
            source: error,
        },
        Error::Copy(_) | Error::Unmarked => FrontError::Refused(format!(
            "{}: {error}; `fastness responder recover {} --force` goes on nevertheless",
            path.display(),
            path.display()
        )),
        Error::Log(ref log) if matches!(**log, LogError::Damaged { .. }) => FrontError::CacheWithHint {
            action: "cannot recover",
            path: path.to_owned(),
            hint: format!(
                "`fastness responder recover {} --drop-tail` recovers what precedes the damage and gives up the \
                 rest; keep a copy of the region",
                path.display()
            ),
            source: error,
        },
        Error::Tag { .. } | Error::Operation { .. } => FrontError::CacheWithHint {
            action: "cannot recover",
            path: path.to_owned(),
            hint: format!(
                "`fastness responder recover {} --drop-tail` gives up the chunk that it is of, and all others that \
                 are damaged, and recovers the rest; keep a copy of the region",
                path.display()
            ),
            source: error,
        },
        Error::Read(_) => FrontError::CacheWithHint {
            action: "cannot recover",
            path: path.to_owned(),
            hint: format!(
                "if that is in a chunk, `fastness responder recover {} --drop-tail` goes on without what cannot be \
                 read; keep a copy of the region",
                path.display()
            ),
            source: error,
        },
        error => FrontError::cache("cannot recover", path)(error),
    }
}

fn recover(parts: Parts<'_>, inspection: Inspection, how: TakeUp) -> Result<Recovery, FrontError> {
    let Parts { range, path, directory, info, for_others } = parts;
    let backing = Arc::new(directory.clone());
    // First: a recovery opens what there are chunks of.
    let descriptors = Descriptors::raised()?;
    let options = Options::new().shared(for_others.is_some()).pair_anew(how.is_forced);
    let options = options.drop_tail(how.drops_tail);
    let options =
        options.files_max(descriptors.idle_files_max()).recovery_files(descriptors.recovery_files());
    let was_at = inspection.path.clone();
    let (cache, recovered) = Cache::open(range, backing, &options).map_err(recover_failed(path, was_at))?;
    let recovered = Some(recovered);
    Ok(Recovery { cache, directory, info, inspection, for_others, descriptors, recovered })
}

/// What a region says of itself; nothing is changed, and its directory is not needed.
///
/// # Errors
/// [`FrontError`]; of kind Retry if a process has it.
pub fn inspect(region: &Path) -> Result<(Inspection, RegionInfo), FrontError> {
    // How an ordinary file was used is not known: what is said of it errs towards emulation.
    let (opened, _) = open_region(region, None, RegionUse::Emulated)?;
    let info = opened.info().clone();
    let found = Inspection::of_whole(opened.into_range()).map_err(FrontError::cache("cannot use", region))?;
    Ok((found, info))
}

impl Recovery {
    /// Takes up the cache of a region whose process has ended; `dir` only if its directory is elsewhere now.
    ///
    /// # Errors
    /// [`FrontError`]; the region is as it was, or as a crash would leave it.
    pub fn of(
        region: &Path,
        dir: Option<&Path>,
        how: RegionUse,
        agreed: TakeUp,
    ) -> Result<Recovery, FrontError> {
        let (opened, _) = open_region(region, None, how)?;
        let info = opened.info().clone();
        let range = opened.into_range();
        let inspection = Inspection::of(&range).map_err(FrontError::cache("cannot use", region))?;
        let directory = match (dir, &inspection.path) {
            (Some(dir), _) => directory(dir)?,
            (None, Some(was_at)) => directory(was_at).map_err(|error| {
                let text = format!("{}; if the directory was moved, say with --dir to where", chain(&error));
                FrontError::Refused(text)
            })?,
            (None, None) => {
                let text = "the region does not say where its directory is; say it with --dir";
                return Err(FrontError::Refused(text.to_owned()));
            }
        };
        recover(Parts { range, path: region, directory, info, for_others: None }, inspection, agreed)
    }

    /// Where the directory is.
    pub fn directory(&self) -> PathBuf {
        self.directory.path().unwrap_or_default()
    }

    /// Writes everything to the directory; says what is left.
    ///
    /// # Errors
    /// [`FrontError::Cache`]: those of a flush. What was not written is in PM still.
    pub fn flush(&self) -> Result<Report, FrontError> {
        let path = self.info.path.clone().unwrap_or_default();
        let flushed = self.cache.flush();
        let status = self.cache.status().map_err(FrontError::cache("cannot read", &path))?;
        flushed.map_err(|error| self.not_flushed(error, &status))?;
        let report = Report::of_inspection(&path, &self.inspection, &self.info);
        let directory = self.directory().display().to_string();
        let found = Some(found(self.inspection.protocol, self.recovered.as_ref()));
        // What was damaged before was given up, or it would not have been recovered.
        Ok(Report { directory, found, damaged_tags: 0, ..report }.with_status(&status, |_| None))
    }

    /// The error of a flush, with the names of the files.
    fn not_flushed(&self, error: Error, status: &Status) -> FrontError {
        let (action, path) =
            ("not everything could be flushed from", self.info.path.clone().unwrap_or_default());
        let files = status.failures.iter().map(|(file, _)| *file).collect();
        let places = places(&self.directory(), &files);
        let name = |(file, errno): &(FileId, i32)| {
            let name = places.get(file).map_or_else(
                || format!("inode {}", file.inode),
                |place| self.directory().join(place).display().to_string(),
            );
            format!("{name} ({})", chain(&std::io::Error::from_raw_os_error(*errno)))
        };
        let mut names: Vec<String> = status.failures.iter().take(NAMED_MAX).map(name).collect();
        match status.failures.len() {
            0 => return FrontError::cache(action, &path)(error),
            all if all > NAMED_MAX => names.push(format!("and {} more", all - NAMED_MAX)),
            _ => {}
        }
        FrontError::CacheWithHint { action, path, hint: names.join(", "), source: error }
    }

    /// Ends the cache: the directory has everything, and the region holds nothing.
    ///
    /// # Errors
    /// [`FrontError::Cache`]: the cache is there still, with what was not flushed.
    pub fn detach(self) -> Result<(), FrontError> {
        let path = self.info.path.clone().unwrap_or_default();
        self.cache.detach().map_err(|refused| {
            let (_, error) = *refused;
            if matches!(error, Error::Orphans { .. }) {
                let hint = format!(
                    "`fastness responder detach {} --orphans DIR` saves them in DIR, --give-up-orphans gives them up",
                    path.display()
                );
                let action = "nothing was ended: files were moved out of the directory, and have data in";
                return FrontError::CacheWithHint { action, path, hint, source: error };
            }
            let action = match error.kind() {
                fastness_base::ErrorKind::Retry => "nothing was ended: not everything can be flushed from",
                _ => "cannot end the cache in",
            };
            FrontError::cache(action, &path)(error)
        })
    }
}
