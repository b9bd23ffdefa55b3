//! Every back end against a vector of bytes.

mod support;

use std::io::{IoSlice, IoSliceMut};

use fastness_blkdev::{BlockDevice, Request};
use proptest::collection::vec;
use proptest::prelude::*;

const BLOCKS: usize = 64;

#[derive(Debug, Clone)]
enum Op {
    Read { block: usize, blocks: usize, shift: usize },
    Write { block: usize, blocks: usize, shift: usize, fill: u8, fua: bool },
    WriteVectored { block: usize, cuts: Vec<usize>, fill: u8 },
    ReadVectored { block: usize, cuts: Vec<usize> },
    Zeroes { block: usize, blocks: usize },
    Discard { block: usize, blocks: usize },
    Batch { blocks: Vec<(bool, u8, bool, usize)> },
    Flush,
}

/// What costs a disk's flush each time.
fn rarely() -> impl Strategy<Value = bool> {
    (0..24u8).prop_map(|roll| roll == 0)
}

fn op() -> impl Strategy<Value = Op> {
    let (block, blocks, shift) = (0..BLOCKS, 0..12usize, 0..600usize);
    let range = (block, blocks, shift);
    let cuts = vec(0..4096usize, 0..5);
    prop_oneof![
        range.clone().prop_map(|(block, blocks, shift)| Op::Read { block, blocks, shift }),
        (range.clone(), any::<u8>(), any::<bool>())
            .prop_map(|((block, blocks, shift), fill, fua)| Op::Write { block, blocks, shift, fill, fua }),
        (0..BLOCKS - 1, cuts.clone(), any::<u8>()).prop_map(|(block, cuts, fill)| Op::WriteVectored {
            block,
            cuts,
            fill
        }),
        (0..BLOCKS - 1, cuts).prop_map(|(block, cuts)| Op::ReadVectored { block, cuts }),
        range.clone().prop_map(|(block, blocks, _)| Op::Zeroes { block, blocks }),
        range.prop_map(|(block, blocks, _)| Op::Discard { block, blocks }),
        vec((any::<bool>(), any::<u8>(), rarely(), 0..2usize), 0..24).prop_map(|blocks| Op::Batch { blocks }),
        (0..1usize).prop_map(|_| Op::Flush),
    ]
}

/// Bytes that differ within a block and between fills.
fn pattern(fill: u8, len: usize) -> Vec<u8> {
    (0..len).map(|at| fill.wrapping_add((at % 251) as u8).wrapping_mul(3)).collect()
}

/// A buffer that begins `shift` bytes into its allocation: any alignment.
fn shifted(bytes: &[u8], shift: usize) -> Vec<u8> {
    let mut buf = vec![0; shift];
    buf.extend(bytes);
    buf
}

fn split_at_cuts<'a>(mut bytes: &'a [u8], cuts: &[usize]) -> Vec<&'a [u8]> {
    let mut parts = Vec::new();
    for cut in cuts {
        let (head, tail) = bytes.split_at(cut % (bytes.len() + 1));
        parts.push(head);
        bytes = tail;
    }
    parts.push(bytes);
    parts
}

struct Checked<'a> {
    device: &'a dyn BlockDevice,
    model: Vec<u8>,
    unit: usize,
}

