use super::*;
use crate::operation::{Clock, End};

const SEED: u32 = 11;
const SECTORS: u32 = 64;

/// A device that does all it is told, and the history of it.
struct World {
    clock: Clock,
    history: History,
    bytes: Vec<u8>,
    operations: Vec<Operation>,
}

impl World {
    fn new() -> World {
        World {
            clock: Clock::default(),
            history: History::new(SEED, 1, u64::from(SECTORS) * SECTOR_BYTES as u64),
            bytes: vec![0; SECTORS as usize * SECTOR_BYTES],
            operations: Vec::new(),
        }
    }

    fn id(&self) -> WriteId {
        WriteId { connection: self.history.restarts, number: self.operations.len() as u32 }
    }

    fn at(&self, sectors: &std::ops::Range<u32>) -> std::ops::Range<usize> {
        sectors.start as usize * SECTOR_BYTES..sectors.end as usize * SECTOR_BYTES
    }

    fn operation(&mut self, what: What, sectors: std::ops::Range<u32>, is_sync: bool) -> WriteId {
        let (id, call) = (self.id(), self.clock.tick());
        let end = End::Acknowledged(self.clock.tick());
        self.operations.push(Operation { id, what, sectors, is_sync, call, end });
        id
    }

    fn write(&mut self, sectors: std::ops::Range<u32>, is_sync: bool) -> WriteId {
        let (at, id) = (self.at(&sectors), self.id());
        stamp::fill(&mut self.bytes[at], id, self.history.place(sectors.start));
        self.operation(What::Write, sectors, is_sync)
    }

    fn zero(&mut self, sectors: std::ops::Range<u32>, is_sync: bool) {
        let at = self.at(&sectors);
        self.bytes[at].fill(0);
        self.operation(What::Trim, sectors, is_sync);
    }

    fn flush(&mut self) {
        self.operation(What::Flush, 0..0, false);
    }

    fn read(&mut self, sectors: std::ops::Range<u32>) -> Vec<u8> {
        let bytes = self.bytes[self.at(&sectors)].to_vec();
        self.read_as(sectors, &bytes);
        bytes
    }

    /// A read that had these bytes.
    fn read_as(&mut self, sectors: std::ops::Range<u32>, bytes: &[u8]) {
        let parsed = sectors.clone().zip(bytes.chunks(SECTOR_BYTES));
        let parsed = parsed.map(|(sector, bytes)| stamp::read(bytes, self.history.place(sector))).collect();
        self.operation(What::Read(parsed), sectors, false);
    }

    /// Everything is over, and the volume is there again.
    fn restart(&mut self) -> Vec<Finding> {
        let mut findings = self.history.add(std::mem::take(&mut self.operations));
        self.history.restart();
        findings.extend(self.history.look(0, &self.bytes));
        findings
    }

    fn one_finding(&mut self) -> Finding {
        let mut findings = self.restart();
        assert_eq!(findings.len(), 1, "{findings:#?}");
        findings.remove(0)
    }

    fn expect(&mut self, sectors: std::ops::Range<u32>, words: &[&str]) {
        let finding = self.one_finding();
        let text = finding.to_string();
        assert_eq!(finding.sectors, sectors, "{text}");
        assert!(words.iter().all(|word| text.contains(word)), "{words:?}: {text}");
    }
}

#[test]
fn what_the_device_did_is_right() {
    let mut world = World::new();
    world.write(0..9, false);
    world.read(0..SECTORS);
    world.write(3..5, true);
    world.zero(4..6, false);
    world.flush();
    world.read(2..8);
    assert!(world.restart().is_empty());
    assert!(world.restart().is_empty());
}

#[test]
fn an_acknowledged_write_that_is_lost() {
    let mut world = World::new();
    world.write(0..8, false);
    world.flush();
    let before = world.bytes.clone();
    let lost = world.write(2..4, true);
    world.bytes.clone_from(&before);
    world.expect(2..4, &["it has write 0.0", &format!("write {lost} is durable"), "durable (FUA)"]);
    // It is judged from what is there then.
    assert!(world.restart().is_empty());
}

