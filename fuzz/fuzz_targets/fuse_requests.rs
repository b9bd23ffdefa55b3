//! What the kernel sends to a FUSE server: anything, or requests with strange fields, to a small file system
//! in memory.
#![no_main]

use std::collections::BTreeMap;
use std::sync::Mutex;
use std::time::Duration;

use arbitrary::Arbitrary;
use fastness_fuse::fuzzing::{ANSWER_BYTES_MAX, answer};
use fastness_fuse::{
    Attr, Caller, Entry, Errno, Files, Listed, Listing, Name, NewNode, Open, Opened, Reply, SetAttr, Space,
    WriteFlags,
};
use libfuzzer_sys::fuzz_target;

#[derive(Debug, Arbitrary)]
struct Request {
    /// Up to one more than the last that there is.
    opcode: u8,
    node: u8,
    extensions: Option<u16>,
    /// Otherwise this is its length.
    wrong_length: Option<u32>,
    fields: Vec<Field>,
}

#[derive(Debug, Arbitrary)]
enum Field {
    Small(u8),
    Word(u32),
    Long(u64),
    Name(u8),
    Text(Vec<u8>),
    Bytes(Vec<u8>),
}

impl Request {
    fn bytes(&self) -> Vec<u8> {
        let mut body = Vec::new();
        for field in &self.fields {
            match field {
                Field::Small(value) => body.extend(u64::from(*value).to_ne_bytes()),
                Field::Word(value) => body.extend(value.to_ne_bytes()),
                Field::Long(value) => body.extend(value.to_ne_bytes()),
                Field::Name(value) => body.extend([b'a' + value % 8, 0]),
                Field::Text(text) => {
                    body.extend(text);
                    body.push(0);
                }
                Field::Bytes(bytes) => body.extend(bytes),
            }
        }
        let mut bytes = Vec::new();
        bytes.extend(self.wrong_length.unwrap_or(body.len() as u32 + 40).to_ne_bytes());
        bytes.extend(u32::from(self.opcode % 64).to_ne_bytes());
        bytes.extend(7_u64.to_ne_bytes());
        bytes.extend(u64::from(self.node % 16).to_ne_bytes());
        bytes.extend([0; 12]);
        bytes.extend(u32::from(self.extensions.unwrap_or(0)).to_ne_bytes());
        bytes.extend(body);
        bytes
    }
}

#[derive(Default)]
struct Node {
    attr: Attr,
    bytes: Vec<u8>,
    names: BTreeMap<Vec<u8>, u64>,
    xattrs: BTreeMap<Vec<u8>, Vec<u8>>,
}

/// Files in memory, none of them large.
struct Memory(Mutex<Vec<Node>>);

const BYTES_MAX: u64 = 1 << 16;

impl Memory {
    fn new() -> Memory {
        let mut root = Node::default();
        (root.attr.node, root.attr.mode) = (1, 0o040_755);
        Memory(Mutex::new(vec![root]))
    }

    fn with<T>(&self, node: u64, act: impl FnOnce(&mut Node) -> Reply<T>) -> Reply<T> {
        let mut nodes = self.0.lock().unwrap();
        act(nodes.get_mut(usize::try_from(node.wrapping_sub(1)).unwrap_or(usize::MAX)).ok_or(Errno::STALE)?)
    }

    fn entry(&self, node: u64) -> Reply<Entry> {
        let attr = self.with(node, |node| Ok(node.attr))?;
        Ok(Entry { attr, generation: 1, name_valid: Duration::ZERO, attr_valid: Duration::MAX })
    }
}

impl Files for Memory {
    fn lookup(&self, _: Caller<'_>, parent: u64, name: Name<'_>) -> Reply<Entry> {
        assert!(!name.is_empty() && name.len() <= 255 && !name.contains(&0) && !name.contains(&b'/'));
        self.entry(self.with(parent, |parent| parent.names.get(name).copied().ok_or(Errno::NOENT))?)
    }

    fn attributes(&self, _: Caller<'_>, node: u64, _: Option<u64>) -> Reply<(Attr, Duration)> {
        self.with(node, |node| Ok((node.attr, Duration::from_secs(1))))
    }

    fn set_attributes(&self, caller: Caller<'_>, node: u64, set: &SetAttr) -> Reply<(Attr, Duration)> {
        self.with(node, |node| {
            let size = set.size_bytes.unwrap_or(node.attr.size_bytes);
            if size > BYTES_MAX {
                return Err(Errno::FBIG);
            }
            node.bytes.resize(size as usize, 0);
            node.attr.size_bytes = size;
            Ok(())
        })?;
        self.attributes(caller, node, None)
    }

    fn read_link(&self, _: Caller<'_>, node: u64) -> Reply<Vec<u8>> {
        self.with(node, |node| Ok(node.bytes.clone()))
    }

    fn make(&self, _: Caller<'_>, parent: u64, name: Name<'_>, new: &NewNode<'_>) -> Reply<Entry> {
        assert!(!new.target.contains(&0));
        let mut nodes = self.0.lock().unwrap();
        let node = nodes.len() as u64 + 1;
        let parent = nodes.get_mut((parent as usize).wrapping_sub(1)).ok_or(Errno::STALE)?;
        if parent.names.insert(name.to_vec(), node).is_some() {
            return Err(Errno::EXIST);
        }
        let attr = Attr { node, mode: new.mode, rdev: new.rdev, ..Attr::default() };
        nodes.push(Node { attr, bytes: new.target.to_vec(), ..Node::default() });
        drop(nodes);
        self.entry(node)
    }

