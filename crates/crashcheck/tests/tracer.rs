//! Programs under the QEMU plug-in, and what their traces have. `scripts/test-tracer` builds what is needed,
//! and runs it.

use std::collections::HashMap;
use std::fs::{self, File};
use std::io::BufReader;
use std::path::{Path, PathBuf};
use std::time::Duration;

use fastness_crashcheck::process::Ending;
use fastness_crashcheck::tracer::{PmFile, Programs, Traced, TracerError, UserTracer};
use fastness_crashcheck_trace::module::Module;
use fastness_crashcheck_trace::{BlockEvent, Hypercall, Kind, Reader, coverage};
use tempfile::TempDir;

const PM_BYTES: u64 = 1 << 20;
const OTHER: u64 = 1 << 40;

/// The program that does what the tests want; `crates/crashcheck-tracer/examples/pm_program`.
fn program() -> PathBuf {
    std::env::var_os("FASTNESS_TRACER_EXAMPLE").expect("scripts/test-tracer sets it").into()
}

/// A run of the program.
struct Run {
    folder: TempDir,
    tracer: UserTracer,
}

impl Run {
    fn new() -> Run {
        let folder = tempfile::tempdir().unwrap();
        let pm = PmFile { path: folder.path().join("pm"), len_bytes: Some(PM_BYTES) };
        let tracer = UserTracer {
            pm: vec![pm],
            has_reads: false,
            has_stacks: false,
            timeout: Duration::from_secs(120),
            input: None,
            output: Some(folder.path().join("output")),
            operations: None,
            coverage: None,
            current_dir: None,
            tools: Programs::default().find().unwrap_or_else(|error| panic!("{error}")),
        };
        Run { folder, tracer }
    }

    fn pm(&self) -> PathBuf {
        self.folder.path().join("pm")
    }

    fn out(&self) -> PathBuf {
        self.folder.path().join("trace")
    }

    fn output(&self) -> String {
        fs::read_to_string(self.folder.path().join("output")).unwrap()
    }

    fn trace(&self, what: &str, arguments: &[&str]) -> Result<Traced, TracerError> {
        let mut command = vec![program().into(), what.into()];
        command.extend(self.tracer.pm.iter().map(|file| file.path.clone().into_os_string()));
        command.extend(arguments.iter().map(Into::into));
        self.tracer.trace(&command, &self.out())
    }

    /// Runs it, and compares the trace with what the program has printed.
    fn compare(&self, what: &str, end: Ending) {
        let traced = self.trace(what, &[]).unwrap_or_else(|error| panic!("{error}\n{}", self.output()));
        assert_eq!(traced.end, end, "{}", self.output());
        let mut events = events(&self.out());
        let output = self.output();
        let expected: Vec<_> =
            output.lines().filter(|line| !line.contains("tracer:") && !line.starts_with("qemu:")).collect();
        // Locks that the end of a program takes.
        if events.len() == expected.len() + 1 && events.last().is_some_and(|event| event == "lock") {
            events.pop();
        }
        for (number, (event, expected)) in events.iter().zip(&expected).enumerate() {
            assert_eq!(event, expected, "event {number} of {what}");
        }
        assert_eq!(events.len(), expected.len(), "{what}: {events:#?}");
    }

    /// What the trace makes of the first contents is what is in the file.
    fn replay(&self) {
        let mut contents = vec![0; PM_BYTES as usize];
        each(&self.out(), |kind, _| match kind {
            Kind::Initial { address, data }
            | Kind::Store { address, data, .. }
            | Kind::Rmw { address, data } => {
                contents[*address as usize..][..data.len()].copy_from_slice(data);
            }
            _ => {}
        });
        let file = fs::read(self.pm()).unwrap();
        let differing = contents.iter().zip(&file).position(|(a, b)| a != b);
        assert_eq!(differing, None, "first byte that differs");
    }
}