#[test]
fn a_flushed_write_that_is_lost_for_zeroes() {
    let mut world = World::new();
    world.write(0..8, false);
    world.flush();
    world.write(20..22, false);
    world.bytes.fill(0);
    world.expect(0..8, &["it has zeroes", "write 0.0 is durable", "flush"]);
}

#[test]
fn a_trim_that_is_lost() {
    let mut world = World::new();
    world.write(0..8, true);
    let before = world.bytes.clone();
    world.zero(1..3, false);
    world.flush();
    world.bytes.clone_from(&before);
    world.expect(1..3, &["it has write 0.0", "trim 0.1 is durable"]);
}

/// A flush that was called before the reply makes nothing durable, and one without a reply neither.
#[test]
fn a_write_that_no_flush_covers_may_be_missing() {
    let mut world = World::new();
    world.write(0..1, false);
    let (write, call) = (world.operations.pop().unwrap(), world.clock.tick());
    let id = WriteId { connection: 0, number: 90 };
    let late = world.clock.tick();
    world.operations.push(Operation { end: End::Acknowledged(late), ..write });
    let flush = |call, end| Operation { id, what: What::Flush, sectors: 0..0, is_sync: false, call, end };
    let reply = world.clock.tick();
    world.operations.push(flush(call, End::Acknowledged(reply)));
    let call = world.clock.tick();
    world.operations.push(flush(call, End::Over(world.clock.tick())));
    world.bytes.fill(0);
    assert!(world.restart().is_empty());
}

#[test]
fn an_old_write_that_comes_back() {
    let mut world = World::new();
    let old = world.write(5..7, true);
    let before = world.bytes.clone();
    world.write(5..7, true);
    assert!(world.restart().is_empty());
    world.write(0..1, false);
    world.bytes[5 * SECTOR_BYTES..].copy_from_slice(&before[5 * SECTOR_BYTES..]);
    let past = format!("write {old} (an old one: a write, acknowledged, before restart 1)");
    world.expect(5..7, &[&past, "restart 1 showed write 0.1", "and no client has changed it"]);
}

/// The same where a client has written since: neither the new write nor what was there.
#[test]
fn an_old_write_under_a_new_one_that_comes_back() {
    let mut world = World::new();
    world.write(5..7, true);
    let before = world.bytes.clone();
    world.write(5..7, true);
    assert!(world.restart().is_empty());
    world.write(5..7, false);
    world.bytes.clone_from(&before);
    world.expect(5..7, &["write 0.0 (an old one", "none of the changes since restart 1"]);
}

/// What was not flushed may be missing; but once an import has shown it, it stays.
#[test]
fn what_an_import_showed_and_the_next_does_not() {
    let mut world = World::new();
    world.write(0..4, false);
    let shown = world.bytes.clone();
    assert!(world.restart().is_empty());
    world.bytes.fill(0);
    world.expect(0..4, &["it has zeroes", "restart 1 showed write 0.0"]);
    let mut world = World::new();
    world.write(0..4, false);
    world.bytes.fill(0);
    assert!(world.restart().is_empty());
    world.bytes = shown;
    world.expect(0..4, &["it has write 0.0 (an old one", "restart 1 showed zeroes"]);
}

#[test]
fn a_torn_sector() {
    let mut world = World::new();
    world.write(0..4, false);
    let old = world.bytes.clone();
    world.write(0..4, false);
    let middle = SECTOR_BYTES + 96;
    world.bytes[middle..2 * SECTOR_BYTES].copy_from_slice(&old[middle..2 * SECTOR_BYTES]);
    world.expect(1..2, &["a mixture", "bytes 0..96 of write 0.1", "bytes 96..512 of write 0.0"]);
}

