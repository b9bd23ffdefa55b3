//! Requests that change the pool's vdevs.

use std::path::Path;

use fastness_base::ErrorKind;
use fastness_store::{Device, DeviceStatus, PoolError, REGIONS_MAX, VdevClass};

use crate::devices::{open_new, open_vdevs};
use crate::jobs::{SCRUB, Tell, Work};
use crate::layout::check_layout;
use crate::log_device::is_persistent_memory;
use crate::node::Node;
use crate::protocol::{Failure, PmUse, VdevRequest};
use crate::report::JobReport;

/// Splits off the devices for a log on persistent memory, one or a mirror of two, from the others.
///
/// # Errors
/// More of them, or a mirror of persistent memory and something else.
pub fn split_regions(vdevs: &[VdevRequest], pm: PmUse) -> Result<(Vec<String>, Vec<VdevRequest>), Failure> {
    let is_pm = |path: &String| {
        !fastness_remote::is_remote(path) && (pm.emulates || is_persistent_memory(path.as_ref()))
    };
    let is_region = |vdev: &&VdevRequest| vdev.is_log && vdev.devices.iter().any(is_pm);
    let (regions, vdevs): (Vec<_>, Vec<_>) = vdevs.iter().partition(is_region);
    let paths: Vec<_> = regions.iter().flat_map(|region| region.devices.clone()).collect();
    if regions.len() > 1 || paths.len() > REGIONS_MAX {
        let text = format!(
            "a log is on one region of persistent memory, or on a mirror of two, not on {}",
            paths.join(" and ")
        );
        return Err(Failure::refuse(ErrorKind::Invalid, text));
    }
    if let Some(other) = paths.iter().find(|path| !is_pm(path)) {
        let text = format!("{other} is no persistent memory: both sides of a mirror are, or neither is");
        return Err(Failure::refuse(ErrorKind::Invalid, text));
    }
    Ok((paths, vdevs.into_iter().cloned().collect()))
}

impl Node {
    /// The device of that path or GUID.
    pub(crate) fn find(&self, device: &str) -> Result<DeviceStatus, Failure> {
        Ok(self.find_with_vdev(device)?.2)
    }

    pub(crate) fn find_with_vdev(&self, device: &str) -> Result<(u16, VdevClass, DeviceStatus), Failure> {
        let same = |path: &str| {
            let real = |path: &str| Path::new(path).canonicalize().ok();
            path == device || real(path).is_some_and(|path| Some(path) == real(device))
        };
        // Its path or GUID, or else the last part of its path, if that is not the name of another as well.
        let is_called = |side: &DeviceStatus| {
            Path::new(&side.path).file_name().is_some_and(|name| name.to_str() == Some(device))
        };
        let mut called = Vec::new();
        for (id, class, sides) in self.pool().status().vdevs {
            for side in sides {
                if same(&side.path) || side.guid.to_string() == device {
                    return Ok((id, class, side));
                }
                if is_called(&side) {
                    called.push((id, class, side));
                }
            }
        }
        if called.len() > 1 {
            let paths: Vec<_> = called.iter().map(|(.., side)| side.path.as_str()).collect();
            let text = format!("several devices are called {device}: {}; give a path", paths.join(", "));
            return Err(Failure::refuse(ErrorKind::Invalid, text));
        }
        if let Some(found) = called.pop() {
            return Ok(found);
        }
        let text = format!(
            "{device} is no device of pool {}: give its path or GUID as `pool status` shows it",
            self.pool().name()
        );
        Err(Failure::refuse(ErrorKind::Invalid, text))
    }

    pub(crate) fn add(&self, vdevs: &[VdevRequest], is_forced: bool, pm: PmUse) -> Result<(), Failure> {
        check_layout(vdevs, self.has_mirrors(), is_forced)?;
        let (regions, vdevs) = split_regions(vdevs, pm)?;
        self.check_log_vdevs(&vdevs)?;
        for spec in open_vdevs(&vdevs, None, is_forced, &mut Vec::new())? {
            self.pool().add(&spec)?;
        }
        if !vdevs.is_empty() {
            // Writes acknowledged on them then belong to a later txg than any copy of the other devices that
            // does not name them.
            self.pool().sync()?;
            self.journal.note(format!("{} vdevs added", vdevs.len()));
        }
        if !regions.is_empty() {
            self.add_pm_log(&regions, pm, is_forced)?;
        }
        self.remember();
        Ok(())
    }

    /// Whether a vdev for data is a mirror.
    fn has_mirrors(&self) -> bool {
        let vdevs = self.pool().config().vdevs;
        vdevs.iter().any(|vdev| vdev.class == VdevClass::Normal && vdev.devices.len() > 1)
    }

    /// Adds vdevs to a suspended pool, and resumes it.
    pub(crate) fn add_to_suspended(&self, vdevs: &[VdevRequest], is_forced: bool) -> Result<(), Failure> {
        if vdevs.iter().any(|vdev| vdev.is_log) {
            let text = format!(
                "pool {0} is suspended: let it go on with `fastness pool clear {0}`, then add log devices",
                self.pool().name()
            );
            return Err(Failure::refuse(ErrorKind::Closed, text));
        }
        check_layout(vdevs, self.has_mirrors(), is_forced)?;
        self.go_on(false, open_vdevs(vdevs, None, is_forced, &mut Vec::new())?)?;
        self.journal.note(format!("{} vdevs added", vdevs.len()));
        self.remember();
        Ok(())
    }

