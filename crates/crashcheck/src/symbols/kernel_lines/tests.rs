use std::process::Command;

use super::*;

/// Line 3 is in a section of its own, `put` is inlined into `commit`.
const SOURCE: &str = "\
extern int place;
static inline __attribute__((always_inline)) void put(int value) { place = value; }
__attribute__((section(\".init.text\"))) void begin(void) { place = 1; }
void commit(void) {
    put(7);
}
void __attribute__((weak)) _start(void) { commit(); }
int place;
";

fn compile(folder: &Path, arguments: &[&str]) {
    std::fs::write(folder.join("one.c"), SOURCE).unwrap();
    let mut command = Command::new("cc");
    command.current_dir(folder).args(["-g", "-O1", "-fcf-protection=none", "one.c"]).args(arguments);
    let done = command.output().unwrap();
    assert!(done.status.success(), "{}", String::from_utf8_lossy(&done.stderr));
}

#[test]
fn a_module_is_found_by_its_functions() {
    let folder = tempfile::tempdir().unwrap();
    let deep = folder.path().join("lib/modules");
    std::fs::create_dir_all(&deep).unwrap();
    compile(folder.path(), &["-c", "-o", "lib/modules/my-fs.ko.debug"]);
    let lines = KernelLines::find(folder.path()).unwrap();
    let of = |number: u64, named| lines.of(0xffff_ffff_c000_0000 + number, named);
    assert_eq!(of(0, "commit+0x0 [my_fs]").unwrap(), "put (one.c:2) in commit (one.c:5)");
    assert_eq!(of(1, "begin+0x0 [my_fs]").unwrap(), "begin (one.c:3)", "in another section");
    for (number, other) in
        [(2, "other+0x0 [my_fs]"), (3, "commit [my_fs]"), (4, "commit+0x0 [other]"), (5, "f+0x0")]
    {
        assert_eq!(of(number, other), None, "{other}");
    }
    // What is known stays.
    assert_eq!(of(0, "other+0x0 [my_fs]").unwrap(), "put (one.c:2) in commit (one.c:5)");
}

#[test]
fn a_kernel_is_where_its_file_says() {
    let folder = tempfile::tempdir().unwrap();
    compile(folder.path(), &["-nostdlib", "-static", "-no-pie", "-o", "vmlinux-6.1"]);
    let vmlinux = folder.path().join("vmlinux-6.1");
    let bytes = std::fs::read(&vmlinux).unwrap();
    let file = File::parse(&*bytes).unwrap();
    let commit = file.symbols().find(|symbol| symbol.name() == Ok("commit")).unwrap().address();
    for path in [&vmlinux, folder.path()] {
        let lines = KernelLines::find(path).unwrap();
        assert_eq!(lines.of(commit, "commit+0x0").unwrap(), "put (one.c:2) in commit (one.c:5)");
        assert_eq!(lines.of(1, "nothing+0x0"), None);
    }
}

#[test]
fn what_has_no_debug_symbols_is_none_or_an_error() {
    let folder = tempfile::tempdir().unwrap();
    assert!(KernelLines::find(folder.path()).unwrap_err().to_string().contains("no vmlinux"));
    assert!(KernelLines::find(&folder.path().join("none")).is_err());
    for (name, bytes) in [("vmlinux", &b"no program"[..]), ("a.ko", b"")] {
        std::fs::write(folder.path().join(name), bytes).unwrap();
    }
    let lines = KernelLines::find(folder.path()).unwrap();
    assert_eq!(lines.of(1, "f+0x0"), None);
    assert_eq!(lines.of(2, "f+0x0 [a]"), None);
}
