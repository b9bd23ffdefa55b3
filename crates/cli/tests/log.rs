//! The log commands, run as a user runs them: the real program, killed, misused and fed with damage.

use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::os::unix::fs::FileExt;
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

use tempfile::TempDir;

struct Bench {
    dir: TempDir,
}

impl Bench {
    /// In memory where there is some: what survives a kill is the same, and no test waits for a disk.
    fn new() -> Self {
        let dir = tempfile::tempdir_in("/dev/shm").or_else(|_| tempfile::tempdir());
        Self { dir: dir.unwrap() }
    }

    fn log(&self) -> PathBuf {
        self.dir.path().join("test.log")
    }

    fn create(&self, arguments: &[&str]) {
        let created = fastness(&["create", path(&self.log()), "--chunk-size", "64K"], arguments);
        assert!(created.status.success(), "{created:?}");
    }

    fn run(&self, command: &str, arguments: &[&str]) -> Output {
        fastness(&[command, path(&self.log())], arguments)
    }

    /// Runs a command that succeeds and returns what it printed.
    fn ok(&self, command: &str, arguments: &[&str]) -> String {
        let output = self.run(command, arguments);
        assert!(output.status.success(), "{command} {arguments:?}: {output:?}");
        String::from_utf8(output.stdout).unwrap()
    }
}

fn path(path: &Path) -> &str {
    path.to_str().unwrap()
}

fn program() -> Command {
    let mut program = Command::new(env!("CARGO_BIN_EXE_fastness"));
    program.arg("log").stdin(Stdio::null());
    program
}

fn fastness(first: &[&str], more: &[&str]) -> Output {
    program().args(first).args(more).output().unwrap()
}

