//! Snapshots that are received, as a volume or as the next state of one: nothing of what comes is seen before
//! all of it is there, and then all is, at once. What was said to be kept is there after a crash, and goes
//! on; what was not to be kept goes.

use fastness_pool::{DatasetKind, ErrorKind, PoolError};
use fastness_zvol::{Incoming, ReceiveOptions, TransferError, abort_receiving, receive, receiving};

use crate::coming::{Coming, End};
use crate::met::note;
use crate::oracle::Model;
use crate::program::Step;
use crate::rng::Rng;
use crate::snapshots::Snap;
use crate::streams::Sent;
use crate::volumes::{Fate, Vol};
use crate::world::{Done, World};

/// At one time, at most.
const ARRIVALS_MAX: usize = 2;

/// A snapshot of which not everything is there, as far as anybody was told.
#[derive(Debug, Clone)]
pub struct Arrival {
    pub volume: String,
    /// Full name of the snapshot that it becomes.
    pub snapshot: String,
    /// What it shows, and what that is called among all snapshots.
    bytes: Vec<u8>,
    number: u64,
    /// The same of the snapshot that it is an increment on, and that one's name here.
    from: Option<u64>,
    pub on: Option<String>,
    block_bytes: usize,
    is_resumable: bool,
    /// So far it has come at least; `None`: nobody was told that anything is kept.
    kept: Option<u64>,
    /// Its last record was there to be read.
    may_be_whole: bool,
    /// It is being discarded.
    is_going: bool,
}

impl Arrival {
    fn dataset(&self) -> String {
        match self.from {
            Some(_) => format!("{}/{}", self.volume, fastness_pool::RECEIVED),
            None => self.volume.clone(),
        }
    }

    /// Whether the snapshot that it is on is still its volume's: a promotion may have given it to a clone.
    fn can_end(&self) -> bool {
        self.on.as_ref().is_none_or(|on| on.split('@').next() == Some(&self.volume))
    }
}

