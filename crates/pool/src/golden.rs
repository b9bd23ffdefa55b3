//! The bytes on the medium as they were when the format was fixed. A test that fails here has found a change
//! of the format: `docs/format.md` has the layouts, and a change needs another
//! [`FORMAT_VERSION`](crate::FORMAT_VERSION).

use std::fmt::Write;
use std::sync::Arc;

use fastness_blkdev::{BlockDevice, MemDevice, MemImage};

use crate::devices::config::{
    DeviceConfig, DeviceState, FORMAT_VERSION, PoolConfig, PoolState, VdevClass, VdevConfig,
};
use crate::devices::label::{self, DEVICE_BYTES_MIN, Uberblock, data_units, read_labels};
use crate::devices::vdev::{Side, Vdev, Vdevs};
use crate::ids::{Guid, ImportId, Mark, Place, Txg};
use crate::metadata::tables::{DatasetKind, DatasetRow};
use crate::namespace::props::{Property, Values};
use crate::objects::extent::{Extent, GROUP_BLOCKS, IN_PIECES, decode_group, decode_pieces, encode_group};
use crate::space::alloc::Allocator;

pub(crate) fn hex(bytes: &[u8]) -> String {
    bytes.iter().fold(String::new(), |mut text, byte| {
        write!(text, "{byte:02x}").expect("a string takes everything");
        text
    })
}

/// The vdevs of a pool of one small device.
pub(crate) fn sample_vdevs() -> Vdevs {
    let device: Arc<dyn BlockDevice> =
        Arc::new(MemDevice::from_image("a", MemImage::zeroed(DEVICE_BYTES_MIN), 512));
    let side = Side::new(Guid(7), "a".to_owned(), Some(device), DeviceState::Online);
    let units = data_units(DEVICE_BYTES_MIN);
    Vdevs::new([Arc::new(Vdev::new(0, VdevClass::Normal, units, vec![Arc::new(side)]))])
}

fn sample_config() -> PoolConfig {
    let device = |guid, path: &str, state| DeviceConfig { guid: Guid(guid), path: path.to_owned(), state };
    PoolConfig {
        guid: Guid(0x0102_0304_0506_0708),
        name: "tank".to_owned(),
        generation: 0x11,
        txg: Txg(0x22),
        state: PoolState::Active,
        host_id: 0x33,
        host_name: "h".to_owned(),
        vdevs: vec![
            VdevConfig {
                id: 0,
                class: VdevClass::Normal,
                units: 0x1000,
                devices: vec![
                    device(0xa1, "/dev/a", DeviceState::Online),
                    device(0xb2, "/dev/b", DeviceState::Stale),
                ],
            },
            VdevConfig {
                id: 3,
                class: VdevClass::Log,
                units: 0x20,
                devices: vec![device(0xc3, "c", DeviceState::Online)],
            },
        ],
    }
}

#[test]
fn a_label() {
    assert_eq!(FORMAT_VERSION, 3);
    let device: Arc<dyn BlockDevice> =
        Arc::new(MemDevice::from_image("a", MemImage::zeroed(DEVICE_BYTES_MIN), 512));
    label::write_config(&*device, Guid(0xa1), &sample_config()).unwrap();
    let payload = sample_config().encode();
    assert_eq!(
        hex(&payload),
        concat!(
            "0807060504030201",
            "0400",
            "74616e6b",
            "1100000000000000",
            "2200000000000000",
            "01",
            "3300000000000000",
            "0100",
            "68",
            "0200",
            "0000",
            "00",
            "0010000000000000",
            "0200",
            "a100000000000000",
            "0600",
            "2f6465762f61",
            "00",
            "b200000000000000",
            "0600",
            "2f6465762f62",
            "01",
            "0300",
            "01",
            "2000000000000000",
            "0100",
            "c300000000000000",
            "0100",
            "63",
            "00",
        )
    );
    // Generation 0x11 is odd: the second slot, at 48 KiB, of both labels.
    let mut head = [0; 4096];
    device.read_at(48 << 10, &mut head).unwrap();
    assert_eq!(
        hex(&head[..48]),
        "464153544c41424c324d6c38937ac5f100c00000000000000300000074000000a1000000000000000807060504030201"
    );
    assert_eq!(head[48..48 + payload.len()], payload);
    assert!(head[48 + payload.len()..].iter().all(|byte| *byte == 0));
    device.read_at(DEVICE_BYTES_MIN - (256 << 10) + (48 << 10), &mut head).unwrap();
    assert_eq!(hex(&head[16..24]), "00c07c0000000000", "where it is");
    assert_eq!(read_labels("a", &device).unwrap().config, sample_config());
}

