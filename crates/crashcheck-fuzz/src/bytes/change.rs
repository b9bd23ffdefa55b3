//! One change of an input each.

use std::ops::Range;

use fastness_pm_model::Rng;

use crate::{numbers, pick};

/// Longest range that is copied, and longest run, in bytes.
const RANGE_MAX: usize = 8192;

/// The parts of `bytes` that `is_part` holds for, as long as they go.
pub(super) fn parts(bytes: &[u8], is_part: impl Fn(u8) -> bool) -> Vec<Range<usize>> {
    let mut parts: Vec<Range<usize>> = Vec::new();
    for (at, _) in bytes.iter().enumerate().filter(|(_, byte)| is_part(**byte)) {
        match parts.last_mut() {
            Some(last) if last.end == at => last.end += 1,
            _ => parts.push(at..at + 1),
        }
    }
    parts
}

pub(super) fn digits(bytes: &[u8]) -> Vec<Range<usize>> {
    parts(bytes, |byte| byte.is_ascii_digit())
}

fn words(bytes: &[u8]) -> Vec<Range<usize>> {
    parts(bytes, |byte| !byte.is_ascii_whitespace())
}

/// Lines with their ends.
fn lines(bytes: &[u8]) -> Vec<&[u8]> {
    bytes.split_inclusive(|byte| *byte == b'\n').collect()
}

fn replace(bytes: &mut Vec<u8>, range: Range<usize>, with: &[u8]) {
    bytes.splice(range, with.iter().copied());
}

/// A number becomes an odd one. Without any, one is put in.
pub(super) fn number(bytes: &mut Vec<u8>, max: u64, rng: &mut Rng) {
    let numbers = digits(bytes);
    let range = match numbers.is_empty() {
        true => {
            let at = rng.index(bytes.len() + 1);
            at..at
        }
        false => pick(rng, &numbers).clone(),
    };
    let value = std::str::from_utf8(&bytes[range.clone()]).ok().and_then(|text| text.parse().ok());
    let odd = numbers::odd(value.unwrap_or(max), max, rng);
    replace(bytes, range, odd.to_string().as_bytes());
}

/// A word goes, or becomes another one of the input, or one that the program knows.
pub(super) fn word(bytes: &mut Vec<u8>, known: &[Vec<u8>], rng: &mut Rng) {
    let words = words(bytes);
    if words.is_empty() {
        return insert(bytes, known, rng);
    }
    let range = pick(rng, &words).clone();
    let with = match rng.below(4) {
        0 => Vec::new(),
        1 if !known.is_empty() => pick(rng, known).clone(),
        _ => bytes[pick(rng, &words).clone()].to_vec(),
    };
    replace(bytes, range, &with);
}

/// A word becomes as long as names can be, or one longer.
pub(super) fn name(bytes: &mut Vec<u8>, rng: &mut Rng) {
    let words = words(bytes);
    if words.is_empty() {
        return run(bytes, rng);
    }
    let range = pick(rng, &words).clone();
    let word = &bytes[range.clone()];
    let long: Vec<u8> = word.iter().copied().cycle().take(numbers::name_bytes(rng)).collect();
    replace(bytes, range, &long);
}

pub(super) fn drop_line(bytes: &mut Vec<u8>, rng: &mut Rng) {
    let mut lines = lines(bytes);
    if !lines.is_empty() {
        lines.remove(rng.index(lines.len()));
        *bytes = lines.concat();
    }
}

/// A line of `from` is put between two.
pub(super) fn copy_line(bytes: &mut Vec<u8>, from: &[u8], rng: &mut Rng) {
    let from = lines(from);
    if from.is_empty() {
        return;
    }
    let line = *pick(rng, &from);
    let mut lines = lines(bytes);
    lines.insert(rng.index(lines.len() + 1), line);
    *bytes = lines.concat();
}

