//! A second `fastness run` over a directory: its program uses the mount of the first one.

use std::fs::File;
use std::os::fd::AsFd;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use fastness_front::{Report, Request};
use fastness_fuse::join_mounts;
use rustix::process::{Pid, PidfdFlags, pidfd_open};

use crate::error::{Context, Result, busy};
use crate::responder::{ask_owner, report_of, socket};

/// The mount of another process, which cannot end it as long as this is there.
#[derive(Debug)]
pub(crate) struct Joined {
    mount: File,
    /// Where programs ask to use files directly.
    leases: PathBuf,
}

impl Joined {
    /// Joins the process that serves `region` over `dir`, if there is one: this process and what it starts
    /// are where that one's programs are. `None`: nothing was changed.
    ///
    /// # Errors
    /// That process does not let this one in, or is ending.
    pub(crate) fn join(region: &Path, dir: &Path) -> Result<Option<Joined>> {
        let Some(report) = serving(region)? else { return Ok(None) };
        let Some(pid) = over(&report, dir).and_then(|pid| Pid::from_raw(pid as i32)) else { return Ok(None) };
        let leases = socket(region)?.with_extension("leases");
        let Ok(process) = pidfd_open(pid, PidfdFlags::empty()) else { return Ok(None) };
        // If it answers still, the number was not another's when it was opened.
        if serving(region)?.is_none_or(|now| now.pid != report.pid) {
            return Ok(None);
        }
        join_mounts(process.as_fd(), pid)
            .with_context(|| format!("cannot use the mount of process {}", pid.as_raw_nonzero()))?;
        let mount = File::open(&report.directory).context("cannot use the mount")?;
        if mount.metadata()?.dev() == report.directory_device {
            return Err(busy("the process that has the region is ending; run the command again"));
        }
        Ok(Some(Joined { mount, leases }))
    }

    /// Number of the mounted file system.
    pub(crate) fn device(&self) -> Result<u64> {
        Ok(self.mount.metadata()?.dev())
    }

    pub(crate) fn leases(&self) -> Option<&Path> {
        self.leases.exists().then_some(&self.leases)
    }
}

fn serving(region: &Path) -> Result<Option<Report>> {
    ask_owner(region, Request::Status)?.map(report_of).transpose()
}

/// The process, if it has mounted the region over that directory.
fn over(report: &Report, dir: &Path) -> Option<u32> {
    let found = std::fs::metadata(dir).ok()?;
    let is_it = (found.dev(), found.ino()) == (report.directory_device, report.directory_inode);
    let is_over = report.mounted_at.as_ref() == Some(&report.directory);
    report.pid.filter(|_| is_it && is_over)
}
