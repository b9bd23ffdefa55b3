//! What a guest has beyond what `scripts/crash-guest` has built: another kernel, modules, programs, files.
//!
//! All of it goes into one initramfs, whose first part is that of the script. The order in which the script's
//! `init` loads modules: those in `etc/modules`, then those in `etc/modules-suite`.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::process::Command;

use object::Endianness;
use object::elf::FileHeader64;
use object::read::elf::{FileHeader, ProgramHeader};

use super::kernel::{INDEX, Modules, basic_modules, module, release, run};
use super::{GuestConfig, GuestError, Result, cpio, read};

/// Files that a suite puts into a guest: so many at most, and so long together.
const FILES_MAX: usize = 1000;
const FILES_BYTES_MAX: u64 = 64 << 20;
/// The initramfs of the script, and each of what the command line adds.
const INITRD_BYTES_MAX: u64 = 512 << 20;
/// Where programs are, whoever asks.
const MORE_PATHS: [&str; 3] = ["/usr/local/sbin", "/usr/sbin", "/sbin"];
const LOADER: &str = "/lib64/ld-linux-x86-64.so.2";

/// What a guest has besides.
#[derive(Debug, Clone, Default)]
pub struct Addition {
    /// A kernel in place of the script's.
    pub kernel: Option<PathBuf>,
    /// A folder with `lib/modules/RELEASE`, or that folder itself. Without one: those of the script's kernel;
    /// for another kernel none.
    pub modules_folder: Option<PathBuf>,
    /// Modules to load, with what they depend on. One whose name ends in `.ko` is among `files`.
    pub modules: BTreeSet<String>,
    /// Programs of this machine, which get into the guest's `/bin`, with their libraries.
    pub programs: BTreeSet<String>,
    /// A folder whose files get into the guest's `/suite`, with the libraries of programs.
    pub files: Option<PathBuf>,
    /// Archives that follow.
    pub initrds: Vec<PathBuf>,
    /// The guest will have a disk.
    pub has_disk: bool,
}

impl GuestConfig {
    /// Changes the kernel and the initramfs of a guest that `scripts/crash-guest` has built. An
    /// initramfs that is new is kept in `cache`, by its contents.
    ///
    /// # Errors
    /// [`GuestError::Config`]: what the kernel or this machine lacks, by name. [`GuestError::Io`].
    pub fn add(&mut self, addition: &Addition, cache: &Path) -> Result<()> {
        if !self.initrd.is_file() {
            let text = format!("there is no {}: run scripts/crash-guest", self.initrd.display());
            return Err(GuestError::Config(text));
        }
        let mut initrd = read(&self.initrd, INITRD_BYTES_MAX)?;
        let names = cpio::names(&initrd);
        let names = names.ok_or_else(|| not_an_archive(&self.initrd, "; scripts/crash-guest makes it"))?;
        let mut files = BTreeMap::new();
        let built = self.kernel.parent().map(Path::to_owned).unwrap_or_default();
        if let Some(kernel) = &addition.kernel {
            self.kernel.clone_from(kernel);
            // Those of the script's kernel.
            files.insert("etc/modules".to_owned(), Vec::new());
        }
        let mut list = String::new();
        for (name, contents) in self.modules(addition, &names, &built)? {
            list += &format!("{name}\n");
            files.insert(format!("modules/{name}"), contents);
        }
        for program in &addition.programs {
            let name = format!("bin/{program}");
            if !names.contains(&name) {
                add_program(&mut files, &names, &name, &find(program)?)?;
            }
        }
        for (name, path) in
            addition.files.iter().map(|folder| own_files(folder)).collect::<Result<Vec<_>>>()?.concat()
        {
            add_program(&mut files, &names, &format!("suite/{name}"), &path)?;
        }
        if !list.is_empty() {
            files.insert("etc/modules-suite".to_owned(), list.into_bytes());
        }
        if files.is_empty() && addition.initrds.is_empty() {
            return Ok(());
        }
        let mut append = |archive: &[u8]| {
            initrd.resize(initrd.len().next_multiple_of(4), 0);
            initrd.extend_from_slice(archive);
        };
        append(&cpio::archive(&files));
        for more in &addition.initrds {
            let archive = read(more, INITRD_BYTES_MAX)?;
            if !cpio::is_archive(&archive) {
                return Err(not_an_archive(more, ", nor a compressed one: a kernel would ignore it"));
            }
            append(&archive);
        }
        self.initrd = keep(&initrd, cache)?;
        Ok(())
    }

