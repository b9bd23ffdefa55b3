//! Suites: folders that say which file systems are tested, and how.
//!
//! A suite is `suite.toml`, and beside it the folder `files` with programs and modules for the guest, and
//! workloads in J-lang. Nothing of it runs on this machine: all scripts and programs are the guest's. What
//! is in it is bounded, and what is wrong with it is said with file and key.

use std::collections::{BTreeMap, BTreeSet};
use std::io::Read;
use std::path::{Path, PathBuf};

use fastness_crashcheck_workload::Workload;
use fastness_crashcheck_workload::jlang::TEXT_BYTES_MAX;
use serde::Deserialize;

use super::config::{is_plain, parse_toml};
use super::file_system::{FileSystem, FileTest, MOUNT, STATE, UNMOUNT, WRITE, Work};
use crate::error::{CheckError, Result, make_dir};
use crate::size::size_of;

/// The file of a suite that describes it.
pub const SUITE_FILE: &str = "suite.toml";
/// The suite that is part of the program.
pub const BUILT_IN: &str = include_str!("../../suite/suite.toml");

const FILE_BYTES_MAX: u64 = 1 << 20;
const SCRIPT_BYTES_MAX: usize = 16 << 10;
const SYSTEMS_MAX: usize = 64;
const TESTS_MAX: usize = 4096;
const OPERATIONS_MAX: usize = 1000;
const DISK_BYTES_MAX: u64 = 64 << 30;

/// File systems, and what is tested on them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Suite {
    /// Persistent memory of the guest, in bytes, if the suite says so.
    pub pm_bytes: Option<u64>,
    /// By name.
    pub systems: BTreeMap<String, FileSystem>,
    /// In their order.
    pub tests: Vec<FileTest>,
    /// The folder with what is put into the guest, if there is one.
    pub files: Option<PathBuf>,
}

/// What is in the file. Of all that a file system leaves out, the one that it is like has it, or a default.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Text {
    pm: Option<String>,
    #[serde(default, rename = "file-system")]
    systems: BTreeMap<String, SystemText>,
    #[serde(default, rename = "test")]
    tests: Vec<TestText>,
}

#[derive(Clone, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
struct SystemText {
    like: Option<String>,
    r#type: Option<String>,
    modules: Option<Vec<String>>,
    programs: Option<Vec<String>>,
    disk: Option<String>,
    make: Option<String>,
    options: Option<String>,
    mount: Option<String>,
    settle: Option<String>,
    synchronous: Option<bool>,
    state: Option<String>,
    write: Option<String>,
    unmount: Option<String>,
    messages: Option<String>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct TestText {
    name: String,
    prepare: Option<String>,
    operations: Option<Vec<String>>,
    workload: Option<String>,
    program: Option<String>,
}

impl Suite {
    /// The one that is part of the program.
    ///
    /// # Errors
    /// None, as tests see to it.
    pub fn built_in() -> Result<Suite> {
        Suite::parse(BUILT_IN, None)
            .map_err(|what| CheckError::Config { path: format!("built-in {SUITE_FILE}").into(), what })
    }

    /// Writes the suite that is part of the program to a folder, which is created; returns its file.
    ///
    /// # Errors
    /// There is one in the folder already; [`CheckError::File`].
    pub fn print(dir: &Path) -> Result<PathBuf> {
        make_dir(dir)?;
        let path = dir.join(SUITE_FILE);
        let made = std::fs::File::create_new(&path);
        made.and_then(|mut file| std::io::Write::write_all(&mut file, BUILT_IN.as_bytes()))
            .map_err(CheckError::file("write", &path))?;
        Ok(path)
    }

    /// Reads a folder.
    ///
    /// # Errors
    /// [`CheckError::File`], and [`CheckError::Config`], which names file and key.
    pub fn read(dir: &Path) -> Result<Suite> {
        let path = dir.join(SUITE_FILE);
        let text = read_text(&path, FILE_BYTES_MAX).map_err(CheckError::file("read", &path))?;
        Suite::parse(&text, Some(dir)).map_err(|what| CheckError::Config { path, what })
    }

