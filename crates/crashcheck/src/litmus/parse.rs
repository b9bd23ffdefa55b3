//! Reads litmus files; see the module documentation of `litmus` for the format.

use std::collections::{BTreeSet, HashSet};

use fastness_pm_model::{FenceKind, FlushKind, Op, Persistence, Rules};
use serde::Deserialize;
use serde_json::Value;

use super::error::{Location, Problem};
use super::limits;

/// One value per observed range.
pub type State = Vec<u64>;

/// A parsed file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LitmusFile {
    /// Rules that the sets are meant for, if the file says so.
    pub rules: Option<Rules>,
    /// Whether non-temporal stores to one line are meant to be unordered, if the file says so.
    pub strict_nt: Option<bool>,
    /// The programs.
    pub tests: Vec<LitmusTest>,
}

/// A program and its states.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LitmusTest {
    /// Unique in the file.
    pub name: String,
    /// What survives a power failure.
    pub persistence: Persistence,
    /// The operations.
    pub ops: Vec<Op>,
    /// What makes up a state.
    pub observe: Vec<Range>,
    /// The states that a crash can leave.
    pub allowed: BTreeSet<State>,
}

/// A range of PM of at most 8 bytes, read as a little-endian number.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Range {
    /// First byte.
    pub addr: usize,
    /// Bytes.
    pub size: usize,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct RawFile {
    meta: RawMeta,
    tests: Vec<Value>,
}

/// Unknown fields are free for remarks.
#[derive(Deserialize)]
struct RawMeta {
    format: u64,
    rules: Option<RawRules>,
    strict_nt: Option<bool>,
}

