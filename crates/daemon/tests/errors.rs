//! What clients are told when something fails below them, and what `status` says then.

use std::path::PathBuf;
use std::sync::Arc;

use fastness_blkdev::{Fault, FaultPlan, Faulty, MemDevice, On, Operation, When};
use fastness_daemon::{AccessRequest, Address, Failure, JobReport, Node, NodeOptions, PoolReport, Request};
use fastness_nbd::{Client, ClientError, Endpoint};
use fastness_store::{
    DatasetKind, Device, Given, ImportOptions, Kinds, Opener, Places, Pool, PoolOptions, Store, StoreOptions,
    VdevSpec,
};
use serde_json::Value;
use tempfile::TempDir;

const EIO: u32 = 5;
const ENOSPC: u32 = 28;
const EPERM: u32 = 1;
const EXPORT: Request = Request::Export { is_forced: true };

struct Bench {
    disks: Vec<Arc<Faulty<MemDevice>>>,
    node: Arc<Node>,
    dir: TempDir,
}

fn quiet(_: JobReport) -> bool {
    true
}

impl Bench {
    /// A pool with one vdev of so many sides, and a volume.
    fn new(sides: usize, len_bytes: u64) -> Bench {
        // No cache: reads reach the disks.
        let options = PoolOptions { cache_bytes: 0, ..PoolOptions::default() };
        Bench::with(sides, len_bytes, |devices| vec![VdevSpec::mirror(devices)], options)
    }

    fn with(
        count: usize,
        len_bytes: u64,
        specs: impl FnOnce(Vec<Device>) -> Vec<VdevSpec>,
        pool: PoolOptions,
    ) -> Bench {
        let disk = |index| {
            Arc::new(Faulty::new(MemDevice::new(&format!("disk{index}"), len_bytes), FaultPlan::new(0)))
        };
        let disks: Vec<_> = (0..count).map(disk).collect();
        let devices: Vec<_> = disks
            .iter()
            .enumerate()
            .map(|(index, disk)| Device::new(format!("disk{index}"), disk.clone()))
            .collect();
        let created = Pool::create("tank", &specs(devices.clone()), PoolOptions::default()).unwrap();
        created.export().unwrap();
        drop(created);
        let reopened = devices.clone();
        let opener = Opener::new(move |path| match reopened.iter().find(|device| device.path == path) {
            Some(device) => Ok(device.clone()),
            None => Device::open(path),
        });
        let places = Places { opener, ..Places::default() };
        let options = NodeOptions { pool, places, ..NodeOptions::default() };
        let node = Node::import(&devices, &ImportOptions::default(), options).unwrap();
        let bench = Bench { disks, node, dir: tempfile::tempdir().unwrap() };
        bench.ask(&Request::CreateVolume {
            name: "tank/v".to_owned(),
            size_bytes: 1 << 40,
            properties: vec![("volblocksize".to_owned(), "4K".to_owned())],
            with_parents: false,
        });
        bench
            .node
            .serve(
                "tank/v",
                &Address::Unix(bench.socket().display().to_string()),
                &AccessRequest::default(),
                false,
                false,
            )
            .unwrap();
        bench
    }

    fn socket(&self) -> PathBuf {
        self.dir.path().join("v.sock")
    }

    fn client(&self) -> Client {
        Client::connect(&Endpoint::Unix(self.socket()), "tank/v").unwrap()
    }

    fn ask(&self, request: &Request) -> Value {
        self.node.handle(request.clone(), &mut quiet).unwrap()
    }

    fn refused(&self, request: &Request) -> Failure {
        self.node.handle(request.clone(), &mut quiet).unwrap_err()
    }

    fn status(&self) -> PoolReport {
        serde_json::from_value(self.ask(&Request::Status)).unwrap()
    }
}

fn code<T: std::fmt::Debug>(result: Result<T, ClientError>) -> u32 {
    match result {
        Err(ClientError::Failed(code)) => code,
        other => panic!("{other:?}"),
    }
}

fn noise(seed: u64) -> Vec<u8> {
    (0..1 << 17)
        .flat_map(|at: u64| (at ^ seed << 32).wrapping_mul(0x9e37_79b9_7f4a_7c15).to_le_bytes())
        .collect()
}