#[test]
fn an_uberblock() {
    let device: Arc<dyn BlockDevice> =
        Arc::new(MemDevice::from_image("a", MemImage::zeroed(DEVICE_BYTES_MIN), 512));
    let (txg, import, root) = (Txg(37), ImportId(0xcc), vec![0xee; 20]);
    let lacking = vec![(3, Mark { txg: Txg(36), import: ImportId(0xbb) })];
    let uberblock = Uberblock { txg, generation: 5, import, lacking, root };
    let payload = uberblock.encode();
    assert_eq!(
        hex(&payload[..43]),
        "25000000000000000500000000000000cc0000000000000001\
         03002400000000000000bb00000000000000"
    );
    label::write_uberblock(&*device, Guid(0xa1), Guid(0xb2), &uberblock).unwrap();
    // Txg 37 goes into slot 5 of the ring at 128 KiB.
    let mut slot = [0; 4096];
    device.read_at((128 << 10) + 5 * 4096, &mut slot).unwrap();
    assert_eq!(
        hex(&slot[..48]),
        "4641535455424552fcb4333c9e8a74770050020000000000030000003f000000a100000000000000b200000000000000"
    );
    assert_eq!(slot[48..48 + payload.len()], payload);
}

#[test]
fn a_mark() {
    let device: Arc<dyn BlockDevice> =
        Arc::new(MemDevice::from_image("a", MemImage::zeroed(DEVICE_BYTES_MIN), 512));
    let mark = Mark { txg: Txg(37), import: ImportId(0xcc) };
    label::write_mark(&*device, Guid(0xa1), Guid(0xb2), mark).unwrap();
    // An odd txg goes into the second slot, at 100 KiB, of both labels.
    for start in [0, DEVICE_BYTES_MIN - (256 << 10)] {
        let mut slot = [0; 4096];
        device.read_at(start + (100 << 10), &mut slot).unwrap();
        assert_eq!(hex(&slot[..8]), "464153544d41524b");
        assert_eq!(slot[16..24], (start + (100 << 10)).to_le_bytes());
        assert_eq!(
            hex(&slot[24..64]),
            concat!(
                "0300000010000000",
                "a100000000000000",
                "b200000000000000",
                "2500000000000000",
                "cc00000000000000"
            )
        );
        assert!(slot[64..].iter().all(|byte| *byte == 0));
    }
}

#[test]
fn a_row_of_datasets() {
    let mut values = Values::default();
    values.set(Property::Compression, Some(2));
    values.set(Property::Quota, Some(0x1234));
    let row = DatasetRow { parent: 1, kind: DatasetKind::Volume, name: "vol".to_owned(), values };
    assert_eq!(
        hex(&row.encode()),
        concat!(
            "0100000000000000",
            "0300",
            "766f6c",
            "01",
            "000000000000000000",
            "000000000000000000",
            "000000000000000000",
            "000000000000000000",
            "010200000000000000",
            "000000000000000000",
            "013412000000000000",
            "000000000000000000",
        )
    );
    assert_eq!(DatasetRow::decode(&row.encode()).unwrap(), row);
}

#[test]
fn rows_of_extents_and_pieces() {
    let extent = Extent {
        place: Place { vdev: 1, unit: 0x0203_0405 },
        sum: 0x1112_1314_1516_1718,
        birth: Txg(0x21),
        stored_bytes: 0x1800,
        logical_bytes: 0x2000,
        codec: 1 | IN_PIECES,
    };
    let mut group = [None; GROUP_BLOCKS as usize];
    group[31] = Some(extent);
    let row = encode_group(&group);
    assert_eq!(
        hex(&row),
        "1f05040302000001001817161514131211210000000000000000180000002000_81".replace('_', "")
    );
    assert_eq!(decode_group(&row).unwrap(), group);
    let pieces = concat!(
        "0504030200000100",
        "0100000000000000",
        "00100000",
        "0900000000000000",
        "0200000000000000",
        "00080000",
    );
    let bytes: Vec<u8> =
        (0..pieces.len()).step_by(2).map(|at| u8::from_str_radix(&pieces[at..at + 2], 16).unwrap()).collect();
    let pieces = decode_pieces(&extent, Some(&bytes)).unwrap();
    let found: Vec<_> = pieces.iter().map(|piece| (piece.place, piece.sum, piece.stored_bytes)).collect();
    assert_eq!(found, [(extent.place, 1, 4096), (Place { vdev: 0, unit: 9 }, 2, 2048)]);
}

#[test]
fn a_row_of_space() {
    let mut allocator = Allocator::default();
    allocator.add_vdev(4, 5000);
    allocator.allocate_data(9).unwrap();
    let rows = allocator.take_dirty();
    let [(vdev, number, row)] = &rows[..] else { panic!("one row") };
    assert_eq!((*vdev, *number), (4, 0));
    assert_eq!(hex(row), "02_01_0000_0900".replace('_', ""));
}
