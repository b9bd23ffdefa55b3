//! What a trace is about.

use crate::bytes::{Input, put, put_bytes};
use crate::event::TEXT_BYTES_MAX;

/// Most regions, and most devices.
const PARTS_MAX: usize = 4096;

/// A range of addresses that is PM.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Region {
    /// Path of a file, or what else names it.
    pub name: String,
    /// Its first address in the trace. Regions do not overlap.
    pub start: u64,
    /// Its length in bytes.
    pub len_bytes: u64,
}

/// A disk.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Device {
    /// What names it.
    pub name: String,
    /// Its length in bytes.
    pub len_bytes: u64,
    /// Smallest unit of a write.
    pub block_bytes: u32,
}

/// What a trace begins with.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Header {
    /// The tracer, and its version.
    pub tool: String,
    /// Ranges of PM.
    pub regions: Vec<Region>,
    /// Disks.
    pub devices: Vec<Device>,
}

impl Header {
    /// Why a trace cannot have this header; a reader refuses it as well.
    pub(crate) fn check(&self) -> Result<(), String> {
        let names = self.regions.iter().map(|region| &region.name);
        let names = names.chain(self.devices.iter().map(|device| &device.name)).chain([&self.tool]);
        if names.into_iter().any(|name| name.len() > TEXT_BYTES_MAX) {
            return Err(format!("a name of more than {TEXT_BYTES_MAX} bytes"));
        }
        if self.regions.len() > PARTS_MAX || self.devices.len() > PARTS_MAX {
            return Err(format!("more than {PARTS_MAX} regions or devices"));
        }
        let mut ranges = Vec::new();
        for Region { name, start, len_bytes } in &self.regions {
            let end = start.checked_add(*len_bytes).filter(|_| *len_bytes > 0);
            ranges.push((*start, end.ok_or_else(|| format!("region {name} is empty, or has no end"))?));
        }
        ranges.sort_unstable();
        match ranges.windows(2).find(|pair| pair[0].1 > pair[1].0) {
            Some(pair) => Err(format!("two regions have address {:#x}", pair[1].0)),
            None => Ok(()),
        }
    }

    pub(crate) fn encode(&self) -> Vec<u8> {
        let mut out = Vec::new();
        put_bytes(&mut out, self.tool.as_bytes());
        put(&mut out, self.regions.len() as u64);
        for region in &self.regions {
            put_bytes(&mut out, region.name.as_bytes());
            put(&mut out, region.start);
            put(&mut out, region.len_bytes);
        }
        put(&mut out, self.devices.len() as u64);
        for device in &self.devices {
            put_bytes(&mut out, device.name.as_bytes());
            put(&mut out, device.len_bytes);
            put(&mut out, device.block_bytes.into());
        }
        out
    }

    pub(crate) fn decode(bytes: &[u8]) -> Result<Header, String> {
        let mut input = Input(bytes);
        let mut header = Header { tool: text(&mut input)?, ..Header::default() };
        for _ in 0..count(&mut input)? {
            let (name, start, len_bytes) = (text(&mut input)?, input.number()?, input.number()?);
            header.regions.push(Region { name, start, len_bytes });
        }
        for _ in 0..count(&mut input)? {
            let (name, len_bytes) = (text(&mut input)?, input.number()?);
            header.devices.push(Device { name, len_bytes, block_bytes: input.small("a block's length")? });
        }
        if !input.0.is_empty() {
            return Err(format!("{} bytes after the header's end", input.0.len()));
        }
        header.check()?;
        Ok(header)
    }
}

fn text(input: &mut Input<'_>) -> Result<String, String> {
    Ok(input.text(TEXT_BYTES_MAX, "a name")?.to_owned())
}

fn count(input: &mut Input<'_>) -> Result<usize, String> {
    let count = input.number()?;
    usize::try_from(count).ok().filter(|count| *count <= PARTS_MAX).ok_or_else(|| format!("{count} parts"))
}