#[test]
fn a_full_pool_is_enospc_and_discarding_makes_room() {
    let bench = Bench::new(1, 64 << 20);
    let mut client = bench.client();
    let mut at = 0;
    let full = loop {
        match client.write(at, &noise(at), false) {
            Ok(()) => at += 1 << 20,
            error => break code(error),
        }
    };
    assert_eq!(full, ENOSPC);
    client.flush().unwrap();
    let events = bench.status().events;
    assert!(events.iter().any(|event| event.text.contains("no space")), "{events:?}");
    let trim = fastness_nbd::Request {
        kind: fastness_nbd::wire::command::TRIM,
        flags: 0,
        offset: 0,
        length: at,
        payload: &[],
    };
    client.call(&trim).unwrap();
    client.flush().unwrap();
    client.write(0, &noise(1), true).unwrap();
    assert_eq!(bench.status().state, "online");
}

#[test]
fn a_failed_flush_is_eio_and_no_later_flush_claims_what_it_lost() {
    let bench = Bench::new(1, 64 << 20);
    bench.ask(&Request::SetPoolProperty { property: "failmode".to_owned(), value: "continue".to_owned() });
    let mut client = bench.client();
    client.write(0, &noise(1), true).unwrap();
    bench.disks[0].set_plan(FaultPlan::new(0).rule(
        On::Only(Operation::Flush),
        When::Nth(1),
        Fault::Errno(5),
    ));
    client.write(0, &noise(2), false).unwrap();
    assert_eq!(code(client.flush()), EIO);
    bench.disks[0].set_plan(FaultPlan::new(0));
    assert_eq!(code(client.flush()), EIO);
    assert_eq!(code(bench.client().flush()), EIO);
    assert_eq!(code(client.write(0, &noise(3), false)), EIO);
    let status = bench.status();
    assert_eq!(status.state, "suspended");
    assert!(status.advice.unwrap().contains("fastness pool clear tank"));
    // What they were told was written is in memory, and the next import takes it over.
    assert_eq!(client.read(0, 1 << 20).unwrap(), noise(2));
    bench.disks[0].reopen(1).unwrap();
    bench.ask(&Request::Clear { is_degraded: false, device: None });
    assert_eq!(client.read(0, 1 << 20).unwrap(), noise(2));
    client.flush().unwrap();
    client.write(0, &noise(3), true).unwrap();
    assert_eq!(bench.status().state, "online");
}

/// The disk fails; so many requests of other threads wait.
fn suspend(bench: &Bench) {
    let plan = FaultPlan::new(0).rule(On::Only(Operation::Flush), When::From(1), Fault::Errno(5));
    bench.disks[0].set_plan(plan);
}

fn wait_until(what: impl Fn() -> bool) {
    for _ in 0..1000 {
        if what() {
            return;
        }
        std::thread::sleep(std::time::Duration::from_millis(10));
    }
    panic!("it does not come to that");
}

