use std::cell::RefCell;

use super::*;

const PAGE: usize = 4096;

/// A controller with queues in a small memory: admin at pages 1 and 2, queue 1 at pages 3 and 4.
struct Disk {
    memory: RefCell<Vec<u8>>,
    controller: Controller,
    tail: u32,
    head: u32,
}

impl Disk {
    fn new() -> Disk {
        let memory = RefCell::new(vec![0; 2048 * PAGE]);
        let mut disk = Disk { memory, controller: Controller::new(512), tail: 0, head: 0 };
        disk.write(0x24, &0x001f_001fu32.to_le_bytes());
        disk.write(0x28, &(PAGE as u64).to_le_bytes());
        disk.write(0x30, &(2 * PAGE as u32).to_le_bytes());
        disk.write(0x34, &[0; 4]);
        disk.write(0x14, &0x0046_0001u32.to_le_bytes());
        let mut create = [0; 64];
        for (slot, opcode, page) in [(0, 5, 4u64), (1, 1, 3)] {
            create[0] = opcode;
            create[24..32].copy_from_slice(&(page * PAGE as u64).to_le_bytes());
            create[40..44].copy_from_slice(&0x0003_0001u32.to_le_bytes());
            disk.put(PAGE + 64 * slot, &create);
        }
        assert_eq!(disk.write(0x1000, &2u32.to_le_bytes()), []);
        disk
    }

    fn put(&self, at: usize, bytes: &[u8]) {
        self.memory.borrow_mut()[at..at + bytes.len()].copy_from_slice(bytes);
    }

    fn try_write(&mut self, register: u64, value: &[u8]) -> Result<Vec<Action>> {
        let memory = &self.memory;
        self.controller.write(register, value, &|at, buffer| {
            let memory = memory.borrow();
            let part = usize::try_from(at).ok().and_then(|at| memory.get(at..at.checked_add(buffer.len())?));
            part.is_some_and(|part| {
                buffer.copy_from_slice(part);
                true
            })
        })
    }

    fn write(&mut self, register: u64, value: &[u8]) -> Vec<Action> {
        self.try_write(register, value).unwrap()
    }

    /// Submits a command: opcode, number, flags of byte 1, data pointer, and double words 10 to 12.
    fn submit(&mut self, head: [u8; 3], pointer: [u64; 2], words: [u32; 3]) -> Result<Vec<Action>> {
        let mut command = [0; 64];
        command[..3].copy_from_slice(&[head[0], head[2], head[1]]);
        command[24..32].copy_from_slice(&pointer[0].to_le_bytes());
        command[32..40].copy_from_slice(&pointer[1].to_le_bytes());
        for (index, word) in words.into_iter().enumerate() {
            command[40 + 4 * index..44 + 4 * index].copy_from_slice(&word.to_le_bytes());
        }
        self.put(3 * PAGE + 64 * self.tail as usize, &command);
        self.tail = (self.tail + 1) % 4;
        self.try_write(0x1008, &self.tail.to_le_bytes())
    }

    fn complete(&mut self, command: u16, status: u16) -> Vec<Action> {
        let mut entry = [0; 16];
        entry[10] = 1;
        entry[12..14].copy_from_slice(&command.to_le_bytes());
        entry[14..16].copy_from_slice(&(status << 1 | 1).to_le_bytes());
        self.put(4 * PAGE + 16 * self.head as usize, &entry);
        self.head = (self.head + 1) % 4;
        self.write(0x100c, &self.head.to_le_bytes())
    }
}

fn action(command: u32, what: What) -> Vec<Action> {
    vec![Action { command: 0x1_0000 | command, what }]
}

#[test]
fn commands_and_completions_around_the_ring() {
    let mut disk = Disk::new();
    disk.put(100 * PAGE + 512, &[7; 512]);
    for round in 0..5u8 {
        let write = disk.submit([1, round, 0], [100 * PAGE as u64 + 512, 0], [8, 0, 0x4000_0000]).unwrap();
        let expected = What::Write { offset: 8 * 512, data: vec![7; 512], is_fua: true };
        assert_eq!(write, action(round.into(), expected));
        let is_ok = round != 3;
        let status = if is_ok { 0 } else { 0x80 };
        assert_eq!(disk.complete(round.into(), status), action(round.into(), What::Completion { is_ok }));
    }
    assert_eq!(disk.submit([0, 9, 0], [0, 0], [0; 3]).unwrap(), action(9, What::Flush));
    let zeroes = What::Zeroes { offset: 512, len_bytes: 8 * 512, is_fua: false };
    assert_eq!(disk.submit([8, 10, 0], [0, 0], [1, 0, 7]).unwrap(), action(10, zeroes));
    // Reads are none, nor their completions.
    assert_eq!(disk.submit([2, 11, 0], [0, 0], [1, 0, 7]).unwrap(), []);
    assert_eq!(disk.complete(11, 0), []);
    // Two ranges in one command.
    let mut ranges = [0; 32];
    ranges[4] = 2;
    ranges[8] = 1;
    ranges[20] = 4;
    ranges[24] = 3;
    disk.put(101 * PAGE, &ranges);
    let discards = disk.submit([9, 12, 0], [101 * PAGE as u64, 0], [1, 4, 0]).unwrap();
    let discard = |offset, len_bytes| Action { command: 0x1_000c, what: What::Discard { offset, len_bytes } };
    assert_eq!(discards, [discard(512, 1024), discard(3 * 512, 4 * 512)]);
}