    /// What is loaded beyond what the guest loads anyway, by file name, in its order.
    fn modules(
        &self,
        addition: &Addition,
        names: &BTreeSet<String>,
        built: &Path,
    ) -> Result<Vec<(String, Vec<u8>)>> {
        let is_ours = addition.kernel.is_none();
        let known = |name: &str| is_ours && addition.modules_folder.is_none() && has_module(names, name);
        let (own, kernels): (Vec<_>, Vec<_>) =
            addition.modules.iter().partition(|name| name.ends_with(".ko"));
        let kernels: Vec<_> = kernels.into_iter().filter(|name| !known(name)).collect();
        let mut paths = Vec::new();
        let folder = match &addition.modules_folder {
            Some(folder) => Some(folder.clone()),
            None if is_ours && !kernels.is_empty() => Some(unpacked(built, &release(&self.kernel)?)?),
            None => {
                // Not a kernel at all?
                release(&self.kernel)?;
                None
            }
        };
        if let Some(folder) = folder {
            let modules = Modules::of(&folder, &release(&self.kernel)?)?;
            if !is_ours {
                paths.extend(basic_modules(&modules, addition.has_disk)?);
            }
            for name in kernels {
                let found = modules.needed_by(name)?;
                paths.extend(found.ok_or_else(|| {
                    let release = release(&self.kernel).unwrap_or_default();
                    GuestError::Config(format!(
                        "the kernel {release} has no module {name}, neither in {} nor built in: \
                         the suite's key `modules` names it",
                        folder.display()
                    ))
                })?);
            }
        }
        for name in own {
            let path = addition.files.as_ref().map(|files| files.join(name)).filter(|path| path.is_file());
            paths.push(path.ok_or_else(|| {
                GuestError::Config(format!(
                    "the suite's key `modules` names {name}, which is not in its folder files"
                ))
            })?);
        }
        let mut seen = BTreeSet::new();
        paths.retain(|path| seen.insert(path.clone()));
        paths
            .iter()
            .map(|path| module(path))
            .filter(|found| !matches!(found, Ok((name, _)) if known(name)))
            .collect()
    }
}

/// Whether an archive has a module; `-` and `_` are the same in its name.
fn has_module(names: &BTreeSet<String>, module: &str) -> bool {
    let plain = |name: &str| name.trim_end_matches(".ko").replace('-', "_");
    names.iter().filter_map(|name| name.strip_prefix("modules/")).any(|name| plain(name) == plain(module))
}

/// The package of the kernel that the script has unpacked beside what it has built. The kernel's headers may
/// be there, too, which have such a folder without modules.
fn unpacked(built: &Path, release: &str) -> Result<PathBuf> {
    let entries = std::fs::read_dir(built).map_err(GuestError::io("cannot read", built))?;
    let modules = |path: &PathBuf| path.join("lib/modules").join(release);
    let all = entries.filter_map(|entry| Some(entry.ok()?.path())).filter(|path| modules(path).is_dir());
    let found = all.max_by_key(|path| modules(path).join(INDEX).is_file());
    found.ok_or_else(|| {
        GuestError::Config(format!(
            "{} has no modules of the kernel {release}: run scripts/crash-guest, or give --modules FOLDER",
            built.display()
        ))
    })
}

/// A program of this machine.
fn find(program: &str) -> Result<PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let mut folders = std::env::split_paths(&path).chain(MORE_PATHS.map(PathBuf::from));
    folders.find_map(|folder| Some(folder.join(program)).filter(|path| path.is_file())).ok_or_else(|| {
        GuestError::Config(format!(
            "this machine has no program {program}, which the suite's key `programs` names: install it, or put \
             a static one into the suite's folder files"
        ))
    })
}