impl Checked<'_> {
    fn range(&self, block: usize, blocks: usize) -> std::ops::Range<usize> {
        let end = (block + blocks).min(BLOCKS);
        block * self.unit..end * self.unit
    }

    fn run(&mut self, op: &Op) {
        match op {
            Op::Read { block, blocks, shift } => {
                let range = self.range(*block, *blocks);
                let mut buf = shifted(&vec![0xee; range.len()], *shift);
                self.device.read_at(range.start as u64, &mut buf[*shift..]).unwrap();
                assert_eq!(buf[*shift..], self.model[range]);
            }
            Op::Write { block, blocks, shift, fill, fua } => {
                let range = self.range(*block, *blocks);
                let data = pattern(*fill, range.len());
                let buf = shifted(&data, *shift);
                let write = if *fua { BlockDevice::write_fua } else { BlockDevice::write_at };
                write(&self.device, range.start as u64, &buf[*shift..]).unwrap();
                self.model[range].copy_from_slice(&data);
            }
            Op::WriteVectored { block, cuts, fill } => {
                let range = self.range(*block, 2);
                let data = pattern(*fill, range.len());
                let parts: Vec<_> = split_at_cuts(&data, cuts).into_iter().map(IoSlice::new).collect();
                self.device.write_vectored_at(range.start as u64, &parts).unwrap();
                self.model[range].copy_from_slice(&data);
            }
            Op::ReadVectored { block, cuts } => {
                let range = self.range(*block, 2);
                let sizes: Vec<usize> =
                    split_at_cuts(&self.model[range.clone()], cuts).iter().map(|part| part.len()).collect();
                let mut parts: Vec<Vec<u8>> = sizes.into_iter().map(|size| vec![0xee; size]).collect();
                let mut slices: Vec<_> = parts.iter_mut().map(|part| IoSliceMut::new(part)).collect();
                self.device.read_vectored_at(range.start as u64, &mut slices).unwrap();
                assert_eq!(parts.concat(), self.model[range]);
            }
            Op::Zeroes { block, blocks } => {
                let range = self.range(*block, *blocks);
                self.device.write_zeroes(range.start as u64, range.len() as u64).unwrap();
                self.model[range].fill(0);
            }
            Op::Discard { block, blocks } => {
                let range = self.range(*block, *blocks);
                self.device.discard(range.start as u64, range.len() as u64).unwrap();
                let info = self.device.info();
                if info.can_discard && info.discard_zeroes {
                    self.model[range].fill(0);
                } else if info.can_discard {
                    self.device.read_at(range.start as u64, &mut self.model[range]).unwrap();
                }
            }
            Op::Batch { blocks } => self.batch(blocks),
            Op::Flush => self.device.flush().unwrap(),
        }
    }

    /// Reads and writes of every second block, so that none overlap; some buffers aligned, some not.
    fn batch(&mut self, blocks: &[(bool, u8, bool, usize)]) {
        let unit = self.unit;
        let offset = |index: usize| (index * 2 + 1) * unit;
        let mut buffers: Vec<Vec<u8>> =
            blocks.iter().map(|&(_, fill, _, shift)| shifted(&pattern(fill, unit), shift)).collect();
        let mut requests: Vec<Request<'_>> = buffers
            .iter_mut()
            .zip(blocks)
            .enumerate()
            .map(|(index, (buf, &(is_read, _, fua, shift)))| match is_read {
                true => Request::Read { offset: offset(index) as u64, buf: &mut buf[shift..] },
                false => Request::Write { offset: offset(index) as u64, data: &buf[shift..], fua },
            })
            .collect();
        let results = self.device.run_batch(&mut requests);
        assert_eq!(results.len(), blocks.len());
        results.into_iter().for_each(|result| result.unwrap());
        for (index, (buf, &(is_read, _, _, shift))) in buffers.iter().zip(blocks).enumerate() {
            let range = offset(index)..offset(index) + unit;
            match is_read {
                true => assert_eq!(buf[shift..], self.model[range]),
                false => self.model[range].copy_from_slice(&buf[shift..]),
            }
        }
    }
}

/// All back ends do the same, which is what the model does: this is the equivalence of uring and psync, too.
#[test]
fn every_back_end_behaves_like_memory() {
    let folder = support::folder();
    // Of the greatest block size among them, so that all have the same geometry.
    let devices = support::devices(folder.path(), (BLOCKS * 4096) as u64);
    let mut runner = proptest::test_runner::TestRunner::new(ProptestConfig {
        cases: 24,
        failure_persistence: None,
        ..ProptestConfig::default()
    });
    runner
        .run(&vec(op(), 1..24), |ops| {
            for (name, device) in &devices {
                let unit = device.logical_block_bytes() as usize;
                let whole = BLOCKS * unit;
                device.write_zeroes(0, whole as u64).unwrap();
                let mut checked = Checked { device, model: vec![0; whole], unit };
                for op in &ops {
                    checked.run(op);
                }
                let mut contents = vec![0; whole];
                device.read_at(0, &mut contents).unwrap();
                prop_assert!(contents == checked.model, "{} differs", name);
            }
            Ok(())
        })
        .unwrap();
    for (name, device) in &devices {
        assert!(device.stats().of(fastness_blkdev::Operation::Write).ops > 0, "{name}");
    }
}
