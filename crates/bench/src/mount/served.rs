//! What is measured: folders, and the servers of those that are mounts.

use std::fs;
use std::path::PathBuf;
use std::process::{Command, Stdio};

use crate::error::{Result, ensure};
use crate::folder::Folder;
use crate::server::Server;

/// The folders in which the same work is done.
pub(super) struct Places {
    servers: Vec<Server>,
    memory: PathBuf,
    /// A mount with a log in emulated PM.
    pub(super) pmem: PathBuf,
    /// One with log-write blocks in the pool.
    pub(super) lwb: PathBuf,
    /// One that syncs nothing.
    pub(super) disabled: PathBuf,
    /// A pass-through mount of a folder in memory.
    pub(super) pass_through: PathBuf,
    /// On the file system of the benchmark's folder.
    pub(super) plain: PathBuf,
    /// Its type.
    pub(super) plain_type: String,
}

impl Drop for Places {
    fn drop(&mut self) {
        self.servers.clear();
        let _ = fs::remove_dir_all(&self.memory);
    }
}

impl Places {
    /// Starts all servers.
    pub(super) fn new(folder: &Folder) -> Result<Places> {
        let memory = PathBuf::from(format!("/dev/shm/fastness-bench-mount-{}", std::process::id()));
        let plain = folder.join("plain");
        fs::create_dir(&plain)?;
        let mut places = Places {
            servers: Vec::new(),
            pmem: folder.join("pmem/files"),
            lwb: folder.join("lwb/files"),
            disabled: folder.join("disabled/files"),
            pass_through: folder.join("pass-through"),
            plain_type: folder.file_system(),
            memory,
            plain,
        };
        places.ours(folder, "pmem", &["--emulate-pm"])?;
        places.ours(folder, "lwb", &[])?;
        places.ours(folder, "disabled", &[])?;
        let mut disable = folder.program()?;
        disable.args(["dataset", "set", "sync=disabled", "disabled/files"]);
        ensure!(disable.stdout(Stdio::null()).status()?.success(), "`{disable:?}` failed");
        fs::create_dir(&places.memory)?;
        fs::create_dir(&places.pass_through)?;
        let mut command = folder.program()?;
        command.args(["bench", "mount", "--serve-pass-through"]).args([&places.memory, &places.pass_through]);
        places.serve(command, places.pass_through.clone())?;
        Ok(places)
    }

    fn ours(&mut self, folder: &Folder, name: &str, options: &[&str]) -> Result<()> {
        self.serve(folder.up(name, "4G", options)?, folder.join(name).join("files"))
    }

    fn serve(&mut self, command: Command, mount_point: PathBuf) -> Result<()> {
        self.servers.push(Server::start(command, mount_point)?);
        Ok(())
    }
}
