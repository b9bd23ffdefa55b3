//! Crashes during the recovery of file systems: what recoveries do to PM, traced in guests.

use std::path::Path;

use super::setting::{GuestSetting, RECOVERY_TIMEOUT, stacks, traced};
use crate::check::{RecoveryTrace, TraceRecovery, write_files};
use crate::error::{CheckError, Result};
use crate::generate::{Contents, Layout};
use crate::guest::GuestError;

/// Traces recoveries, each in a guest of its own.
///
/// A recovery is traced once more when a report says what its crash has lost, and must do the same then. That
/// holds for the first command of a guest in which time is instructions, and for no other.
pub(super) struct TracedRecoveries<'a> {
    setting: &'a GuestSetting<'a>,
    script: String,
    layout: Layout,
}

impl<'a> TracedRecoveries<'a> {
    /// `script` recovers an image.
    pub(super) fn new(setting: &'a GuestSetting<'a>, script: &str, layout: Layout) -> TracedRecoveries<'a> {
        TracedRecoveries { setting, script: traced_script(script), layout }
    }
}

/// Shell: what is traced of a recovery, whatever it ends with.
pub(super) fn traced_script(script: &str) -> String {
    format!(
        "fastness-agent hypercall start\n({script})\nstatus=$?\n\
         fastness-agent hypercall success\nexit $status\n"
    )
}

impl TraceRecovery for TracedRecoveries<'_> {
    fn trace(&self, contents: &Contents, work: &Path) -> Result<RecoveryTrace> {
        let files = write_files(&self.layout, contents, work)?;
        let restore = traced(self.setting, &stacks(self.setting)?, Some(files[0].clone()), &files[1..])?;
        let mut guest = self.setting.traced.restore(&restore)?;
        let lost = || Ok(RecoveryTrace { path: None, is_whole: false });
        let is_whole = match guest.recover(&self.script, RECOVERY_TIMEOUT) {
            // The kernel took its trace with it.
            Err(GuestError::Ended { .. } | GuestError::TimedOut { .. }) => return lost(),
            output => !output?.timed_out,
        };
        let path = work.join("trace");
        let moved = guest.quit_and(|folder| std::fs::copy(folder.join("trace"), &path))?;
        moved.map_err(CheckError::file("take the trace to", &path))?;
        Ok(RecoveryTrace { path: Some(path), is_whole })
    }
}