/// Names and paths of ordinary files in a folder, in their order.
fn own_files(folder: &Path) -> Result<Vec<(String, PathBuf)>> {
    let read = GuestError::io("cannot read", folder);
    let wrong = |path: &Path, what: &str| Err(GuestError::Config(format!("{}: {what}", path.display())));
    let entries = std::fs::read_dir(folder).map_err(read)?.take(FILES_MAX + 1).collect::<Result<Vec<_>, _>>();
    let mut entries = entries.map_err(GuestError::io("cannot read", folder))?;
    entries.sort_by_key(std::fs::DirEntry::file_name);
    if entries.len() > FILES_MAX {
        return wrong(folder, &format!("it has more than {FILES_MAX} files"));
    }
    let (mut files, mut sum_bytes) = (Vec::new(), 0);
    for entry in entries {
        let path = entry.path();
        // Of a link, what it leads to is no part of the suite.
        let metadata = std::fs::symlink_metadata(&path).map_err(GuestError::io("cannot read", &path))?;
        if !metadata.is_file() {
            return wrong(&path, "only ordinary files are expected here, no links and no folders");
        }
        sum_bytes += metadata.len();
        files.push((entry.file_name().to_string_lossy().into_owned(), path));
    }
    if sum_bytes > FILES_BYTES_MAX {
        return wrong(folder, &format!("{sum_bytes} bytes; at most {FILES_BYTES_MAX} are expected"));
    }
    Ok(files)
}

/// Adds a file, and, of a program that is linked dynamically, the libraries that it needs.
fn add_program(
    files: &mut BTreeMap<String, Vec<u8>>,
    names: &BTreeSet<String>,
    name: &str,
    path: &Path,
) -> Result<()> {
    let contents = read(path, FILES_BYTES_MAX)?;
    if is_dynamic(&contents) {
        // The loader itself says what it would load, and runs nothing of it.
        let done = run(Command::new(LOADER).arg("--list").arg(path))?;
        let text = String::from_utf8_lossy(&done.stdout).into_owned();
        if !done.ending.is_success() || text.contains("not found") {
            let said = String::from_utf8_lossy(&done.stderr).into_owned();
            return Err(GuestError::Config(format!("{} lacks libraries: {said}{text}", path.display())));
        }
        for library in text.split_whitespace().filter(|word| word.starts_with('/')) {
            let name = library.trim_start_matches('/');
            if !names.contains(name) && !files.contains_key(name) {
                files.insert(name.to_owned(), read(Path::new(library), FILES_BYTES_MAX)?);
            }
        }
    }
    files.insert(name.to_owned(), contents);
    Ok(())
}

/// Whether a file is a program for this machine that a loader puts together.
fn is_dynamic(contents: &[u8]) -> bool {
    let header = FileHeader64::<Endianness>::parse(contents).ok();
    let interpreter = header.and_then(|header| {
        let endian = header.endian().ok()?;
        let mut programs = header.program_headers(endian, contents).ok()?.iter();
        programs.find_map(|program| program.interpreter(endian, contents).ok()?)
    });
    interpreter.is_some()
}

/// Puts an initramfs into a cache, where the same one is kept once.
fn keep(initrd: &[u8], cache: &Path) -> Result<PathBuf> {
    let path = cache.join(format!("initrd-{}", &blake3::hash(initrd).to_hex()[..32]));
    if !path.is_file() {
        std::fs::create_dir_all(cache).map_err(GuestError::io("cannot create the folder", cache))?;
        let new = cache.join(format!("new-initrd-{}", std::process::id()));
        std::fs::write(&new, initrd).map_err(GuestError::io("cannot write", &new))?;
        std::fs::rename(&new, &path).map_err(GuestError::io("cannot make", &path))?;
    }
    Ok(path)
}

fn not_an_archive(path: &Path, more: &str) -> GuestError {
    GuestError::Config(format!("{} is not a plain initramfs (cpio, newc){more}", path.display()))
}

#[cfg(test)]
mod tests;
