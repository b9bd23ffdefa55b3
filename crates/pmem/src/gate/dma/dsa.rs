//! Intel DSA through a work queue for programs: `/dev/dsa/wqENGINE.QUEUE`.
//!
//! Descriptors are given to the kernel by `write`, which submits them: it works with shared and dedicated
//! queues, and on engines that the kernel lets nobody else near (INTEL-SA-01084).
//!
//! Source: `Documentation/ABI/stable/sysfs-driver-dma-idxd`; `drivers/dma/idxd/cdev.c`.

use std::fs::{self, File};
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::ptr::NonNull;
use std::time::Duration;

use super::super::error::NoDma;
use super::super::queue::{Completion, Descriptor, SUCCESS, WorkQueue};
use super::wait_for;

/// How long an idle engine may take for nothing.
const PROBE_MAX: Duration = Duration::from_secs(1);
/// Of a queue that does not say.
const TRANSFER_BYTES: usize = 1 << 20;
/// Of any queue: a transfer is to end in a time that a caller can wait.
const TRANSFER_BYTES_MAX: usize = 16 << 20;

/// A work queue that was tried.
#[derive(Debug)]
pub struct DsaQueue {
    path: PathBuf,
    file: File,
    transfer_bytes_max: usize,
}

impl DsaQueue {
    /// The first work queue that is enabled for programs, after it has completed a descriptor that does
    /// nothing.
    ///
    /// # Errors
    /// [`NoDma`] says why there is none.
    pub fn find() -> Result<DsaQueue, NoDma> {
        DsaQueue::find_in(Path::new("/sys"), Path::new("/dev"))
    }

    /// The same below other folders; for tests.
    ///
    /// # Errors
    /// As [`find`](Self::find).
    pub fn find_in(sys: &Path, dev: &Path) -> Result<DsaQueue, NoDma> {
        let path = sys.join("bus/dsa/devices");
        let Ok(listed) = fs::read_dir(&path) else { return Err(NoDma::NoEngine { path }) };
        let mut queues: Vec<String> = listed
            .flatten()
            .filter_map(|entry| entry.file_name().into_string().ok())
            .filter(|name| name.starts_with("wq"))
            .collect();
        queues.sort();
        let attribute = |queue: &str, name: &str| {
            fs::read_to_string(path.join(queue).join(name))
                .map(|text| text.trim().to_owned())
                .unwrap_or_default()
        };
        let is_for_programs =
            |queue: &&String| attribute(queue, "state") == "enabled" && attribute(queue, "type") == "user";
        let Some(queue) = queues.iter().find(is_for_programs) else {
            return Err(NoDma::NoQueue { queues: queues.len(), path });
        };
        let said = attribute(queue, "max_transfer_size").parse().unwrap_or(TRANSFER_BYTES);
        DsaQueue::open(&dev.join("dsa").join(queue), said.clamp(super::LINE_BYTES, TRANSFER_BYTES_MAX))
    }

    fn open(path: &Path, transfer_bytes_max: usize) -> Result<DsaQueue, NoDma> {
        let path = path.to_owned();
        let file = File::options().read(true).write(true).open(&path);
        let file = file.map_err(|source| NoDma::Open { path: path.clone(), source })?;
        // Whole lines, so that pieces of a write begin with one.
        let transfer_bytes_max = transfer_bytes_max / super::LINE_BYTES * super::LINE_BYTES;
        let queue = DsaQueue { path, file, transfer_bytes_max };
        queue.probe()?;
        Ok(queue)
    }

    fn probe(&self) -> Result<(), NoDma> {
        let completion = Box::new(Completion::default());
        let descriptor = Descriptor::nothing(NonNull::from(&*completion));
        let path = || self.path.clone();
        self.submit(&descriptor).map_err(|source| NoDma::Refuses { path: path(), source })?;
        let what = match wait_for(&completion, PROBE_MAX) {
            Some((SUCCESS, _)) => return Ok(()),
            Some((status, _)) => format!("status {status:#x}"),
            None => {
                // The engine may still write to it.
                Box::leak(completion);
                format!("no answer within {} s", PROBE_MAX.as_secs())
            }
        };
        Err(NoDma::Fails { path: path(), what })
    }
}

impl WorkQueue for DsaQueue {
    fn submit(&self, descriptor: &Descriptor) -> io::Result<()> {
        match (&self.file).write(descriptor.bytes())? {
            64 => Ok(()),
            _ => Err(io::ErrorKind::WriteZero.into()),
        }
    }

    fn transfer_bytes_max(&self) -> usize {
        self.transfer_bytes_max
    }
}
