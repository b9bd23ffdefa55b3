//! A file system of a real kernel: its inputs are workloads, and it runs in guests.

use std::time::Instant;

use fastness_crashcheck_fuzz::Features;
use fastness_crashcheck_fuzz::workload::{self, Mutator};
use fastness_crashcheck_workload::Workload;
use fastness_pm_model::Rng;

use super::subject::{Depth, Place, Ran, Subject, quick};
use crate::error::{CheckError, Result, make_dir};
use crate::explain::Exclusion;
use crate::guest::{GuestError, Guests, Snapshot};
use crate::process::Ending;
use crate::report::Report;
use crate::run::{
    CrashesInGuests, FileSystem, FileTest, GuestSetting, ImagesConfig, analyse_in_guest, trace_in_guest,
};
use crate::symbols::KernelSymbols;

/// Most crash images of a failure point while workloads are tried: a guest takes a tenth of a second for one.
const PER_POINT_MAX: usize = 4;
/// Most recoveries to find what a crash must have lost, meanwhile.
const SHRINK_MAX: usize = 4;
/// Most operations of a workload: all crashes of all of them are tested.
const OPERATIONS_MAX: usize = 10;
/// Longest write, in bytes: each store of it is an event, and persistent memory has tens of MiB.
const LEN_MAX: u64 = 4 << 20;

/// Modules whose code is that of the machine.
const MACHINE: [&str; 4] = ["[virtio", "[nvme", "[nd_", "[libnvdimm"];

/// A file system under test.
pub struct FuzzedFileSystem<'a> {
    /// What it is called.
    pub name: &'a str,
    /// How it is made, mounted, and so on.
    pub system: &'a FileSystem,
    /// Where it runs.
    pub traced: &'a Snapshot,
    /// Where it is recovered.
    pub guests: &'a Guests<'a>,
    /// The plug-in.
    pub plugin: &'a std::path::Path,
    /// Guests at a time that look at crash images.
    pub threads: usize,
    /// Return addresses.
    pub has_stacks: bool,
    /// How many crash images a finding is reported with.
    pub images: &'a ImagesConfig,
    /// Which crashes of recoveries a finding is tested with, too.
    pub in_recovery: CrashesInGuests<'a>,
    /// What no hint is about.
    pub exclude: &'a [Exclusion],
    /// Functions of the kernel; without them all of its code counts.
    pub symbols: Option<&'a KernelSymbols>,
}

impl FuzzedFileSystem<'_> {
    fn setting<'b>(
        &'b self,
        place: &'b Place,
        images: &'b ImagesConfig,
        in_recovery: CrashesInGuests<'b>,
        deadline: Option<Instant>,
    ) -> GuestSetting<'b> {
        GuestSetting {
            traced: self.traced,
            guests: self.guests,
            plugin: self.plugin,
            trace: &place.trace,
            work: &place.work,
            threads: self.threads,
            has_stacks: self.has_stacks,
            images,
            in_recovery,
            exclude: self.exclude,
            symbols: self.symbols,
            deadline,
            progress: &|_| {},
        }
    }

    /// Code of modules, and functions that are called as the file system: not of the scheduler, of timers,
    /// and whatever else goes another way each time.
    fn is_own(&self, pc: u64) -> bool {
        let Some(symbols) = self.symbols else { return true };
        let Some(name) = symbols.find(pc) else { return false };
        match name.split_once(' ') {
            Some((_, module)) => !MACHINE.iter().any(|machine| module.starts_with(machine)),
            None => name.starts_with(&self.system.kind),
        }
    }
}

/// An input as the workload that it is.
fn workload_of(input: &[u8]) -> Option<Workload> {
    Workload::parse(std::str::from_utf8(input).ok()?).ok()
}

fn bytes_of(workload: &Workload) -> Vec<u8> {
    workload.to_string().into_bytes()
}

impl Subject for FuzzedFileSystem<'_> {
    fn name(&self) -> &str {
        self.name
    }

    fn seeds(&self) -> Vec<Vec<u8>> {
        workload::seeds().iter().map(bytes_of).collect()
    }

    fn mutate(&self, input: &[u8], other: &[u8], rng: &mut Rng) -> Vec<u8> {
        let mutator = Mutator { operations_max: OPERATIONS_MAX, len_max: LEN_MAX, ..Mutator::default() };
        let workload = |input| workload_of(input).unwrap_or_default();
        bytes_of(&mutator.mutate(&workload(input), &workload(other), rng))
    }

    fn shrink(
        &self,
        input: &[u8],
        most: usize,
        fails: &mut dyn FnMut(&[u8]) -> Result<bool>,
    ) -> Result<Vec<u8>> {
        let workload = workload_of(input).unwrap_or_default();
        let shrunk = workload::shrink(&workload, most, &mut |candidate| fails(&bytes_of(candidate)))?;
        Ok(bytes_of(&shrunk))
    }

    fn run(&self, place: &Place, input: &[u8]) -> Result<Ran> {
        let workload = workload_of(input).unwrap_or_default();
        make_dir(&place.work)?;
        let test = FileTest::of_workload(self.name, &workload);
        let setting = self.setting(place, self.images, CrashesInGuests::default(), None);
        let traced = trace_in_guest(&test, self.system, &setting, Some(&place.coverage()));
        match traced {
            Ok(()) => {}
            Err(CheckError::Guest(GuestError::Ended { .. })) => {
                return Ok(Ran::Ended(Ending::Panicked, Features::default()));
            }
            Err(CheckError::Guest(GuestError::TimedOut { .. })) => {
                return Ok(Ran::Ended(Ending::TimedOut, Features::default()));
            }
            Err(error @ CheckError::InGuest { .. }) => return Ok(Ran::Refused(error)),
            Err(error) => return Err(error),
        }
        // The kernel is at the same place in each guest.
        let features = place.features(|pc| self.is_own(pc).then_some(pc), &|pc| pc)?;
        Ok(Ran::Ended(Ending::Code(0), features))
    }

    fn judge(&self, place: &Place, depth: Depth, deadline: Option<Instant>) -> Result<Option<Report>> {
        let quick = quick(self.images, PER_POINT_MAX, SHRINK_MAX);
        let (images, in_recovery) = match depth {
            Depth::Quick => (&quick, CrashesInGuests::default()),
            Depth::Full => (self.images, self.in_recovery),
        };
        let setting = self.setting(place, images, in_recovery, deadline);
        analyse_in_guest(self.name, self.system, &setting).map(Some)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn inputs_are_workloads() {
        for seed in workload::seeds() {
            assert_eq!(workload_of(&bytes_of(&seed)), Some(seed));
        }
        for damaged in [&b"\xff"[..], b"# run\nmkdri A"] {
            assert_eq!(workload_of(damaged), None);
        }
    }
}
