//! A guest that has booted, as files.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use serde_json::json;

use super::nvme::Nvme;
use super::{
    Facts, Guest, GuestConfig, GuestError, Output, PM_START, Restore, Result, facts, frames, key, new_folder,
    ram,
};
use crate::process::Folder;
use crate::symbols::KernelSymbols;

/// The kernel's symbols for code: fewer than half of all.
const SYMBOLS: &str = "grep ' [TtWw] ' /proc/kallsyms";

/// A guest after its boot: RAM, devices, and the names of its kernel's functions. Any number of guests can be
/// restored from it, also at the same time.
///
/// Guests that were restored have files of their own, and outlive it.
#[derive(Debug)]
pub struct Snapshot {
    config: GuestConfig,
    place: Place,
}

/// Where the files `ram` and `state` are.
#[derive(Debug)]
enum Place {
    /// In a folder that goes with the snapshot.
    Own(Folder),
    /// In a cache.
    Kept(PathBuf),
}

impl Snapshot {
    /// Boots a guest, and keeps it as it is when its agent serves, for as long as this is not dropped. Takes
    /// 7 to 20 s, as the machine is.
    ///
    /// # Errors
    /// [`GuestError::Config`], or that it does not boot.
    pub fn boot(config: &GuestConfig) -> Result<Self> {
        config.check()?;
        let folder = new_folder(&config.folder)?;
        ram::create(&folder.join("ram"), config.ram_bytes)?;
        let mut guest = Guest::start(config, folder, &[])?;
        guest.wait_for_hello().map_err(GuestError::with_hint)?;
        facts::has_pm(&mut guest)?;
        guest.qmp("stop", json!({}))?;
        ignore_shared(&mut guest)?;
        guest.qmp("migrate", json!({"uri": "file:state"}))?;
        guest.wait_for_status("query-migrate", "completed")?;
        Ok(Self { config: config.clone(), place: Place::Own(guest.into_folder()) })
    }

    /// The snapshot of this machine in the folder `cache`; a guest is booted, and kept there, if there is
    /// none. About 150 MB each.
    ///
    /// A snapshot is found by what it depends on: QEMU, its arguments, kernel, initramfs. Two processes may
    /// do this at the same time.
    ///
    /// # Errors
    /// As [`Snapshot::boot`], and files in the cache.
    pub fn cached(config: &GuestConfig, cache: &Path) -> Result<Self> {
        config.check()?;
        let kept = cache.join(key::of(config)?);
        if !kept.join("state").is_file() {
            let booted = Self::boot(config)?;
            let new = cache.join(format!("new-{}", std::process::id()));
            let _ = fs::remove_dir_all(&new);
            fs::create_dir_all(&new).map_err(GuestError::io("cannot create the folder", &new))?;
            ram::copy(&booted.path().join("ram"), &new.join("ram"), 0..0)?;
            let state = new.join("state");
            fs::copy(booted.path().join("state"), &state).map_err(GuestError::io("cannot make", &state))?;
            if let Err(error) = fs::rename(&new, &kept) {
                let _ = fs::remove_dir_all(&new);
                // Another process was faster.
                if !kept.join("state").is_file() {
                    return Err(GuestError::io("cannot create the folder", &kept)(error));
                }
            }
        }
        Ok(Self { config: config.clone(), place: Place::Kept(kept) })
    }

    fn path(&self) -> &Path {
        match &self.place {
            Place::Own(folder) => folder.path(),
            Place::Kept(path) => path,
        }
    }

    /// A guest that goes on from the snapshot, with its first command.
    ///
    /// # Errors
    /// Files, an image of the wrong size, arguments that QEMU does not take.
    pub fn restore(&self, restore: &Restore) -> Result<Guest> {
        let folder = new_folder(&self.config.folder)?;
        let ram = folder.join("ram");
        let pm = PM_START..PM_START + self.config.pm_bytes;
        let but = if restore.pm_image.is_some() { pm } else { 0..0 };
        ram::copy(&self.path().join("ram"), &ram, but)?;
        if let Some(image) = &restore.pm_image {
            ram::put_pm(image, &ram, self.config.pm_bytes)?;
        }
        let mut arguments = vec!["-incoming".into(), "defer".into()];
        arguments.extend(restore.qemu_arguments.iter().cloned());
        let mut guest = Guest::start(&self.config, folder, &arguments)?;
        ignore_shared(&mut guest)?;
        let state = std::path::absolute(self.path().join("state"));
        let state = state.map_err(GuestError::io("cannot find", self.path()))?;
        guest.qmp("migrate-incoming", json!({"uri": format!("file:{}", state.display())}))?;
        guest.wait_for_status("query-migrate", "completed")?;
        guest.wait_for_status("query-status", "paused")?;
        for (index, drive) in restore.nvme.iter().enumerate() {
            let has_dbcs = knows_dbcs(&mut guest)?;
            guest.qmp("blockdev-add", drive.node(index))?;
            guest.qmp("device_add", Nvme::device(index, has_dbcs))?;
        }
        Ok(guest)
    }