#[derive(Deserialize)]
#[serde(rename_all = "lowercase")]
enum RawRules {
    Arch,
    Dissertation,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct RawTest {
    name: String,
    mode: RawMode,
    ops: Vec<Value>,
    observe: Vec<RawRange>,
    allowed: Vec<Vec<u64>>,
}

#[derive(Deserialize)]
#[serde(rename_all = "lowercase")]
enum RawMode {
    Adr,
    Eadr,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct RawRange {
    addr: u64,
    size: u64,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct RawOp {
    op: String,
    addr: Option<u64>,
    data: Option<String>,
    atomic64: Option<bool>,
}

/// Parses a file.
///
/// # Errors
/// The first [`Problem`] and its place.
pub fn parse(text: &[u8]) -> Result<LitmusFile, (Location, Problem)> {
    let whole = |problem| (Location::default(), problem);
    at_most("bytes of the file", text.len() as u64, limits::FILE_BYTES_MAX).map_err(whole)?;
    let raw: RawFile = serde_json::from_slice(text).map_err(|error| whole(error.into()))?;
    if raw.meta.format != 1 {
        return Err(whole(Problem::Format { found: raw.meta.format }));
    }
    at_most("tests", raw.tests.len() as u64, limits::TESTS_MAX as u64).map_err(whole)?;
    let mut names = HashSet::new();
    let mut tests = Vec::with_capacity(raw.tests.len());
    for (index, value) in raw.tests.into_iter().enumerate() {
        let test = parse_test(index, value)?;
        if !names.insert(test.name.clone()) {
            return Err((at_test(index, &test.name), Problem::Name));
        }
        tests.push(test);
    }
    let rules = raw.meta.rules.map(|rules| match rules {
        RawRules::Arch => Rules::Arch,
        RawRules::Dissertation => Rules::Dissertation,
    });
    Ok(LitmusFile { rules, strict_nt: raw.meta.strict_nt, tests })
}

fn at_test(index: usize, name: &str) -> Location {
    let name = name.chars().filter(|c| !c.is_control()).take(limits::NAME_BYTES_MAX).collect();
    Location { test_index: Some(index), test: Some(name), op_index: None }
}

fn parse_test(index: usize, value: Value) -> Result<LitmusTest, (Location, Problem)> {
    let name = value.get("name").and_then(Value::as_str).map(str::to_owned);
    let mut location = Location { test_index: Some(index), ..Location::default() };
    if let Some(name) = &name {
        location = at_test(index, name);
    }
    let raw: RawTest = match serde_json::from_value(value) {
        Ok(raw) => raw,
        Err(error) => return Err((location, error.into())),
    };
    let here = |problem| (location.clone(), problem);
    check_name(&raw.name).map_err(here)?;
    at_most("operations", raw.ops.len() as u64, limits::OPS_MAX as u64).map_err(here)?;
    let mut ops = Vec::with_capacity(raw.ops.len());
    let mut stored_bytes = 0;
    for (op_index, value) in raw.ops.into_iter().enumerate() {
        let there = |problem| (Location { op_index: Some(op_index), ..location.clone() }, problem);
        let op = parse_op(value).map_err(there)?;
        if let Op::Store { data, .. } | Op::Rmw { data, .. } = &op {
            stored_bytes += data.len() as u64;
            at_most("bytes of all stores", stored_bytes, limits::STORED_BYTES_MAX).map_err(there)?;
        }
        ops.push(op);
    }
    let observe = parse_observe(&raw.observe).map_err(here)?;
    let allowed = parse_allowed(raw.allowed, &observe).map_err(here)?;
    let persistence = match raw.mode {
        RawMode::Adr => Persistence::Adr,
        RawMode::Eadr => Persistence::Eadr,
    };
    Ok(LitmusTest { name: raw.name, persistence, ops, observe, allowed })
}

fn check_name(name: &str) -> Result<(), Problem> {
    at_most("bytes of the name", name.len() as u64, limits::NAME_BYTES_MAX as u64)?;
    if name.is_empty() {
        return Err(Problem::Empty { what: "name" });
    }
    if name.chars().any(char::is_control) { Err(Problem::Name) } else { Ok(()) }
}

fn at_most(what: &'static str, found: u64, max: u64) -> Result<(), Problem> {
    if found <= max { Ok(()) } else { Err(Problem::TooLarge { what, found, max }) }
}

fn in_pm(addr: u64, len_bytes: u64) -> Result<(), Problem> {
    at_most("end of the bytes in PM", addr.saturating_add(len_bytes), limits::PM_BYTES_MAX)
}

fn parse_op(value: Value) -> Result<Op, Problem> {
    let raw: RawOp = serde_json::from_value(value)?;
    let flush = |kind| match (&raw.addr, &raw.data, &raw.atomic64) {
        (None, _, _) => Err(Problem::Field { op: raw.op.clone(), field: "addr" }),
        (Some(addr), None, None) => in_pm(*addr, 1).map(|()| Op::Flush { kind, addr: *addr }),
        _ => Err(Problem::Field { op: raw.op.clone(), field: "data or atomic64" }),
    };
    let fence = |kind| match (&raw.addr, &raw.data, &raw.atomic64) {
        (None, None, None) => Ok(Op::Fence(kind)),
        _ => Err(Problem::Field { op: raw.op.clone(), field: "addr, data or atomic64" }),
    };
    match raw.op.as_str() {
        "store" => parse_store(&raw, false),
        "ntstore" => parse_store(&raw, true),
        "rmw" => {
            let (addr, data) = parse_data(&raw, limits::RMW_BYTES_MAX)?;
            match raw.atomic64 {
                None => Ok(Op::Rmw { addr, data }),
                Some(_) => Err(Problem::Field { op: raw.op.clone(), field: "atomic64" }),
            }
        }
        "clwb" => flush(FlushKind::Clwb),
        "clflushopt" => flush(FlushKind::Clflushopt),
        "clflush" => flush(FlushKind::Clflush),
        "sfence" => fence(FenceKind::Sfence),
        "mfence" => fence(FenceKind::Mfence),
        "lfence" => fence(FenceKind::Lfence),
        _ => Err(Problem::UnknownOp { op: raw.op.chars().take(limits::NAME_BYTES_MAX).collect() }),
    }
}

fn parse_store(raw: &RawOp, nt: bool) -> Result<Op, Problem> {
    let (addr, data) = parse_data(raw, limits::STORE_BYTES_MAX)?;
    Ok(Op::Store { addr, data, nt, atomic64: raw.atomic64.unwrap_or(false) })
}

/// The address and the bytes of a store.
fn parse_data(raw: &RawOp, max: usize) -> Result<(u64, Vec<u8>), Problem> {
    let field = |field| Problem::Field { op: raw.op.clone(), field };
    let addr = raw.addr.ok_or_else(|| field("addr"))?;
    let hex = raw.data.as_deref().ok_or_else(|| field("data"))?.as_bytes();
    at_most("bytes of the store", hex.len() as u64 / 2, max as u64)?;
    if hex.is_empty() {
        return Err(Problem::Empty { what: "data" });
    }
    let digit = |byte: u8| char::from(byte).to_digit(16).map(|digit| digit as u8);
    let pair = |pair: &[u8]| match pair {
        &[high, low] => Some(digit(high)? << 4 | digit(low)?),
        _ => None,
    };
    let data: Vec<u8> = hex.chunks(2).map(pair).collect::<Option<_>>().ok_or(Problem::Hex)?;
    in_pm(addr, data.len() as u64)?;
    Ok((addr, data))
}

fn parse_observe(raw: &[RawRange]) -> Result<Vec<Range>, Problem> {
    at_most("observed ranges", raw.len() as u64, limits::OBSERVE_MAX as u64)?;
    if raw.is_empty() {
        return Err(Problem::Empty { what: "observed range" });
    }
    let range = |raw: &RawRange| {
        at_most("bytes of an observed range", raw.size, limits::OBSERVE_BYTES_MAX)?;
        in_pm(raw.addr, raw.size)?;
        if raw.size == 0 {
            return Err(Problem::Empty { what: "bytes in an observed range" });
        }
        Ok(Range { addr: raw.addr as usize, size: raw.size as usize })
    };
    raw.iter().map(range).collect()
}

fn parse_allowed(raw: Vec<Vec<u64>>, observe: &[Range]) -> Result<BTreeSet<State>, Problem> {
    at_most("allowed states", raw.len() as u64, limits::STATES_MAX as u64)?;
    if raw.is_empty() {
        return Err(Problem::Empty { what: "allowed state" });
    }
    for (index, state) in raw.iter().enumerate() {
        if state.len() != observe.len() {
            let (found, expected) = (state.len(), observe.len());
            return Err(Problem::StateLength { state: index, found, expected });
        }
        for (&value, range) in state.iter().zip(observe) {
            if range.size < 8 && value >> (8 * range.size) != 0 {
                return Err(Problem::Value { state: index, value, size: range.size });
            }
        }
    }
    Ok(raw.into_iter().collect())
}
