//! A seeded simulation: random requests, write-backs that fail, power cuts of the region and the origin
//! together at any store, fence, write or flush, deaths of the process, and the same during openings. Of
//! every other seed the cache is a mirror: sides go away in use and come back stale, are missing or scribbled
//! over at an opening, and are replaced.
//!
//! Judged by `fastness-history`: after each restart, each sector has what its last acknowledged change left,
//! or one of the changes under way at the crash; reads between are those of an atomic register.
//! `FASTNESS_WCACHE_SEEDS=FROM..TO` runs others than the default seeds.

#![allow(clippy::print_stderr, reason = "a seed that fails is said")]

mod support;

use fastness_history::{Clock, End, History, Operation, What, WriteId, stamp};
use fastness_testkit::Rng;
use fastness_testkit::media::Failing;
use fastness_wcache::*;
use support::*;

const SECTOR: u64 = 512;

struct Simulation {
    rng: Rng,
    media: Media,
    cache: Option<TestCache>,
    history: History,
    clock: Clock,
    connection: u32,
    number: u32,
    operations: Vec<Operation>,
    counts: Counts,
    /// Sides that the cache may have gone on without.
    may_be_out: [bool; 2],
    /// The side that something else has written to.
    scribbled: Option<usize>,
}

#[derive(Debug, Default)]
struct Counts {
    cuts: u64,
    deaths: u64,
    replayed: u64,
    refused: u64,
    failed_write_backs: u64,
    log_reads: u64,
    origin_reads: u64,
    losses: u64,
    alone: u64,
    refused_sides: u64,
    scribbles: u64,
    attached: u64,
}

impl Simulation {
    fn new(seed: u64) -> Simulation {
        let mut rng = Rng(seed);
        let chunk_bytes = rng.pick(&[1024, 2048, 4096, 8192, 16384]);
        let chunks = rng.pick(&[2, 3, 4, 8, 16]);
        let origin_bytes = rng.pick(&[3 * 4096 + 512, 64 << 10, 256 << 10]);
        let mut media = match rng.one_in(2) {
            true => Media::mirrored(chunks, chunk_bytes, origin_bytes, &mut rng),
            false => Media::new(chunks, chunk_bytes, origin_bytes, &mut rng),
        };
        let cache = Some(media.create().unwrap());
        let history = History::new(seed as u32, 0, origin_bytes);
        let (clock, operations, counts) = (Clock::default(), Vec::new(), Counts::default());
        let may_be_out = [false; 2];
        Simulation {
            rng,
            media,
            cache,
            history,
            clock,
            connection: 0,
            number: 0,
            operations,
            counts,
            may_be_out,
            scribbled: None,
        }
    }

    fn cache(&self) -> &TestCache {
        self.cache.as_ref().unwrap()
    }

    fn run(&mut self) {
        for _ in 0..60 + self.rng.index(120) {
            if self.rng.one_in(14) {
                self.media.power.cut_in(1 + self.rng.below(120));
            }
            if self.rng.one_in(12) {
                match self.rng.one_in(2) {
                    true => self.media.disk.heal(),
                    false => {
                        let how = self.rng.pick(&Failing::ALL[..5]);
                        self.media.disk.fail(how, &mut self.rng);
                    }
                }
            }
            if self.is_whole_mirror() && self.rng.one_in(30) {
                self.lose_side();
            }
            self.step();
            if self.media.power.is_off() {
                self.restart(true);
            }
        }
        self.media.power.cut_in(u64::MAX / 2);
        self.media.disk.heal();
        self.restart(false);
        self.cache().flush().unwrap();
        self.cache().detach().unwrap();
        self.cache = None;
        let ended = self.media.open().err();
        // A side that was out before knows nothing of it, and is not taken for the cache.
        assert!(ended.is_some_and(|error| self.is_mirror() || matches!(error, Error::NoCache)));
        self.look();
    }

    fn is_mirror(&self) -> bool {
        self.media.second.is_some()
    }

    fn is_whole_mirror(&self) -> bool {
        self.is_mirror() && self.may_be_out == [false; 2]
    }

    /// A side is cut short under the cache: whatever is stored after a place is lost.
    fn lose_side(&mut self) {
        let (side, len) = (self.rng.index(2), self.media.bank.len_bytes);
        let end = self.rng.pick(&[0, 4096, 16384, len / 2, len - 1024]);
        self.media.side(side).cut_at(end);
        self.may_be_out[side] = true;
        self.counts.losses += 1;
    }

    /// Something else writes to a side while the cache is not in use.
    fn scribble(&mut self) {
        let (side, len) = (self.rng.index(2), self.media.bank.len_bytes);
        let start = self.rng.pick(&[0, 0, 4096, 12288, 16384, 16384 + 128, len / 2]);
        let count = self.rng.pick(&[1, 64, 4096, 9000, len]);
        let mut image = self.media.side(side).image();
        for byte in image[start..].iter_mut().take(count) {
            *byte = self.rng.next() as u8;
        }
        *self.media.side_mut(side) = self.media.side(side).with(image);
        // Perhaps it cannot be used, and is out after the opening.
        self.may_be_out[side] = true;
        self.scribbled = Some(side);
        self.counts.scribbles += 1;
    }

