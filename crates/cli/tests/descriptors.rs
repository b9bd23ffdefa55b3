//! A server with few descriptors, and programs with many files.
//!
//! These tests mount as root, and are skipped, with the reason, where that is not possible.

#![allow(unreachable_pub, missing_docs, missing_debug_implementations)]
#![allow(clippy::print_stdout, reason = "a test that is skipped says why")]

mod support;

use std::fs::{self, File};
use std::io::{BufRead, BufReader, Read};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use support::{Bench, STRANGER};

/// Tells this test's own program where to work.
const ROOT: &str = "FASTNESS_DESCRIPTORS_TEST";
const LIMIT: u64 = 256;
const THREADS: usize = 4;
const FILES: usize = 1250;

/// Without the capability that lets root raise its limits.
const LIMITED: &str =
    "ulimit -n \"$0\" && exec setpriv --bounding-set=-sys_resource --inh-caps=-sys_resource -- \"$@\"";

fn limited(command: &Command) -> Command {
    limited_to(LIMIT, command)
}

fn limited_to(limit: u64, command: &Command) -> Command {
    let mut limited = Command::new("sh");
    limited.args(["-c", LIMITED, &limit.to_string()]).arg(command.get_program()).args(command.get_args());
    limited.envs(command.get_envs().filter_map(|(name, value)| Some((name, value?))));
    limited.current_dir(command.get_current_dir().unwrap()).stdin(Stdio::null());
    limited
}

/// The text of a file: as many bytes as fit its name.
fn text(thread: usize, number: usize) -> String {
    format!("{thread} wrote {number};").repeat(number % 40 + 1)
}

/// Some files are beside those of the other threads.
fn folder(root: &Path, thread: usize, number: usize) -> PathBuf {
    if number.is_multiple_of(3) { root.join("all") } else { root.join(thread.to_string()) }
}

fn is_there(path: &Path, thread: usize, number: usize) {
    assert_eq!(fs::read_to_string(path).unwrap(), text(thread, number), "{}", path.display());
}

/// Every call that leads to a file, for each of many.
fn work(root: &Path, thread: usize) {
    let first = |number| folder(root, thread, number).join(format!("{thread}-{number}"));
    let second = |number| folder(root, thread, number + 1).join(format!("{thread}-{number}-moved"));
    fs::create_dir(root.join(thread.to_string())).unwrap();
    let kept: Vec<_> =
        (0..2).map(|number| File::create_new(root.join(format!("{thread}k{number}"))).unwrap()).collect();
    for number in 0..FILES {
        fs::write(first(number), text(thread, number)).unwrap();
    }
    for number in 0..FILES {
        let metadata = fs::metadata(first(number)).unwrap();
        assert_eq!((metadata.len(), metadata.nlink()), (text(thread, number).len() as u64, 1));
        is_there(&first(number), thread, number);
    }
    let mut removed = Vec::new();
    for number in 0..FILES {
        fs::rename(first(number), second(number)).unwrap();
        if number % 10 == 0 {
            fs::hard_link(second(number), first(number)).unwrap();
            fs::remove_file(second(number)).unwrap();
            fs::rename(first(number), second(number)).unwrap();
        }
        if number % 400 == 7 {
            removed.push((number, File::open(second(number)).unwrap()));
            fs::remove_file(second(number)).unwrap();
        }
    }
    let listed = fs::read_dir(root.join(thread.to_string())).unwrap();
    assert!(listed.map(|entry| entry.unwrap().metadata().unwrap().len()).all(|len| len > 0));
    for (number, mut file) in removed {
        let mut found = String::new();
        file.read_to_string(&mut found).unwrap();
        assert_eq!((found, file.metadata().unwrap().nlink()), (text(thread, number), 0));
        fs::write(second(number), text(thread, number)).unwrap();
    }
    (0..FILES).for_each(|number| is_there(&second(number), thread, number));
    for (number, file) in kept.iter().enumerate() {
        use std::io::Write;
        (&*file).write_all(text(thread, number).as_bytes()).unwrap();
        is_there(&root.join(format!("{thread}k{number}")), thread, number);
    }
}

fn works_in(root: &Path) {
    fs::create_dir(root.join("all")).unwrap();
    std::thread::scope(|scope| {
        for thread in 0..THREADS {
            scope.spawn(move || work(root, thread));
        }
    });
}

