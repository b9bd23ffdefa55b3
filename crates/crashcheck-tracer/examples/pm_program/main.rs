//! Programs for the tests of the tracer: each does something to PM, and prints the events that its trace is
//! to have.
//!
//! ```text
//! pm_program WHAT FILE [FILE]     WHAT: instructions, random SEED, threads, signal, fork, fork-write, files, maps, ...
//! ```
//! `crates/crashcheck/tests/tracer.rs` runs them under the tracer and compares.

#![allow(unsafe_code, clippy::undocumented_unsafe_blocks, clippy::semicolon_if_nothing_returned)]

#[cfg(target_arch = "x86_64")]
mod instructions;
#[cfg(target_arch = "x86_64")]
mod pm;
#[cfg(target_arch = "x86_64")]
mod random;
#[cfg(target_arch = "x86_64")]
mod system;

#[cfg(target_arch = "x86_64")]
fn main() {
    let arguments: Vec<String> = std::env::args().collect();
    let arguments: Vec<&str> = arguments[1..].iter().map(String::as_str).collect();
    match arguments[..] {
        ["instructions", file] => instructions::run(file),
        ["random", file, seed, count] => random::run(file, seed.parse().unwrap(), count.parse().unwrap()),
        ["threads", file] => random::threads(file),
        ["signal", file] => system::signal(file),
        ["fork", file] => system::fork(file, false),
        ["fork-write", file] => system::fork(file, true),
        ["exec", file] => system::exec(file),
        ["files", file] => system::files(file),
        ["maps", file, other] => system::maps(file, other),
        ["stacks", file] => system::stacks(file),
        ["hang", file] => system::hang(file),
        ["save-state", file] => instructions::save_state(file),
        ["persist", file, count] => random::persist(file, count.parse().unwrap()),
        _ => panic!("unknown: {arguments:?}"),
    }
}

#[cfg(not(target_arch = "x86_64"))]
fn main() {}
