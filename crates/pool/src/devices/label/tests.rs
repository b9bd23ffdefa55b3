use fastness_blkdev::{CrashScope, FaultPlan, Faulty, MemDevice, MemImage};

use super::*;
use crate::devices::config::{DeviceConfig, DeviceState, PoolState, VdevClass, VdevConfig};

fn config(generation: u64) -> PoolConfig {
    let device = DeviceConfig { guid: Guid(7), path: "/dev/a".to_owned(), state: DeviceState::Online };
    PoolConfig {
        guid: Guid(5),
        name: "tank".to_owned(),
        generation,
        txg: Txg(generation * 10),
        state: PoolState::Active,
        host_id: 1,
        // Over several sectors, all of which change: a slot can tear.
        host_name: generation.to_string().repeat(1500),
        vdevs: vec![VdevConfig { id: 0, class: VdevClass::Normal, units: 1000, devices: vec![device] }],
    }
}

fn device(image: MemImage) -> Arc<Faulty<MemDevice>> {
    Arc::new(Faulty::new(MemDevice::from_image("a", image, 512), FaultPlan::new(1)))
}

/// What an import finds on an image.
fn found(image: &MemImage) -> Result<Labels> {
    let device: Arc<dyn BlockDevice> = device(image.clone());
    read_labels("a", &device)
}

/// Images that a crash may leave at any point of writing `generation`.
fn crashes(image: &MemImage, generation: u64) -> Vec<MemImage> {
    let mut images = Vec::new();
    let device = device(image.clone());
    let probe = Probe { device: device.clone(), images: std::sync::Mutex::default() };
    write_config(&probe, Guid(7), &config(generation)).unwrap();
    images.append(&mut probe.images.lock().unwrap());
    images.push(device.crash(0).unwrap());
    images
}

/// Takes crash images before each flush.
struct Probe {
    device: Arc<Faulty<MemDevice>>,
    images: std::sync::Mutex<Vec<MemImage>>,
}

impl BlockDevice for Probe {
    fn info(&self) -> &fastness_blkdev::DeviceInfo {
        self.device.info()
    }
    fn read_at(&self, offset: u64, buf: &mut [u8]) -> Result<(), fastness_blkdev::BlockError> {
        self.device.read_at(offset, buf)
    }
    fn write_at(&self, offset: u64, data: &[u8]) -> Result<(), fastness_blkdev::BlockError> {
        self.device.write_at(offset, data)
    }
    fn write_fua(&self, offset: u64, data: &[u8]) -> Result<(), fastness_blkdev::BlockError> {
        self.device.write_fua(offset, data)
    }
    fn flush(&self) -> Result<(), fastness_blkdev::BlockError> {
        let mut images = self.images.lock().unwrap();
        let done =
            self.device.for_each_crash_state(CrashScope::Units, 24, |image| images.push(image.clone()));
        done?;
        self.device.flush()
    }
    fn discard(&self, offset: u64, len_bytes: u64) -> Result<(), fastness_blkdev::BlockError> {
        self.device.discard(offset, len_bytes)
    }
    fn write_zeroes(&self, offset: u64, len_bytes: u64) -> Result<(), fastness_blkdev::BlockError> {
        self.device.write_zeroes(offset, len_bytes)
    }
    fn stats(&self) -> fastness_blkdev::StatsSnapshot {
        self.device.stats()
    }
    fn is_poisoned(&self) -> bool {
        self.device.is_poisoned()
    }
}

#[test]
fn a_device_that_missed_a_generation_keeps_a_whole_configuration() {
    let empty = MemImage::zeroed(DEVICE_BYTES_MIN);
    let device = device(empty);
    (1..=3).for_each(|generation| write_config(&*device, Guid(7), &config(generation)).unwrap());
    // Generation 4 was cut short here but is whole elsewhere, so the next is 5 and overwrites the slot of 3.
    let (mut four, mut seen) = (0, [0; 6]);
    for image in crashes(&device.inner().image(), 4) {
        let generation = found(&image).unwrap().config.generation;
        assert!(generation == 3 || generation == 4);
        four += u64::from(generation == 4);
        for image in crashes(&image, 5) {
            seen[found(&image).unwrap().config.generation as usize] += 1;
        }
    }
    assert!(four > 0 && seen[3] > 0 && seen[4] > 0 && seen[5] > 0, "{four} {seen:?}");
}

fn uberblock(txg: u64) -> Uberblock {
    let lacking = (0..txg % 9).map(|vdev| (vdev as u16, Mark { txg: Txg(txg - 1), import: ImportId(vdev) }));
    let (import, lacking) = (ImportId(txg / 3), lacking.collect());
    Uberblock { txg: Txg(txg), generation: 9, import, lacking, root: vec![txg as u8; 3000] }
}

#[test]
fn a_torn_mark_leaves_the_one_before() {
    let mark = |txg: u64| Mark { txg: Txg(txg), import: ImportId(txg / 3) };
    let device = device(MemImage::zeroed(DEVICE_BYTES_MIN));
    write_config(&*device, Guid(7), &config(1)).unwrap();
    let mut seen = [0; 2];
    for txg in 1..10 {
        write_mark(&*device, Guid(7), Guid(5), mark(txg)).unwrap();
        let checked = device.for_each_crash_state(CrashScope::Units, 30, |image| {
            let marks = found(image).unwrap().marks;
            assert!(txg == 1 || marks.contains(&mark(txg - 1)), "{marks:?} for {txg}");
            seen[usize::from(marks.contains(&mark(txg)))] += 1;
        });
        checked.unwrap();
        device.flush().unwrap();
    }
    assert!(seen[0] > 0 && seen[1] > 0, "{seen:?}");
    // A mark of another device, of another pool, or in another place is ignored.
    let before = found(&device.inner().image()).unwrap().marks;
    write_mark(&*device, Guid(8), Guid(5), mark(20)).unwrap();
    write_mark(&*device, Guid(7), Guid(6), mark(21)).unwrap();
    assert!(found(&device.inner().image()).unwrap().marks.is_empty(), "{before:?} overwritten, and believed");
}