#[test]
fn requests_wait_for_a_suspended_pool_and_go_on_when_it_was_cleared() {
    let bench = Bench::new(1, 256 << 20);
    bench.client().write(0, &noise(1), true).unwrap();
    // Told as written, and in memory only.
    bench.client().write(1 << 20, &noise(1), false).unwrap();
    suspend(&bench);
    std::thread::scope(|scope| {
        let write = |at: u64| {
            let mut client = bench.client();
            scope.spawn(move || client.write(at << 20, &noise(at), true))
        };
        let mut writers: Vec<_> = (2..4).map(write).collect();
        let mut flusher = bench.client();
        writers.push(scope.spawn(move || flusher.flush()));
        wait_until(|| bench.status().waiting == 3);
        let status = bench.status();
        assert_eq!((&status.state[..], &status.failmode[..]), ("suspended", "wait"));
        // What is in memory can be read, and what changes the pool is refused.
        assert_eq!(bench.client().read(1 << 20, 1 << 20).unwrap(), noise(1));
        let create =
            Request::CreateDataset { name: "tank/d".to_owned(), properties: Vec::new(), with_parents: false };
        assert_eq!(bench.refused(&create).kind, "closed");
        // The disk is not back: nobody goes on, twice.
        bench.disks[0].vanish();
        for _ in 0..2 {
            assert!(!bench.refused(&Request::Clear { is_degraded: false, device: None }).message.is_empty());
            assert_eq!(bench.status().waiting, 3);
        }
        assert!(writers.iter().all(|writer| !writer.is_finished()));
        bench.disks[0].set_plan(FaultPlan::new(0));
        bench.disks[0].reopen(7).unwrap();
        bench.ask(&Request::Clear { is_degraded: false, device: None });
        writers.into_iter().for_each(|writer| writer.join().unwrap().unwrap());
    });
    let status = bench.status();
    assert_eq!((&status.state[..], status.waiting), ("online", 0));
    let mut client = bench.client();
    for at in 0..4u64 {
        assert!(client.read(at << 20, 1 << 20).unwrap() == noise(at.max(1)), "{at}");
    }
    // There is nothing to resume: it clears counters only.
    bench.ask(&Request::Clear { is_degraded: false, device: None });
    // And all of it is durable.
    drop(client);
    let image = bench.disks[0].crash(3).unwrap();
    let device = Device::new("disk0", Arc::new(MemDevice::from_image("disk0", image, 512)));
    let node = Node::import(&[device], &ImportOptions::default(), NodeOptions::default()).unwrap();
    let volume = fastness_zvol::Volume::open(node.store(), "tank/v").unwrap();
    let mut found = vec![0; 1 << 20];
    for at in 0..4u64 {
        volume.read(at << 20, &mut found).unwrap();
        assert!(found == noise(at.max(1)), "{at}");
    }
}

#[test]
fn an_export_ends_those_who_wait() {
    for request in [EXPORT, Request::Unserve { name: "tank/v".to_owned(), is_forced: true }] {
        let bench = Bench::new(1, 64 << 20);
        suspend(&bench);
        std::thread::scope(|scope| {
            let mut client = bench.client();
            let waiting = scope.spawn(move || client.write(0, &noise(1), true));
            wait_until(|| bench.status().waiting == 1);
            // An export fails, and ends everything; that a volume is not served any more needs no txg.
            let is_export = request == EXPORT;
            assert_eq!(bench.node.handle(request, &mut quiet).is_err(), is_export);
            assert!(waiting.join().unwrap().is_err(), "not told that it was done");
        });
    }
}

/// The process dies while requests wait: what was acknowledged before is there, as after any crash.
#[test]
fn a_crash_while_requests_wait_loses_nothing_that_was_acknowledged() {
    let bench = Bench::new(1, 64 << 20);
    let mut client = bench.client();
    client.write(0, &noise(1), true).unwrap();
    suspend(&bench);
    std::thread::scope(|scope| {
        let mut other = bench.client();
        let waiting = scope.spawn(move || other.write(0, &noise(2), true));
        wait_until(|| bench.status().waiting == 1);
        for seed in 0..20 {
            let image = bench.disks[0].crash(seed).unwrap();
            let device = Device::new("disk0", Arc::new(MemDevice::from_image("disk0", image, 512)));
            let node = Node::import(&[device], &ImportOptions::default(), NodeOptions::default()).unwrap();
            let volume = fastness_zvol::Volume::open(node.store(), "tank/v").unwrap();
            let mut found = vec![0; 4096];
            for block in 0..256u64 {
                volume.read(block * 4096, &mut found).unwrap();
                let at = block as usize * 4096;
                let is = |seed| found == noise(seed)[at..at + 4096];
                assert!(is(1) || is(2), "seed {seed}, block {block}");
            }
        }
        assert!(bench.node.handle(EXPORT, &mut quiet).is_err());
        assert!(waiting.join().unwrap().is_err());
    });
}

#[test]
fn a_mirror_goes_on_with_one_side_and_says_so() {
    let bench = Bench::new(2, 64 << 20);
    let mut client = bench.client();
    bench.disks[1].vanish();
    client.write(0, &noise(1), true).unwrap();
    assert_eq!(client.read(0, 1 << 20).unwrap(), noise(1));
    let status = bench.status();
    assert_eq!(status.state, "degraded");
    assert_eq!(status.vdevs[0].devices[1].state, "failed");
    assert!(status.vdevs[0].devices[1].write_errors > 0);
    assert!(status.advice.unwrap().contains("pool online tank disk1"));
    bench.disks[1].come_back();
    bench.disks[1].reopen(0).unwrap();
    bench.ask(&Request::Online { device: "disk1".to_owned(), path: None, wait: true });
    assert_eq!(bench.status().state, "online");
    bench.disks[0].vanish();
    assert_eq!(client.read(0, 1 << 20).unwrap(), noise(1));
}

