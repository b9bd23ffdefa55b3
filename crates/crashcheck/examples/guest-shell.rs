//! Runs each argument as a command line in one guest, and prints what it gave and how long it took.
//!
//! REPEATABLE=1 in the environment: time is instructions. The snapshot is kept in the folder, and used again.
//!
//!   cargo run -p fastness-crashcheck --example guest-shell -- target/crash-guest 'uname -r' 'dmesg | tail'

#![allow(clippy::print_stdout)]

use std::time::{Duration, Instant};

use fastness_crashcheck::guest::{GuestConfig, Restore, Snapshot};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut arguments = std::env::args().skip(1);
    let built = arguments.next().ok_or("the folder that scripts/crash-guest has built, then commands")?;
    let config =
        GuestConfig { repeatable: std::env::var_os("REPEATABLE").is_some(), ..GuestConfig::new(&built) };
    let snapshot = Snapshot::cached(&config, &std::path::Path::new(&built).join("snapshots"))?;
    let mut guest = snapshot.restore(&Restore::default())?;
    for command in arguments {
        let start = Instant::now();
        let output = guest.command(&command, Duration::from_secs(60))?;
        let seconds = start.elapsed().as_secs_f64();
        println!("{command}: status {}, {seconds:.3} s", output.status);
        println!("{}{}", output.text(), String::from_utf8_lossy(&output.stderr));
    }
    Ok(guest.quit()?)
}