/// The directory alone has all of it.
fn check(dir: &Path) {
    for (thread, number) in (0..THREADS).flat_map(|thread| (0..FILES).map(move |number| (thread, number))) {
        is_there(&folder(dir, thread, number + 1).join(format!("{thread}-{number}-moved")), thread, number);
    }
    let mut names = 0;
    for folder in ["all", "0", "1", "2", "3"] {
        names += fs::read_dir(dir.join(folder)).unwrap().count();
    }
    assert_eq!(names, THREADS * FILES);
}

/// The program of these tests itself, as the program that is run.
#[test]
fn program() {
    if let Some(root) = std::env::var_os(ROOT) {
        works_in(Path::new(&root));
    }
}

fn own_program(command: &mut Command, root: &str) {
    command.arg(std::env::current_exe().unwrap()).args(["program", "--exact", "--nocapture"]).env(ROOT, root);
}

struct Mounted {
    bench: Bench,
    server: Child,
}

impl Drop for Mounted {
    fn drop(&mut self) {
        // What is not mounted is not unmounted; the test has its result.
        let _ = Command::new("umount").arg("-l").arg(self.bench.path("at")).stderr(Stdio::null()).status();
        let _ = self.server.kill();
    }
}

fn mounted(options: &str) -> Option<Mounted> {
    let bench = Bench::for_mounts()?;
    for folder in ["at", "dir"] {
        fs::create_dir(bench.path(folder)).unwrap();
    }
    let line = format!("responder mount dir at --pm pm --size 64M {options}");
    let mut server = limited(&bench.command(&line)).stdout(Stdio::piped()).spawn().unwrap();
    let mut lines = BufReader::new(server.stdout.take().unwrap()).lines();
    assert!(lines.any(|line| line.unwrap().contains("Ctrl-C")), "{:?}", server.wait());
    Some(Mounted { bench, server })
}

impl Mounted {
    fn end(&mut self) {
        self.bench.unmount_by_tool("at");
        assert!(self.server.wait().unwrap().success());
    }
}

#[test]
fn a_mount_serves_more_files_than_it_may_have_descriptors() {
    for options in ["", "--protocol log", "--flush-ms 60000"] {
        let Some(mut mounted) = mounted(options) else { return };
        works_in(&mounted.bench.path("at"));
        let said = mounted.bench.json("responder status pm");
        assert_eq!((&said["descriptors_max"], &said["refused_opens"]), (&LIMIT.into(), &0.into()), "{said}");
        mounted.end();
        check(&mounted.bench.path("dir"));
    }
}

/// More files at once than the server can hold: that is refused, said, and over when they are closed.
#[test]
fn too_many_open_files_are_refused_and_nothing_else_is() {
    let Some(mut mounted) = mounted("") else { return };
    let at = mounted.bench.path("at");
    fs::write(at.join("before"), "before").unwrap();
    let mut open = Vec::new();
    let error = loop {
        match File::create_new(at.join(open.len().to_string())) {
            Ok(file) => open.push(file),
            Err(error) => break error,
        }
        assert!(open.len() < LIMIT as usize);
    };
    assert_eq!(error.raw_os_error(), Some(rustix::io::Errno::MFILE.raw_os_error()));
    assert!(open.len() >= 32, "{} files are open", open.len());
    assert!(!at.join(open.len().to_string()).exists(), "it was not made");
    for (number, mut file) in open.iter().enumerate() {
        use std::io::Write;
        file.write_all(&[7]).unwrap();
        fs::rename(at.join(number.to_string()), at.join(format!("{number}-moved"))).unwrap();
    }
    assert_eq!(fs::metadata(at.join("before")).unwrap().len(), 6);
    let said = mounted.bench.json("responder status pm");
    assert_eq!((&said["open_files"], &said["open_files_max"]), (&open.len().into(), &open.len().into()));
    assert_eq!(said["refused_opens"], 1);
    assert!(mounted.bench.ok("responder status pm").contains("ulimit -n"));
    let count = open.len();
    drop(open);
    for number in 0..count {
        assert_eq!(fs::read(at.join(format!("{number}-moved"))).unwrap(), [7]);
    }
    mounted.end();
}

#[test]
fn a_program_has_more_files_than_its_server_may_have_descriptors() {
    for options in ["", "--no-preload"] {
        let Some(bench) = Bench::for_mounts() else { return };
        fs::create_dir(bench.path("dir")).unwrap();
        let mut command = bench.command(&format!("run {options} --pm pm --size 64M --dir dir --"));
        own_program(&mut command, "dir");
        let ran = limited(&command).output().unwrap();
        assert!(ran.status.success(), "{ran:?}");
        check(&bench.path("dir"));
    }
}

