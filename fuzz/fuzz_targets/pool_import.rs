//! Importing a damaged pool and reading all of it: an error, or what was written.
#![no_main]

use std::sync::{Arc, OnceLock};

use arbitrary::Arbitrary;
use fastness_blkdev::{MemDevice, MemImage};
use fastness_pool::{Compression, Device, ImportOptions, ObjectId, Pool, PoolOptions, Property, VdevSpec};
use libfuzzer_sys::fuzz_target;

const LEN_BYTES: u64 = 8 << 20;
const OBJECTS: u64 = 6;

fn options() -> PoolOptions {
    PoolOptions {
        has_txg_thread: false,
        cache_bytes: 1 << 20,
        meta_cache_bytes: 1 << 20,
        ..PoolOptions::default()
    }
}

fn device(image: MemImage) -> (Arc<MemDevice>, Device) {
    let device = Arc::new(MemDevice::from_image("fuzzed", image, 512));
    (device.clone(), Device::new("fuzzed", device))
}

fn bytes(object: u64) -> Vec<u8> {
    (0..20_000 * object).map(|at| (at / 300 * object) as u8).collect()
}

/// A small pool, and the units of it that are in use.
fn written() -> &'static (MemImage, Vec<u64>) {
    static WRITTEN: OnceLock<(MemImage, Vec<u64>)> = OnceLock::new();
    WRITTEN.get_or_init(|| {
        let (memory, device) = device(MemImage::zeroed(LEN_BYTES));
        let pool = Pool::create("tank", &[VdevSpec::single(device)], options()).unwrap();
        let root = pool.dataset("tank").unwrap();
        for id in 1..=OBJECTS {
            let tx = pool.begin_tx().unwrap();
            root.set(&tx, Property::Compression, Some(id % 3)).unwrap();
            let object = root.create_object(&tx).unwrap();
            object.write(&tx, 0, &bytes(id)).unwrap();
            drop(tx);
            pool.sync().unwrap();
        }
        assert_eq!(root.compression(), Compression::Off);
        pool.export().unwrap();
        let image = memory.image();
        let all = image.to_vec();
        let units = all.chunks(4096).enumerate().filter(|(_, unit)| unit.iter().any(|byte| *byte != 0));
        (image.clone(), units.map(|(unit, _)| unit as u64 * 4096).collect())
    })
}

#[derive(Debug, Arbitrary)]
struct Edit {
    unit: u16,
    offset: u16,
    /// Where to, for a misdirected unit; otherwise the bytes are put there.
    to: Option<u16>,
    bytes: Vec<u8>,
}

fuzz_target!(|edits: Vec<Edit>| {
    let (image, units) = written();
    let mut image = image.clone();
    for edit in edits.iter().take(8) {
        let place = units[usize::from(edit.unit) % units.len()];
        match edit.to {
            Some(to) => {
                let mut unit = vec![0; 4096];
                image.read(place, &mut unit);
                image.write(units[usize::from(to) % units.len()], &unit);
            }
            None => {
                let offset = u64::from(edit.offset) % 4096;
                let len = edit.bytes.len().min(4096 - offset as usize);
                image.write(place + offset, &edit.bytes[..len]);
            }
        }
    }
    let (_, device) = device(image);
    let Ok(pool) = Pool::import(&[device], &ImportOptions::default(), options()) else { return };
    for id in 1..=OBJECTS {
        let read = || {
            let object = pool.dataset("tank")?.object(ObjectId(id))?;
            let mut found = vec![0; object.size_bytes() as usize];
            object.read(0, &mut found)?;
            Ok::<_, fastness_pool::PoolError>(found)
        };
        // An older txg than the last may be found if all newer uberblocks are gone: then later objects are
        // not there.
        if let Ok(found) = read() {
            assert!(found == bytes(id), "wrong data");
        }
    }
    let _ = pool.scrub(|_| true);
    let _ = pool.check();
    let _ = pool.sync();
});