    /// State extraction: what `script` says of an image of PM, in a guest of its own.
    ///
    /// # Errors
    /// Those of [`Snapshot::restore`] and [`Guest::command`]: a panic while an image is mounted is one.
    pub fn extract(&self, pm_image: &Path, script: &str, timeout: Duration) -> Result<Output> {
        let restore = Restore { pm_image: Some(pm_image.to_owned()), ..Restore::default() };
        self.restore(&restore)?.recover(script, timeout)
    }

    /// The functions of the guest's kernel, and of the modules that it has loaded. All guests of a snapshot
    /// have them at the same addresses.
    ///
    /// They are taken out of a guest once, and kept with the snapshot: one in a cache has them for the next
    /// program, too, and one that an older program has left there gets them. Takes two to five seconds the
    /// first time.
    ///
    /// # Errors
    /// Those of [`Snapshot::restore`] and [`Guest::command`]; [`GuestError::Symbols`] for a kernel that has
    /// no table, or hides it.
    pub fn kernel_symbols(&self) -> Result<KernelSymbols> {
        let kept = self.path().join("kallsyms");
        // One that is damaged is taken again, too.
        if let Ok(symbols) = KernelSymbols::read(&kept) {
            return Ok(symbols);
        }
        let symbols = KernelSymbols::parse(self.ask(SYMBOLS, "the kernel's symbols are read")?)?;
        self.keep("kallsyms", symbols.text());
        Ok(symbols)
    }

    /// What the guest's kernel has; asked once, and kept as [`Snapshot::kernel_symbols`] are.
    ///
    /// # Errors
    /// Those of [`Snapshot::restore`] and [`Guest::command`].
    pub fn facts(&self) -> Result<Facts> {
        let kept = fs::read_to_string(self.path().join("facts")).ok();
        if let Some(facts) = kept.as_deref().and_then(Facts::parse) {
            return Ok(facts);
        }
        let during = "the kernel is asked what it has";
        let text = self.ask(facts::QUESTION, during)?;
        let facts = Facts::parse(&text).ok_or(GuestError::Protocol { during, text: text.clone() })?;
        self.keep("facts", &text);
        Ok(facts)
    }

    /// A file that says where the kernel has its tables for stacks without frame pointers; none for a kernel
    /// that has none. Asked once, and kept as [`Snapshot::kernel_symbols`] are.
    ///
    /// # Errors
    /// Those of [`Snapshot::restore`] and [`Guest::command`].
    pub fn frames(&self) -> Result<Option<PathBuf>> {
        let kept = self.path().join("frames");
        if !kept.is_file() {
            let during = "the kernel is asked for its tables of frames";
            let text = self.ask(frames::QUESTION, during)?;
            let tables = frames::tables(&text).ok_or(GuestError::Protocol { during, text })?;
            self.keep("frames", &tables);
        }
        let has_some = fs::metadata(&kept).is_ok_and(|file| file.len() > 0);
        Ok(has_some.then_some(std::path::absolute(&kept).map_err(GuestError::io("cannot find", &kept))?))
    }

    /// What a new guest answers to a script.
    fn ask(&self, script: &str, during: &'static str) -> Result<String> {
        let output = self.restore(&Restore::default())?.command(script, Duration::from_secs(60))?;
        if !output.is_success() || output.cut {
            let text = format!("no answer: {}", String::from_utf8_lossy(&output.stderr));
            return Err(GuestError::Protocol { during, text });
        }
        Ok(output.text())
    }

    /// Keeps a file with the snapshot, in one step, as others may look for it. Where it cannot be kept the
    /// next one pays again.
    fn keep(&self, name: &str, text: &str) {
        let new = self.path().join(format!("{name}-{}", std::process::id()));
        if fs::write(&new, text).and_then(|()| fs::rename(&new, self.path().join(name))).is_err() {
            let _ = fs::remove_file(&new);
        }
    }

    /// The machine.
    pub fn config(&self) -> &GuestConfig {
        &self.config
    }
}

/// RAM is in its file: neither written to nor read from the state.
fn ignore_shared(guest: &mut Guest) -> Result<()> {
    let capability = json!({"capability": "x-ignore-shared", "state": true});
    guest.qmp("migrate-set-capabilities", json!({"capabilities": [capability]})).map(drop)
}

/// QEMU's NVMe drive has shadow doorbells since version 7.2, and the option to switch them off later.
fn knows_dbcs(guest: &mut Guest) -> Result<bool> {
    let options = guest.qmp("device-list-properties", json!({"typename": "nvme"}))?;
    Ok(options.as_array().is_some_and(|options| options.iter().any(|option| option["name"] == "dbcs")))
}
