//! Streams of snapshots: sent from the pool, compared with what the snapshots are, and cut into other pieces,
//! as another sender would.

use fastness_stream::{Begin, DATA_BYTES_MAX, Part, Reader, Writer};
use fastness_zvol::{Outgoing, Token, TransferError};

use crate::rng::Rng;
use crate::snapshots::Snap;
use crate::world::{Failure, World};

/// A stream, and of which snapshot it is.
pub struct Sent {
    pub bytes: Vec<u8>,
    pub about: Begin,
    pub data_bytes: u64,
}

impl From<TransferError> for Failure {
    fn from(error: TransferError) -> Failure {
        Failure { kind: error.kind(), text: fastness_base::chain(&error) }
    }
}

impl World<'_> {
    /// A snapshot that shows what this one does.
    pub fn snapshot_like(&self, number: u64) -> Option<&Snap> {
        self.snapshots.iter().find(|snap| snap.number == number)
    }

    /// A snapshot and one that it is a later state of, by what they show: a stream can be made of these.
    pub fn ends_of_stream(&self, to: u64, from: Option<u64>) -> Option<(&Snap, Option<&Snap>)> {
        let Some(from) = from else { return Some((self.snapshot_like(to)?, None)) };
        self.snapshots.iter().filter(|snap| snap.number == to).find_map(|to| {
            let older = self.snapshots.iter().filter(|snap| snap.number == from);
            older.into_iter().find(|from| self.is_state_before(from, to)).map(|from| (to, Some(from)))
        })
    }

    /// Whether a snapshot is of an earlier time of the same volume, or of what that began as.
    pub fn is_state_before(&self, from: &Snap, to: &Snap) -> bool {
        let place = |wanted: &Snap| self.snapshots.iter().position(|snap| snap.name == wanted.name);
        if to.is_of(from.volume()) {
            return place(from) < place(to);
        }
        let of_it = self.volumes.iter().find(|open| to.is_of(&open.name));
        let origin = of_it.and_then(|open| open.origin.as_ref());
        let origin = origin.and_then(|name| self.snapshots.iter().find(|snap| snap.name == *name));
        origin.is_some_and(|origin| origin.name == from.name || self.is_state_before(from, origin))
    }

    /// All of a snapshot, or the rest of it from a point on; or what it has changed since another one.
    pub fn send(&self, to: &Snap, from: Option<&Snap>, rng: &mut Rng) -> Result<Sent, Failure> {
        let outgoing = Outgoing::open(self.store(), &to.name, from.map(|from| &from.name[..]))?;
        self.written(&outgoing, to, from.map(|from| &from.bytes[..]), rng)
    }

    /// What is missing after a part has come.
    pub fn send_rest(
        &self,
        token: &Token,
        (to, from): (&Snap, Option<&Snap>),
        rng: &mut Rng,
    ) -> Result<Sent, Failure> {
        let outgoing = Outgoing::resume(self.store(), token)?;
        self.written(&outgoing, to, from.map(|from| &from.bytes[..]), rng)
    }

    /// The stream, which turns the one into the other from the point on where it begins.
    fn written(
        &self,
        outgoing: &Outgoing,
        to: &Snap,
        from: Option<&[u8]>,
        rng: &mut Rng,
    ) -> Result<Sent, Failure> {
        let mut bytes = Vec::new();
        outgoing.write(&mut bytes)?;
        let size = outgoing.size()?;
        assert_eq!(size.stream_bytes, bytes.len() as u64, "length of the stream of {}", to.name);
        let about = outgoing.about().clone();
        let mut made = from.map(<[u8]>::to_vec).unwrap_or_default();
        made.resize(to.bytes.len(), 0);
        let cut = cut_again(&bytes, &mut made, rng);
        let at = about.resumes_at as usize;
        let differs = made[at..].iter().zip(&to.bytes[at..]).position(|(sent, is)| sent != is);
        assert!(differs.is_none(), "the stream of {} is wrong from byte {at} + {differs:?} on", to.name);
        let bytes = if rng.one_in(2) { bytes } else { cut };
        Ok(Sent { bytes, about, data_bytes: size.data_bytes })
    }
}

/// The same in pieces of other lengths; what it says is made of `volume`.
fn cut_again(stream: &[u8], volume: &mut [u8], rng: &mut Rng) -> Vec<u8> {
    let mut reader = Reader::begin(stream).expect("a stream that was sent");
    let mut cut = Vec::new();
    let mut writer = Writer::begin(&mut cut, reader.about()).expect("memory");
    let longest = rng.pick(&[4096, 40_000, DATA_BYTES_MAX]);
    while let Some(part) = reader.next().expect("a stream that was sent") {
        match part {
            Part::Data(at, data) => {
                volume[at as usize..][..data.len()].copy_from_slice(data);
                let mut done = 0;
                while done < data.len() {
                    let len = (1 + rng.index(longest)).min(data.len() - done);
                    writer.data(at + done as u64, &data[done..done + len]).expect("memory");
                    done += len;
                }
            }
            Part::Hole(at, len) => {
                volume[at as usize..][..len as usize].fill(0);
                writer.hole(at, len).expect("memory");
            }
        }
    }
    writer.end().expect("memory");
    cut
}
