//! Snapshots that go from one pool to another: what arrives, what does not, and what a stream that ends early
//! or lies leaves.

mod support;

use std::io::Write;

use fastness_blkdev::{BlockDevice, MemImage};
use fastness_pool::PoolError;
use fastness_store::DatasetKind;
use fastness_stream::{DATA_BYTES_MAX, Reader, Token};
use fastness_testkit::Rng;
use fastness_zvol::{Outgoing, TransferError, Volume, abort_receiving, drop_interrupted, receive, receiving};
use support::side::{BLOCK_BYTES, FORCED, KEPT, MIB, PLAIN, Side, same};

#[test]
fn a_volume_arrives_and_so_does_what_changes() {
    let (from, mut to) = (Side::with_volume(), Side::new(64 * MIB));
    let full = from.send("tank/v@a", None);
    assert!(full.len() > 300 * BLOCK_BYTES && full.len() < 302 * BLOCK_BYTES, "holes are not sent");
    let received = to.receive("tank/copy", &full, PLAIN).unwrap();
    assert_eq!((&received.snapshot[..], received.data_bytes), ("tank/copy@a", 300 * BLOCK_BYTES as u64));
    same(&from, &to, &["a"]);
    from.write("tank/v", 10, 5, 2);
    Volume::open(from.store(), "tank/v")
        .unwrap()
        .discard(100 * BLOCK_BYTES as u64, 50 * BLOCK_BYTES as u64, false)
        .unwrap();
    from.snapshot("tank/v@b");
    from.write("tank/v", 12, 1, 3);
    // Of a row that nothing has changed since the first one.
    from.write("tank/v", 250, 1, 3);
    Volume::open(from.store(), "tank/v").unwrap().resize(4 * MIB).unwrap();
    from.snapshot("tank/v@c");
    let b = from.send("tank/v@b", Some("tank/v@a"));
    assert!(b.len() < 6 * BLOCK_BYTES, "{}", b.len());
    to.receive("tank/copy", &b, PLAIN).unwrap();
    same(&from, &to, &["a", "b"]);
    to.receive("tank/copy@c", &from.send("tank/v@c", Some("tank/v@b")), PLAIN).unwrap();
    to.crash();
    same(&from, &to, &["a", "b", "c"]);
    assert_eq!(to.volumes(), [("tank/copy".to_owned(), DatasetKind::Volume)]);
    // From there it goes on, to a third machine; and two steps at once.
    let third = Side::new(64 * MIB);
    third.receive("tank/copy", &to.send("tank/copy@a", None), PLAIN).unwrap();
    third.receive("tank/copy", &from.send("tank/v@c", Some("tank/v@a")), PLAIN).unwrap();
    same(&from, &third, &["a", "c"]);
    // It is a volume like any other, with a log.
    third.write("tank/copy", 0, 1, 9);
    Volume::open(third.store(), "tank/copy").unwrap().flush().unwrap();
}

/// Blocks that did not change are not read: not even ones that cannot be.
#[test]
fn an_increment_reads_what_changed() {
    let from = Side::with_volume();
    from.write("tank/v", 200, 10, 2);
    from.snapshot("tank/v@b");
    let mut all = vec![0; 64 << 20];
    from.memory.read_at(0, &mut all).unwrap();
    let needle: Vec<u8> = (50 * BLOCK_BYTES..51 * BLOCK_BYTES).map(|at| (at / 8 % 251) as u8 ^ 1).collect();
    let at = all.chunks(BLOCK_BYTES).position(|unit| unit == needle).unwrap() * BLOCK_BYTES;
    from.memory.write_at(at as u64, &[0x5a; BLOCK_BYTES]).unwrap();
    let mut side = from;
    side.crash();
    side.send("tank/v@b", Some("tank/v@a"));
    let refused =
        Outgoing::open(side.store(), "tank/v@b", None).unwrap().write(&mut std::io::sink()).unwrap_err();
    assert!(matches!(refused.of_pool(), Some(PoolError::DamagedBlock { .. })), "{refused}");
}