#[test]
fn an_unreadable_block_is_eio_with_its_place_in_the_events() {
    let bench = Bench::new(1, 64 << 20);
    let mut client = bench.client();
    client.write(0, &noise(1), false).unwrap();
    // Until then it is read from memory.
    bench.ask(&Request::Sync);
    bench.disks[0].set_plan(FaultPlan::new(0).rule(
        On::Only(Operation::Read),
        When::From(1),
        Fault::Errno(5),
    ));
    assert_eq!(code(client.read(8192, 4096)), EIO);
    bench.disks[0].set_plan(FaultPlan::new(0));
    assert_eq!(client.read(8192, 4096).unwrap(), noise(1)[8192..12288]);
    let events = bench.status().events;
    assert!(
        events.iter().any(|event| event.text.contains("tank/v") && event.text.contains("disk0")),
        "{events:?}"
    );
}

#[test]
fn a_read_only_server_is_eperm() {
    let bench = Bench::new(1, 64 << 20);
    let path = bench.dir.path().join("ro.sock");
    let access = AccessRequest::default();
    bench.node.serve("tank/v", &Address::Unix(path.display().to_string()), &access, true, false).unwrap();
    let mut client = Client::connect(&Endpoint::Unix(path), "tank/v").unwrap();
    assert_eq!(code(client.write(0, &[1; 4096], false)), EPERM);
    bench.client().write(0, &[1; 4096], false).unwrap();
    assert_eq!(client.read(0, 1).unwrap(), [1]);
}

#[test]
fn requests_that_make_no_sense_are_refused_and_change_nothing() {
    let bench = Bench::new(1, 64 << 20);
    let name = || "tank/v".to_owned();
    let access = AccessRequest::default;
    let serve = |address| Request::Serve {
        name: name(),
        address,
        is_read_only: false,
        is_kept: false,
        access: access(),
    };
    for (request, kind) in [
        (serve(Address::Tcp("nowhere".to_owned())), "invalid"),
        (serve(Address::Tcp("192.0.2.1:10809".to_owned())), "invalid"),
        (serve(Address::Unix(bench.socket().display().to_string())), "address-in-use"),
        (serve(Address::Unix("/nowhere/at/all".to_owned())), "invalid"),
        (Request::Detach { device: "disk9".to_owned() }, "invalid"),
        (Request::Detach { device: "disk0".to_owned() }, "retry"),
        (Request::Remove { device: "disk0".to_owned() }, "invalid"),
        (Request::ResizeVolume { name: name(), size_bytes: 12345, is_forced: false }, "invalid"),
        (Request::DestroyDataset { name: name(), is_recursive: false, is_dry: false }, "retry"),
        (
            Request::DestroyDataset { name: "tank/none".to_owned(), is_recursive: true, is_dry: false },
            "invalid",
        ),
    ] {
        assert_eq!(bench.refused(&request).kind, kind, "{request:?}: {:?}", bench.refused(&request));
    }
    bench.client().write(0, &[1; 4096], true).unwrap();
    assert_eq!(bench.status().served.len(), 1);
}

#[test]
fn an_export_answers_and_everything_after_it_is_refused() {
    let bench = Bench::new(1, 64 << 20);
    bench.client().write(0, &noise(1), false).unwrap();
    bench.ask(&EXPORT);
    assert_eq!(bench.refused(&Request::Status).kind, "closed");
    assert!(!bench.socket().exists());
    let devices = [Device::new("disk0", bench.disks[0].clone())];
    let mut source = Given { devices: devices.to_vec(), ..Given::default() };
    let kinds = Kinds::default().with(DatasetKind::Volume, fastness_zvol::VolumeReplay);
    let options = StoreOptions { kinds, ..StoreOptions::default() };
    let (store, _) = Store::import(&mut source, options).unwrap();
    let volume = fastness_zvol::Volume::open(&store, "tank/v").unwrap();
    let mut found = vec![0; 1 << 20];
    volume.read(0, &mut found).unwrap();
    assert!(found == noise(1));
}