    fn parse(text: &str, dir: Option<&Path>) -> Result<Suite, String> {
        let text: Text = parse_toml(text)?;
        if text.systems.is_empty() || text.systems.len() > SYSTEMS_MAX {
            return Err(format!(
                "[file-system.NAME]: there are {}, 1 to {SYSTEMS_MAX} are expected",
                text.systems.len()
            ));
        }
        if text.tests.len() > TESTS_MAX {
            return Err(format!(
                "[[test]]: there are {}, at most {TESTS_MAX} are expected",
                text.tests.len()
            ));
        }
        let pm_bytes = text.pm.as_deref().map(size_of).transpose().map_err(|what| format!("pm: {what}"))?;
        let mut systems = BTreeMap::new();
        for name in text.systems.keys() {
            let key = format!("file-system.{name}");
            if !is_plain(name) {
                return Err(format!("{key}: a name has letters, digits, and - _ . + only"));
            }
            let system = system(name, &text.systems).map_err(|what| format!("{key}.{what}"))?;
            systems.insert(name.clone(), system);
        }
        let mut names = BTreeSet::new();
        let mut tests = Vec::new();
        for (index, text) in text.tests.into_iter().enumerate() {
            let key = format!("test {} ({:?})", index + 1, text.name);
            if !is_plain(&text.name) {
                return Err(format!("{key}.name: letters, digits, and - _ . + only are expected"));
            }
            if !names.insert(text.name.clone()) {
                return Err(format!("{key}.name: another test has it, too"));
            }
            tests.push(test(text, dir).map_err(|what| format!("{key}.{what}"))?);
        }
        let files = dir.map(|dir| dir.join("files")).filter(|files| files.is_dir());
        Ok(Suite { pm_bytes, systems, tests, files })
    }
}

/// A file system with all that it has from others; an error begins with its key.
fn system(name: &str, all: &BTreeMap<String, SystemText>) -> Result<FileSystem, String> {
    let own = all.get(name).cloned().unwrap_or_default();
    let base = match &own.like {
        None => SystemText::default(),
        Some(like) => match all.get(like) {
            Some(base) if base.like.is_none() => base.clone(),
            Some(_) => return Err(format!("like: {like} is like another one itself; name that one")),
            None => return Err(format!("like: no file system of this file is called {like}")),
        },
    };
    let script = |key: &str, own: Option<String>, base: Option<String>, default: Option<&str>| {
        let missing = || format!("{key}: is missing; shell is expected, see docs/guide/crash-suite.md");
        let text = own.or(base).or_else(|| default.map(str::to_owned)).ok_or_else(missing)?;
        bounded(key, text)
    };
    let names = |key: &str, own: Option<Vec<String>>, base: Option<Vec<String>>| {
        let names = own.or(base).unwrap_or_default();
        match names.iter().find(|name| !is_plain(name) || name.starts_with('-')) {
            Some(name) => Err(format!("{key}: {name:?} is not the name of one: no folders, no options")),
            None if names.len() > 64 => {
                Err(format!("{key}: there are {}, at most 64 are expected", names.len()))
            }
            None => Ok(names),
        }
    };
    let kind = own.r#type.or(base.r#type);
    let kind = kind.filter(|kind| is_plain(kind));
    let kind = kind.ok_or("type: the name that the kernel has for it is expected, as \"ext4\"")?;
    let disk =
        own.disk.or(base.disk).as_deref().map(size_of).transpose().map_err(|what| format!("disk: {what}"))?;
    if let Some(bytes) =
        disk.filter(|bytes| *bytes == 0 || *bytes > DISK_BYTES_MAX || !bytes.is_multiple_of(1 << 20))
    {
        return Err(format!("disk: {bytes} bytes; whole MiB up to 64G are expected"));
    }
    let is_synchronous = own.synchronous.or(base.synchronous).unwrap_or(false);
    let settle = own.settle.or(base.settle);
    if is_synchronous && settle.is_some() {
        return Err(
            "settle: nothing has to settle with `synchronous = true`; leave one of them out".to_owned()
        );
    }
    Ok(FileSystem {
        kind,
        modules: names("modules", own.modules, base.modules)?,
        programs: names("programs", own.programs, base.programs)?,
        disk_bytes: disk,
        make: script("make", own.make, base.make, None)?,
        options: script("options", own.options, base.options, Some("rw"))?,
        mount: script("mount", own.mount, base.mount, Some(MOUNT))?,
        settle: script("settle", settle, None, Some(if is_synchronous { "true" } else { "sync" }))?,
        is_synchronous,
        state: script("state", own.state, base.state, Some(STATE))?,
        write: script("write", own.write, base.write, Some(WRITE))?,
        unmount: script("unmount", own.unmount, base.unmount, Some(UNMOUNT))?,
        messages: script("messages", own.messages, base.messages, Some(""))?,
    })
}

/// An error begins with its key.
fn test(text: TestText, dir: Option<&Path>) -> Result<FileTest, String> {
    let TestText { name, prepare, operations, workload, program } = text;
    let prepare = bounded("prepare", prepare.unwrap_or_else(|| "true".to_owned()))?;
    let work = match (operations, workload, program) {
        (Some(all), None, None) if !all.is_empty() && all.len() <= OPERATIONS_MAX => {
            Work::Operations(all.into_iter().map(|one| bounded("operations", one)).collect::<Result<_, _>>()?)
        }
        (Some(all), None, None) => {
            return Err(format!("operations: there are {}, 1 to {OPERATIONS_MAX} are expected", all.len()));
        }
        (None, Some(file), None) => {
            let path = dir.filter(|_| is_plain(&file)).map(|dir| dir.join(&file));
            let path = path.ok_or(format!("workload: {file:?}: a file beside {SUITE_FILE} is expected"))?;
            let text = read_text(&path, TEXT_BYTES_MAX as u64);
            let text = text.map_err(|error| format!("workload: cannot read {}: {error}", path.display()))?;
            let workload = Workload::parse(&text);
            let workload = workload.map_err(|error| format!("workload: {}: {error}", path.display()))?;
            Work::Workload(workload)
        }
        (None, None, Some(program)) => Work::Program(bounded("program", program)?),
        _ => {
            return Err("name: exactly one of `operations`, `workload` and `program` is expected beside it"
                .to_owned());
        }
    };
    Ok(FileTest { name, prepare, work })
}

fn bounded(key: &str, text: String) -> Result<String, String> {
    if text.len() > SCRIPT_BYTES_MAX {
        return Err(format!("{key}: {} bytes; at most {SCRIPT_BYTES_MAX} are expected", text.len()));
    }
    if text.contains('\0') {
        return Err(format!("{key}: it has a NUL; text is expected"));
    }
    Ok(text)
}

/// A file of at most `bytes_max` bytes.
fn read_text(path: &Path, bytes_max: u64) -> std::io::Result<String> {
    // A pipe would never end.
    if !std::fs::metadata(path)?.is_file() {
        return Err(std::io::Error::other("it is not an ordinary file"));
    }
    let mut text = String::new();
    std::fs::File::open(path)?.take(bytes_max + 1).read_to_string(&mut text)?;
    if text.len() as u64 > bytes_max {
        return Err(std::io::Error::other(format!("it has more than {bytes_max} bytes")));
    }
    Ok(text)
}

#[cfg(test)]
mod tests;
