//! Prints traces, as text or as JSON.

use std::fmt::Write as _;
use std::io::{Read, Write};

use fastness_crashcheck_trace::{
    BlockEvent, Event, FlushKind, Header, Hypercall, Kind, Origin, Reader, TraceError,
};
use serde_json::{Value, json};

use crate::symbols::{Find, caller};

const LINE_BYTES: u64 = 64;
/// Bytes of data that a line of text shows.
const SHOWN_BYTES: usize = 16;

/// Why a trace was not shown to its end.
#[derive(Debug, thiserror::Error)]
pub enum ShowError {
    /// The trace cannot be read further.
    #[error(transparent)]
    Trace(#[from] TraceError),
    /// The output is closed or failed.
    #[error("cannot write")]
    Write(#[from] std::io::Error),
}

/// Which events are shown.
#[derive(Debug, Clone, Copy, Default)]
pub struct Filter {
    /// Those that touch the cache line of this address, and fences, checkpoints and what else concerns all
    /// lines.
    pub line: Option<u64>,
    /// Those from this number on.
    pub from: u64,
    /// At most this many.
    pub count: Option<u64>,
}

impl Filter {
    pub(crate) fn takes(&self, number: u64, event: &Event<'_>) -> bool {
        number >= self.from && self.line.is_none_or(|line| concerns(event, line / LINE_BYTES))
    }
}

fn concerns(event: &Event<'_>, line: u64) -> bool {
    let has = |address: u64, len: usize| {
        let last = address.saturating_add(len.max(1) as u64 - 1);
        (address / LINE_BYTES..=last / LINE_BYTES).contains(&line)
    };
    match event.kind {
        Kind::Initial { address, data }
        | Kind::Store { address, data, .. }
        | Kind::Rmw { address, data }
        | Kind::Read { address, data } => has(address, data.len()),
        Kind::Flush { kind, address } => kind == FlushKind::Wbinvd || has(address, 1),
        Kind::Fence(_) | Kind::Hypercall(_) => true,
        Kind::Block { .. } | Kind::DiskInitial { .. } => false,
    }
}

/// Prints a trace: a line of text an event, or with `is_json` an object a line, of which the first is the
/// header. Instructions have the names that `symbols` gives them. Returns how many events were printed.
///
/// # Errors
/// Those of the trace, after everything before; those of `out`.
pub fn show(
    reader: &mut Reader<impl Read>,
    filter: Filter,
    is_json: bool,
    symbols: &Find<'_>,
    out: &mut dyn Write,
) -> Result<u64, ShowError> {
    if is_json {
        writeln!(out, "{}", header_json(reader.header()))?;
    } else {
        header_text(reader.header(), out)?;
    }
    let mut shown = 0;
    while filter.count.is_none_or(|count| shown < count) {
        let number = reader.count();
        let Some(event) = reader.next()? else { break };
        if !filter.takes(number, &event) {
            continue;
        }
        shown += 1;
        match is_json {
            true => writeln!(out, "{}", json(number, &event, symbols))?,
            false => writeln!(out, "{number:>8}  {}", text(&event, symbols))?,
        }
    }
    Ok(shown)
}

fn header_text(header: &Header, out: &mut dyn Write) -> std::io::Result<()> {
    writeln!(out, "trace by {}", header.tool)?;
    for region in &header.regions {
        let end = region.start + region.len_bytes;
        writeln!(out, "memory {:#x}..{end:#x}  {}", region.start, region.name)?;
    }
    for (number, device) in header.devices.iter().enumerate() {
        let (len_bytes, block_bytes) = (device.len_bytes, device.block_bytes);
        writeln!(out, "disk {number}  {len_bytes} bytes in blocks of {block_bytes}  {}", device.name)?;
    }
    Ok(())
}

fn header_json(header: &Header) -> Value {
    let regions: Vec<_> = header
        .regions
        .iter()
        .map(|region| json!({"name": region.name, "start": region.start, "len_bytes": region.len_bytes}))
        .collect();
    let devices: Vec<_> = header
        .devices
        .iter()
        .map(|disk| json!({"name": disk.name, "len_bytes": disk.len_bytes, "block_bytes": disk.block_bytes}))
        .collect();
    json!({"tool": header.tool, "regions": regions, "devices": devices})
}

/// Name, address if it has one, data if it has some, and what else there is to say.
struct Parts<'a> {
    name: &'static str,
    address: Option<u64>,
    data: Option<&'a [u8]>,
    more: Vec<(&'static str, Value)>,
}

fn parts<'a>(kind: &Kind<'a>) -> Parts<'a> {
    let memory =
        |name, address, data| Parts { name, address: Some(address), data: Some(data), more: Vec::new() };
    let plain = |name| Parts { name, address: None, data: None, more: Vec::new() };
    match *kind {
        Kind::Initial { address, data } => memory("initial", address, data),
        Kind::DiskInitial { device, offset, data } => {
            Parts { more: vec![("disk", device.into())], ..memory("disk initial", offset, data) }
        }
        Kind::Store { address, data, is_non_temporal, is_atomic64 } => {
            let name = match (is_non_temporal, is_atomic64) {
                (_, true) => "movdir64b",
                (true, false) => "ntstore",
                (false, false) => "store",
            };
            memory(name, address, data)
        }
        Kind::Rmw { address, data } => memory("rmw", address, data),
        Kind::Read { address, data } => memory("read", address, data),
        Kind::Flush { kind: FlushKind::Wbinvd, .. } => plain("wbinvd"),
        Kind::Flush { kind, address } => Parts { address: Some(address), ..plain(kind.mnemonic()) },
        Kind::Fence(kind) => plain(kind.mnemonic()),
        Kind::Block { device, command, event } => block(device, command, &event),
        Kind::Hypercall(hypercall) => match hypercall {
            Hypercall::Start => plain("start"),
            Hypercall::Success => plain("success"),
            Hypercall::Fail => plain("fail"),
            Hypercall::Checkpoint(number) => {
                Parts { more: vec![("number", number.into())], ..plain("checkpoint") }
            }
            Hypercall::Other { action, value } => {
                Parts { more: vec![("action", action.into()), ("value", value.into())], ..plain("message") }
            }
        },
    }
}