#[test]
fn bytes_from_elsewhere_and_from_nowhere() {
    let mut world = World::new();
    world.write(0..4, true);
    let sector = world.bytes[..SECTOR_BYTES].to_vec();
    world.bytes[2 * SECTOR_BYTES..][..SECTOR_BYTES].copy_from_slice(&sector);
    world.expect(2..3, &["of write 0.0 to sector 0 of volume 1"]);
    let mut world = World::new();
    world.write(0..4, true);
    world.bytes[SECTOR_BYTES + 7] ^= 4;
    world.expect(1..2, &["from nowhere"]);
    // Never written, but not zero.
    let mut world = World::new();
    world.bytes[9 * SECTOR_BYTES] = 1;
    world.expect(9..10, &["from nowhere"]);
}

#[test]
fn a_read_of_what_was_overwritten() {
    let mut world = World::new();
    world.write(0..4, false);
    let old = world.bytes[..4 * SECTOR_BYTES].to_vec();
    world.write(1..2, false);
    world.read_as(0..4, &old);
    world.expect(1..2, &["contradict each other", "write 0.0", "write 0.1", "read 0.2"]);
}

/// Two writes at the same time may be in either order; but reads agree on it, and what a crash leaves does,
/// too.
#[test]
fn reads_that_disagree_about_two_writes_at_the_same_time() {
    let both = |world: &mut World| {
        let first = world.write(0..1, true);
        let a = world.bytes.clone();
        let second = world.write(0..1, true);
        let len = world.operations.len();
        // As if both had been called before either had its reply.
        world.operations[len - 1].call = world.operations[len - 2].call;
        (first, a, second)
    };
    let mut world = World::new();
    let (_, a, _) = both(&mut world);
    world.bytes = a;
    assert!(world.restart().is_empty());
    let mut world = World::new();
    let (_, a, second) = both(&mut world);
    world.read(0..1);
    world.bytes = a;
    world.expect(0..1, &["it has write 0.0", &format!("write {second} is durable")]);
    let mut world = World::new();
    let (_, a, _) = both(&mut world);
    world.read(0..1);
    world.read_as(0..1, &a[..SECTOR_BYTES]);
    world.expect(0..1, &["contradict each other"]);
}

#[test]
fn a_write_without_a_reply_may_be_there_or_not() {
    for is_there in [false, true] {
        let mut world = World::new();
        world.write(0..4, true);
        let before = world.bytes.clone();
        world.write(2..3, true);
        world.operations.last_mut().unwrap().end = End::Open;
        world.flush();
        if !is_there {
            world.bytes = before;
        }
        assert!(world.restart().is_empty());
    }
}

/// It failed, and a later one was acknowledged: it cannot come after that.
#[test]
fn a_write_that_was_over_before_a_durable_one() {
    let mut world = World::new();
    world.write(2..3, false);
    let failed = world.bytes.clone();
    let at = world.clock.tick();
    world.operations.last_mut().unwrap().end = End::Over(at);
    world.write(2..3, true);
    world.bytes = failed;
    world.expect(2..3, &["it has write 0.0", "write 0.1 is durable"]);
}

/// An export makes durable what was acknowledged before it has returned.
#[test]
fn a_write_that_an_export_lost() {
    let mut world = World::new();
    world.write(2..3, false);
    let now = world.clock.tick();
    world.history.make_durable(now);
    world.bytes.fill(0);
    world.expect(2..3, &["it has zeroes", "write 0.0 is durable"]);
}

/// A look that was cut short by another crash: what was seen is settled, the rest is not.
#[test]
fn looks_that_are_cut_short() {
    let mut world = World::new();
    world.write(0..8, false);
    assert!(world.history.add(std::mem::take(&mut world.operations)).is_empty());
    let (before, half) = (world.bytes.clone(), 4 * SECTOR_BYTES);
    world.history.restart();
    assert!(world.history.look(0, &before[..half]).is_empty());
    // The seen half may not change any more, the other may be missing.
    world.bytes[half..].fill(0);
    world.history.restart();
    assert!(world.history.look(0, &world.bytes).is_empty());
    world.history.restart();
    world.bytes.fill(0);
    let findings = world.history.look(0, &world.bytes);
    assert_eq!(findings.len(), 1, "{findings:?}");
    assert_eq!(findings[0].sectors, 0..4);
}