fn each(trace: &Path, mut take: impl FnMut(&Kind<'_>, &fastness_crashcheck_trace::Origin<'_>)) {
    let mut reader = Reader::new(BufReader::new(File::open(trace).unwrap())).unwrap();
    while let Some(event) = reader.next().unwrap() {
        take(&event.kind, &event.origin);
    }
}

fn hex(bytes: &[u8]) -> String {
    if bytes.len() > 64 {
        return format!("{}*{:02x}", bytes.len(), bytes[0]);
    }
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// Events as the program prints them; without first contents.
fn events(trace: &Path) -> Vec<String> {
    let mut events = Vec::new();
    each(trace, |kind, origin| {
        if let Kind::Hypercall(message) = kind
            && let Some(module) = Module::of(message)
        {
            assert!(module.path.starts_with('/'), "{module:?}");
            return;
        }
        assert!(origin.pc.is_some() || matches!(kind, Kind::Initial { .. }), "{kind:?}");
        events.push(match kind {
            Kind::Initial { .. } => return,
            Kind::Store { address, data, is_non_temporal, .. } => {
                let name = if *is_non_temporal { "ntstore" } else { "store" };
                format!("{name} {address:#x} {}", hex(data))
            }
            Kind::Rmw { address, data } => format!("rmw {address:#x} {}", hex(data)),
            Kind::Read { address, data } => format!("read {address:#x} {}", hex(data)),
            Kind::Flush { kind, address } => format!("{} {address:#x}", kind.mnemonic()),
            Kind::Fence(kind) => kind.mnemonic().to_owned(),
            Kind::Hypercall(Hypercall::Start) => "start".to_owned(),
            Kind::Hypercall(Hypercall::Success) => "success".to_owned(),
            Kind::Hypercall(Hypercall::Fail) => "fail".to_owned(),
            Kind::Hypercall(Hypercall::Checkpoint(number)) => format!("checkpoint {number}"),
            Kind::Hypercall(Hypercall::Other { action, value }) => format!("message {action} {value}"),
            Kind::Block { .. } | Kind::DiskInitial { .. } => panic!("there is no disk"),
        });
    });
    events
}

#[test]
#[ignore = "needs QEMU: scripts/test-tracer"]
fn every_instruction_is_what_it_is() {
    Run::new().compare("instructions", Ending::Code(0));
}

#[test]
#[ignore = "needs QEMU: scripts/test-tracer"]
fn what_the_kernel_does_is_traced() {
    Run::new().compare("files", Ending::Code(0));
}

#[test]
#[ignore = "needs QEMU: scripts/test-tracer"]
fn mappings_of_two_files_are_followed() {
    let mut run = Run::new();
    let other = PmFile { path: run.folder.path().join("other,file"), len_bytes: Some(PM_BYTES) };
    run.tracer.pm.push(other);
    run.compare("maps", Ending::Code(0));
    let reader = Reader::new(File::open(run.out()).unwrap()).unwrap();
    let regions: Vec<_> =
        reader.header().regions.iter().map(|region| (region.start, region.len_bytes)).collect();
    assert_eq!(regions, [(0, PM_BYTES), (OTHER, PM_BYTES)]);
}

#[test]
#[ignore = "needs QEMU: scripts/test-tracer"]
fn a_program_that_dies_leaves_a_whole_trace() {
    Run::new().compare("signal", Ending::Signal(11));
}

#[test]
#[ignore = "needs QEMU: scripts/test-tracer"]
fn a_program_that_hangs_is_ended_and_leaves_a_whole_trace() {
    let mut run = Run::new();
    run.tracer.timeout = Duration::from_secs(3);
    run.compare("hang", Ending::TimedOut);
}

#[test]
#[ignore = "needs QEMU: scripts/test-tracer"]
fn children_are_not_traced_and_do_no_harm() {
    let run = Run::new();
    run.compare("fork", Ending::Code(0));
    assert!(run.output().contains("a child process, which is not traced"), "{}", run.output());
}

#[test]
#[ignore = "needs QEMU: scripts/test-tracer"]
fn changes_without_an_event_are_found() {
    let run = Run::new();
    assert!(matches!(run.trace("fork-write", &[]), Err(TracerError::Failed)));
    assert!(
        run.output().contains("1 bytes, the first at 0x80, were changed without an event"),
        "{}",
        run.output()
    );
    assert!(matches!(run.trace("save-state", &[]), Err(TracerError::Failed)));
    assert!(run.output().contains("stores to PM what QEMU does not show"), "{}", run.output());
}

#[test]
#[ignore = "needs QEMU: scripts/test-tracer"]
fn a_trace_ends_where_another_program_begins() {
    let run = Run::new();
    run.compare("exec", Ending::Code(0));
    assert!(run.output().contains("executes /bin/true, which is not traced"), "{}", run.output());
}

#[test]
#[ignore = "needs QEMU: scripts/test-tracer"]
fn no_store_is_lost() {
    let run = Run::new();
    fs::write(run.pm(), (0..PM_BYTES).map(|index| (index % 251) as u8).collect::<Vec<_>>()).unwrap();
    for seed in 1..=6 {
        // The next one goes on with what this one leaves.
        let traced = run.trace("random", &[&seed.to_string(), "5000"]);
        let traced = traced.unwrap_or_else(|error| panic!("{error}\n{}", run.output()));
        assert_eq!(traced.end, Ending::Code(0));
        assert!(traced.events > 5000, "{traced:?}");
        run.replay();
    }
}

#[test]
#[ignore = "needs QEMU: scripts/test-tracer"]
fn threads_are_told_apart() {
    let run = Run::new();
    let traced = run.trace("threads", &[]).unwrap_or_else(|error| panic!("{error}\n{}", run.output()));
    assert_eq!(traced.end, Ending::Code(0));
    run.replay();
    let part = PM_BYTES as usize / 5;
    let word = (4 * part / 64 * 64) as u64;
    let mut owners: Vec<Option<u32>> = vec![None; 4];
    let mut count = 0;
    each(&run.out(), |kind, origin| {
        let (Kind::Store { address, .. } | Kind::Rmw { address, .. }) = kind else { return };
        if *address == word {
            count += 1;
            return;
        }
        let owner = &mut owners[*address as usize / part];
        assert_eq!(*owner.get_or_insert(origin.thread), origin.thread, "{address:#x}");
    });
    assert_eq!(count, 80);
    let mut owners: Vec<_> = owners.into_iter().map(Option::unwrap).collect();
    owners.sort_unstable();
    owners.dedup();
    assert_eq!(owners.len(), 4);
}

#[test]
#[ignore = "needs QEMU: scripts/test-tracer"]
fn loads_are_traced_on_demand() {
    let mut run = Run::new();
    run.tracer.has_reads = true;
    run.trace("instructions", &[]).unwrap();
    let events = events(&run.out());
    // `lock xadd`, and `add` before it.
    let at =
        |event: &str| events.iter().position(|found| found == event).unwrap_or_else(|| panic!("no {event}"));
    assert_eq!(at("read 0x500 0000000000000000") + 1, at("rmw 0x500 0500000000000000"));
    at("read 0x300 0000000000000000");
}

#[test]
#[ignore = "needs QEMU: scripts/test-tracer"]
fn stacks_are_followed_on_demand() {
    let mut run = Run::new();
    run.tracer.has_stacks = true;
    run.trace("stacks", &[]).unwrap_or_else(|error| panic!("{error}\n{}", run.output()));
    let mut stack = Vec::new();
    each(&run.out(), |kind, origin| {
        if matches!(kind, Kind::Store { .. }) {
            let pc = origin.pc.unwrap();
            stack = origin
                .stack
                .unwrap()
                .iter()
                .map(|address| address.cast_signed() - pc.cast_signed())
                .collect();
        }
    });
    // Returns into the middle function and into the outer one, which are before the store.
    assert!(stack.len() >= 3, "{stack:?}");
    assert!((-32..0).contains(&stack[0]) && (-32..0).contains(&stack[1]) && stack[0] > stack[1], "{stack:?}");
}

#[test]
#[ignore = "needs QEMU: scripts/test-tracer"]
fn wrong_requests_are_refused_by_name() {
    let mut run = Run::new();
    run.tracer.pm.push(PmFile { path: run.pm(), len_bytes: None });
    let refused = run.tracer.trace(&["true".into()], &run.out()).unwrap_err();
    assert!(matches!(refused, TracerError::NoTrace { end: Ending::Code(1) }), "{refused}");
    assert!(run.output().contains("is the same file as another one"), "{}", run.output());
    run.tracer.pm.pop();
    let refused = run.tracer.trace(&["/nonexistent".into()], &run.out());
    assert!(refused.is_err() || refused.is_ok_and(|traced| traced.end != Ending::Code(0)));
}

#[test]
#[ignore = "needs QEMU: scripts/test-tracer"]
fn blocks_of_code_are_counted() {
    let mut run = Run::new();
    let path = run.folder.path().join("coverage");
    run.tracer.coverage = Some(path.clone());
    let blocks = |count: &str| {
        let traced =
            run.trace("persist", &[count]).unwrap_or_else(|error| panic!("{error}\n{}", run.output()));
        assert_eq!(traced.end, Ending::Code(0));
        let blocks = coverage::read(File::open(&path).unwrap()).unwrap();
        assert!(blocks.is_sorted(), "by address");
        let mut module = None;
        each(&run.out(), |kind, _| {
            if let Kind::Hypercall(message) = kind
                && let Some(found) = Module::of(message)
                && found.path.ends_with("/pm_program")
                && blocks.iter().any(|block| found.contains(block.pc))
            {
                module = Some(found);
            }
        });
        let module = module.expect("the program's code has run");
        let own = blocks.iter().filter(|block| module.contains(block.pc));
        own.map(|block| (block.pc - module.start, block.count)).collect::<HashMap<_, _>>()
    };
    let (few, again, many) = (blocks("10"), blocks("10"), blocks("1010"));
    assert_eq!(few, again);
    assert!(few.len() > 20, "{few:?}");
    // The loop runs a thousand times more.
    let more = |(pc, count): (&u64, &u64)| few.get(pc).is_some_and(|before| count - before == 1000);
    assert!(many.iter().any(more), "{few:?}\n{many:?}");
}

/// What `scripts/test-tracer.d/guest` has left. Where there is no guest, these tests are left out by their
/// names.
fn guest() -> PathBuf {
    std::env::var_os("FASTNESS_TRACER_GUEST").expect("scripts/test-tracer sets it").into()
}

#[test]
#[ignore = "needs QEMU: scripts/test-tracer"]
fn guest_programs_are_traced_as_those_outside() {
    let guest = guest();
    let log = fs::read(guest.join("instructions.log")).unwrap();
    let log = String::from_utf8_lossy(&log);
    let kinds = ["store ", "ntstore ", "rmw ", "clwb ", "clflushopt ", "clflush "];
    let is_expected = |line: &&str| kinds.iter().any(|kind| line.starts_with(kind));
    let expected: Vec<_> = log.lines().map(str::trim_end).filter(is_expected).collect();
    assert!(expected.len() > 50, "{log}");
    // The first store is to byte 0x101 of the file, wherever that is in PM.
    let mut base = None;
    let mut found: Vec<(u64, u64, String)> = Vec::new();
    each(&guest.join("instructions.trace"), |kind, origin| {
        let (name, address, data) = match kind {
            _ if origin.is_kernel => return,
            Kind::Store { address, data, is_non_temporal, .. } => {
                (if *is_non_temporal { "ntstore" } else { "store" }, *address, *data)
            }
            Kind::Rmw { address, data } => ("rmw", *address, *data),
            Kind::Flush { kind, address } => (kind.mnemonic(), *address, &[][..]),
            _ => return,
        };
        let offset = address - *base.get_or_insert(address - 0x101);
        let (pc, end) = (origin.pc.unwrap(), offset + data.len() as u64);
        match found.last_mut() {
            // The other part of one that crosses into another page.
            Some((last_pc, last_end, text))
                if (*last_pc, *last_end) == (pc, offset) && offset % 4096 == 0 =>
            {
                text.push_str(&hex(data));
            }
            _ => found.push((pc, end, format!("{name} {offset:#x} {}", hex(data)).trim_end().to_owned())),
        }
    });
    for (number, ((_, _, found), expected)) in found.iter().zip(&expected).enumerate() {
        assert_eq!(found, expected, "event {number}");
    }
    assert_eq!(found.len(), expected.len());
}

#[test]
#[ignore = "needs QEMU: scripts/test-tracer"]
fn guest_stores_are_not_lost() {
    let guest = guest();
    let pm = fs::read(guest.join("random.pm")).unwrap();
    let mut contents = vec![0; pm.len()];
    let (mut kernel, mut ends) = (0, 0);
    each(&guest.join("random.trace"), |kind, origin| match kind {
        Kind::Initial { address, data } | Kind::Store { address, data, .. } | Kind::Rmw { address, data } => {
            contents[*address as usize..][..data.len()].copy_from_slice(data);
            kernel += u32::from(origin.is_kernel);
        }
        Kind::Hypercall(Hypercall::Success) => ends += 1,
        _ => {}
    });
    let differing = contents.iter().zip(&pm).position(|(a, b)| a != b);
    assert_eq!(differing, None, "first byte that differs");
    assert!(kernel > 1000 && ends == 1, "{kernel} stores of the kernel, {ends} ends");
}

#[test]
#[ignore = "needs QEMU: scripts/test-tracer"]
fn guest_commands_to_disks_are_not_lost() {
    let guest = guest();
    let disk = fs::read(guest.join("disk")).unwrap();
    let mut contents = vec![0; disk.len()];
    let (mut in_flight, mut most) = (HashMap::new(), 0);
    let mut counts = [0; 5];
    let (mut initial, mut pending, mut has_begun) = (0, 0, false);
    each(&guest.join("nvme.trace"), |kind, _| {
        has_begun |= matches!(kind, Kind::Hypercall(Hypercall::Start));
        if let Kind::DiskInitial { device: 0, offset, data } = kind {
            assert_eq!((pending, has_begun), (0, false), "contents come first");
            contents[*offset as usize..][..data.len()].copy_from_slice(data);
            initial += data.len();
        }
        let Kind::Block { device: 0, command, event } = kind else { return };
        if let BlockEvent::Write { data, .. } = event
            && !has_begun
        {
            pending += data.len();
        }
        let is_end = matches!(event, BlockEvent::Completion { .. });
        counts[match event {
            BlockEvent::Write { offset, data, .. } => {
                contents[*offset as usize..][..data.len()].copy_from_slice(data);
                0
            }
            BlockEvent::WriteZeroes { offset, len_bytes, .. } => {
                contents[*offset as usize..][..*len_bytes as usize].fill(0);
                1
            }
            BlockEvent::Discard { offset, len_bytes } => {
                contents[*offset as usize..][..*len_bytes as usize].fill(0);
                2
            }
            BlockEvent::Flush => 3,
            BlockEvent::Completion { is_ok } => {
                assert!(*is_ok && in_flight.remove(command).is_some(), "{command}");
                4
            }
        }] += 1;
        if !is_end {
            *in_flight.entry(*command).or_insert(0) += 1;
            most = most.max(in_flight.len());
        }
    });
    let differing = contents.iter().zip(&disk).position(|(a, b)| a != b);
    assert_eq!(differing, None, "first byte that differs");
    // Of the preparation the 3 MiB with a flush are contents; the 512 KiB without one may be lost yet.
    assert!(initial > 3 << 20 && initial < 64 << 20, "{initial} bytes at the beginning");
    assert!((512 << 10..2 << 20).contains(&pending), "{pending} bytes without a flush");
    assert!(counts.iter().all(|count| *count > 5) && in_flight.is_empty() && most > 1, "{counts:?}, {most}");
}
