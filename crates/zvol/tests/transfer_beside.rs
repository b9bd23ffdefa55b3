//! What others do while a stream is received: nobody else writes to what becomes a volume, it may be renamed,
//! and a pool may have both ends.

mod support;

use std::io::Read;

use fastness_pool::PoolError;
use fastness_zvol::{Outgoing, TransferError, abort_receiving, receive, receiving};
use support::side::{KEPT, MIB, PLAIN, Side, same};

/// A stream, and what happens when half of it has come.
struct Halfway<'a, F: FnMut()> {
    stream: &'a [u8],
    at: usize,
    meanwhile: F,
}

impl<'a, F: FnMut()> Halfway<'a, F> {
    fn new(stream: &'a [u8], meanwhile: F) -> Self {
        Halfway { stream, at: 0, meanwhile }
    }
}

impl<F: FnMut()> Read for Halfway<'_, F> {
    fn read(&mut self, buf: &mut [u8]) -> std::io::Result<usize> {
        let half = self.stream.len() / 2;
        if self.at == half {
            (self.meanwhile)();
        }
        let end = if self.at < half { half } else { self.stream.len() };
        let len = buf.len().min(end - self.at);
        buf[..len].copy_from_slice(&self.stream[self.at..self.at + len]);
        self.at += len;
        Ok(len)
    }
}

/// A connection hangs, and the stream is sent again: the two must not write to one volume, above all not the
/// one that hung to the volume that the other has made.
#[test]
fn a_volume_is_received_from_one_stream_at_a_time() {
    let from = Side::with_volume();
    from.write("tank/v", 400, 800, 5);
    from.snapshot("tank/v@b");
    let full = from.send("tank/v@a", None);
    let increment = from.send("tank/v@b", Some("tank/v@a"));
    for (options, is_synced) in [(PLAIN, false), (PLAIN, true), (KEPT, false), (KEPT, true)] {
        let to = Side::new(64 * MIB);
        for (stream, snapshots) in [(&full, &["a"][..]), (&increment, &["a", "b"])] {
            let mut tries = 0;
            let again = || {
                if is_synced {
                    to.store().pool().sync().unwrap();
                }
                let refused = |result: Result<(), TransferError>| {
                    let error = result.unwrap_err();
                    assert!(matches!(error, TransferError::BeingReceived(_)), "{error}");
                };
                refused(to.receive("tank/copy", stream, options).map(drop));
                refused(abort_receiving(to.store(), "tank/copy"));
                if let Some(token) = receiving(&to.store().pool())[0].token.clone() {
                    refused(to.receive("tank/copy", &from.resume(&token), KEPT).map(drop));
                }
                tries += 1;
            };
            receive(to.store(), "tank/copy", Halfway::new(stream, again), options).unwrap();
            assert_eq!(tries, 1);
            same(&from, &to, snapshots);
        }
    }
}

#[test]
fn what_is_renamed_while_it_comes_arrives_under_its_new_name() {
    let from = Side::with_volume();
    from.write("tank/v", 400, 800, 5);
    from.snapshot("tank/v@b");
    let full = from.send("tank/v@a", None);
    let increment = from.send("tank/v@b", Some("tank/v@a"));
    for (stream, snapshots) in [(&full, &["a"][..]), (&increment, &["a", "b"])] {
        for (cut, options) in [(0, PLAIN), (0, KEPT), (1, PLAIN), (1, KEPT)] {
            let to = Side::new(64 * MIB);
            if snapshots.len() > 1 {
                to.receive("tank/old", &full, PLAIN).unwrap();
            }
            let rename = || {
                let renamed =
                    to.store().change_unopened(|pool, tx| pool.rename_dataset(tx, "tank/old", "tank/copy"));
                renamed.unwrap();
            };
            let stream = &stream[..stream.len() - cut];
            let received = receive(to.store(), "tank/old", Halfway::new(stream, rename), options);
            let pool = to.store().pool();
            match (cut, options.is_resumable) {
                (0, _) => {
                    assert_eq!(
                        received.unwrap().snapshot,
                        format!("tank/copy@{}", snapshots[snapshots.len() - 1])
                    );
                    same(&from, &to, snapshots);
                }
                (_, false) => {
                    received.unwrap_err();
                    assert!(receiving(&pool).is_empty(), "nothing is left of it");
                    assert_eq!(to.volumes().len(), snapshots.len() - 1);
                }
                _ => {
                    let kept = received.unwrap_err();
                    let is_named = |error: &TransferError| matches!(error, TransferError::Interrupted { volume, .. } if volume == "tank/copy");
                    assert!(is_named(&kept), "{kept}");
                    to.receive("tank/copy", &from.resume(&to.token()), PLAIN).unwrap();
                    same(&from, &to, snapshots);
                }
            }
        }
    }
}

/// What was received in the pool that it came from has the same GUIDs as what was sent.
#[test]
fn a_stream_goes_on_in_the_pool_that_it_came_from() {
    // Found before what they are copies of, and after it.
    for copy in ["tank/a", "tank/z"] {
        let side = Side::with_volume();
        side.write("tank/v", 400, 800, 5);
        side.snapshot("tank/v@b");
        side.receive(copy, &side.send("tank/v@a", None), PLAIN).unwrap();
        side.receive("tank/b", &side.send("tank/v@b", None), PLAIN).unwrap();
        for (to, before) in [("tank/y", None), (copy, Some("tank/v@a"))] {
            let stream = side.send("tank/v@b", before);
            side.receive(to, &stream[..stream.len() / 2], KEPT).unwrap_err();
            let rest = side.resume(&side.token());
            side.receive(to, &rest[..rest.len() / 3], KEPT).unwrap_err();
            side.receive(to, &side.resume(&side.token()), PLAIN).unwrap();
            assert!(side.read("tank/v@b") == side.read(&format!("{to}@b")));
        }
        side.check();
    }
}

/// Nothing of the data had come, and the rest comes from a snapshot of another name.
#[test]
fn a_stream_that_had_just_begun_goes_on_from_a_copy() {
    let (mut from, to) = (Side::with_volume(), Side::new(64 * MIB));
    to.receive("tank/copy", &from.send("tank/v@a", None)[..1000], KEPT).unwrap_err();
    let token = to.token();
    assert_eq!(token.offset, 0);
    from.receive("tank/w@other", &from.send("tank/v@a", None), PLAIN).unwrap();
    from.store().destroy_datasets(vec!["tank/v@a".to_owned(), "tank/v".to_owned()]).unwrap();
    from.crash();
    to.receive("tank/copy", &from.resume(&token), KEPT).unwrap();
    assert!(to.read("tank/copy") == from.read("tank/w"));
}

#[test]
fn an_increment_on_itself_is_refused() {
    let from = Side::with_volume();
    let refused = Outgoing::open(from.store(), "tank/v@a", Some("tank/v@a")).unwrap_err();
    assert!(matches!(refused.of_pool(), Some(PoolError::Invalid { .. })), "{refused}");
}
