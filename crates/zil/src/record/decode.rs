//! Bytes to records; nothing is trusted.

use super::cursor::In;
use super::error::{RecordError, RecordFault};
use super::head::{HEAD_BYTES, Head, RecordType};
use super::types::{
    CloneRange, Create, CreateKind, Link, Record, Remove, Rename, RenameKind, SetAcl, SetAttr, SetXattr,
    TimedWrite, Truncate, Write, WriteData, Zeroes, attribute,
};
use fastness_base::ObjectId;

impl<'a> Record<'a> {
    /// Reads a record that fills `bytes`.
    ///
    /// # Errors
    /// [`RecordError`] with the place. For a record of unknown type, only the head is checked.
    pub fn decode(bytes: &'a [u8]) -> Result<(Head, Record<'a>), RecordError> {
        let (record_type, head, len) = Head::decode(bytes)?;
        match bytes.len().cmp(&len) {
            std::cmp::Ordering::Less => {
                let missing = (len - bytes.len()) as u64;
                return Err(RecordError::new(bytes.len(), RecordFault::TooShort { missing }));
            }
            std::cmp::Ordering::Greater => {
                let extra = (bytes.len() - len) as u64;
                return Err(RecordError::new(len, RecordFault::TooLong { extra }));
            }
            std::cmp::Ordering::Equal => {}
        }
        let mut input = In::new(bytes, HEAD_BYTES);
        let record = read_body(&mut input, record_type)?;
        input.end()?;
        Ok((head, record))
    }
}

fn read_body<'a>(input: &mut In<'a>, record_type: RecordType) -> Result<Record<'a>, RecordError> {
    Ok(match record_type {
        RecordType::Create => read_create(input, CreateKind::File)?,
        RecordType::Mkdir => read_create(input, CreateKind::Directory)?,
        RecordType::Mkxattr => read_create(input, CreateKind::XattrDirectory)?,
        RecordType::Symlink => read_create(input, CreateKind::Symlink)?,
        RecordType::Remove => Record::Remove(Remove { is_directory: false, name: read_name(input)? }),
        RecordType::Rmdir => Record::Remove(Remove { is_directory: true, name: read_name(input)? }),
        RecordType::Link => Record::Link(Link { object: ObjectId(input.u64()?), name: read_name(input)? }),
        RecordType::Rename | RecordType::RenameExchange | RecordType::RenameWhiteout => {
            read_rename(input, record_type)?
        }
        RecordType::Write => read_write(input)?,
        RecordType::Extend => {
            let (offset, len_bytes) = read_range(input)?;
            Record::Extend { offset, len_bytes }
        }
        RecordType::Truncate => {
            let (offset, len_bytes) = (input.u64()?, input.u64()?);
            if len_bytes != u64::MAX {
                check_range(input, offset, len_bytes)?;
            }
            Record::Truncate(Truncate { offset, len_bytes })
        }
        RecordType::Zeroes => read_zeroes(input)?,
        RecordType::SetAttr => read_attr(input)?,
        RecordType::SetAcl => {
            let len = input.u64()?;
            Record::SetAcl(SetAcl { acl: input.bytes(len)? })
        }
        RecordType::SetXattr => read_xattr(input)?,
        RecordType::CloneRange => read_clone(input)?,
        RecordType::TimedWrite => {
            let (offset, len_bytes) = read_range(input)?;
            Record::TimedWrite(TimedWrite { offset, time: input.time()?, data: input.bytes(len_bytes)? })
        }
    })
}

/// A range whose end does not overflow.
fn read_range(input: &mut In<'_>) -> Result<(u64, u64), RecordError> {
    let (offset, len_bytes) = (input.u64()?, input.u64()?);
    check_range(input, offset, len_bytes)?;
    Ok((offset, len_bytes))
}

fn check_range(input: &In<'_>, offset: u64, len_bytes: u64) -> Result<(), RecordError> {
    match offset.checked_add(len_bytes) {
        Some(_) => Ok(()),
        None => input.refuse("length of the range", len_bytes, 8),
    }
}

fn read_name<'a>(input: &mut In<'a>) -> Result<&'a [u8], RecordError> {
    let len = input.u16()?;
    if len == 0 {
        return input.refuse("length of the name", 0, 2);
    }
    input.zeroes(6)?;
    input.bytes(u64::from(len))
}

