//! Bytes of DRAM that the process holds for a block that was written with FUA and has not synced yet.

use super::stack::{BLOCK_BYTES, Plan, Site, Stack};
use crate::Row;
use crate::error::Result;
use fastness_store::LogData;

const BLOCKS: u64 = 16 << 10;

/// With one copy, the data itself is in the log alone.
pub(super) fn rows(site: &Site) -> Result<Vec<Row>> {
    [(LogData::Both, "both", None), (LogData::Pm, "pm", Some(128.0))]
        .into_iter()
        .map(|(log_data, name, goal)| row(site, log_data, name, goal))
        .collect()
}

fn row(site: &Site, log_data: LogData, name: &str, goal: Option<f64>) -> Result<Row> {
    let stack = Stack::new(site, &format!("held-{name}"), &Plan { log_data, ..Plan::default() })?;
    let (volume, data) = (&stack.volumes[0], vec![0xa5; BLOCK_BYTES as usize]);
    let write = |block: u64| volume.write(block * BLOCK_BYTES, &data, true);
    // Threads, tables and buffers that are there whatever is written.
    write(0)?;
    stack.settle()?;
    let before = held_bytes();
    (0..BLOCKS).try_for_each(write)?;
    let bytes = held_bytes().saturating_sub(before) as f64 / BLOCKS as f64;
    Ok(Row {
        name: format!("DRAM held for a dirty block of 4 KiB, logdata={name}"),
        value: Some(bytes),
        unit: "bytes",
        goal: goal.map(|goal| format!("at most {goal}")),
        met: goal.map(|goal| bytes <= goal),
        medium: site.medium(),
        threads: 1,
        ..Row::default()
    })
}

/// What this process has allocated and not freed.
#[allow(unsafe_code)] // A C library: it only counts.
fn held_bytes() -> usize {
    // SAFETY: it takes nothing, and takes the locks that it needs.
    let info = unsafe { libc::mallinfo2() };
    info.uordblks + info.hblkhd
}
