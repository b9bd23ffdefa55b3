//! `fastness log create`.

use std::io::Write;
use std::path::{Path, PathBuf};

use clap::{Args, ValueEnum};
use fastness_pmem::{OpenOptions as RegionOptions, REGION_ALIGN_BYTES, Region};
use fastness_pmlog::{CreateOptions, RecordLog};
use fastness_prb::{Alignment, ChecksumKind};
use fastness_terminal::{Outcome, size};

use crate::error::{Context, Result, refuse};
use crate::log::report;

pub(super) const EXAMPLES: &str = "\
Examples:
  fastness log create /mnt/pmem/orders.log --size 1G      a file on a DAX file system
  fastness log create /dev/dax0.0 --alignment 64          all of a devdax device
  fastness log create /dev/shm/try.log                    memory stands in for PM: survives kill -9, not a power cut";

/// How records are aligned.
#[derive(Debug, Clone, Copy, ValueEnum)]
enum AlignmentArg {
    /// One cache line: media like DRAM (NVDIMM-N, CXL)
    #[value(name = "64")]
    Line,
    /// The internal write unit of Optane
    #[value(name = "256")]
    Optane,
}

/// How records are checked.
#[derive(Debug, Clone, Copy, ValueEnum)]
enum ChecksumArg {
    /// Four 64-bit sums, as in ZFS
    Fletcher4,
    /// CRC-32C
    Crc32c,
    /// XXH3 with 128 bits
    #[value(name = "xxh3-128")]
    Xxh3,
}

/// Arguments of `fastness log create`.
#[derive(Debug, Args)]
pub(crate) struct CreateArgs {
    /// A file, usually a new one, or a devdax device
    file: PathBuf,
    /// Length of a new file; a device or an existing file is used in full
    #[arg(long, value_name = "BYTES", value_parser = size::parse, default_value = "64M")]
    size: u64,
    /// Length of a chunk, a multiple of 256: the limit for a record, and the unit in which space is freed
    #[arg(long, value_name = "BYTES", value_parser = size::parse, default_value = "1M")]
    chunk_size: u64,
    /// Alignment of records in bytes
    #[arg(long, value_enum, default_value = "256")]
    alignment: AlignmentArg,
    /// Checksum of records
    #[arg(long, value_enum, default_value = "xxh3-128")]
    checksum: ChecksumArg,
    /// Destroy the contents of the file or device
    #[arg(long)]
    force: bool,
}

/// A name in /dev that does not exist is a missing or misspelt device, not a new file.
fn is_in_dev(file: &Path) -> bool {
    file.parent()
        .and_then(|parent| parent.canonicalize().ok())
        .is_some_and(|parent| parent == Path::new("/dev"))
}

pub(super) fn run(args: &CreateArgs, out: &mut dyn Write) -> Result<Outcome> {
    let alignment = match args.alignment {
        AlignmentArg::Line => Alignment::Line,
        AlignmentArg::Optane => Alignment::Optane,
    };
    let checksum = match args.checksum {
        ChecksumArg::Fletcher4 => ChecksumKind::Fletcher4,
        ChecksumArg::Crc32c => ChecksumKind::Crc32c,
        ChecksumArg::Xxh3 => ChecksumKind::Xxh3,
    };
    let options = CreateOptions::new()
        .chunk_bytes(args.chunk_size)
        .alignment(alignment)
        .checksum(checksum)
        .overwrite(args.force);
    let path = args.file.display();
    let metadata = std::fs::metadata(&args.file).ok();
    let exists = metadata.is_some();
    let is_file = metadata.is_some_and(|metadata| metadata.file_type().is_file());
    if is_file && !args.force {
        return Err(refuse(format!("{path} already exists; --force destroys its contents")));
    }
    if !exists && is_in_dev(&args.file) {
        return Err(refuse(format!(
            "there is no device {path}, and /dev is in memory, so no place for a file"
        )));
    }
    if !exists && !args.size.is_multiple_of(REGION_ALIGN_BYTES) {
        return Err(refuse(format!("the size of a file must be a multiple of {REGION_ALIGN_BYTES} bytes")));
    }
    let region_options = RegionOptions::new();
    let region = match exists {
        true => Region::open(&args.file, &region_options),
        false => {
            // Before the file exists, so that an impossible geometry leaves no file.
            fastness_pmlog::Geometry::dividing(args.size, args.chunk_size, alignment, checksum)
                .map_err(fastness_pmlog::CreateError::from)?;
            Region::create_file(&args.file, args.size, &region_options)
        }
    };
    let region = region.with_context(|| format!("cannot create a log in {path}"))?;
    let log = RecordLog::create(region.into_range(), &options)
        .with_context(|| format!("cannot create a log in {path}"))?;
    writeln!(out, "created log {}", log.uuid())?;
    let info = log.region_info().expect("a real region has information");
    report::region(out, info, log.geometry())?;
    Ok(Outcome::Clean)
}
