//! The heuristic of reads for file systems in guests.

use std::collections::BTreeSet;
use std::fs::File;
use std::io::BufReader;
use std::path::{Path, PathBuf};

use fastness_crashcheck_trace::Reader;

use super::guest_crashes::traced_script;
use super::lines_read::lines_of_next;
use super::setting::{GuestSetting, RECOVERY_TIMEOUT, traced};
use crate::check::write_files;
use crate::error::{Result, make_dir};
use crate::generate::{Contents, Layout, Recovery};
use crate::guest::{Guest, GuestError};
use crate::trace::open_trace;

/// Images that one guest recovers; its trace grows by a MiB or so with each.
const IMAGES_PER_GUEST: usize = 50;

/// Says what a recovery reads by tracing it in a guest.
///
/// A guest that has translated the kernel's code once is several times as fast as a new one. So one guest
/// recovers image after image, and its trace is read as it grows: all of a recovery is there when its command
/// has ended. Disks are plugged into a guest that is new.
pub(super) struct GuestRecovery<'a> {
    setting: &'a GuestSetting<'a>,
    script: String,
    layout: Layout,
    warm: Option<TracedGuest>,
}

struct TracedGuest {
    guest: Guest,
    trace: Reader<BufReader<File>>,
    /// Images that it has seen.
    seen: usize,
}

impl<'a> GuestRecovery<'a> {
    /// `script` recovers an image, and leaves nothing mounted.
    pub(super) fn new(setting: &'a GuestSetting<'a>, script: &str, layout: Layout) -> GuestRecovery<'a> {
        GuestRecovery { setting, script: traced_script(script), layout, warm: None }
    }

    /// A guest with this image, and with its disks.
    fn start(&self, files: &[PathBuf]) -> Result<TracedGuest> {
        let restore = traced(self.setting, ",reads=on,repeat=on", Some(files[0].clone()), &files[1..])?;
        let guest = self.setting.traced.restore(&restore)?;
        let trace = open_trace(&guest.folder().join("trace"))?;
        Ok(TracedGuest { guest, trace, seen: 0 })
    }

    /// The lines that the recovery of the image in a guest reads, and whether the recovery went well.
    fn recover(&self, traced: &mut TracedGuest) -> Result<(BTreeSet<u64>, bool)> {
        traced.seen += 1;
        let output = match traced.guest.recover(&self.script, RECOVERY_TIMEOUT) {
            // What a kernel had read before it panicked or hung is lost with it: other images say what is
            // read.
            Err(GuestError::Ended { .. } | GuestError::TimedOut { .. }) => {
                return Ok((BTreeSet::new(), false));
            }
            output => output?,
        };
        if output.timed_out {
            return Ok((BTreeSet::new(), false));
        }
        Ok((lines_of_next(&mut traced.trace)?, output.is_success()))
    }

    /// In the guest that is there; none if there is none, or it does not go well: that may be the guest's
    /// fault.
    fn in_warm_guest(&mut self, image: &Path) -> Result<Option<BTreeSet<u64>>> {
        let Some(mut traced) = self.warm.take().filter(|traced| traced.seen < IMAGES_PER_GUEST) else {
            return Ok(None);
        };
        traced.guest.write_pm(image)?;
        let (lines, is_well) = self.recover(&mut traced)?;
        self.warm = is_well.then_some(traced);
        Ok(is_well.then_some(lines))
    }
}

impl Recovery for GuestRecovery<'_> {
    fn lines_read(&mut self, contents: &Contents) -> Result<BTreeSet<u64>> {
        let work = self.setting.work.join("reads");
        make_dir(&work)?;
        let files = write_files(&self.layout, contents, &work)?;
        if let Some(lines) = self.in_warm_guest(&files[0])? {
            return Ok(lines);
        }
        let mut traced = self.start(&files)?;
        let (lines, is_well) = self.recover(&mut traced)?;
        if is_well && contents.disks.is_empty() {
            self.warm = Some(traced);
        }
        Ok(lines)
    }
}
