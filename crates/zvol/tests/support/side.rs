//! A pool with volumes on one device, which sends snapshots and receives them.

use std::sync::Arc;

use fastness_blkdev::MemDevice;
use fastness_pool::{Device, Property, VdevSpec};
use fastness_store::{Consent, DatasetKind, Given, Store};
use fastness_stream::Token;
use fastness_zvol::{
    Outgoing, ReceiveOptions, Received, TransferError, Volume, VolumeOptions, receive, receiving,
};

use super::{create, manual, store_options};

pub const MIB: u64 = 1 << 20;
pub const BLOCK_BYTES: usize = 4096;
pub const KEPT: ReceiveOptions = ReceiveOptions { is_resumable: true, is_forced: false };
pub const PLAIN: ReceiveOptions = ReceiveOptions { is_resumable: false, is_forced: false };
pub const FORCED: ReceiveOptions = ReceiveOptions { is_resumable: false, is_forced: true };

pub struct Side {
    pub disk: Device,
    pub memory: Arc<MemDevice>,
    store: Option<Arc<Store>>,
}

impl Side {
    pub fn new(bytes: u64) -> Side {
        let memory = Arc::new(MemDevice::new("disk", bytes));
        let disk = Device::new("disk", memory.clone());
        let store = create(&[VdevSpec::single(disk.clone())], store_options(manual()));
        Side { disk, memory, store: Some(store) }
    }

    /// With a volume of 8 MiB, some of it written, and the snapshot `a`.
    pub fn with_volume() -> Side {
        let side = Side::new(64 * MIB);
        let options = VolumeOptions { properties: vec![(Property::VolBlockSize, BLOCK_BYTES as u64)] };
        Volume::create(side.store(), "tank/v", 8 * MIB, &options).unwrap();
        side.write("tank/v", 0, 300, 1);
        side.snapshot("tank/v@a");
        side
    }

    pub fn store(&self) -> &Arc<Store> {
        self.store.as_ref().unwrap()
    }

    pub fn write(&self, name: &str, block: u64, blocks: usize, salt: u8) {
        let data: Vec<u8> = (0..blocks * BLOCK_BYTES).map(|at| (at / 8 % 251) as u8 ^ salt).collect();
        Volume::open(self.store(), name).unwrap().write(block * BLOCK_BYTES as u64, &data, false).unwrap();
    }

    pub fn snapshot(&self, name: &str) {
        self.store().snapshot(name).unwrap();
    }

    pub fn read(&self, name: &str) -> Vec<u8> {
        let volume = Volume::open(self.store(), name).unwrap();
        let mut bytes = vec![0xee; volume.size_bytes() as usize];
        volume.read(0, &mut bytes).unwrap();
        bytes
    }

    pub fn send(&self, snapshot: &str, from: Option<&str>) -> Vec<u8> {
        let outgoing = Outgoing::open(self.store(), snapshot, from).unwrap();
        written(&outgoing)
    }

    pub fn resume(&self, token: &Token) -> Vec<u8> {
        written(&Outgoing::resume(self.store(), token).unwrap())
    }

    pub fn receive(
        &self,
        name: &str,
        stream: &[u8],
        options: ReceiveOptions,
    ) -> Result<Received, TransferError> {
        receive(self.store(), name, stream, options)
    }

    /// Everything in memory is gone; an import follows.
    pub fn crash(&mut self) {
        self.store = None;
        let mut parts = Given { devices: vec![self.disk.clone()], regions: Vec::new() };
        let (store, _) = super::import(&mut parts, &store_options(manual()), Consent::NONE).unwrap();
        self.store = Some(store);
    }

    pub fn check(&self) {
        self.store().pool().sync().unwrap();
        let report = self.store().pool().check().unwrap();
        assert!(report.is_clean(), "{report:?}");
    }

    pub fn token(&self) -> Token {
        receiving(&self.store().pool())[0].token.clone().unwrap()
    }

    pub fn volumes(&self) -> Vec<(String, DatasetKind)> {
        let all = self.store().pool().datasets();
        all.into_iter()
            .map(|info| (info.name, info.kind))
            .filter(|(_, kind)| *kind != DatasetKind::Folder)
            .collect()
    }
}

/// The stream, which is as long as was said before.
pub fn written(outgoing: &Outgoing) -> Vec<u8> {
    let mut stream = Vec::new();
    outgoing.write(&mut stream).unwrap();
    assert_eq!(outgoing.size().unwrap().stream_bytes, stream.len() as u64);
    stream
}

pub fn same(from: &Side, to: &Side, snapshots: &[&str]) {
    let guid = |side: &Side, name: &str| side.store().pool().snapshot_guid(name).unwrap();
    for last in snapshots {
        let (one, other) = (format!("tank/v@{last}"), format!("tank/copy@{last}"));
        assert!(from.read(&one) == to.read(&other), "{last}");
        assert_eq!(guid(from, &one), guid(to, &other));
    }
    let newest = snapshots[snapshots.len() - 1];
    assert!(from.read(&format!("tank/v@{newest}")) == to.read("tank/copy"));
    to.check();
}
