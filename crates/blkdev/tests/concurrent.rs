//! Many threads on one device.

mod support;

use fastness_blkdev::{BlockDevice, Operation, Request};

const THREADS: u64 = 6;
const BLOCKS: u64 = 24;
const UNIT: usize = 4096;
const ROUNDS: u8 = 6;

/// Each thread writes its own blocks in batches and reads them back, while the others do and one flushes.
#[test]
fn threads_do_not_disturb_each_other() {
    let folder = support::folder();
    let len_bytes = THREADS * BLOCKS * UNIT as u64;
    for (name, device) in support::devices(folder.path(), len_bytes) {
        std::thread::scope(|scope| {
            for thread in 0..THREADS {
                let device = &device;
                scope.spawn(move || {
                    for round in 0..ROUNDS {
                        one_round(device, thread, round);
                    }
                });
            }
            scope.spawn(|| {
                for _ in 0..4 {
                    device.flush().unwrap();
                }
            });
        });
        let mut contents = vec![0; len_bytes as usize];
        device.read_at(0, &mut contents).unwrap();
        for (index, block) in contents.chunks(UNIT).enumerate() {
            let expected = fill(index as u64 / BLOCKS, ROUNDS - 1, index as u64 % BLOCKS);
            assert!(block.iter().all(|&byte| byte == expected), "{name}: block {index}");
        }
        let stats = device.stats();
        let writes = stats.of(Operation::Write).ops + stats.of(Operation::WriteFua).ops;
        assert_eq!(writes, THREADS * BLOCKS * u64::from(ROUNDS), "{name}");
        assert_eq!(stats.of(Operation::Read).ops, THREADS * BLOCKS * u64::from(ROUNDS) + 1, "{name}");
        assert_eq!(stats.of(Operation::Flush).ops, 4);
    }
}

fn fill(thread: u64, round: u8, block: u64) -> u8 {
    (thread * 40 + block) as u8 ^ round.wrapping_mul(31)
}

fn one_round(device: &dyn BlockDevice, thread: u64, round: u8) {
    let offset = |block: u64| (thread * BLOCKS + block) * UNIT as u64;
    let data: Vec<Vec<u8>> = (0..BLOCKS).map(|block| vec![fill(thread, round, block); UNIT]).collect();
    let mut writes: Vec<_> = (0..BLOCKS)
        .zip(&data)
        .map(|(block, data)| Request::Write { offset: offset(block), data, fua: block == 0 && round == 0 })
        .collect();
    device.run_batch(&mut writes).into_iter().for_each(|result| result.unwrap());
    let mut read = vec![vec![0; UNIT]; BLOCKS as usize];
    let mut reads: Vec<_> =
        (0..BLOCKS).zip(&mut read).map(|(block, buf)| Request::Read { offset: offset(block), buf }).collect();
    device.run_batch(&mut reads).into_iter().for_each(|result| result.unwrap());
    assert!(read == data);
}