    pub(crate) fn remove(&self, device: &str) -> Result<(), Failure> {
        if self.remove_pm_log(device)? {
            return Ok(());
        }
        let (id, class, _) = self.find_with_vdev(device)?;
        if class != VdevClass::Log {
            let text = format!("{device} holds data; only log devices can be removed");
            return Err(Failure::refuse(ErrorKind::Invalid, text));
        }
        self.remove_log_vdev(id)?;
        self.journal.note(format!("{device} removed"));
        self.remember();
        Ok(())
    }

    pub(crate) fn detach(&self, device: &str) -> Result<(), Failure> {
        if let Some(region) = self.find_region(device)? {
            return self.detach_pm_log(&region);
        }
        self.pool().detach(self.find(device)?.guid)?;
        self.journal.note(format!("{device} detached"));
        self.remember();
        Ok(())
    }

    pub(crate) fn attach(
        &self,
        to: &str,
        device: &str,
        is_forced: bool,
        wait: bool,
        tell: Tell<'_>,
    ) -> Result<JobReport, Failure> {
        if let Some(region) = self.find_region(to)? {
            return self.attach_pm_log(&region, device, is_forced);
        }
        let to = self.find(to)?.guid;
        let new = open_new(device, is_forced)?;
        let pool = self.pool();
        let work: Work = Box::new(move |progress| pool.attach(to, new, progress));
        self.job(format!("resilver of {device}"), work, wait, tell)
    }

    pub(crate) fn replace(
        &self,
        old: &str,
        new: &str,
        is_forced: bool,
        wait: bool,
        tell: Tell<'_>,
    ) -> Result<JobReport, Failure> {
        if let Some(region) = self.find_region(old)? {
            return self.replace_pm_log(&region, new, is_forced);
        }
        let old_guid = self.find(old)?.guid;
        let device = open_new(new, is_forced)?;
        let pool = self.pool();
        let work: Work = Box::new(move |progress| pool.replace(old_guid, device, progress));
        self.job(format!("resilver of {new}"), work, wait, tell)
    }

    /// Refuses a region of the log where only a device can be meant.
    fn refuse_region(&self, device: &str, what: &str) -> Result<(), Failure> {
        let Some(region) = self.find_region(device)? else { return Ok(()) };
        let text = format!(
            "{device} is a region of the log, and no region goes {what}: put it, or another, in its place with \
             `fastness pool replace {0} {1} NEW`, or take it off with `fastness pool detach {0} {1}` (of a mirror), or \
             `fastness pool remove {0} {1}`",
            self.pool().name(),
            region.id
        );
        Err(Failure::refuse(ErrorKind::Invalid, text))
    }

    pub(crate) fn offline(&self, device: &str) -> Result<(), Failure> {
        self.refuse_region(device, "offline")?;
        self.pool().offline(self.find(device)?.guid)?;
        self.journal.note(format!("{device} is offline"));
        Ok(())
    }

    /// Uses what a device, and the other sides of its mirror, have grown by; returns by how much.
    pub(crate) fn expand(&self, device: &str) -> Result<u64, Failure> {
        self.refuse_region(device, "online")?;
        let bytes = self.pool().expand(self.find(device)?.guid)?;
        if bytes > 0 {
            self.journal.note(format!("{device} has {bytes} bytes more"));
        }
        Ok(bytes)
    }

    /// Opens a side that is missing or has failed, and copies onto it what it missed.
    pub(crate) fn online(
        &self,
        device: &str,
        path: Option<&str>,
        wait: bool,
        tell: Tell<'_>,
    ) -> Result<JobReport, Failure> {
        self.refuse_region(device, "online")?;
        let side = self.find(device)?;
        if side.is_poisoned {
            self.pool().offline(side.guid)?;
        }
        if side.is_poisoned || !side.is_present {
            let path = path.unwrap_or(&side.path);
            self.pool().online(side.guid, Device::open_within(path, Device::LOOK)?)?;
        }
        let pool = self.pool();
        let work: Work = Box::new(move |progress| pool.resilver(side.guid, progress));
        self.job(format!("resilver of {device}"), work, wait, tell)
    }

    pub(crate) fn scrub(&self, wait: bool, tell: Tell<'_>) -> Result<JobReport, Failure> {
        let pool = self.pool();
        let work: Work = Box::new(move |progress| {
            // Examine what was rewritten in its current state.
            match pool.sync() {
                Ok(_) | Err(PoolError::ReadOnly(_)) => {}
                Err(error) => return Err(error),
            }
            let report = pool.scrub(progress)?;
            // What was found is known to the next import, too.
            match pool.sync() {
                Ok(_) | Err(PoolError::ReadOnly(_)) => Ok(report),
                Err(error) => Err(error),
            }
        });
        self.job(SCRUB.to_owned(), work, wait, tell)
    }

    fn job(&self, what: String, work: Work, wait: bool, tell: Tell<'_>) -> Result<JobReport, Failure> {
        let job = self.jobs.start(what, &self.journal, work)?;
        job.wait_begun();
        if wait {
            job.wait(tell);
        }
        self.remember();
        match job.failure() {
            Some(failure) => Err(failure),
            None => Ok(job.report()),
        }
    }
}