/// So few that nothing would work: it is said before anything is made.
#[test]
fn too_few_descriptors_for_anything_are_refused() {
    let Some(bench) = Bench::for_mounts() else { return };
    fs::create_dir(bench.path("dir")).unwrap();
    let command = bench.command("run --pm pm --size 64M --dir dir -- true");
    let refused = limited_to(63, &command).output().unwrap();
    let said = String::from_utf8_lossy(&refused.stderr);
    assert!(
        !refused.status.success() && said.contains("63 files open at a time, and needs 64"),
        "{refused:?}"
    );
    let again = limited_to(64, &command).output().unwrap();
    assert!(again.status.success(), "{again:?}");
}

#[test]
fn a_program_of_an_ordinary_user_has_more_files_than_its_server_may_have_descriptors() {
    let Some(bench) = Bench::for_mounts() else { return };
    for folder in ["home", "home/dir", "tests"] {
        fs::create_dir(bench.path(folder)).unwrap();
    }
    for folder in ["home", "home/dir"] {
        std::os::unix::fs::chown(bench.path(folder), Some(STRANGER), Some(STRANGER)).unwrap();
    }
    let namespaces = bench.as_stranger(&["unshare", "--user", "--mount", "true"]);
    if !namespaces.status.success() {
        println!("SKIPPED: ordinary users get no namespaces here: {namespaces:?}");
        return;
    }
    fs::copy(std::env::current_exe().unwrap(), bench.path("tests/program")).unwrap();
    let script = format!(
        "ulimit -n {LIMIT}; exec {} run --pm pm --size 64M --dir dir -- env {ROOT}=dir {} program --exact",
        bench.text("programs/fastness"),
        bench.text("tests/program")
    );
    let ran = bench.as_stranger(&["sh", "-c", &script]);
    assert!(ran.status.success(), "{ran:?}");
    check(&bench.path("home/dir"));
}

/// What a crash has left of more files than the next process may have descriptors.
#[test]
fn a_recovery_deals_with_more_files_than_it_may_have_open() {
    const FILES: usize = 300;
    for protocol in ["fr", "melov", "log"] {
        let Some(bench) = Bench::for_mounts() else { return };
        for folder in ["at", "dir"] {
            fs::create_dir(bench.path(folder)).unwrap();
        }
        let line =
            format!("responder mount dir at --pm pm --size 64M --flush-ms 600000 --protocol {protocol}");
        let mut server = bench.command(&line).stdout(Stdio::piped()).spawn().unwrap();
        let mut lines = BufReader::new(server.stdout.take().unwrap()).lines();
        assert!(lines.any(|line| line.unwrap().contains("Ctrl-C")), "{:?}", server.wait());
        let mounted = Mounted { bench, server };
        let (bench, at) = (&mounted.bench, mounted.bench.path("at"));
        for number in 0..FILES {
            fs::write(at.join(number.to_string()), "").unwrap();
        }
        bench.ok("responder flush pm");
        // What is open is not flushed to be closed.
        let mut open = Vec::new();
        for number in 0..FILES {
            use std::io::Write;
            let mut file = File::options().write(true).open(at.join(number.to_string())).unwrap();
            file.write_all(text(1, number).as_bytes()).unwrap();
            file.sync_all().unwrap();
            open.push(file);
        }
        let mut mounted = mounted;
        mounted.server.kill().unwrap();
        mounted.server.wait().unwrap();
        let bench = &mounted.bench;
        drop(open);
        let dirty = bench.json("responder status pm")["dirty_chunks"].as_u64().unwrap();
        assert!(dirty >= FILES as u64, "{protocol}: {dirty}");
        if protocol == "log" {
            // The page cache had everything: as after a power cut.
            for number in 0..FILES {
                fs::write(bench.path("dir").join(number.to_string()), "").unwrap();
            }
        }
        let recovered = limited(&bench.command("responder recover pm")).output().unwrap();
        assert!(recovered.status.success(), "{protocol}: {recovered:?}");
        for number in 0..FILES {
            is_there(&bench.path("dir").join(number.to_string()), 1, number);
        }
        bench.ok("responder detach pm");
    }
}