impl World<'_> {
    pub fn draw_stream(&self, rng: &mut Rng) -> Step {
        let (nth, seed) = (rng.index(self.arrivals.len().max(1)), rng.next());
        match rng.below(8) {
            0..3 if !self.arrivals.is_empty() => Step::Resume { nth, seed },
            3 if !self.arrivals.is_empty() => Step::AbortReceive { nth },
            4..6 if self.increments().is_empty() => {
                // One on what some other volume has, too, can be sent to that.
                self.copied_volume().map_or(Step::Receive { seed }, |volume| Step::Snapshot { volume })
            }
            _ => Step::Receive { seed },
        }
    }

    /// A volume with a snapshot that another volume has, too.
    fn copied_volume(&self) -> Option<usize> {
        let is_copied = |snap: &Snap| {
            self.snapshots.iter().any(|other| other.number == snap.number && other.volume() != snap.volume())
        };
        let mut copied = self.snapshots.iter().filter(|snap| is_copied(snap));
        copied.find_map(|snap| self.volumes.iter().position(|open| snap.is_of(&open.name) && open.is_there()))
    }

    pub fn step_of_streams(&mut self, step: &Step) -> Done {
        match step {
            Step::Receive { seed } => self.receive(*seed),
            Step::Resume { nth, seed } => self.resume(*nth, *seed),
            Step::AbortReceive { nth } => self.abort(*nth),
            _ => unreachable!("a step of streams"),
        }
    }

    fn receive(&mut self, seed: u64) -> Done {
        let mut rng = Rng::new(seed);
        if self.arrivals.len() >= ARRIVALS_MAX {
            return Ok(());
        }
        let increments = self.increments();
        let (to, from, volume) = if !increments.is_empty() && !rng.one_in(4) {
            let (to, from, volume) = rng.pick(&increments);
            (to, Some(from), self.volumes[volume].name.clone())
        } else {
            let certain = (0..self.snapshots.len()).filter(|at| self.is_sendable(&self.snapshots[*at]));
            let certain: Vec<usize> = certain.collect();
            if certain.is_empty() || self.volumes.len() > self.swarm.volumes_max + 1 {
                return Ok(());
            }
            let is_free = |name: &String| {
                self.volumes.iter().all(|open| open.name != *name)
                    && self.arrivals.iter().all(|arrival| arrival.volume != *name)
            };
            let name = (0..).map(|n| format!("tank/r{n}")).find(is_free).expect("there are few");
            (rng.pick(&certain), None, name)
        };
        let (to, from) = (&self.snapshots[to], from.map(|from| &self.snapshots[from]));
        let sent = self.send(to, from, &mut rng)?;
        let on = from.map(|from| self.in_volume(&volume, from.number).expect("drawn for that").name.clone());
        let is_same = |snap: &Snap| snap.is_of(&volume) && snap.last_name() == to.last_name();
        let last_name = match self.snapshots.iter().any(is_same) {
            true => format!("{}-{}", to.last_name(), to.number),
            false => to.last_name().to_owned(),
        };
        let arrival = Arrival {
            snapshot: format!("{volume}@{last_name}"),
            volume,
            bytes: to.bytes.clone(),
            number: to.number,
            from: from.map(|from| from.number),
            on,
            block_bytes: sent.about.block_bytes as usize,
            is_resumable: !rng.one_in(3),
            kept: None,
            may_be_whole: false,
            is_going: false,
        };
        self.arrivals.push(arrival);
        self.take_in(self.arrivals.len() - 1, sent, rng)
    }

    fn is_sendable(&self, snap: &Snap) -> bool {
        let of_it = self.volumes.iter().find(|open| snap.is_of(&open.name));
        snap.fate == Fate::Certain && of_it.is_some_and(Vol::is_there)
    }

    fn in_volume(&self, volume: &str, number: u64) -> Option<&Snap> {
        self.snapshots.iter().find(|snap| snap.is_of(volume) && snap.number == number)
    }

    /// What can be received as the next state of a volume: snapshot, the one before, the volume.
    fn increments(&self) -> Vec<(usize, usize, usize)> {
        let mut all = Vec::new();
        for (to, newer) in self.snapshots.iter().enumerate().filter(|(_, snap)| self.is_sendable(snap)) {
            for (from, older) in self.snapshots.iter().enumerate().filter(|(_, snap)| self.is_sendable(snap))
            {
                if !self.is_state_before(older, newer) {
                    continue;
                }
                for (at, open) in self.volumes.iter().enumerate() {
                    let has = |number| self.in_volume(&open.name, number);
                    let is_base = has(older.number).is_some_and(|base| base.fate == Fate::Certain);
                    let is_free = self.arrivals.iter().all(|arrival| arrival.volume != open.name);
                    if open.is_there() && is_base && has(newer.number).is_none() && is_free {
                        all.push((to, from, at));
                    }
                }
            }
        }
        all
    }

    fn resume(&mut self, nth: usize, seed: u64) -> Done {
        let mut rng = Rng::new(seed);
        let Some(arrival) = self.arrivals.get(nth).cloned() else { return Ok(()) };
        let Some(token) = self.incoming(&arrival).and_then(|found| found.token) else { return Ok(()) };
        let Some((to, from)) = self.ends_of_stream(arrival.number, arrival.from) else {
            let refused = fastness_zvol::Outgoing::resume(self.store(), &token);
            note(&self.met.sources_gone, 1);
            return match refused.expect_err("the snapshot is gone") {
                TransferError::NoSuchGuid(_) => Ok(()),
                TransferError::Volume(error) if error.kind() == ErrorKind::Invalid => Ok(()),
                error => Err(error.into()),
            };
        };
        let sent = self.send_rest(&token, (to, from), &mut rng)?;
        note(&self.met.streams_resumed, 1);
        self.take_in(nth, sent, rng)
    }

    /// Receives a stream, with all that may happen meanwhile.
    fn take_in(&mut self, at: usize, sent: Sent, mut rng: Rng) -> Done {
        let (end, mut is_forced) = (End::draw(&sent, &mut rng), rng.one_in(3));
        let arrival = &mut self.arrivals[at];
        arrival.may_be_whole = end == End::Whole;
        let options = ReceiveOptions { is_resumable: arrival.is_resumable, is_forced };
        let (name, data_bytes) = (arrival.snapshot.clone(), sent.data_bytes);
        let closes = (!rng.one_in(6)).then(|| arrival.volume.clone());
        let is_increment = arrival.from.is_some();
        is_forced |= !is_increment;
        let store = self.store().clone();
        let coming = Coming::new(self, sent, end, closes, rng);
        let received = receive(&store, &name, coming, options);
        // What came meanwhile did not end it, and began no other.
        let arrival = self.arrivals[at].clone();
        match received {
            Ok(received) => {
                assert_eq!((received.snapshot, received.data_bytes), (name, data_bytes));
                assert!(end == End::Whole && arrival.can_end(), "{:?}: {end:?}", arrival.snapshot);
                assert!(is_forced || self.is_unchanged(&arrival), "{} has changed", arrival.volume);
                note(&self.met.received, 1);
                note(&self.met.increments_received, u64::from(is_increment));
                self.arrivals.remove(at);
                self.arrive(arrival);
                Ok(())
            }
            Err(error) if self.power.is_off() || self.is_suspended() => Err(error.into()),
            Err(error) => {
                self.settle_refused(at, &error);
                match self.expects(&arrival, end, is_forced, &error) {
                    true => Ok(()),
                    false => Err(error.into()),
                }
            }
        }
    }

    /// The volume is as the snapshot that an increment is on, and that is its newest.
    fn is_unchanged(&self, arrival: &Arrival) -> bool {
        let of_it = self.volumes.iter().find(|open| open.name == arrival.volume).expect("it is there");
        let newest = self.snapshots.iter().rev().find(|snap| snap.is_of(&arrival.volume));
        let base = newest.filter(|newest| Some(&newest.name) == arrival.on.as_ref());
        of_it.model.is_vague || base.is_some_and(|base| base.bytes == of_it.model.now)
    }

    /// Whether it must fail in this way.
    fn expects(&self, arrival: &Arrival, end: End, is_forced: bool, error: &TransferError) -> bool {
        let mut cause = error;
        while let TransferError::Interrupted { source, .. } = cause {
            cause = source;
        }
        let of_it = self.volumes.iter().find(|open| open.name == arrival.volume);
        match (cause, cause.of_pool()) {
            (TransferError::Stream(_), _) => end != End::Whole,
            // A promotion came before anything was received.
            (TransferError::NoBase { .. }, _) => !arrival.can_end(),
            (_, Some(PoolError::ChangedSince(_) | PoolError::NotNewest { .. })) => !is_forced,
            (_, Some(PoolError::Busy { .. })) => of_it.is_some_and(Vol::is_open),
            (_, Some(PoolError::HasClones { .. })) => is_forced,
            (_, Some(PoolError::Exists(name))) => self.snapshots.iter().any(|snap| snap.name == *name),
            (_, Some(PoolError::Invalid { .. })) => !arrival.can_end(),
            _ => false,
        }
    }

    /// A receiver has ended without success, in a pool that goes on: what was to be kept is there.
    fn settle_refused(&mut self, at: usize, error: &TransferError) {
        let arrival = self.arrivals[at].clone();
        let found = self.incoming(&arrival);
        let is_told = matches!(error, TransferError::Interrupted { .. });
        assert!(found.is_some() || !is_told && arrival.kept.is_none(), "{}: {error}", arrival.snapshot);
        let Some(found) = found else { return drop(self.arrivals.remove(at)) };
        if !arrival.is_resumable {
            // It cannot be removed while devices fail.
            assert!(self.is_any_loud() || self.lacks_room(), "{} is left over: {error}", arrival.dataset());
            return;
        }
        note(&self.met.streams_kept, 1);
        self.note_kept(at, &found);
    }

    fn note_kept(&mut self, at: usize, found: &Incoming) {
        let arrival = &mut self.arrivals[at];
        let token = found.token.as_ref().expect("it is to be kept");
        let size = arrival.bytes.len() as u64;
        let is_right = found.size_bytes == size && (arrival.kept.unwrap_or(0)..=size).contains(&token.offset);
        assert!(is_right, "{}: {found:?} after {:?}", arrival.snapshot, arrival.kept);
        (arrival.kept, arrival.may_be_whole) = (Some(token.offset), false);
    }

    fn incoming(&self, arrival: &Arrival) -> Option<Incoming> {
        receiving(&self.pool()).into_iter().find(|incoming| incoming.volume == arrival.volume)
    }

    fn abort(&mut self, nth: usize) -> Done {
        let Some(arrival) = self.arrivals.get_mut(nth) else { return Ok(()) };
        arrival.is_going = true;
        let volume = arrival.volume.clone();
        if let Err(error) = abort_receiving(self.store(), &volume) {
            let is_refused = !self.power.is_off() && !self.is_suspended();
            self.arrivals[nth].is_going = !is_refused;
            return Err(error.into());
        }
        self.arrivals.remove(nth);
        note(&self.met.streams_aborted, 1);
        Ok(())
    }

    /// All of it is there.
    fn arrive(&mut self, arrival: Arrival) {
        let Arrival { volume, snapshot: name, bytes, number, block_bytes, .. } = arrival;
        let model = Model::new(bytes.clone(), block_bytes);
        if let Some(on) = &arrival.on {
            let last = self.snapshots.iter().position(|snap| snap.name == *on).expect("it has a clone");
            let mut at = 0..;
            self.snapshots.retain(|snap| at.next().is_none_or(|at| at <= last) || !snap.is_of(&volume));
            let open = self.volumes.iter_mut().find(|open| open.name == volume).expect("it is there");
            open.close();
            open.model = model;
        } else {
            self.volumes.push(Vol::new(volume, model, Fate::Certain, block_bytes));
        }
        self.snapshots.push(Snap { name, bytes, fate: Fate::Certain, number });
    }

    /// After an import, or a clear: what was being received is there as a whole, or as a part that goes on,
    /// or not at all.
    pub fn settle_arrivals(&mut self, is_fresh: bool) {
        let pool = self.pool();
        for mut arrival in std::mem::take(&mut self.arrivals) {
            let is_whole = pool.dataset(&arrival.snapshot).is_ok();
            let found = self.incoming(&arrival);
            if is_whole {
                assert!(arrival.may_be_whole && found.is_none(), "{} is there", arrival.snapshot);
                note(&self.met.received_in_crash, 1);
                self.arrive(arrival);
            } else if let Some(found) = found {
                assert!(arrival.is_resumable || !is_fresh, "{} is left over", arrival.dataset());
                arrival.is_going = false;
                self.arrivals.push(arrival);
                if found.token.is_some() {
                    note(&self.met.streams_kept_in_crash, 1);
                    self.note_kept(self.arrivals.len() - 1, &found);
                }
            } else {
                let is_told = arrival.kept.is_some() && !arrival.is_going;
                assert!(!is_told, "what had come of {} was kept", arrival.snapshot);
            }
        }
        let found = pool.datasets().into_iter().filter(|info| info.kind == DatasetKind::Receiving).count();
        assert_eq!(found, self.arrivals.len(), "nothing is left over of streams");
    }

    /// Snapshots of one GUID are the same, and no others are.
    pub fn judge_guids(&self) {
        let pool = self.pool();
        let guid = |snap: &Snap| {
            pool.snapshot_guid(&snap.name).unwrap_or_else(|error| panic!("{}: {error}", snap.name))
        };
        let guids: Vec<_> = self.snapshots.iter().map(guid).collect();
        for (at, one) in self.snapshots.iter().enumerate() {
            for (other, guid) in self.snapshots.iter().zip(&guids) {
                let is_same = one.number == other.number;
                assert_eq!(guids[at] == *guid, is_same, "GUIDs of {} and {}", one.name, other.name);
            }
        }
    }
}
