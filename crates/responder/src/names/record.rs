//! A record: what one call has made of names, and what it has made of a file.
//!
//! It says which file each name leads to afterwards, so a later record of a name replaces an earlier one, and
//! what has been done is found done.
//!
//! Shape: whole lines of 64 bytes, little endian:
//! ```text
//! offset size field
//!      0    8 number: the line at which it begins, counted since the log was made
//!      8    4 bytes of the payload
//!     12    4 CRC-32C of the cache's id, bytes 0 to 11, and the payload
//!     16    n payload
//! ```
//! The payload: how many names (0 to 2), and flags (1 attributes, 2 announced), a byte each. Then for each
//! name: inode and birth of its directory; a byte 0, or 1 with inode and birth of what it led to; the same
//! for what it leads to; its length (2 bytes); the name. Then the attributes: inode, birth, mode (4), user
//! (4), group (4), device (8), times of the last read and modification (8 each), the target of a symbolic
//! link with its length (2) in front; how many extended attributes (2), each with its name and value, their
//! lengths (2) in front.
//!
//! A record with attributes has one more line: which file was made in place of the one that a crash had lost
//! ([`Substitute`]).

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt;

use crate::backing::{Attributes, FileId};
use crate::tag::{LINE, Seed};

/// Bytes of a record in front of its payload.
const HEADER_BYTES: usize = 16;
/// Flags of a record.
const ATTRIBUTES: u8 = 1;
const ANNOUNCED: u8 = 2;
/// What a name can be, in bytes.
const NAME_BYTES_MAX: usize = 255;
/// Lines of a record: what needs more is made durable without one.
pub(crate) const RECORD_LINES_MAX: u64 = 24;

/// A name in a directory.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Place {
    pub(crate) parent: FileId,
    pub(crate) name: OsString,
}

/// What a name led to, and leads to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Assignment {
    pub(crate) place: Place,
    pub(crate) before: Option<FileId>,
    pub(crate) after: Option<FileId>,
}

/// A change of names or attributes.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(crate) struct Record {
    pub(crate) names: Vec<Assignment>,
    /// Of what was made, or has other attributes.
    pub(crate) attributes: Option<Attributes>,
    /// It is about to be done: it counts if the directory has it, and no later record says otherwise.
    pub(crate) is_announced: bool,
}

fn put(bytes: &mut Vec<u8>, data: &[u8]) {
    bytes.extend((data.len() as u16).to_le_bytes());
    bytes.extend(data);
}

fn put_id(bytes: &mut Vec<u8>, id: FileId) {
    bytes.extend(id.inode.to_le_bytes());
    bytes.extend(id.generation.to_le_bytes());
}

fn put_maybe(bytes: &mut Vec<u8>, id: Option<FileId>) {
    bytes.push(u8::from(id.is_some()));
    if let Some(id) = id {
        put_id(bytes, id);
    }
}

/// Takes fields from the front of bytes that are not trusted.
struct Fields<'a>(&'a [u8]);

impl<'a> Fields<'a> {
    fn take(&mut self, count: usize) -> Option<&'a [u8]> {
        let (taken, rest) = self.0.split_at_checked(count)?;
        self.0 = rest;
        Some(taken)
    }

    fn byte(&mut self) -> Option<u8> {
        self.take(1).map(|bytes| bytes[0])
    }

    fn half(&mut self) -> Option<u32> {
        self.take(4).map(|bytes| u32::from_le_bytes(bytes.try_into().expect("four bytes")))
    }

    fn word(&mut self) -> Option<u64> {
        self.take(8).map(|bytes| u64::from_le_bytes(bytes.try_into().expect("eight bytes")))
    }

    fn count(&mut self) -> Option<usize> {
        self.take(2).map(|bytes| u16::from_le_bytes(bytes.try_into().expect("two bytes")).into())
    }

    fn bytes(&mut self) -> Option<&'a [u8]> {
        let count = self.count()?;
        self.take(count)
    }

    fn id(&mut self) -> Option<FileId> {
        Some(FileId { inode: self.word()?, generation: self.word()? })
    }

    fn maybe(&mut self) -> Option<Option<FileId>> {
        match self.byte()? {
            0 => Some(None),
            1 => self.id().map(Some),
            _ => None,
        }
    }
}

fn is_name(name: &[u8]) -> bool {
    let is_special = [&b""[..], b".", b".."].contains(&name);
    name.len() <= NAME_BYTES_MAX && !is_special && !name.iter().any(|byte| [0, b'/'].contains(byte))
}

impl Record {
    /// Whether it is about a name.
    pub(crate) fn changes(&self, place: &Place) -> bool {
        self.names.iter().any(|name| name.place == *place)
    }