/// Pages of data that differ, from page 200 on.
fn fill(disk: &Disk, pages: usize) -> Vec<u8> {
    let data: Vec<u8> = (0..pages * PAGE).map(|index| (index / 7 + index / PAGE * 13) as u8).collect();
    disk.put(200 * PAGE, &data);
    data
}

fn written(actions: Vec<Action>) -> Vec<u8> {
    match actions.into_iter().next().map(|action| action.what) {
        Some(What::Write { data, .. }) => data,
        other => panic!("{other:?}"),
    }
}

#[test]
fn data_in_pages_and_lists_of_pages() {
    let mut disk = Disk::new();
    let data = fill(&disk, 800);
    let page = |index: usize| ((200 + index) * PAGE) as u64;
    // Two pages, from the middle of the first.
    let write = disk.submit([1, 1, 0], [page(0) + 2048, page(1)], [0, 0, 11]).unwrap();
    assert_eq!(written(write), data[2048..2048 + 12 * 512]);
    disk.complete(1, 0);
    // 700 pages: a list that begins in the middle of a page, and its continuation.
    let list_at = 150 * PAGE + 2048;
    let in_first = 2048 / 8 - 1;
    for index in 0..699 {
        let at = match index {
            _ if index < in_first => list_at + 8 * index,
            _ if index - in_first < 511 => 152 * PAGE + 8 * (index - in_first),
            _ => unreachable!(),
        };
        disk.put(at, &page(index + 1).to_le_bytes());
    }
    disk.put(list_at + 8 * in_first, &(152 * PAGE as u64).to_le_bytes());
    let write = disk.submit([1, 2, 0], [page(0), list_at as u64], [0, 0, 700 * 8 - 1]).unwrap();
    assert_eq!(written(write), data[..700 * PAGE]);
}

#[test]
fn data_in_segments() {
    let mut disk = Disk::new();
    let data = fill(&disk, 4);
    let descriptor = |address: u64, len: u32, kind: u8| {
        let mut bytes = [0; 16];
        bytes[..8].copy_from_slice(&address.to_le_bytes());
        bytes[8..12].copy_from_slice(&len.to_le_bytes());
        bytes[15] = kind << 4;
        bytes
    };
    let pointer = |bytes: [u8; 16]| [long(&bytes, 0), long(&bytes, 8)];
    let start = 200 * PAGE as u64;
    let one = pointer(descriptor(start + 5, 1024, 0));
    assert_eq!(written(disk.submit([1, 1, 0x40], one, [0, 0, 1]).unwrap()), data[5..1029]);
    // A list that leads to a last one.
    disk.put(150 * PAGE, &descriptor(start, 100, 0));
    disk.put(150 * PAGE + 16, &descriptor(151 * PAGE as u64, 32, 3));
    disk.put(151 * PAGE, &descriptor(start + 100, 200, 0));
    disk.put(151 * PAGE + 16, &descriptor(start + 300, 212, 0));
    let list = pointer(descriptor(150 * PAGE as u64, 32, 2));
    assert_eq!(written(disk.submit([1, 2, 0x40], list, [0, 0, 0]).unwrap()), data[..512]);
    // A list that leads to itself.
    disk.put(150 * PAGE, &descriptor(150 * PAGE as u64, 16, 2));
    assert!(matches!(disk.submit([1, 3, 0x40], list, [0, 0, 0]), Err(NvmeError::Form(_))));
}

#[test]
fn what_cannot_be_followed_is_an_error() {
    let refuse = |register, value: u32| Disk::new().try_write(register, &value.to_le_bytes()).unwrap_err();
    assert_eq!(refuse(0x1010, 1), NvmeError::Queue(2));
    assert_eq!(refuse(0x1008, 4), NvmeError::Doorbell(1, 4, 4));
    let mut disk = Disk::new();
    let outside = 1 << 40;
    assert_eq!(disk.submit([1, 1, 0], [outside, 0], [0; 3]), Err(NvmeError::Memory(outside)));
    assert_eq!(disk.submit([1, 1, 0], [0, 0], [0, 0, 0xffff]), Err(NvmeError::Long(0x10000 * 512)));
    assert_eq!(disk.submit([1, 1, 0xc0], [0, 0], [0; 3]), Err(NvmeError::Form(3)));
    // A reset takes the queues.
    disk.write(0x14, &[0; 4]);
    assert_eq!(disk.try_write(0x1008, &[0; 4]), Err(NvmeError::Queue(1)));
}