/// Wherever the stream ends, with a crash or without one: what came stays, and the rest completes it.
#[test]
fn an_interrupted_stream_goes_on() {
    let from = Side::with_volume();
    from.write("tank/v", 10, 40, 2);
    Volume::open(from.store(), "tank/v").unwrap().resize(16 * MIB).unwrap();
    from.write("tank/v", 2200, 600, 2);
    from.snapshot("tank/v@b");
    let full = from.send("tank/v@a", None);
    let increment = from.send("tank/v@b", Some("tank/v@a"));
    for (nth, per_mille) in [1, 300, 500, 700, 990, 999].into_iter().enumerate() {
        let mut to = Side::new(64 * MIB);
        for (stream, snapshots) in [(&full, &["a"][..]), (&increment, &["a", "b"])] {
            let (mut stream, mut tries) = (stream.clone(), 0);
            let before = to.volumes();
            while tries < 2 {
                let cut = stream.len() * per_mille / 1000;
                let error = to.receive("tank/copy", &stream[..cut], KEPT).unwrap_err();
                if receiving(&to.store().pool()).is_empty() {
                    assert!(cut < 200, "{error}");
                    break;
                }
                assert!(matches!(&error, TransferError::Interrupted { .. }), "{error}");
                if nth % 2 == 0 {
                    to.crash();
                }
                assert_eq!(drop_interrupted(to.store()).unwrap(), Vec::<String>::new());
                to.check();
                let half: Vec<_> =
                    to.volumes().into_iter().filter(|volume| !before.contains(volume)).collect();
                assert!(matches!(&half[..], [(_, DatasetKind::Receiving)]), "{half:?}");
                assert!(Volume::open(to.store(), &half[0].0).is_err(), "it is no volume yet");
                let token = to.token();
                let has_record = cut > DATA_BYTES_MAX + BLOCK_BYTES;
                assert!(!has_record || token.offset > 0, "what came need not come again");
                if token.offset > 0 && tries == 0 {
                    let again = to.receive("tank/copy", &stream, KEPT);
                    assert!(matches!(again, Err(TransferError::Partial { .. })), "from the beginning");
                }
                assert!(error.to_string().contains(&token.to_string()));
                stream = from.resume(&token.to_string().parse().unwrap());
                tries += 1;
            }
            to.receive("tank/copy", &stream, PLAIN).unwrap();
            assert!(receiving(&to.store().pool()).is_empty());
            to.crash();
            same(&from, &to, snapshots);
        }
    }
}

/// The rest has to be the rest of just that.
#[test]
fn a_part_of_another_stream_is_refused() {
    let (from, to) = (Side::with_volume(), Side::new(64 * MIB));
    let full = from.send("tank/v@a", None);
    from.write("tank/v", 0, 1, 2);
    from.snapshot("tank/v@b");
    to.receive("tank/copy", &full[..full.len() * 9 / 10], KEPT).unwrap_err();
    let token = to.token();
    let other = from.store().pool().snapshot_guid("tank/v@b").unwrap().0;
    for wrong in [
        Token { offset: token.offset + 4096, ..token.clone() },
        Token { offset: token.offset - 4096, ..token.clone() },
        Token { to: other, ..token.clone() },
        Token { to: other, from: Some(token.to), ..token.clone() },
    ] {
        let refused = to.receive("tank/copy", &from.resume(&wrong), KEPT).unwrap_err();
        assert!(matches!(refused, TransferError::OtherPart { .. } | TransferError::Volume(_)), "{refused}");
        assert_eq!(to.token(), token, "what came is still there");
    }
    to.receive("tank/copy", &from.resume(&token), KEPT).unwrap();
    same(&from, &to, &["a"]);
}

