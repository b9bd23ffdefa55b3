//! Names that change while a stream is on its way, and GUIDs that several snapshots have.

use std::io::{self, Read};

use fastness_store::Store;
use fastness_zvol::{ReceiveOptions, Received, TransferError, drop_interrupted, receive, receiving};

use crate::side::{BLOCK_BYTES, FORCED, KEPT, PLAIN, Side};

fn rename(store: &Store, from: &str, to: &str) {
    store.change_unopened(|pool, tx| pool.rename_dataset(tx, from, to)).unwrap();
}

/// In the middle of it the volume gets another name.
struct Renaming<'a> {
    stream: &'a [u8],
    at: usize,
    store: &'a Store,
    to: Option<&'a str>,
}

impl Read for Renaming<'_> {
    fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        if self.at > self.stream.len() / 2
            && let Some(to) = self.to.take()
        {
            rename(self.store, "tank/copy", to);
        }
        let len = buf.len().min(self.stream.len() - self.at);
        buf[..len].copy_from_slice(&self.stream[self.at..self.at + len]);
        self.at += len;
        Ok(len)
    }
}

fn receive_renamed(
    to: &Side,
    stream: &[u8],
    name: &str,
    options: ReceiveOptions,
) -> Result<Received, TransferError> {
    receive(to.store(), "tank/copy", Renaming { stream, at: 0, store: to.store(), to: Some(name) }, options)
}

/// Records of 64 KiB, so that something comes after the renaming.
fn in_records(stream: &[u8]) -> Vec<u8> {
    let mut reader = fastness_stream::Reader::begin(stream).unwrap();
    let mut pieces = Vec::new();
    let mut writer = fastness_stream::Writer::begin(&mut pieces, reader.about()).unwrap();
    while let Some(part) = reader.next().unwrap() {
        match part {
            fastness_stream::Part::Hole(at, len) => writer.hole(at, len).unwrap(),
            fastness_stream::Part::Data(at, data) => {
                for (nth, piece) in data.chunks(64 << 10).enumerate() {
                    writer.data(at + (nth as u64 * (64 << 10)), piece).unwrap();
                }
            }
        }
    }
    writer.end().unwrap();
    pieces
}

/// `tank/v@b`, and both streams.
fn sender() -> (Side, Vec<u8>, Vec<u8>) {
    let from = Side::with_volume();
    from.write("tank/v", 100, 400, 2);
    from.snapshot("tank/v@b");
    let (full, increment) = (from.send("tank/v@a", None), from.send("tank/v@b", Some("tank/v@a")));
    (from, in_records(&full), in_records(&increment))
}

fn names(side: &Side) -> Vec<String> {
    side.volumes().into_iter().map(|(name, _)| name).collect()
}

#[test]
fn a_volume_that_is_renamed_while_it_comes_arrives() {
    let (from, full, increment) = sender();
    for options in [PLAIN, KEPT, FORCED] {
        let mut to = Side::new(64 << 20);
        let received = receive_renamed(&to, &full, "tank/second", options).unwrap();
        assert_eq!(received.snapshot, "tank/second@a");
        assert_eq!(names(&to), ["tank/second"]);
        rename(to.store(), "tank/second", "tank/copy");
        let received = receive_renamed(&to, &increment, "tank/third", options).unwrap();
        assert_eq!(received.snapshot, "tank/third@b");
        assert!(receiving(&to.store().pool()).is_empty());
        to.crash();
        assert_eq!(names(&to), ["tank/third"]);
        assert!(to.read("tank/third@a") == from.read("tank/v@a"));
        assert!(to.read("tank/third@b") == from.read("tank/v@b"));
        assert!(to.read("tank/third") == from.read("tank/v"));
        to.check();
    }
}

#[test]
fn what_came_of_a_volume_that_was_renamed_goes_or_goes_on() {
    let (from, full, increment) = sender();
    let to = Side::new(64 << 20);
    let part = |stream: &[u8]| stream[..stream.len() * 9 / 10].to_vec();
    receive_renamed(&to, &part(&full), "tank/second", PLAIN).unwrap_err();
    assert!(names(&to).is_empty(), "what is not to be kept is gone");
    let error = receive_renamed(&to, &part(&full), "tank/second", KEPT).unwrap_err();
    assert!(
        matches!(&error, TransferError::Interrupted { volume, .. } if volume == "tank/second"),
        "{error}"
    );
    to.receive("tank/second", &from.resume(&to.token()), PLAIN).unwrap();
    rename(to.store(), "tank/second", "tank/copy");
    receive_renamed(&to, &part(&increment), "tank/third", PLAIN).unwrap_err();
    assert_eq!(names(&to), ["tank/third"]);
    rename(to.store(), "tank/third", "tank/copy");
    let error = receive_renamed(&to, &part(&increment), "tank/third", KEPT).unwrap_err();
    assert!(matches!(&error, TransferError::Interrupted { volume, .. } if volume == "tank/third"), "{error}");
    to.receive("tank/third", &from.resume(&to.token()), PLAIN).unwrap();
    assert!(to.read("tank/third") == from.read("tank/v@b"));
    assert!(drop_interrupted(to.store()).unwrap().is_empty());
    to.check();
}

/// The names of the sender say nothing about what is sent: not even if nothing has come yet.
#[test]
fn a_stream_goes_on_after_the_sender_has_renamed_its_volume() {
    let (from, full, _) = sender();
    let to = Side::new(64 << 20);
    let nothing = fastness_stream::begin_bytes("tank/v@a") as usize + 10;
    for came in [nothing, full.len() / 2] {
        to.receive("tank/copy", &full[..came], KEPT).unwrap_err();
        let token = to.token();
        assert_eq!(token.offset == 0, came == nothing);
        rename(from.store(), "tank/v", "tank/renamed");
        to.receive("tank/copy", &from.resume(&token), PLAIN).unwrap();
        assert!(to.read("tank/copy") == from.read("tank/renamed@a"));
        rename(from.store(), "tank/renamed", "tank/v");
        to.store().destroy_datasets(vec!["tank/copy".to_owned(), "tank/copy@a".to_owned()]).unwrap();
    }
}

/// A pool that has received from itself has several snapshots of one GUID, of several volumes.
#[test]
fn a_token_finds_two_snapshots_of_one_volume() {
    let (from, full, increment) = sender();
    for name in ["tank/a", "tank/w"] {
        from.receive(name, &full, PLAIN).unwrap();
    }
    from.receive("tank/w", &increment, PLAIN).unwrap();
    let to = Side::new(64 << 20);
    to.receive("tank/copy", &full, PLAIN).unwrap();
    to.receive("tank/copy", &increment[..20 * BLOCK_BYTES], KEPT).unwrap_err();
    let token = to.token();
    // Of `b` there is one copy left, and `a` of other volumes comes before that one's.
    from.store().destroy_datasets(vec!["tank/v@b".to_owned()]).unwrap();
    to.receive("tank/copy", &from.resume(&token), PLAIN).unwrap();
    assert!(to.read("tank/copy") == from.read("tank/w@b"));
    from.store().destroy_datasets(vec!["tank/w@a".to_owned()]).unwrap();
    assert!(fastness_zvol::Outgoing::resume(from.store(), &token).is_err(), "no volume has both");
}
