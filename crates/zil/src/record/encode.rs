//! Encodes records into a buffer of the caller.

use super::cursor::Out;
use super::head::{HEAD_BYTES, Head, RECORD_BYTES_MAX};
use super::types::{Create, Record, Rename, RenameKind, SetAttr, Write, WriteData};

impl Record<'_> {
    /// Length of the encoded record in bytes, a multiple of 8.
    pub fn encoded_bytes(&self) -> usize {
        let mut out = Out::new(None);
        self.write_body(&mut out);
        HEAD_BYTES + out.at()
    }

    /// Encodes into the front of `buffer`; returns the length. Allocates nothing.
    ///
    /// # Panics
    /// Caller bug only: the buffer is shorter than [`encoded_bytes`](Self::encoded_bytes), the record longer
    /// than [`RECORD_BYTES_MAX`], or a name longer than 65535 bytes.
    pub fn encode(&self, head: Head, buffer: &mut [u8]) -> usize {
        let len = self.encoded_bytes();
        assert!(len <= RECORD_BYTES_MAX && len <= buffer.len(), "a record of {len} bytes does not fit");
        buffer[..HEAD_BYTES].copy_from_slice(&head.to_bytes(self.record_type(), len as u32));
        self.write_body(&mut Out::new(Some(&mut buffer[HEAD_BYTES..len])));
        len
    }

    /// Encodes into newly allocated memory.
    ///
    /// # Panics
    /// As [`encode`](Self::encode), but for the buffer.
    pub fn to_bytes(&self, head: Head) -> Box<[u8]> {
        let mut bytes = vec![0; self.encoded_bytes()];
        self.encode(head, &mut bytes);
        bytes.into_boxed_slice()
    }

    fn write_body(&self, out: &mut Out<'_>) {
        match self {
            Self::Create(create) => write_create(out, create),
            Self::Remove(remove) => write_name(out, remove.name),
            Self::Link(link) => {
                out.u64(link.object.0);
                write_name(out, link.name);
            }
            Self::Rename(rename) => write_rename(out, rename),
            Self::Write(write) => write_write(out, write),
            Self::Extend { offset, len_bytes } => write_range(out, *offset, *len_bytes),
            Self::Truncate(truncate) => write_range(out, truncate.offset, truncate.len_bytes),
            Self::Zeroes(zeroes) => {
                write_range(out, zeroes.offset, zeroes.len_bytes);
                out.u64(u64::from(zeroes.is_discard));
            }
            Self::SetAttr(attr) => write_attr(out, attr),
            Self::SetAcl(acl) => {
                out.u64(acl.acl.len() as u64);
                out.bytes(acl.acl);
            }
            Self::SetXattr(xattr) => {
                out.u16(name_len(xattr.name));
                out.bytes(&[0; 2]);
                out.u32(xattr.value.len() as u32);
                out.bytes(xattr.name);
                out.bytes(xattr.value);
            }
            Self::CloneRange(clone) => {
                write_range(out, clone.offset, clone.len_bytes);
                out.u64(clone.block_bytes);
                out.u64(clone.addresses.len() as u64);
                out.bytes(clone.addresses);
            }
            Self::TimedWrite(write) => {
                write_range(out, write.offset, write.data.len() as u64);
                out.time(write.time);
                out.bytes(write.data);
            }
        }
        out.pad();
    }
}

fn name_len(name: &[u8]) -> u16 {
    u16::try_from(name.len()).expect("a name of at most 65535 bytes")
}

fn write_range(out: &mut Out<'_>, offset: u64, len_bytes: u64) {
    out.u64(offset);
    out.u64(len_bytes);
}

fn write_name(out: &mut Out<'_>, name: &[u8]) {
    out.u16(name_len(name));
    out.bytes(&[0; 6]);
    out.bytes(name);
}

fn write_create(out: &mut Out<'_>, create: &Create<'_>) {
    out.u64(create.object.0);
    out.attributes(&create.attributes);
    out.u16(name_len(create.name));
    out.u16(name_len(create.target));
    out.u32(create.acl.len() as u32);
    out.bytes(create.name);
    out.bytes(create.target);
    out.bytes(create.acl);
}

fn write_rename(out: &mut Out<'_>, rename: &Rename<'_>) {
    out.u64(rename.target_directory.0);
    out.u16(name_len(rename.source_name));
    out.u16(name_len(rename.target_name));
    out.u32(0);
    if let RenameKind::Whiteout(object, attributes) = &rename.kind {
        out.u64(object.0);
        out.attributes(attributes);
    }
    out.bytes(rename.source_name);
    out.bytes(rename.target_name);
}

fn write_write(out: &mut Out<'_>, write: &Write<'_>) {
    let (len_bytes, is_indirect, bytes) = match write.data {
        WriteData::Inline(data) => (data.len() as u64, 0, data),
        WriteData::Indirect { len_bytes, address } => (len_bytes, 1, address),
    };
    write_range(out, write.offset, len_bytes);
    out.u8(is_indirect);
    out.bytes(&[0; 7]);
    out.u64(if is_indirect == 1 { bytes.len() as u64 } else { 0 });
    out.bytes(bytes);
}

fn write_attr(out: &mut Out<'_>, attr: &SetAttr<'_>) {
    out.u32(attr.mask);
    out.u32(attr.mode);
    out.u64(attr.uid);
    out.u64(attr.gid);
    out.u64(attr.size_bytes);
    out.time(attr.atime);
    out.time(attr.mtime);
    out.u64(attr.extra.len() as u64);
    out.bytes(attr.extra);
}
