//! Where QEMU and the plug-in are.

use std::env;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use super::error::TracerError;
use crate::process;

/// Environment variable with the path of a `qemu-x86_64`.
pub const QEMU_VARIABLE: &str = "FASTNESS_QEMU_USER";
/// Environment variable with the path of the plug-in.
pub const PLUGIN_VARIABLE: &str = "FASTNESS_TRACER_PLUGIN";

const PLUGIN: &str = "libfastness_crashcheck_tracer.so";
/// Where `scripts/install-qemu` puts one, where a distribution's takes no plug-ins.
const BUILT_QEMU: &str = "/usr/local/lib/fastness/qemu-x86_64";
/// With the interface that the plug-in needs.
const QEMU_MAJOR: u32 = 10;
/// For a program to say what it is.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(30);

/// Programs that are not ours; none: they are looked for, first in the environment.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Programs {
    /// A `qemu-x86_64`.
    pub qemu_user: Option<PathBuf>,
    /// The plug-in.
    pub plugin: Option<PathBuf>,
}

/// Programs that are there, and that fit.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Tools {
    /// A `qemu-x86_64` that takes plug-ins.
    pub qemu_user: PathBuf,
    /// The plug-in.
    pub plugin: PathBuf,
}

impl Programs {
    /// Both. QEMU is run to see whether it fits: callers that trace often should ask once.
    ///
    /// # Errors
    /// Those of [`Programs::find_qemu_user`] and [`Programs::find_plugin`].
    pub fn find(&self) -> Result<Tools, TracerError> {
        Ok(Tools { qemu_user: self.find_qemu_user()?, plugin: self.find_plugin()? })
    }

    /// The plug-in: as given, else beside this program, in `deps` or `lib` there, a folder above, or where
    /// packages put it.
    ///
    /// # Errors
    /// [`TracerError::NoPlugin`]
    pub fn find_plugin(&self) -> Result<PathBuf, TracerError> {
        let given = self.plugin.clone().or_else(|| env::var_os(PLUGIN_VARIABLE).map(PathBuf::from));
        if let Some(given) = given {
            let looked = given.display().to_string();
            return if given.is_file() {
                Ok(given)
            } else {
                Err(TracerError::NoPlugin { name: PLUGIN, looked })
            };
        }
        let program = env::current_exe().unwrap_or_default();
        let folder = program.parent().unwrap_or(Path::new("."));
        let folders = ["", "deps", "lib", "..", "../lib", "../lib/fastness"].map(|part| folder.join(part));
        let found = folders.iter().map(|folder| folder.join(PLUGIN)).find(|path| path.is_file());
        found.ok_or_else(|| {
            let looked = folders.map(|folder| folder.display().to_string()).join(", ");
            TracerError::NoPlugin { name: PLUGIN, looked }
        })
    }

    /// A `qemu-x86_64` that is new enough and takes plug-ins: as given, else in the path, else the one that
    /// was built.
    ///
    /// # Errors
    /// [`TracerError::NoQemu`]
    pub fn find_qemu_user(&self) -> Result<PathBuf, TracerError> {
        let given = self.qemu_user.clone().or_else(|| env::var_os(QEMU_VARIABLE).map(PathBuf::from));
        let candidates = given.map_or_else(
            || vec![PathBuf::from("qemu-x86_64"), PathBuf::from(BUILT_QEMU)],
            |given| vec![given],
        );
        let mut tried = Vec::new();
        for candidate in candidates {
            match complaint(&candidate) {
                None => return Ok(candidate),
                Some(complaint) => tried.push(format!("{}: {complaint}", candidate.display())),
            }
        }
        Err(TracerError::NoQemu { tried: tried.join("; ") })
    }
}

/// What is wrong with a QEMU.
fn complaint(qemu: &Path) -> Option<String> {
    let ask = |argument| process::run(Command::new(qemu).arg(argument), &[], ANSWER_TIMEOUT);
    let version = match ask("--version") {
        Ok(output) => String::from_utf8_lossy(&output.stdout).into_owned(),
        Err(error) => return Some(error.to_string()),
    };
    match major(&version) {
        Some(major) if major >= QEMU_MAJOR => {}
        Some(major) => return Some(format!("has version {major}")),
        None => return Some("does not report its version".to_owned()),
    }
    let help = ask("-help").map(|output| String::from_utf8_lossy(&output.stdout).into_owned());
    match help.is_ok_and(|help| help.lines().any(|line| line.starts_with("-plugin"))) {
        true => None,
        false => Some("does not support plug-ins".to_owned()),
    }
}

fn major(version: &str) -> Option<u32> {
    version.split("version ").nth(1)?.split('.').next()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_are_read() {
        assert_eq!(major("qemu-x86_64 version 10.0.2 (Debian 1:10.0.2+ds)\nCopyright"), Some(10));
        assert_eq!(major("qemu-x86_64 version 7.2.19"), Some(7));
        assert_eq!(major("GNU true 9.1"), None);
    }

    #[test]
    fn what_is_missing_is_named() {
        let programs = Programs {
            qemu_user: Some("/nonexistent/qemu".into()),
            plugin: Some("/nonexistent/plugin.so".into()),
        };
        let no_qemu = programs.find_qemu_user().unwrap_err().to_string();
        assert!(
            no_qemu.contains("scripts/install-qemu") && no_qemu.contains("/nonexistent/qemu"),
            "{no_qemu}"
        );
        let no_plugin = programs.find_plugin().unwrap_err().to_string();
        assert!(no_plugin.contains("cargo build") && no_plugin.contains("/nonexistent"), "{no_plugin}");
        assert_eq!(complaint(Path::new("/bin/true")), Some("does not report its version".to_owned()));
    }
}