#[test]
fn changes_of_datasets_at_one_time_all_succeed() {
    let bench = Bench::new(1, 64 << 20);
    std::thread::scope(|scope| {
        for thread in 0..4 {
            let bench = &bench;
            scope.spawn(move || {
                for round in 0..50 {
                    let name = format!("tank/{thread}-{round}");
                    let properties = Vec::new();
                    bench.ask(&Request::CreateDataset {
                        name: name.clone(),
                        properties,
                        with_parents: false,
                    });
                    if round % 2 == 0 {
                        bench.ask(&Request::DestroyDataset { name, is_recursive: false, is_dry: false });
                    }
                }
            });
        }
    });
    let listed = bench.ask(&Request::Datasets);
    // The root, the volume, and every second one.
    assert_eq!(listed.as_array().unwrap().len(), 2 + 4 * 25);
}

/// All that is free is promised to writes that are in the log. Taking them over in another txg than the log's
/// replay would need the room twice.
#[test]
fn a_full_pool_that_was_suspended_is_cleared() {
    let specs = |devices: Vec<Device>| {
        devices
            .into_iter()
            .map(VdevSpec::single)
            .zip([false, true, true])
            .map(|(spec, is_log)| if is_log { spec.log() } else { spec })
            .collect()
    };
    // So much room for log blocks that they do not end the txg.
    let options = PoolOptions { txg_timeout: std::time::Duration::from_secs(3600), ..PoolOptions::default() };
    let bench = Bench::with(3, 192 << 20, specs, options);
    let mut client = bench.client();
    let mut at = 0;
    while client.write(at << 20, &noise(at << 20), false).is_ok() {
        at += 1;
    }
    // While it is unsynced, it reserves pages of tables, too: two thirds of what is freed can be written.
    let (freed, parts) = (at / 4, at / 6);
    let trim = fastness_nbd::Request {
        kind: fastness_nbd::wire::command::TRIM,
        flags: 0,
        offset: 0,
        length: freed << 20,
        payload: &[],
    };
    client.call(&trim).unwrap();
    for _ in 0..20 {
        bench.ask(&Request::Sync);
    }
    let synced = bench.status().synced_txg;
    (0..parts).for_each(|part| client.write(part << 20, &noise(part + 1), false).unwrap());
    client.flush().unwrap();
    assert_eq!(bench.status().synced_txg, synced, "it is in the log, and in memory");
    suspend(&bench);
    assert!(!bench.refused(&Request::Sync).message.is_empty());
    bench.disks[0].set_plan(FaultPlan::new(0));
    bench.disks[0].reopen(1).unwrap();
    bench.ask(&Request::Clear { is_degraded: false, device: None });
    assert_eq!(bench.status().state, "online");
    for part in 0..at {
        let expected = match part {
            _ if part < parts => noise(part + 1),
            _ if part < freed => vec![0; 1 << 20],
            _ => noise(part << 20),
        };
        assert!(client.read(part << 20, 1 << 20).unwrap() == expected, "part {part}");
    }
}

fn add(path: &std::path::Path) -> Request {
    let devices = vec![path.display().to_string()];
    let vdevs = vec![fastness_daemon::VdevRequest { is_log: false, is_mirror: false, devices }];
    Request::Add { vdevs, is_forced: false, pm: fastness_daemon::PmUse::default() }
}