fn errors(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

/// The numbers of generated records that `recover --print` printed; each must be whole.
fn numbers(printed: &[u8]) -> Vec<u64> {
    let text = std::str::from_utf8(printed).unwrap();
    text.lines()
        .filter_map(|line| line.strip_prefix("fastness record "))
        .map(|line| line[..20].parse().unwrap())
        .collect()
}

/// A generator of test numbers: the same in each run.
fn random(state: &mut u64) -> u64 {
    *state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
    *state >> 33
}

/// What a killed writer had printed.
struct Acknowledged {
    last: u64,
    trimmed: u64,
}

fn write_until_killed(bench: &Bench, after_lines: u64, trim_every: Option<u64>) -> Acknowledged {
    let mut command = program();
    command.args(["write", path(&bench.log()), "--count", "0", "--ack", "--size", "300"]);
    if let Some(every) = trim_every {
        command.args(["--trim-every", &every.to_string()]);
    }
    let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
    let mut acknowledged = Acknowledged { last: 0, trimmed: 0 };
    let mut count = |line: &str| match line.strip_prefix("trimmed ") {
        Some(number) => acknowledged.trimmed = number.parse().unwrap(),
        None => acknowledged.last = line.parse().unwrap(),
    };
    for _ in 0..after_lines {
        count(&lines.next().unwrap().unwrap());
    }
    child.kill().unwrap();
    lines.map_while(Result::ok).for_each(|line| count(&line));
    assert_eq!(child.wait().unwrap().signal(), Some(9), "it wrote until it was killed");
    acknowledged
}

#[test]
fn what_was_acknowledged_survives_kill_9() {
    let bench = Bench::new();
    bench.create(&["--alignment", "64", "--size", "16M"]);
    let mut state = 1;
    for round in 0..20 {
        let trim_every = (round % 2 == 1).then_some(7);
        let Acknowledged { last, trimmed } =
            write_until_killed(&bench, random(&mut state) % 1500, trim_every);
        // A dry run changes nothing; the first and the second recovery find the same.
        assert!(bench.ok("verify", &[]).contains("no damage"));
        let kept = bench.run("recover", &["--keep", "--print"]);
        let recovered = bench.run("recover", &["--print"]);
        assert!(recovered.status.success() && kept.status.success(), "{}", errors(&recovered));
        let found = numbers(&recovered.stdout);
        assert_eq!(found, numbers(&kept.stdout));
        // Killed between a trim and its line?
        let trim_in_flight = trim_every.is_some_and(|every| last.is_multiple_of(every) && trimmed != last);
        if !(found.is_empty() && trim_in_flight) {
            let newest = found.last().copied().unwrap_or(trimmed);
            assert!(
                (last..=last + 1).contains(&newest),
                "round {round}: {newest} is newest, {last} acknowledged"
            );
            // The record that was not acknowledged may even have been trimmed.
            let trimmed = if found.is_empty() { newest } else { trimmed };
            assert_eq!(found, (trimmed + 1..=newest).collect::<Vec<_>>(), "round {round}");
        }
        let whole =
            if found.is_empty() { "no generated records" } else { "0 broken, in order, none missing" };
        assert!(errors(&recovered).contains(whole), "{}", errors(&recovered));
        assert!(bench.ok("recover", &[]).starts_with("recovered    0 records"));
    }
}

#[test]
fn lines_come_back_as_they_were() {
    let bench = Bench::new();
    bench.create(&["--size", "1M"]);
    let lines = "first\n\n  third, with spaces \nünïcödé\nlast without a newline";
    let mut child = program()
        .args(["write", path(&bench.log()), "--stdin", "--ack"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    child.stdin.take().unwrap().write_all(lines.as_bytes()).unwrap();
    assert_eq!(child.wait_with_output().unwrap().stdout, b"1\n2\n3\n4\n5\n");
    let refused = bench.run("write", &[]);
    assert_eq!(refused.status.code(), Some(3));
    assert!(errors(&refused).contains("log recover"), "{}", errors(&refused));
    assert_eq!(bench.ok("recover", &["--print"]), format!("{lines}\n"));
    assert_eq!(bench.ok("recover", &["--print"]), "");
}

#[test]
fn a_closed_pipe_ends_quietly_and_leaves_the_log_as_it_was() {
    let bench = Bench::new();
    bench.create(&["--size", "4M"]);
    bench.ok("write", &["--count", "3000", "--size", "500"]);
    let mut child = program()
        .args(["recover", path(&bench.log()), "--print"])
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut first = [0; 15];
    child.stdout.take().unwrap().read_exact(&mut first).unwrap();
    assert_eq!(&first, b"fastness record");
    let output = child.wait_with_output().unwrap();
    assert_eq!((output.status.code(), errors(&output).as_str()), (Some(0), ""));
    assert!(bench.ok("recover", &["--keep"]).contains("3000 generated records, 1 to 3000: 0 broken"));
}

#[test]
fn a_second_opener_is_refused() {
    let bench = Bench::new();
    bench.create(&["--size", "1M"]);
    let mut child = program()
        .args(["write", path(&bench.log()), "--count", "0", "--ack", "--rate", "1"])
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let mut line = String::new();
    BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
    for command in ["write", "recover", "dump", "verify", "info"] {
        let output = bench.run(command, &[]);
        assert_eq!(output.status.code(), Some(4), "{command}: {output:?}");
        assert!(errors(&output).contains("already open"), "{}", errors(&output));
    }
    child.kill().unwrap();
    child.wait().unwrap();
    assert!(bench.ok("recover", &[]).contains("1 records"));
}

#[test]
fn no_space_is_told_apart() {
    let bench = Bench::new();
    let huge = fastness(&["create", path(&bench.log()), "--size", "4096T", "--chunk-size", "1T"], &[]);
    assert_eq!(huge.status.code(), Some(5), "{huge:?}");
    assert!(!bench.log().exists());
    bench.create(&["--size", "256K"]);
    let full = bench.run("write", &["--count", "0", "--ack", "--size", "4000"]);
    assert_eq!(full.status.code(), Some(5), "{full:?}");
    let written = full.stdout.iter().filter(|&&byte| byte == b'\n').count();
    assert!(errors(&full).contains("the log is full"));
    assert_eq!(numbers(&bench.run("recover", &["--print"]).stdout).len(), written);
    bench.ok("write", &["--count", &written.to_string(), "--size", "4000"]);
}

#[test]
fn wrong_requests_change_nothing() {
    let bench = Bench::new();
    assert_eq!(bench.run("recover", &[]).status.code(), Some(3));
    let bad: [&[&str]; 4] = [
        &["--size", "5000"],
        &["--chunk-size", "100"],
        &["--size", "64K", "--chunk-size", "64K"],
        &["--size", "0"],
    ];
    for arguments in bad {
        let output = bench.run("create", arguments);
        assert_eq!(output.status.code(), Some(3), "{arguments:?}: {output:?}");
        assert!(!bench.log().exists(), "{arguments:?}");
    }
    assert_eq!(bench.run("create", &["--checksum", "md5"]).status.code(), Some(2));
    fs::write(bench.log(), vec![b'x'; 1 << 20]).unwrap();
    assert_eq!(bench.run("create", &[]).status.code(), Some(3));
    assert_eq!(bench.run("recover", &[]).status.code(), Some(3), "no log");
    assert_eq!(fs::read(bench.log()).unwrap(), vec![b'x'; 1 << 20]);
    bench.ok("create", &["--force", "--chunk-size", "64K"]);
    bench.ok("write", &["--count", "3"]);
    assert_eq!(bench.run("create", &[]).status.code(), Some(3));
    assert!(bench.ok("recover", &["--keep"]).contains("3 records"));
    assert_eq!(bench.run("dump", &["--chunk", "99"]).status.code(), Some(3));
}

#[test]
fn a_missing_device_is_not_made_as_a_file_in_memory() {
    let device = "/dev/fastness-dax-that-is-not-there";
    let output = fastness(&["create", device, "--size", "1M", "--chunk-size", "64K"], &[]);
    assert_eq!(output.status.code(), Some(3), "{output:?}");
    assert!(errors(&output).contains("there is no device"), "{}", errors(&output));
    assert!(!Path::new(device).exists());
}

#[test]
fn json_is_json() {
    let bench = Bench::new();
    bench.create(&["--size", "256K", "--checksum", "xxh3-128", "--alignment", "64"]);
    bench.ok("write", &["--count", "2"]);
    let info: serde_json::Value = serde_json::from_str(&bench.ok("info", &["--json"])).unwrap();
    assert_eq!(info["geometry"]["checksum"], "xxh3-128");
    assert_eq!(info["geometry"]["chunks"], 3);
    let dump = bench.ok("dump", &["--json", "--bodies"]);
    let lines: Vec<serde_json::Value> =
        dump.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert_eq!(lines.len(), 4);
    assert_eq!(lines[0]["header_slots"][0], lines[0]["header_slots"][1]);
    let entries = lines[1]["entries"].as_array().unwrap();
    assert_eq!(
        (entries.len(), &entries[1]["gsid"], &entries[1]["standing"]),
        (2, &2.into(), &"needed".into())
    );
    assert!(entries[1]["body"].as_str().unwrap().starts_with("fastness record 00000000000000000002 "));
}

#[test]
fn damage_is_found_and_what_does_not_depend_on_it_recovered() {
    let bench = Bench::new();
    bench.create(&["--size", "256K", "--alignment", "64"]);
    bench.ok("write", &["--count", "10", "--size", "64"]);
    let file = fs::OpenOptions::new().write(true).open(bench.log()).unwrap();
    // In the body of the fifth record: 256 bytes of header and 64 of body each.
    file.write_all_at(b"X", 16384 + 4 * 320 + 300).unwrap();
    let verified = bench.run("verify", &[]);
    assert_eq!(verified.status.code(), Some(1));
    let text = String::from_utf8(verified.stdout).unwrap();
    assert!(text.contains("damage: entry 1.5: body checksum mismatch at region offset 0x4600"), "{text}");
    let refused = bench.run("recover", &[]);
    assert_eq!(refused.status.code(), Some(6));
    assert!(errors(&refused).contains("--drop-tail"), "{}", errors(&refused));
    assert!(bench.ok("dump", &[]).contains("checksum mismatch"));
    let partly = bench.run("recover", &["--drop-tail", "--print"]);
    assert_eq!(partly.status.code(), Some(1));
    assert_eq!(numbers(&partly.stdout), [1, 2, 3, 4, 6, 7, 8, 9, 10]);
    bench.ok("write", &["--count", "1"]);
}

#[test]
fn no_command_panics_on_a_corrupted_log() {
    let bench = Bench::new();
    bench.create(&["--size", "256K", "--alignment", "64"]);
    bench.ok("write", &["--count", "100"]);
    let good = fs::read(bench.log()).unwrap();
    let mut state = 3;
    for round in 0..12 {
        let mut bad = good.clone();
        for _ in 0..=random(&mut state) % 4 {
            let at = (random(&mut state) % if round % 2 == 0 { 16384 } else { bad.len() as u64 }) as usize;
            let end = (at + 1 + random(&mut state) as usize % 200).min(bad.len());
            bad[at..end].iter_mut().for_each(|byte| *byte = random(&mut state) as u8);
        }
        if round % 4 == 0 {
            bad.truncate((random(&mut state) % 64) as usize * 4096);
        }
        fs::write(bench.log(), &bad).unwrap();
        let commands: [(&str, &[&str]); 5] = [
            ("dump", &["--bodies"]),
            ("dump", &["--json"]),
            ("verify", &[]),
            ("info", &[]),
            ("recover", &["--keep", "--drop-tail"]),
        ];
        for (command, arguments) in commands {
            let output = bench.run(command, arguments);
            let code = output.status.code();
            assert!(matches!(code, Some(0 | 1 | 3 | 6)), "round {round}: {command}: {output:?}");
            assert!(fs::read(bench.log()).unwrap() == bad, "round {round}: {command} wrote");
        }
    }
}

/// The file of a log in use is cut short: the writer says so and ends, and what is left of the log can be
/// looked at.
#[test]
fn a_log_that_is_cut_under_its_writer_ends_it_with_an_error() {
    let bench = Bench::new();
    bench.create(&["--size", "4M"]);
    let mut writer = program()
        .args(["write", path(&bench.log()), "--count", "0", "--rate", "2000", "--ack"])
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut acknowledged = BufReader::new(writer.stdout.take().unwrap());
    let mut line = String::new();
    acknowledged.read_line(&mut line).unwrap();
    let file = fs::OpenOptions::new().write(true).open(bench.log()).unwrap();
    file.set_len(64 << 10).unwrap();
    let mut rest = String::new();
    acknowledged.read_to_string(&mut rest).unwrap();
    let output = writer.wait_with_output().unwrap();
    let said = errors(&output);
    assert_eq!(output.status.code(), Some(7), "{said}");
    assert!(said.contains("went away") && said.contains("cut short") && said.contains("0x"), "{said}");
    let recovered = bench.run("recover", &[]);
    assert!(errors(&recovered).contains("cut off"), "{recovered:?}");
    bench.run("dump", &[]);
}
