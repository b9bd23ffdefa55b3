//! What is measured: folders, and the servers of those that are mounts.

use std::fs;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use fastness_fuse::{Unmount, is_mounted, unmount};

use crate::error::{Result, ensure};
use crate::folder::Folder;

const START: Duration = Duration::from_secs(20);

/// A mount of a server, which is killed when this is dropped.
struct Server {
    child: Child,
    mount_point: PathBuf,
}

impl Drop for Server {
    fn drop(&mut self) {
        // Its contents are not needed.
        let _ = self.child.kill();
        let _ = self.child.wait();
        let _ = unmount(&self.mount_point, Unmount::Force);
    }
}

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

    fn serve(&mut self, mut command: Command, mount_point: PathBuf) -> Result<()> {
        let child = command.stdin(Stdio::null()).stdout(Stdio::null()).spawn()?;
        self.servers.push(Server { child, mount_point: mount_point.clone() });
        let since = Instant::now();
        while !is_mounted(&mount_point) {
            ensure!(
                since.elapsed() < START,
                "`{command:?}` mounts nothing; only root can, and /dev/fuse is needed"
            );
            std::thread::sleep(Duration::from_millis(20));
        }
        Ok(())
    }
}
