//! Every value of a pool's tables, and what is stored beside them.
#![no_main]

use arbitrary::Arbitrary;
use fastness_pool::fuzzing;
use libfuzzer_sys::fuzz_target;

#[derive(Debug, Arbitrary)]
enum Input {
    Dataset(Vec<u8>),
    /// Bytes after the head, behind a count that fits to some of them.
    Settings {
        count: u8,
        entries: Vec<Entry>,
        rest: Vec<u8>,
    },
    Bytes {
        row: Vec<u8>,
        pieces: Vec<u8>,
        stored: Vec<u8>,
    },
    Fields {
        extents: Vec<Fields>,
        pieces: Vec<(u32, u64, u16)>,
        stored: Vec<u8>,
    },
    Space(Vec<(u8, u8, Vec<u8>)>),
    /// Fragments of any length, or of one that is likely to be right.
    Fragments(Vec<Fragment>),
    AddressBytes {
        bytes: Vec<u8>,
        len_bytes: u64,
    },
    Address {
        shift: u8,
        blocks: Vec<Block>,
        is_read: bool,
    },
}

/// A block of an address, of numbers that are likely to be accepted.
#[derive(Debug, Arbitrary)]
struct Block {
    unit: u16,
    stored_bytes: u16,
    more_bytes: u8,
    codec: u8,
}

/// An extent as it is stored, of numbers that are likely to be accepted.
#[derive(Debug, Arbitrary)]
struct Fields {
    index: u8,
    place: u32,
    stored_bytes: u16,
    more_bytes: u16,
    codec: u8,
}

/// A fragment of a row in a table.
#[derive(Debug, Arbitrary)]
struct Fragment {
    table: u8,
    key: Vec<u8>,
    number: u16,
    bytes: Vec<u8>,
    /// The key of the one before it, the next number, and as long as a fragment that is followed by another.
    goes_on: bool,
}

/// An entry of the settings.
#[derive(Debug, Arbitrary)]
struct Entry {
    tag: u8,
    flags: u8,
    name: String,
    value: u64,
}

fuzz_target!(|input: Input| match input {
    Input::Dataset(bytes) => fuzzing::dataset(&bytes),
    Input::Settings { count, entries, rest } => {
        let mut body = vec![1, 0, count, 0];
        for Entry { tag, flags, name, value } in entries {
            body.extend([tag % 4, flags % 4, name.len() as u8]);
            body.extend(name.as_bytes());
            body.extend(value.to_le_bytes());
        }
        body.extend(rest);
        fuzzing::settings(&body);
    }
    Input::Bytes { row, pieces, stored } => fuzzing::extents(&row, &pieces, &stored),
    Input::Fields { extents, pieces, stored } => {
        let mut row = Vec::new();
        for Fields { index, place, stored_bytes, more_bytes, codec } in extents {
            let stored_bytes = u32::from(stored_bytes);
            row.push(index % 32);
            row.extend(u64::from(place).to_le_bytes());
            row.extend([7; 16]);
            row.extend(stored_bytes.to_le_bytes());
            row.extend((u32::from(codec) << 24 | (stored_bytes + u32::from(more_bytes))).to_le_bytes());
        }
        let mut listed = Vec::new();
        for (place, sum, bytes) in pieces {
            listed.extend(u64::from(place).to_le_bytes());
            listed.extend(sum.to_le_bytes());
            listed.extend(u32::from(bytes).to_le_bytes());
        }
        fuzzing::extents(&row, &listed, &stored);
    }
    Input::Space(rows) => fuzzing::space(&rows),
    Input::Fragments(all) => {
        let mut rows: Vec<(u8, Vec<u8>, u16, Vec<u8>)> = Vec::new();
        for Fragment { table, key, number, mut bytes, goes_on } in all {
            let row = match rows.last() {
                Some((table, key, number, _)) if goes_on => (*table, key.clone(), number.wrapping_add(1)),
                _ => (table, key, number % 2),
            };
            if goes_on {
                bytes.resize(1280usize.saturating_sub(row.1.len()).min(1024), 7);
            }
            rows.push((row.0, row.1, row.2, bytes));
        }
        fuzzing::fragments(&rows);
    }
    Input::AddressBytes { bytes, len_bytes } => fuzzing::address(&bytes, len_bytes, false),
    Input::Address { shift, blocks, is_read } => {
        let block_bytes = 512u32 << (shift % 12);
        let mut bytes = block_bytes.to_le_bytes().to_vec();
        bytes.extend([0; 4]);
        let blocks = &blocks[..blocks.len().min(40)];
        for Block { unit, stored_bytes, more_bytes, codec } in blocks {
            // A pool of 9 MiB has 2176 units.
            bytes.extend(u64::from(unit % 2200).to_le_bytes());
            bytes.extend([7; 8]);
            bytes.extend(u32::from(*stored_bytes).to_le_bytes());
            let logical = u32::from(*stored_bytes) + u32::from(*more_bytes);
            bytes.extend((u32::from(codec % 4) << 24 | logical).to_le_bytes());
        }
        fuzzing::address(&bytes, blocks.len() as u64 * u64::from(block_bytes), is_read);
    }
});