    /// The payload; `None`: it cannot be noted.
    fn payload(&self) -> Option<Vec<u8>> {
        let flags = if self.is_announced { ANNOUNCED } else { 0 };
        let flags = if self.attributes.is_some() { flags | ATTRIBUTES } else { flags };
        let mut bytes = vec![self.names.len() as u8, flags];
        for Assignment { place, before, after } in &self.names {
            put_id(&mut bytes, place.parent);
            put_maybe(&mut bytes, *before);
            put_maybe(&mut bytes, *after);
            put(&mut bytes, Some(place.name.as_bytes()).filter(|name| is_name(name))?);
        }
        if let Some(attributes) = &self.attributes {
            let Attributes { id, mode, uid, gid, rdev, accessed_ns, modified_ns, target, extended, .. } =
                attributes;
            put_id(&mut bytes, *id);
            [mode, uid, gid].iter().for_each(|half| bytes.extend(half.to_le_bytes()));
            [rdev, accessed_ns, modified_ns].iter().for_each(|word| bytes.extend(word.to_le_bytes()));
            let is_short = |data: &[u8]| u16::try_from(data.len()).is_ok();
            let fits =
                is_short(target) && extended.iter().all(|(name, value)| is_short(name) && is_short(value));
            if !fits || u16::try_from(extended.len()).is_err() {
                return None;
            }
            put(&mut bytes, target);
            bytes.extend((extended.len() as u16).to_le_bytes());
            for (name, value) in extended {
                put(&mut bytes, name);
                put(&mut bytes, value);
            }
        }
        Some(bytes)
    }

    fn of_payload(payload: &[u8]) -> Option<Record> {
        let mut fields = Fields(payload);
        let (count, flags) = (fields.byte()?, fields.byte()?);
        if count > 2 || flags & !(ATTRIBUTES | ANNOUNCED) != 0 {
            return None;
        }
        let mut names = Vec::with_capacity(count.into());
        for _ in 0..count {
            let (parent, before, after) = (fields.id()?, fields.maybe()?, fields.maybe()?);
            let name = fields.bytes().filter(|name| is_name(name))?;
            let place = Place { parent, name: OsStr::from_bytes(name).to_owned() };
            names.push(Assignment { place, before, after });
        }
        let attributes = if flags & ATTRIBUTES != 0 { Some(attributes(&mut fields)?) } else { None };
        fields.0.is_empty().then_some(Record { names, attributes, is_announced: flags & ANNOUNCED != 0 })
    }

    /// Whole lines, but for the number and the checksum, and how many lines the record has; `None`: it is too
    /// long.
    pub(crate) fn encode(&self) -> Option<(Vec<u8>, u64)> {
        let payload = self.payload()?;
        let mut bytes = vec![0; HEADER_BYTES];
        bytes[8..12].copy_from_slice(&(payload.len() as u32).to_le_bytes());
        bytes.extend(payload);
        bytes.resize(bytes.len().next_multiple_of(LINE), 0);
        let lines = (bytes.len() / LINE) as u64 + u64::from(self.attributes.is_some());
        (lines <= RECORD_LINES_MAX).then_some((bytes, lines))
    }

    /// Lines of the record that begins with `line`, without that of a substitute, if one can begin so.
    pub(crate) fn lines_of(line: &[u8; LINE], number: u64) -> Option<u64> {
        let mut fields = Fields(line);
        let (found, len) = (fields.word()?, fields.half()? as usize);
        let lines = (HEADER_BYTES + len).div_ceil(LINE) as u64;
        (found == number && lines <= RECORD_LINES_MAX).then_some(lines)
    }

    /// Reads a record; the bytes are not trusted.
    pub(crate) fn decode(bytes: &[u8], seed: Seed) -> Option<Record> {
        let mut fields = Fields(bytes);
        let (_, len, sum) = (fields.word()?, fields.half()? as usize, fields.half()?);
        let payload = fields.take(len)?;
        (sum == sum_of(bytes, payload, seed)).then(|| Record::of_payload(payload))?
    }

    /// Whether a line for a substitute follows.
    pub(crate) fn has_substitute(&self) -> bool {
        self.attributes.is_some()
    }
}

fn attributes(fields: &mut Fields<'_>) -> Option<Attributes> {
    let id = fields.id()?;
    let (mode, uid, gid) = (fields.half()?, fields.half()?, fields.half()?);
    let (rdev, accessed_ns, modified_ns) = (fields.word()?, fields.word()?, fields.word()?);
    let target = fields.bytes()?.to_vec();
    let mut extended = Vec::new();
    for _ in 0..fields.count()? {
        extended.push((fields.bytes()?.to_vec(), fields.bytes()?.to_vec()));
    }
    Some(Attributes { id, links: 0, mode, uid, gid, rdev, accessed_ns, modified_ns, target, extended })
}

fn sum_of(bytes: &[u8], payload: &[u8], seed: Seed) -> u32 {
    seed.sum(&[&bytes[..12], payload].concat())
}

/// Gives a record its number and its checksum.
pub(crate) fn seal(bytes: &mut [u8], number: u64, seed: Seed) {
    bytes[..8].copy_from_slice(&number.to_le_bytes());
    let len = u32::from_le_bytes(bytes[8..12].try_into().expect("four bytes")) as usize;
    let sum = sum_of(bytes, &bytes[HEADER_BYTES..HEADER_BYTES + len], seed);
    bytes[12..16].copy_from_slice(&sum.to_le_bytes());
}