/// Whatever is done to a stream, nothing of it is left: neither a volume nor a change of one.
#[test]
fn a_stream_that_is_damaged_leaves_nothing() {
    let (from, to) = (Side::with_volume(), Side::new(64 * MIB));
    let full = from.send("tank/v@a", None);
    from.write("tank/v", 250, 300, 2);
    from.snapshot("tank/v@b");
    let increment = from.send("tank/v@b", Some("tank/v@a"));
    let mut random = Rng(3);
    let mut refuse = |stream: &[u8]| {
        for _ in 0..12 {
            let mut changed = stream.to_vec();
            let at = random.below(stream.len() as u64) as usize;
            if random.below(2) == 0 {
                changed.truncate(at);
            } else {
                changed[at] ^= 1 << random.below(8);
            }
            let before = to.volumes();
            assert!(to.receive("tank/copy", &changed, PLAIN).is_err());
            assert_eq!(to.volumes(), before);
            to.check();
        }
    };
    refuse(&full);
    assert!(to.receive("tank/copy", &increment, PLAIN).is_err(), "it has no beginning");
    to.receive("tank/copy", &full, PLAIN).unwrap();
    refuse(&increment);
    same(&from, &to, &["a"]);
    to.receive("tank/copy", &increment, PLAIN).unwrap();
    same(&from, &to, &["a", "b"]);
}

/// A crash in the middle of a stream that is not to be kept.
#[test]
fn what_a_crash_leaves_is_removed() {
    let (from, mut to) = (Side::with_volume(), Side::new(64 * MIB));
    let full = from.send("tank/v@a", None);
    let mut image = None;
    /// Takes an image of the medium where the stream ends: what a kill would leave.
    struct Dying<'a>(&'a [u8], &'a Side, &'a mut Option<MemImage>);
    impl std::io::Read for Dying<'_> {
        fn read(&mut self, buffer: &mut [u8]) -> std::io::Result<usize> {
            if self.0.is_empty() {
                self.1.store().pool().sync().unwrap();
                *self.2 = Some(self.1.memory.image());
                return Err(std::io::ErrorKind::ConnectionReset.into());
            }
            std::io::Read::read(&mut self.0, buffer)
        }
    }
    receive(to.store(), "tank/copy", Dying(&full[..full.len() / 2], &to, &mut image), PLAIN).unwrap_err();
    assert!(to.volumes().is_empty());
    to.disk = support::memory("disk", image.unwrap());
    to.crash();
    assert_eq!(to.volumes(), [("tank/copy".to_owned(), DatasetKind::Receiving)]);
    assert!(receiving(&to.store().pool())[0].token.is_none());
    assert_eq!(drop_interrupted(to.store()).unwrap(), ["tank/copy"]);
    assert!(to.volumes().is_empty());
    to.check();
}

#[test]
fn increments_need_their_beginning() {
    let (from, to) = (Side::with_volume(), Side::new(64 * MIB));
    to.receive("tank/copy", &from.send("tank/v@a", None), PLAIN).unwrap();
    from.write("tank/v", 0, 10, 2);
    from.snapshot("tank/v@b");
    from.write("tank/v", 5, 10, 3);
    from.snapshot("tank/v@c");
    let (b, c) = (from.send("tank/v@b", Some("tank/v@a")), from.send("tank/v@c", Some("tank/v@b")));
    assert!(matches!(to.receive("tank/copy", &c, FORCED), Err(TransferError::NoBase { .. })));
    assert!(matches!(
        to.receive("tank/none", &b, FORCED).unwrap_err().of_pool(),
        Some(PoolError::NoDataset(_))
    ));
    // Changed since, even if only in memory; and in size alone.
    to.write("tank/copy", 700, 1, 9);
    let refused = to.receive("tank/copy", &b, PLAIN).unwrap_err();
    assert!(matches!(refused.of_pool(), Some(PoolError::ChangedSince(_))), "{refused}");
    to.store().rollback("tank/copy@a", false).unwrap();
    Volume::open(to.store(), "tank/copy").unwrap().resize(9 * MIB).unwrap();
    let refused = to.receive("tank/copy", &b, PLAIN).unwrap_err();
    assert!(matches!(refused.of_pool(), Some(PoolError::ChangedSince(_))), "{refused}");
    to.snapshot("tank/copy@own");
    to.write("tank/copy", 900, 100, 9);
    let refused = to.receive("tank/copy", &b, PLAIN).unwrap_err();
    assert!(matches!(refused.of_pool(), Some(PoolError::NotNewest { .. })), "{refused}");
    assert_eq!(to.volumes().len(), 1);
    to.receive("tank/copy", &b, FORCED).unwrap();
    same(&from, &to, &["a", "b"]);
    assert!(to.store().pool().dataset("tank/copy@own").is_err());
    assert!(
        matches!(to.receive("tank/copy", &b, PLAIN), Err(TransferError::AlreadyThere(name)) if name == "tank/copy@b")
    );
    assert!(matches!(
        to.receive("tank/copy", &from.send("tank/v@a", None), FORCED),
        Err(TransferError::Exists(_))
    ));
    // While it is open, the end waits for it; what came is kept.
    let open = Volume::open(to.store(), "tank/copy").unwrap();
    let refused = to.receive("tank/copy", &c, KEPT).unwrap_err();
    assert!(matches!(refused.of_pool(), Some(PoolError::Busy { .. })), "{refused}");
    drop(open);
    let rest = from.resume(&to.token());
    assert!(rest.len() < 300, "only its end is left");
    to.receive("tank/copy", &rest, PLAIN).unwrap();
    same(&from, &to, &["a", "b", "c"]);
}

