//! What one copy costs as a whole: blocks are written with FUA, and then synced, which reads them back from
//! the log. The writes are to emulated PM; only reading back takes as long as on a device. CPU time, since
//! what the vdev takes is the same for both, and varies.

use fastness_pmem::model::{DeviceProfile, FOUR_INTERLEAVED, ONE_MODULE};
use fastness_store::LogData;

use super::one::median;
use super::stack::{Plan, Site, Stack, Writer};
use crate::error::Result;
use crate::measure::{by_turns, process_cpu_ns};
use crate::{Options, Row};

/// Blocks between two syncs.
const WRITES: u64 = 2000;

pub(super) fn rows(site: &Site, options: Options) -> Result<Vec<Row>> {
    let both = stack(site, "read-both", LogData::Both, None)?;
    let row = |reads_like: Option<DeviceProfile>| {
        let name = reads_like.map_or("emulated PM", |device| device.name);
        let pm = stack(site, "read-pm", LogData::Pm, reads_like)?;
        let (mut one, mut two) = (Writer::new(&pm.volumes[0], 2), Writer::new(&both.volumes[0], 2));
        let turns = if options.quick { 11 } else { 101 };
        let pair = by_turns(turns, WRITES as usize, || cpu_ns(&pm, &mut one), || cpu_ns(&both, &mut two))?;
        Ok(Row {
            name: format!("4 KiB written and synced, CPU time, logdata=pm read back as from {name}"),
            value: Some(median(&pair.a)),
            unit: "ns",
            baseline: Some(format!("both, {:.0} ns", median(&pair.b))),
            medium: site.medium(),
            ..Row::ratio(pair.ratio(), None)
        })
    };
    [None, Some(FOUR_INTERLEAVED), Some(ONE_MODULE)].into_iter().map(row).collect()
}

fn stack(site: &Site, name: &str, log_data: LogData, reads_like: Option<DeviceProfile>) -> Result<Stack> {
    let plan = Plan { log_data, reads_like, device_bytes: 512 << 20, ..Plan::default() };
    let stack = Stack::new(site, name, &plan)?;
    stack.warm()?;
    Ok(stack)
}

/// CPU time of this process while blocks are written, and while they are synced.
fn cpu_ns(stack: &Stack, writer: &mut Writer<'_>) -> Result<f64> {
    let before = process_cpu_ns();
    writer.write(WRITES)?;
    stack.settle()?;
    Ok(process_cpu_ns() - before)
}