/// The line after a record with attributes: the file that a recovery has made in place of the one that was
/// lost. A line that was never written, or that a crash has torn, names none.
///
/// Shape: number of the record (8), inode (8), birth (8), 36 bytes of zero, CRC-32C of the cache's id and all
/// of that.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Substitute;

impl Substitute {
    pub(crate) fn encode(number: u64, id: FileId, seed: Seed) -> [u8; LINE] {
        let mut line = [0; LINE];
        for (at, word) in [number, id.inode, id.generation].into_iter().enumerate() {
            line[at * 8..at * 8 + 8].copy_from_slice(&word.to_le_bytes());
        }
        let sum = seed.sum(&line[..60]);
        line[60..].copy_from_slice(&sum.to_le_bytes());
        line
    }

    pub(crate) fn decode(line: &[u8; LINE], number: u64, seed: Seed) -> Option<FileId> {
        let mut fields = Fields(line);
        let (of, id) = (fields.word()?, fields.id()?);
        let is_whole = seed.sum(&line[..60]).to_le_bytes() == line[60..];
        (is_whole && of == number).then_some(id)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::backing::CacheId;

    const SEED: CacheId = CacheId([9; 16]);

    fn example() -> Record {
        let (parent, id) = (FileId { inode: 2, generation: 3 }, FileId { inode: 17, generation: 19 });
        let place = |name: &str| Place { parent, name: name.into() };
        let names = vec![
            Assignment { place: place("a"), before: Some(id), after: None },
            Assignment { place: place("bc"), before: None, after: Some(id) },
        ];
        let extended = vec![(b"user.x".to_vec(), b"y".to_vec())];
        let attributes = Attributes {
            id,
            mode: 0o100_640,
            uid: 5,
            gid: 6,
            rdev: 7,
            accessed_ns: 8,
            modified_ns: 9,
            target: b"t".to_vec(),
            extended,
            links: 0,
        };
        Record { names, attributes: Some(attributes), is_announced: true }
    }

    fn whole(record: &Record) -> Vec<u8> {
        let (mut bytes, _) = record.encode().unwrap();
        seal(&mut bytes, 70, Seed::new(SEED));
        bytes
    }

    #[test]
    fn golden_bytes() {
        let bytes = whole(&example());
        let hex: String = bytes.iter().map(|byte| format!("{byte:02x}")).collect();
        let expected = "460000000000000091000000726576b002030200000000000000030000000000\
            0000011100000000000000130000000000000000010061020000000000000003\
            0000000000000000011100000000000000130000000000000002006263110000\
            00000000001300000000000000a0810000050000000600000007000000000000\
            000800000000000000090000000000000001007401000600757365722e780100\
            7900000000000000000000000000000000000000000000000000000000000000";
        assert_eq!(hex, expected);
        assert_eq!(Record::decode(&bytes, Seed::new(SEED)), Some(example()));
        assert_eq!(Record::decode(&bytes, Seed::new(CacheId([8; 16]))), None, "of another cache");
    }

    #[test]
    fn a_flipped_bit_makes_it_none() {
        let bytes = whole(&example());
        let len = HEADER_BYTES + u32::from_le_bytes(bytes[8..12].try_into().unwrap()) as usize;
        for bit in 0..len * 8 {
            let mut bytes = bytes.clone();
            bytes[bit / 8] ^= 1 << (bit % 8);
            assert_eq!(Record::decode(&bytes, Seed::new(SEED)), None, "bit {bit}");
        }
        let id = FileId { inode: 17, generation: 19 };
        let line = Substitute::encode(70, id, Seed::new(SEED));
        assert_eq!(Substitute::decode(&line, 70, Seed::new(SEED)), Some(id));
        assert_eq!(Substitute::decode(&line, 71, Seed::new(SEED)), None, "of another record");
        for bit in 0..LINE * 8 {
            let mut line = line;
            line[bit / 8] ^= 1 << (bit % 8);
            assert_eq!(Substitute::decode(&line, 70, Seed::new(SEED)), None, "bit {bit}");
        }
    }

    /// Payloads that a checksum fits to, and that nothing has written.
    #[test]
    fn impossible_payloads_are_none() {
        let payload = example().payload().unwrap();
        assert_eq!(Record::of_payload(&payload), Some(example()));
        for len in 0..payload.len() {
            assert_eq!(Record::of_payload(&payload[..len]), None, "cut off at {len}");
        }
        let with = |at: usize, byte: u8| {
            let mut payload = payload.clone();
            payload[at] = byte;
            Record::of_payload(&payload)
        };
        // Three names, a flag that there is not, a name that may be there or not, one with a slash.
        for (at, byte) in [(0, 3), (1, 7), (18, 2), (18 + 17 + 1 + 2, b'/'), (18 + 17 + 1 + 2, b'.')] {
            assert_eq!(with(at, byte), None, "{byte} at {at}");
        }
        let long = Record {
            attributes: Some(Attributes { target: vec![b'x'; 24 * LINE], ..Attributes::default() }),
            ..Record::default()
        };
        assert_eq!(long.encode(), None, "it is too long for a record");
    }
}