#[test]
fn a_vdev_is_added_to_a_suspended_pool_which_goes_on_with_it() {
    let bench = Bench::new(1, 64 << 20);
    let mut client = bench.client();
    client.write(0, &noise(1), true).unwrap();
    client.write(1 << 20, &noise(2), false).unwrap();
    let files: Vec<_> = (0..3).map(|index| bench.dir.path().join(format!("file{index}"))).collect();
    files.iter().for_each(|path| drop(Device::create(path, 64 << 20).unwrap()));
    suspend(&bench);
    assert!(!bench.refused(&Request::Sync).message.is_empty());
    let free = bench.status().free_bytes;
    // What is wrong with a device is found before anything is given up.
    assert!(!bench.refused(&add(&bench.dir.path().join("none"))).message.is_empty());
    // The disk is not back: whether the new one belongs to the pool by then or not, nothing is lost.
    assert!(!bench.refused(&add(&files[0])).message.is_empty());
    bench.disks[0].vanish();
    assert!(!bench.refused(&add(&files[1])).message.is_empty());
    assert_eq!(bench.status().state, "suspended");
    bench.disks[0].come_back();
    bench.disks[0].reopen(1).unwrap();
    // It takes the labels of import and addition, and fails the first txg: the new vdev belongs to the pool
    // then.
    let plan = FaultPlan::new(0).rule(On::Only(Operation::Flush), When::From(5), Fault::Errno(5));
    bench.disks[0].set_plan(plan);
    assert!(!bench.refused(&add(&files[1])).message.is_empty());
    let status = bench.status();
    assert_eq!(status.state, "suspended");
    let paths: Vec<_> =
        status.vdevs.iter().map(|vdev| (vdev.id, PathBuf::from(&vdev.devices[0].path))).collect();
    assert_eq!(paths, [(0, "disk0".into()), (1, files[1].clone())], "it belongs to the pool already");
    let heal = |seed| {
        bench.disks[0].set_plan(FaultPlan::new(0));
        bench.disks[0].reopen(seed).unwrap();
    };
    let has = |path: &PathBuf| {
        let status = bench.status();
        let sides = status.vdevs.iter().flat_map(|vdev| &vdev.devices);
        let is_there = sides.map(|side| &side.path).any(|known| *known == path.display().to_string());
        assert_eq!(status.state, "online");
        is_there
    };
    heal(2);
    bench.ask(&Request::Clear { is_degraded: false, device: None });
    assert!(has(&files[1]) && bench.status().free_bytes > free + (50 << 20));
    assert!(
        client.read(0, 1 << 20).unwrap() == noise(1) && client.read(1 << 20, 1 << 20).unwrap() == noise(2)
    );
    // Again, and this time the disk is well.
    client.write(2 << 20, &noise(3), false).unwrap();
    suspend(&bench);
    assert!(!bench.refused(&Request::Sync).message.is_empty());
    heal(3);
    bench.ask(&add(&files[2]));
    assert!(has(&files[1]) && has(&files[2]) && bench.status().free_bytes > free + (100 << 20));
    assert!(client.read(2 << 20, 1 << 20).unwrap() == noise(3));
    client.write(3 << 20, &noise(4), true).unwrap();
}

/// As a sparse file on a full file system: what it has it takes again, and nothing new.
#[test]
fn a_pool_whose_disk_has_no_room_goes_on_with_another() {
    let bench = Bench::new(1, 64 << 20);
    let mut client = bench.client();
    client.write(0, &noise(1), true).unwrap();
    bench.ask(&Request::Sync);
    let data = 256 << 10..(64 << 20) - (256 << 10) - 4096;
    let full = FaultPlan::new(0).rule_in(data, On::Writes, When::From(1), Fault::Errno(ENOSPC as i32));
    bench.disks[0].set_plan(full);
    client.write(1 << 20, &noise(2), false).unwrap();
    let refused = bench.refused(&Request::Sync);
    assert!(refused.message.contains("no space under the device"), "{refused:?}");
    let path = bench.dir.path().join("more");
    Device::create(&path, 64 << 20).unwrap();
    bench.ask(&add(&path));
    for part in 2..6 {
        client.write(part << 20, &noise(part + 1), part % 2 == 0).unwrap();
        bench.ask(&Request::Sync);
    }
    let status = bench.status();
    let states: Vec<_> = status.vdevs.iter().map(|vdev| vdev.devices[0].state.as_str()).collect();
    assert_eq!((status.state.as_str(), &states[..]), ("degraded", &["full", "online"][..]));
    assert!(status.advice.unwrap().contains("disk0 has no room"));
    assert!(status.free_bytes < 64 << 20);
    for part in 0..6 {
        assert!(client.read(part << 20, 1 << 20).unwrap() == noise(part + 1), "part {part}");
    }
}

/// The other device may be put back as it was just before: that it lacks the txg tells it from what it should
/// be.
#[test]
fn a_vdev_that_was_added_is_known_to_a_txg() {
    let bench = Bench::new(1, 64 << 20);
    let path = bench.dir.path().join("more");
    Device::create(&path, 64 << 20).unwrap();
    let before = bench.status().synced_txg;
    bench.ask(&add(&path));
    assert!(bench.status().synced_txg > before);
}