    fn unlink(&self, _: Caller<'_>, parent: u64, name: Name<'_>) -> Reply<()> {
        self.with(parent, |parent| parent.names.remove(name).map(drop).ok_or(Errno::NOENT))
    }

    fn rename(&self, caller: Caller<'_>, from: (u64, Name<'_>), to: (u64, Name<'_>), _: u32) -> Reply<()> {
        let moved = self.lookup(caller, from.0, from.1)?.attr.node;
        self.unlink(caller, from.0, from.1)?;
        self.with(to.0, |parent| {
            parent.names.insert(to.1.to_vec(), moved);
            Ok(())
        })
    }

    fn link(&self, _: Caller<'_>, node: u64, parent: u64, name: Name<'_>) -> Reply<Entry> {
        self.with(parent, |parent| {
            parent.names.insert(name.to_vec(), node);
            Ok(())
        })?;
        self.entry(node)
    }

    fn open(&self, _: Caller<'_>, _: u64, flags: u32, is_direct: bool) -> Reply<Opened> {
        Ok(Opened { handle: flags.into(), keeps_cache: flags & 1 == 0, is_direct })
    }

    fn create(
        &self,
        caller: Caller<'_>,
        parent: u64,
        name: Name<'_>,
        new: &NewNode<'_>,
        _: u32,
    ) -> Reply<(Entry, Opened)> {
        Ok((self.make(caller, parent, name, new)?, Opened::default()))
    }

    fn read(&self, _: Caller<'_>, file: Open, offset: u64, buffer: &mut [u8]) -> Reply<usize> {
        self.with(file.node, |node| {
            let rest = node.bytes.get(usize::try_from(offset).unwrap_or(usize::MAX)..).unwrap_or(&[]);
            let len = rest.len().min(buffer.len());
            buffer[..len].copy_from_slice(&rest[..len]);
            Ok(len)
        })
    }

    fn write(&self, _: Caller<'_>, file: Open, offset: u64, data: &[u8], _: WriteFlags) -> Reply<usize> {
        self.with(file.node, |node| {
            let end = offset.checked_add(data.len() as u64).filter(|end| *end <= BYTES_MAX);
            let end = end.ok_or(Errno::FBIG)? as usize;
            node.bytes.resize(node.bytes.len().max(end), 0);
            node.bytes[end - data.len()..end].copy_from_slice(data);
            Ok(data.len())
        })
    }

    fn open_directory(&self, _: Caller<'_>, _: u64) -> Reply<Opened> {
        Ok(Opened::default())
    }

    fn list(
        &self,
        _: Caller<'_>,
        file: Open,
        after: u64,
        is_plus: bool,
        listing: &mut dyn Listing,
    ) -> Reply<()> {
        let names = self.with(file.node, |node| Ok(node.names.clone()))?;
        for (cookie, (name, node)) in (1..).zip(&names).skip_while(|(cookie, _)| *cookie <= after) {
            let entry = if is_plus { Some(self.entry(*node)?) } else { None };
            let listed = Listed { node: *node, cookie, file_type: 0o100_000, name };
            if !listing.add(&listed, entry.as_ref()) {
                break;
            }
        }
        Ok(())
    }

    fn space(&self, _: Caller<'_>) -> Reply<Space> {
        Ok(Space::default())
    }

    fn set_xattr(
        &self,
        _: Caller<'_>,
        node: u64,
        name: Name<'_>,
        value: &[u8],
        _: u32,
        _: bool,
    ) -> Reply<()> {
        self.with(node, |node| Ok(drop(node.xattrs.insert(name.to_vec(), value.to_vec()))))
    }

    fn xattr(&self, _: Caller<'_>, node: u64, name: Name<'_>) -> Reply<Vec<u8>> {
        self.with(node, |node| node.xattrs.get(name).cloned().ok_or(Errno::NODATA))
    }

    fn xattr_names(&self, _: Caller<'_>, node: u64) -> Reply<Vec<u8>> {
        self.with(node, |node| Ok(node.xattrs.keys().flat_map(|name| [&name[..], &[0]].concat()).collect()))
    }

    fn copy(&self, _: Caller<'_>, _: (Open, u64), _: (Open, u64), len_bytes: u64) -> Reply<u64> {
        Ok(len_bytes)
    }

    fn sync(&self, _: Caller<'_>, _: Open, _: bool) -> Reply<()> {
        Ok(())
    }

    fn forget(&self, _: u64, _: u64) {}

    fn release(&self, _: Open) {}
}

fn check(request: &[u8], answer: &[u8]) {
    assert!((16..=ANSWER_BYTES_MAX).contains(&answer.len()));
    assert_eq!(answer[..4], (answer.len() as u32).to_ne_bytes());
    assert_eq!(answer[8..16], request[8..16], "the request that it answers");
    let error = i32::from_ne_bytes(answer[4..8].try_into().unwrap());
    assert!((-4095..=0).contains(&error) && (error == 0 || answer.len() == 16));
}

fuzz_target!(|input: (Vec<Request>, Vec<u8>)| {
    let (requests, raw) = input;
    let files = Memory::new();
    for request in requests.iter().take(50) {
        let bytes = request.bytes();
        if let Some(answer) = answer(&files, &bytes) {
            check(&bytes, &answer);
        }
    }
    if let Some(answer) = answer(&files, &raw) {
        check(&raw, &answer);
    }
});
