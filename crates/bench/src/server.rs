//! Mounts that other processes serve.

use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use fastness_fuse::{Unmount, is_mounted, unmount};

use crate::error::{Result, ensure};

const START: Duration = Duration::from_secs(20);

/// A mount of a server, which is killed when this is dropped: its contents are not needed.
pub(crate) struct Server {
    child: Child,
    mount_point: PathBuf,
}

impl Server {
    /// Starts the server, and waits for its mount.
    pub(crate) fn start(mut command: Command, mount_point: PathBuf) -> Result<Server> {
        let child = command.stdin(Stdio::null()).stdout(Stdio::null()).spawn()?;
        let server = Server { child, mount_point };
        let since = Instant::now();
        while !is_mounted(&server.mount_point) {
            ensure!(
                since.elapsed() < START,
                "`{command:?}` mounts nothing; only root can, and /dev/fuse is needed"
            );
            std::thread::sleep(Duration::from_millis(20));
        }
        Ok(server)
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
        let _ = unmount(&self.mount_point, Unmount::Force);
    }
}