#[test]
fn the_newest_whole_uberblock_counts() {
    let device = device(MemImage::zeroed(DEVICE_BYTES_MIN));
    write_config(&*device, Guid(7), &config(1)).unwrap();
    for txg in 1..70 {
        write_uberblock(&*device, Guid(7), Guid(5), &uberblock(txg)).unwrap();
        assert_eq!(found(&device.inner().image()).unwrap().uberblock, Some(uberblock(txg)));
    }
    // One of another pool is rejected, and so is one in the wrong place.
    let before = found(&device.inner().image()).unwrap().uberblock;
    write_uberblock(&*device, Guid(7), Guid(6), &uberblock(100)).unwrap();
    let mut image = device.inner().image();
    let mut slot = vec![0; UBERBLOCK_BYTES];
    write_uberblock(&*device, Guid(7), Guid(5), &uberblock(101)).unwrap();
    let start = RING_START + 101 % RING_SLOTS * UBERBLOCK_BYTES as u64;
    device.read_at(start, &mut slot).unwrap();
    image.write(start + UBERBLOCK_BYTES as u64, &slot);
    assert_eq!(found(&image).unwrap().uberblock, before);
}

#[test]
fn a_torn_uberblock_leaves_the_one_before() {
    let write = |device: &Faulty<MemDevice>, txg: u64| {
        write_uberblock(device, Guid(7), Guid(5), &uberblock(txg)).unwrap();
    };
    let device = device(MemImage::zeroed(DEVICE_BYTES_MIN));
    write_config(&*device, Guid(7), &config(1)).unwrap();
    let mut seen = [0; 2];
    for txg in 1..40 {
        write(&device, txg);
        let checked = device.for_each_crash_state(CrashScope::Units, 30, |image| {
            let newest = found(image).unwrap().uberblock.map_or(0, |uberblock| uberblock.txg.0);
            assert!(newest == txg || newest == txg - 1, "{newest} instead of {txg}");
            seen[(txg - newest) as usize] += 1;
        });
        checked.unwrap();
        device.flush().unwrap();
    }
    assert!(seen.iter().all(|count| *count > 30), "{seen:?}");
}

#[test]
fn every_flipped_bit_of_a_slot_is_found() {
    let payload = config(3).encode();
    let slot = seal(MAGIC_CONFIG, 4096, Guid(7), Guid(5), &payload, SLOT_BYTES);
    assert!(matches!(open_slot(MAGIC_CONFIG, 4096, &slot), Slot::Whole { .. }));
    assert_eq!(open_slot(MAGIC_CONFIG, 8192, &slot), Slot::Damaged, "misdirected");
    assert_eq!(open_slot(MAGIC_UBERBLOCK, 4096, &slot), Slot::Damaged);
    for bit in (0..(HEAD_BYTES + payload.len() + 8) * 8).chain([SLOT_BYTES * 8 - 1]) {
        let mut flipped = slot.to_vec();
        flipped[bit / 8] ^= 1 << (bit % 8);
        assert_eq!(open_slot(MAGIC_CONFIG, 4096, &flipped), Slot::Damaged, "bit {bit}");
    }
}

/// The space that a device has grown by may hold the label of an older pool, of whatever generation.
#[test]
fn a_label_from_before_at_the_end_of_a_device_that_has_grown_is_ignored() {
    let long = 2 * DEVICE_BYTES_MIN;
    let before = device(MemImage::zeroed(long));
    let other = PoolConfig { guid: Guid(99), ..config(9) };
    write_config(&*before, Guid(98), &other).unwrap();
    let now = device(MemImage::zeroed(DEVICE_BYTES_MIN));
    write_config(&*now, Guid(7), &config(1)).unwrap();
    let mut image = before.inner().image();
    image.write(0, &now.inner().image().to_vec());
    let labels = found(&image).unwrap();
    assert_eq!((labels.device, labels.config), (Guid(7), config(1)));
}

#[test]
fn what_no_pool_has_written_is_no_damaged_label() {
    let mut image = MemImage::zeroed(DEVICE_BYTES_MIN);
    // As a log in persistent memory, or a file system, has bytes everywhere.
    for at in (0..LABEL_BYTES).step_by(512) {
        image.write(at, &at.wrapping_mul(0x9e37_79b9_7f4a_7c15).to_le_bytes());
        image.write(DEVICE_BYTES_MIN - LABEL_BYTES + at, b"something");
    }
    assert!(matches!(found(&image), Err(PoolError::NoLabel { .. })));
    // What is left of a label is damage, whichever end of its head is gone.
    let start = SLOT_START + SLOT_BYTES as u64;
    for (at, bytes) in [(0, MAGIC_CONFIG.to_le_bytes()), (16, start.to_le_bytes())] {
        let mut left = image.clone();
        left.write(start + at, &bytes);
        assert!(matches!(found(&left), Err(PoolError::DamagedLabels { .. })));
    }
}