#[test]
fn a_clone_is_an_increment_on_its_origin() {
    let (from, to) = (Side::with_volume(), Side::new(64 * MIB));
    from.write("tank/v", 0, 20, 2);
    from.snapshot("tank/v@b");
    from.write("tank/v", 10, 20, 3);
    from.store().clone_snapshot("tank/v@b", "tank/c", &[]).unwrap();
    from.write("tank/c", 15, 20, 4);
    from.snapshot("tank/c@d");
    let whole = from.send("tank/c@d", None);
    to.receive("tank/whole", &whole, PLAIN).unwrap();
    assert!(to.read("tank/whole@d") == from.read("tank/c@d"));
    to.receive("tank/copy", &from.send("tank/v@a", None), PLAIN).unwrap();
    let increment = from.send("tank/c@d", Some("tank/v@a"));
    assert!(increment.len() < 37 * BLOCK_BYTES, "{}", increment.len());
    from.store().promote("tank/c").unwrap();
    assert!(from.send("tank/c@d", Some("tank/c@a")).len() == increment.len());
    to.receive("tank/copy", &increment, PLAIN).unwrap();
    assert!(to.read("tank/copy") == from.read("tank/c@d"));
    from.snapshot("tank/v@e");
    for (snapshot, base) in [("tank/c@a", "tank/c@d"), ("tank/v@e", "tank/c@d"), ("tank/c@d", "tank/v")] {
        Outgoing::open(from.store(), snapshot, Some(base)).unwrap_err();
    }
    Outgoing::open(from.store(), "tank/v@e", Some("tank/c@b")).unwrap();
    Outgoing::open(from.store(), "tank/v", None).unwrap_err();
    to.check();
}

#[test]
fn a_pool_that_is_full_keeps_what_it_had() {
    let from = Side::with_volume();
    Volume::open(from.store(), "tank/v").unwrap().resize(40 * MIB).unwrap();
    from.write("tank/v", 300, 7000, 5);
    from.snapshot("tank/v@b");
    let to = Side::new(24 * MIB);
    let refused = to.receive("tank/big", &from.send("tank/v@b", None), PLAIN).unwrap_err();
    assert!(matches!(refused.of_pool(), Some(PoolError::NoSpace { .. })), "{refused}");
    assert!(to.volumes().is_empty());
    to.check();
    to.receive("tank/copy", &from.send("tank/v@a", None), PLAIN).unwrap();
    let refused = to.receive("tank/copy", &from.send("tank/v@b", Some("tank/v@a")), KEPT).unwrap_err();
    assert!(matches!(refused.of_pool(), Some(PoolError::NoSpace { .. })), "{refused}");
    same(&from, &to, &["a"]);
    assert!(matches!(abort_receiving(to.store(), "tank/none"), Err(TransferError::NotReceiving(_))));
    abort_receiving(to.store(), "tank/copy").unwrap();
    assert_eq!(to.volumes().len(), 1);
    to.check();
}