    /// Opens the cache, of a mirror with what there is of it.
    fn open(&mut self) -> Result<(TestCache, Replayed), Error> {
        if !self.is_mirror() {
            return self.media.open();
        }
        for side in 0..2 {
            if self.media.side(side).is_cut() && self.rng.one_in(2) {
                // It comes back, with what it has.
                self.media.side_mut(side).mend();
            }
        }
        if self.is_whole_mirror() && self.rng.one_in(8) {
            self.scribble();
        }
        let mut first = self.rng.index(2);
        if self.media.side(first).is_cut() || self.scribbled == Some(first) {
            first = 1 - first;
        }
        let is_certain = !self.may_be_out[first];
        if self.rng.one_in(4) {
            let opened = self.media.open_from(first, false, false);
            self.may_be_out[1 - first] = true;
            match &opened {
                _ if self.media.power.is_off() => return opened,
                Ok(_) => {
                    self.counts.alone += 1;
                    return opened;
                }
                Err(Error::SideMissing { .. }) if is_certain => {
                    assert!(!self.media.can_be_marked, "the mark says that it is current");
                    self.counts.alone += 1;
                    return self.media.open_from(first, false, true);
                }
                Err(error) => {
                    assert!(!is_certain, "{error}");
                    self.counts.refused_sides += 1;
                }
            }
        }
        match self.media.open_from(first, true, false) {
            // Where there is no mark, nobody knows whether a side that is gone or scribbled over is newer.
            Err(Error::SideMissing { .. }) if !self.media.can_be_marked && !self.media.power.is_off() => {
                self.media.open_from(first, true, true)
            }
            opened => opened,
        }
    }

    /// A new region takes the place of the side that is out.
    fn attach(&mut self) {
        let Some(out) = self.cache().status().sides.iter().position(|side| side.out.is_some()) else {
            return;
        };
        self.media.side_mut(out).mend();
        let mut image = self.media.side(out).image();
        if self.rng.one_in(2) {
            [0, 12288].into_iter().for_each(|at| image[at..at + 4096].fill(0));
        }
        *self.media.side_mut(out) = self.media.side(out).with(image);
        let path = std::path::PathBuf::from(["a", "b"][1 - out]);
        match self.cache().attach(self.media.parts_of(out), path) {
            Ok(()) => {
                self.may_be_out = [false; 2];
                self.counts.attached += 1;
            }
            Err(error) => {
                let is_old = matches!(error, Error::Exists | Error::Occupied);
                assert!(is_old || self.media.power.is_off() || self.media.disk.is_loud(), "{error}");
            }
        }
    }

    fn step(&mut self) {
        match self.rng.below(20) {
            0..9 => self.change(),
            9..14 => self.read(),
            14..17 => {
                let before = self.cache().status();
                let tended = self.cache().tend();
                let after = self.cache().status();
                if tended.is_err() {
                    self.counts.failed_write_backs += 1;
                    assert!(after.synced == before.synced || self.media.power.is_off());
                }
            }
            17 => drop(self.cache().flush()),
            18 if self.rng.one_in(3) => self.restart(false),
            18 if self.rng.one_in(2) => self.restart(true),
            _ => self.flush(),
        }
    }

    fn sectors(&mut self) -> std::ops::Range<u32> {
        let all = (self.history.len_bytes() / SECTOR) as u32;
        // Whole blocks, a few sectors, or a long range.
        let (unit, most) = self.rng.pick(&[(8, 2), (1, 5), (1, 40), (8, 1), (1, 400)]);
        let start = (self.rng.below(u64::from(all)) as u32) / unit * unit;
        let len = (1 + self.rng.below(most) as u32) * unit;
        start..(start + len).min(all)
    }

    fn begin(&mut self) -> (WriteId, u64) {
        self.number += 1;
        (WriteId { connection: self.connection, number: self.number }, self.clock.tick())
    }

    fn end(&self, result: &Result<(), Error>) -> End {
        match result {
            Ok(()) => End::Acknowledged(self.clock.tick()),
            Err(_) => End::Over(self.clock.tick()),
        }
    }

    fn change(&mut self) {
        let sectors = self.sectors();
        let (id, call) = self.begin();
        let what = self.rng.pick(&[What::Write, What::Write, What::Write, What::Zeroes, What::Trim]);
        let (offset, len) =
            (u64::from(sectors.start) * SECTOR, u64::from(sectors.end - sectors.start) * SECTOR);
        let result = match what {
            What::Write => {
                let mut data = vec![0; len as usize];
                stamp::fill(&mut data, id, self.history.place(sectors.start));
                self.cache().write(offset, &data)
            }
            _ => self.cache().write_zeroes(offset, len, what == What::Trim),
        };
        let end = self.end(&result);
        if let Err(error) = result {
            let may_fail = self.media.power.is_off() || matches!(error, Error::Full);
            assert!(may_fail, "{error}");
            self.counts.refused += 1;
        }
        self.operations.push(Operation { id, what, sectors, is_sync: true, call, end });
    }

