//! A program of an ordinary user.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::process::{Command, Output, Stdio};

use super::Bench;

/// A user and a group that nothing here has.
pub const STRANGER: u32 = 12345;

impl Bench {
    /// Runs `arguments` as an ordinary user in the folder `home`: with a `/dev/fuse` that everybody
    /// can open, as most systems have it, and the program where everybody finds it.
    pub fn as_stranger(&self, arguments: &[&str]) -> Output {
        const BEGIN: &str = "mount --bind \"$1\" \"$2\" && mount -t tmpfs -o mode=755 devices \"$3\" &&
            mknod -m 666 \"$3/fuse\" c 10 229 && mount --bind \"$3/fuse\" /dev/fuse && shift 3 && cd home &&
            exec setpriv --reuid=12345 --regid=12345 --clear-groups -- \"$@\"";
        let programs = self.path("programs");
        let devices = self.path("devices");
        for folder in [&programs, &devices] {
            fs::create_dir_all(folder).unwrap();
        }
        fs::set_permissions(self.path("."), fs::Permissions::from_mode(0o755)).unwrap();
        let mut command = self.command("");
        let built = std::path::Path::new(command.get_program()).parent().unwrap().to_owned();
        let mut wrapped = Command::new("unshare");
        wrapped
            .args(["--mount", "sh", "-c", BEGIN, "sh"])
            .args([&built, &programs, &devices])
            .args(arguments);
        wrapped.current_dir(self.path(".")).stdin(Stdio::null());
        wrapped.envs(
            command
                .env("FASTNESS_RUN_DIR", self.path("home/run"))
                .get_envs()
                .filter_map(|(name, value)| Some((name, value?))),
        );
        wrapped.output().unwrap()
    }
}