/// Streams with right sums whose numbers no volume can have, or not this one.
#[test]
fn sizes_and_blocks_that_cannot_be_are_refused() {
    let to = Side::new(64 * MIB);
    let begin = |size_bytes, block_bytes, from| fastness_stream::Begin {
        to: 9,
        from,
        name: "tank/v@a".to_owned(),
        size_bytes,
        block_bytes,
        resumes_at: 0,
    };
    let stream = |begin: &fastness_stream::Begin, data: &[(u64, usize)]| {
        let mut stream = Vec::new();
        let mut writer = fastness_stream::Writer::begin(&mut stream, begin).unwrap();
        data.iter().for_each(|(at, len)| writer.data(*at, &vec![1; *len]).unwrap());
        writer.end().unwrap();
        stream
    };
    for (size, block) in
        [(0, 4096), (u64::MAX, 4096), (1 << 62, 4096), (5000, 4096), (MIB, 0), (MIB, 3000), (MIB, 1 << 31)]
    {
        assert!(
            to.receive("tank/x", &stream(&begin(size, block, None), &[]), KEPT).is_err(),
            "{size} {block}"
        );
        assert!(to.volumes().is_empty());
    }
    let beyond = stream(&begin(MIB, 4096, None), &[(MIB - 1, 2)]);
    assert!(matches!(to.receive("tank/x", &beyond, PLAIN), Err(TransferError::Stream(_))));
    let nameless = fastness_stream::Begin { name: "no name".to_owned(), ..begin(MIB, 4096, None) };
    assert!(to.receive("tank/x", &stream(&nameless, &[]), PLAIN).is_err());
    assert!(to.volumes().is_empty());
    to.receive("tank/x", &stream(&begin(MIB, 4096, None), &[(0, 10)]), PLAIN).unwrap();
    let other_blocks = fastness_stream::Begin { to: 10, ..begin(MIB, 8192, Some(9)) };
    let refused = to.receive("tank/x", &stream(&other_blocks, &[]), PLAIN).unwrap_err();
    assert!(matches!(refused, TransferError::OtherBlocks { .. }), "{refused}");
    let mut rest =
        stream(&fastness_stream::Begin { to: 10, resumes_at: 4096, ..begin(MIB, 4096, Some(9)) }, &[]);
    assert!(matches!(to.receive("tank/x", &rest, PLAIN), Err(TransferError::OtherPart { .. })));
    rest.write_all(b"more").unwrap();
    assert!(Reader::begin(&rest[..]).is_ok());
    to.check();
}

/// Random volumes and streams, against what the volumes hold.
#[test]
fn random_increments_arrive() {
    for seed in 0..12 {
        let mut random = Rng(seed);
        let (from, mut to) = (Side::with_volume(), Side::new(64 * MIB));
        let (mut sent, mut has) = (None::<String>, Vec::new());
        for step in 0..10 {
            for _ in 0..random.below(6) {
                let size = Volume::open(from.store(), "tank/v").unwrap().size_bytes();
                let blocks = size / BLOCK_BYTES as u64;
                let (block, count) = (random.below(blocks - 100), random.below(99) + 1);
                let volume = Volume::open(from.store(), "tank/v").unwrap();
                match random.below(6) {
                    0 => volume.resize((random.below(6) + 2) * MIB).unwrap(),
                    1 => volume.discard(block * 4096, count * 4096, false).unwrap(),
                    2 => volume.write(block * 4096 + 100, &[step; 300], false).unwrap(),
                    _ => from.write("tank/v", block, count as usize, step),
                }
            }
            let name = format!("tank/v@s{step}");
            from.snapshot(&name);
            if random.below(3) == 0 {
                continue;
            }
            let mut stream = from.send(&name, sent.as_deref());
            if random.below(3) == 0 {
                let cut = random.below(stream.len() as u64) as usize;
                if to.receive("tank/copy", &stream[..cut], KEPT).is_err()
                    && !receiving(&to.store().pool()).is_empty()
                {
                    stream = from.resume(&to.token());
                }
            }
            if random.below(3) == 0 {
                to.crash();
                if let Some(incoming) = receiving(&to.store().pool()).first() {
                    stream = from.resume(incoming.token.as_ref().unwrap());
                }
            }
            to.receive("tank/copy", &stream, PLAIN).unwrap();
            has.push(format!("s{step}"));
            same(&from, &to, &has.iter().map(String::as_str).collect::<Vec<_>>());
            sent = Some(name);
        }
        from.check();
    }
}
