//! The clock of a machine that is not a guest is left alone.

use std::process::Command;

#[test]
fn the_clock_is_set_in_guests_only() {
    let agent = env!("CARGO_BIN_EXE_fastness-agent");
    for instant in ["test", "recovery"] {
        // Whatever the program does: it could not.
        let mut command = match rustix::process::geteuid().is_root() {
            true => Command::new("setpriv"),
            false => Command::new(agent),
        };
        if command.get_program() == "setpriv" {
            command.args(["--bounding-set", "-sys_time", agent]);
        }
        let done = command.args(["clock", instant]).env_remove("FASTNESS_GUEST").output().unwrap();
        assert_eq!(done.status.code(), Some(3), "{done:?}");
        let said = String::from_utf8(done.stderr).unwrap();
        assert!(said.contains("only in a guest"), "{said}");
    }
}
