//! `fastness-agent`: see the library.

use std::io::{self, Read, Write};
use std::path::Path;
use std::process::ExitCode;

use fastness_agent::clock;
use fastness_agent::dump::{self, Fields};
use fastness_agent::hypercall::Hypercall;
use fastness_agent::recover::{Recovery, recover};
use fastness_agent::{run, seed, serve};
use fastness_crashcheck_workload::Workload;

const USAGE: &str = "\
usage: fastness-agent fs-dump DIR [--no-times] [--no-ino] [--no-blocks]
       fastness-agent run FILE [--dir DIR] [--strict]     FILE may be -
       fastness-agent hypercall start|success|fail|checkpoint N
       fastness-agent clock test|recovery                  sets the time: guests only
       fastness-agent recover DEVICE DIR --type TYPE --options OPTIONS [--write] [--failed SHELL]
                                                           mounts, prints as fs-dump --no-blocks, writes, unmounts
       fastness-agent serve PORT
       fastness-agent seed                                 random numbers from a constant: guests only
Exit status: 0; 1 a finding (an entry with an error, a failed operation with --strict); 2 usage; 3 cannot begin;
32 cannot be mounted.
";

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = arguments.iter().map(String::as_str).collect();
    let done = match words.as_slice() {
        ["fs-dump", directory, options @ ..] => fs_dump(directory, options),
        ["run", file, options @ ..] => run_file(file, options),
        ["hypercall", words @ ..] => Hypercall::parse(words).map(|hypercall| {
            hypercall.issue();
            Ok(0)
        }),
        ["clock", "test"] => Some(clock::begin_test().map(|()| 0)),
        ["clock", "recovery"] => Some(clock::set(clock::RECOVERY_BEGIN_S).map(|()| 0)),
        ["recover", device, directory, "--type", kind, "--options", options, rest @ ..] => {
            recover_one(device, directory, kind, options, rest)
        }
        ["serve", port] => Some(serve::serve(Path::new(port)).map(|()| 0)),
        ["seed"] => Some(seed::seed().map(|()| 0)),
        ["--help" | "-h"] => Some(io::stdout().write_all(USAGE.as_bytes()).map(|()| 0)),
        _ => None,
    };
    let code = match done {
        Some(Ok(code)) => code,
        Some(Err(error)) => {
            let _ = writeln!(io::stderr(), "fastness-agent: {error}");
            3
        }
        None => {
            let _ = io::stderr().write_all(USAGE.as_bytes());
            2
        }
    };
    ExitCode::from(code)
}

/// `None` is wrong usage.
type Done = Option<io::Result<u8>>;

fn fs_dump(directory: &str, options: &[&str]) -> Done {
    let mut fields = Fields::default();
    for option in options {
        match *option {
            "--no-times" => fields.times = false,
            "--no-ino" => fields.ino = false,
            "--no-blocks" => fields.blocks = false,
            _ => return None,
        }
    }
    let dump = dump::dump(Path::new(directory), fields);
    let printed = io::stdout().lock().write_all(dump.text.as_bytes());
    Some(printed.map(|()| u8::from(dump.errors > 0)))
}

fn recover_one(device: &str, directory: &str, kind: &str, options: &str, rest: &[&str]) -> Done {
    let (has_write, rest) = match rest {
        ["--write", rest @ ..] => (true, rest),
        rest => (false, rest),
    };
    let failed = match rest {
        [] => None,
        ["--failed", shell] => Some(*shell),
        _ => return None,
    };
    let directory = Path::new(directory);
    Some(recover(&Recovery { device, directory, kind, options, has_write, failed }))
}

fn run_file(file: &str, options: &[&str]) -> Done {
    let (mut directory, mut strict) = (".", false);
    let mut rest = options;
    loop {
        match rest {
            ["--dir", path, after @ ..] => (directory, rest) = (path, after),
            ["--strict", after @ ..] => (strict, rest) = (true, after),
            [] => break,
            _ => return None,
        }
    }
    let invalid = |error| io::Error::new(io::ErrorKind::InvalidData, error);
    let outcome = read(file)
        .and_then(|text| Workload::parse(&text).map_err(invalid))
        .and_then(|workload| run::run(&workload, Path::new(directory), strict, &mut io::stderr().lock()));
    Some(outcome.map(|outcome| u8::from(strict && outcome.failed > 0)))
}

fn read(file: &str) -> io::Result<String> {
    // One byte more than the parser accepts, so that the parser reports the error.
    let limit = fastness_crashcheck_workload::jlang::TEXT_BYTES_MAX as u64 + 1;
    let mut text = String::new();
    if file == "-" {
        io::stdin().lock().take(limit).read_to_string(&mut text)?;
    } else {
        std::fs::File::open(file)?.take(limit).read_to_string(&mut text)?;
    }
    Ok(text)
}