fn read_create<'a>(input: &mut In<'a>, kind: CreateKind) -> Result<Record<'a>, RecordError> {
    let object = ObjectId(input.u64()?);
    let attributes = input.attributes()?;
    let (name_len, target_len) = (input.u16()?, input.u16()?);
    // A created object has a name, and only a symbolic link has a target.
    if name_len == 0 {
        return input.refuse("length of the name", 0, 4);
    }
    if (target_len > 0) != (kind == CreateKind::Symlink) {
        return input.refuse("length of the target", u64::from(target_len), 2);
    }
    let acl_len = input.u32()?;
    let name = input.bytes(u64::from(name_len))?;
    let target = input.bytes(u64::from(target_len))?;
    let acl = input.bytes(u64::from(acl_len))?;
    Ok(Record::Create(Create { kind, object, attributes, name, target, acl }))
}

fn read_rename<'a>(input: &mut In<'a>, record_type: RecordType) -> Result<Record<'a>, RecordError> {
    let target_directory = ObjectId(input.u64()?);
    let (source_len, target_len) = (input.u16()?, input.u16()?);
    if source_len == 0 || target_len == 0 {
        return input.refuse("length of a name", 0, 4);
    }
    input.zeroes(4)?;
    let kind = match record_type {
        RecordType::RenameExchange => RenameKind::Exchange,
        RecordType::RenameWhiteout => RenameKind::Whiteout(ObjectId(input.u64()?), input.attributes()?),
        _ => RenameKind::Plain,
    };
    let source_name = input.bytes(u64::from(source_len))?;
    let target_name = input.bytes(u64::from(target_len))?;
    Ok(Record::Rename(Rename { kind, target_directory, source_name, target_name }))
}

fn read_write<'a>(input: &mut In<'a>) -> Result<Record<'a>, RecordError> {
    let (offset, len_bytes) = read_range(input)?;
    let is_indirect = input.u8()?;
    if is_indirect > 1 {
        return input.refuse("class of the write", u64::from(is_indirect), 1);
    }
    input.zeroes(7)?;
    let address_len = input.u64()?;
    let data = if is_indirect == 1 {
        WriteData::Indirect { len_bytes, address: input.bytes(address_len)? }
    } else if address_len > 0 {
        return input.refuse("length of the address", address_len, 8);
    } else {
        WriteData::Inline(input.bytes(len_bytes)?)
    };
    Ok(Record::Write(Write { offset, data }))
}

fn read_zeroes<'a>(input: &mut In<'a>) -> Result<Record<'a>, RecordError> {
    let (offset, len_bytes) = read_range(input)?;
    match input.u64()? {
        flag @ 0..=1 => Ok(Record::Zeroes(Zeroes { offset, len_bytes, is_discard: flag == 1 })),
        flags => input.refuse("flags", flags, 8),
    }
}

fn read_attr<'a>(input: &mut In<'a>) -> Result<Record<'a>, RecordError> {
    let mask = input.u32()?;
    if mask & !attribute::ALL != 0 {
        return input.refuse("mask", u64::from(mask), 4);
    }
    let mode = input.u32()?;
    let (uid, gid, size_bytes) = (input.u64()?, input.u64()?, input.u64()?);
    let (atime, mtime) = (input.time()?, input.time()?);
    let extra_len = input.u64()?;
    let extra = input.bytes(extra_len)?;
    Ok(Record::SetAttr(SetAttr { mask, mode, uid, gid, size_bytes, atime, mtime, extra }))
}

fn read_xattr<'a>(input: &mut In<'a>) -> Result<Record<'a>, RecordError> {
    let name_len = input.u16()?;
    if name_len == 0 {
        return input.refuse("length of the name", 0, 2);
    }
    input.zeroes(2)?;
    let value_len = input.u32()?;
    let name = input.bytes(u64::from(name_len))?;
    Ok(Record::SetXattr(SetXattr { name, value: input.bytes(u64::from(value_len))? }))
}

fn read_clone<'a>(input: &mut In<'a>) -> Result<Record<'a>, RecordError> {
    let (offset, len_bytes) = read_range(input)?;
    let block_bytes = input.u64()?;
    if block_bytes == 0 {
        return input.refuse("bytes of a block", 0, 8);
    }
    let addresses_len = input.u64()?;
    Ok(Record::CloneRange(CloneRange {
        offset,
        len_bytes,
        block_bytes,
        addresses: input.bytes(addresses_len)?,
    }))
}