    fn read(&mut self) {
        let sectors = self.sectors();
        let (id, call) = self.begin();
        let mut buf = vec![0; (sectors.end - sectors.start) as usize * SECTOR as usize];
        let before = self.cache().status();
        let result = self.cache().read(u64::from(sectors.start) * SECTOR, &mut buf);
        let after = self.cache().status();
        self.counts.log_reads += after.log_read_bytes - before.log_read_bytes;
        self.counts.origin_reads += after.origin_read_bytes - before.origin_read_bytes;
        if let Err(error) = &result {
            assert!(self.media.power.is_off() || self.media.disk.is_loud(), "{error}");
            return;
        }
        let place = |sector| self.history.place(sector);
        let contents = buf
            .chunks_exact(512)
            .zip(sectors.clone())
            .map(|(bytes, sector)| stamp::read(bytes, place(sector)));
        let what = What::Read(contents.collect());
        let end = self.end(&result);
        self.operations.push(Operation { id, what, sectors, is_sync: false, call, end });
    }

    fn flush(&mut self) {
        let (id, call) = self.begin();
        let result = self.cache().sync();
        let end = self.end(&result);
        self.operations.push(Operation { id, what: What::Flush, sectors: 0..0, is_sync: false, call, end });
    }

    /// Ends the process, with or without the power, and opens the cache again: several times, if the power
    /// fails during that.
    fn restart(&mut self, with_power: bool) {
        self.cache = None;
        let mut cuts = with_power || self.media.power.is_off();
        loop {
            match cuts {
                true => {
                    self.media.cut(&mut self.rng);
                    self.counts.cuts += 1;
                }
                false => self.counts.deaths += 1,
            }
            self.media.disk.heal();
            self.media.power.cut_in(if self.rng.one_in(3) { 1 + self.rng.below(150) } else { u64::MAX / 2 });
            match self.open() {
                Ok((cache, replayed)) => {
                    let sides = cache.status().sides;
                    self.scribbled = None;
                    self.may_be_out =
                        std::array::from_fn(|at| sides.get(at).is_some_and(|it| it.out.is_some()));
                    self.counts.replayed += replayed.entries;
                    self.cache = Some(cache);
                    break;
                }
                Err(error) => assert!(self.media.power.is_off(), "{error}"),
            }
            cuts = self.rng.one_in(2) || self.media.power.is_off();
        }
        self.media.power.cut_in(u64::MAX / 2);
        self.connection += 1;
        self.look();
        if self.is_mirror() && self.may_be_out != [false; 2] && self.rng.one_in(3) {
            self.attach();
            self.restart(false);
        }
    }

    /// All contents, through the cache if there is one.
    fn look(&mut self) {
        let findings = self.history.add(std::mem::take(&mut self.operations));
        assert!(findings.is_empty(), "{findings:#?}");
        self.history.restart();
        let mut bytes = vec![0; self.history.len_bytes() as usize];
        match &self.cache {
            Some(cache) => cache.read(0, &mut bytes).unwrap(),
            None => self.media.disk.image().read(0, &mut bytes),
        }
        let findings = self.history.look(0, &bytes);
        assert!(findings.is_empty(), "{findings:#?}");
    }
}

fn seeds() -> std::ops::Range<u64> {
    let Ok(text) = std::env::var("FASTNESS_WCACHE_SEEDS") else { return 0..300 };
    let (from, to) = text.split_once("..").expect("FROM..TO");
    from.parse().expect("a number")..to.parse().expect("a number")
}

#[test]
fn nothing_acknowledged_is_lost() {
    let mut all = Counts::default();
    for seed in seeds() {
        let run = std::panic::catch_unwind(|| {
            let mut simulation = Simulation::new(seed);
            simulation.run();
            simulation.counts
        });
        let counts = run.unwrap_or_else(|panic| {
            eprintln!("seed {seed}");
            std::panic::resume_unwind(panic)
        });
        all.cuts += counts.cuts;
        all.deaths += counts.deaths;
        all.replayed += counts.replayed;
        all.refused += counts.refused;
        all.failed_write_backs += counts.failed_write_backs;
        all.log_reads += counts.log_reads;
        all.origin_reads += counts.origin_reads;
        all.losses += counts.losses;
        all.alone += counts.alone;
        all.refused_sides += counts.refused_sides;
        all.scribbles += counts.scribbles;
        all.attached += counts.attached;
    }
    // The simulation gets everywhere.
    let Counts { cuts, deaths, replayed, refused, failed_write_backs, log_reads, origin_reads, .. } = all;
    let Counts { losses, alone, refused_sides, scribbles, attached, .. } = all;
    let least = [cuts, deaths, replayed, refused, failed_write_backs, log_reads, origin_reads];
    let mut least = least.into_iter().chain([losses, alone, refused_sides, scribbles, attached]);
    assert!(least.all(|count| count > 0), "{all:?}");
}