pub(super) fn swap_lines(bytes: &mut Vec<u8>, rng: &mut Rng) {
    let mut lines = lines(bytes);
    if !lines.is_empty() {
        let (one, two) = (rng.index(lines.len()), rng.index(lines.len()));
        lines.swap(one, two);
        *bytes = lines.concat();
    }
}

pub(super) fn flip(bytes: &mut Vec<u8>, rng: &mut Rng) {
    let at = rng.index(bytes.len());
    match bytes.get_mut(at) {
        Some(byte) => *byte ^= 1 << rng.index(8),
        None => bytes.push(0),
    }
}

pub(super) fn byte(bytes: &mut Vec<u8>, rng: &mut Rng) {
    let at = rng.index(bytes.len());
    let odd = if rng.one_in(2) { *pick(rng, &[0, 1, 0x7f, 0x80, 0xff]) } else { rng.below(256) as u8 };
    match bytes.get_mut(at) {
        Some(byte) => *byte = odd,
        None => bytes.push(odd),
    }
}

/// An integer of 1 to 8 bytes becomes an odd one; in little or big endian.
pub(super) fn integer(bytes: &mut Vec<u8>, rng: &mut Rng) {
    let len = *pick(rng, &[1, 2, 4, 8_usize]);
    if bytes.len() < len {
        bytes.resize(len, 0);
    }
    let at = rng.index(bytes.len() - len + 1);
    let is_big = rng.one_in(4);
    let mut value = [0; 8];
    value[..len].copy_from_slice(&bytes[at..at + len]);
    if is_big {
        value[..len].reverse();
    }
    let max = u64::MAX >> (64 - 8 * len);
    let mut odd = numbers::odd(u64::from_le_bytes(value), max, rng).to_le_bytes();
    if is_big {
        odd[..len].reverse();
    }
    bytes[at..at + len].copy_from_slice(&odd[..len]);
}

/// A range, most often a short one.
fn range(len: usize, rng: &mut Rng) -> Range<usize> {
    let start = rng.index(len);
    let most = (len - start).min(if rng.one_in(4) { RANGE_MAX } else { 16 });
    start..start + if most == 0 { 0 } else { 1 + rng.index(most) }
}

pub(super) fn drop_range(bytes: &mut Vec<u8>, rng: &mut Rng) {
    let range = range(bytes.len(), rng);
    bytes.drain(range);
}

pub(super) fn copy_range(bytes: &mut Vec<u8>, rng: &mut Rng) {
    let copy = bytes[range(bytes.len(), rng)].to_vec();
    let at = rng.index(bytes.len() + 1);
    let over = if rng.one_in(2) { 0 } else { copy.len().min(bytes.len() - at) };
    replace(bytes, at..at + over, &copy);
}

/// A word that the program knows, or a few random bytes.
pub(super) fn insert(bytes: &mut Vec<u8>, known: &[Vec<u8>], rng: &mut Rng) {
    let new = match known.is_empty() || rng.one_in(2) {
        true => (0..1 + rng.index(8)).map(|_| rng.below(256) as u8).collect(),
        false => pick(rng, known).clone(),
    };
    let at = rng.index(bytes.len() + 1);
    replace(bytes, at..at, &new);
}

/// One byte many times.
pub(super) fn run(bytes: &mut Vec<u8>, rng: &mut Rng) {
    let len = numbers::odd(bytes.len() as u64, RANGE_MAX as u64, rng) as usize;
    let at = rng.index(bytes.len() + 1);
    let byte = bytes.get(at).copied().unwrap_or(b'a');
    replace(bytes, at..at, &vec![byte; len]);
}

/// The beginning of one, and the end of another.
pub(super) fn splice(bytes: &mut Vec<u8>, other: &[u8], rng: &mut Rng) {
    bytes.truncate(rng.index(bytes.len() + 1));
    bytes.extend_from_slice(&other[rng.index(other.len() + 1)..]);
}