fn block<'a>(device: u32, command: u32, event: &BlockEvent<'a>) -> Parts<'a> {
    let mut more = vec![("disk", Value::from(device)), ("command", command.into())];
    let (mut address, mut bytes) = (None, None);
    let name = match *event {
        BlockEvent::Write { offset, data, is_fua } => {
            (address, bytes) = (Some(offset), Some(data));
            more.push(("fua", is_fua.into()));
            "block write"
        }
        BlockEvent::WriteZeroes { offset, len_bytes, is_fua } => {
            address = Some(offset);
            more.extend([("len_bytes", len_bytes.into()), ("fua", is_fua.into())]);
            "block zeroes"
        }
        BlockEvent::Discard { offset, len_bytes } => {
            address = Some(offset);
            more.push(("len_bytes", len_bytes.into()));
            "block discard"
        }
        BlockEvent::Flush => "block flush",
        BlockEvent::Completion { is_ok } => {
            more.push(("ok", is_ok.into()));
            "block end"
        }
    };
    Parts { name, address, data: bytes, more }
}

pub(crate) fn hex(bytes: &[u8]) -> String {
    bytes.iter().fold(String::new(), |mut text, byte| {
        write!(text, "{byte:02x}").expect("a string takes everything");
        text
    })
}

/// What happened, in a word.
pub(crate) fn name(event: &Event<'_>) -> &'static str {
    parts(&event.kind).name
}

/// An event as a line of text.
pub(crate) fn text(event: &Event<'_>, symbols: &Find<'_>) -> String {
    let Parts { name, address, data, more } = parts(&event.kind);
    let mut line = format!("{name:12}");
    let mut add = |part: String| {
        line.push(' ');
        line.push_str(&part);
    };
    if let Some(address) = address {
        add(format!("{address:#x}"));
    }
    if let Some(data) = data {
        let rest = if data.len() > SHOWN_BYTES { "..." } else { "" };
        add(format!("+{} {}{rest}", data.len(), hex(&data[..data.len().min(SHOWN_BYTES)])));
    }
    more.iter().for_each(|(name, value)| add(format!("{name} {value}")));
    let Origin { thread, pc, is_kernel, stack } = event.origin;
    if thread != 0 {
        add(format!("thread {thread}"));
    }
    let place = |pc| match symbols(pc, is_kernel) {
        Some(symbol) => format!("{pc:#x} {symbol}"),
        None => format!("{pc:#x}"),
    };
    if let Some(pc) = pc {
        add(format!("at {}{}", place(pc), if is_kernel { " (kernel)" } else { "" }));
    }
    let callers = stack.unwrap_or(&[]).iter();
    callers.for_each(|address| add(format!("< {}", caller(symbols, *address, is_kernel))));
    line.trim_end().to_owned()
}

fn json(number: u64, event: &Event<'_>, symbols: &Find<'_>) -> Value {
    let Parts { name, address, data, more } = parts(&event.kind);
    let mut object = json!({"number": number, "event": name, "thread": event.origin.thread});
    let fields = object.as_object_mut().expect("made just now");
    let mut add = |name: &str, value: Option<Value>| {
        if let Some(value) = value {
            fields.insert(name.to_owned(), value);
        }
    };
    add("address", address.map(Value::from));
    add("data", data.map(|data| hex(data).into()));
    more.into_iter().for_each(|(name, value)| add(name, Some(value)));
    add("pc", event.origin.pc.map(Value::from));
    add("symbol", event.origin.pc.and_then(|pc| symbols(pc, event.origin.is_kernel)).map(Value::from));
    add("kernel", event.origin.is_kernel.then_some(Value::Bool(true)));
    add("stack", event.origin.stack.map(|stack| stack.to_vec().into()));
    object
}
