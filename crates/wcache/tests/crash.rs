//! Every image of persistent memory that a crash can leave (`pm-model`), beside what the origin may have
//! then: of creation, writes, write-backs, reused chunks, openings that are cut short, and detachment.

#[path = "traced/survive.rs"]
mod survive;
#[path = "traced/world.rs"]
mod world;

use survive::{Run, survive};
use world::Step;

#[test]
fn writes_and_write_backs_survive_every_crash() {
    use Step::*;
    survive(&Run::single(&[Write(0, 2), Write(1, 2), Tend, Write(2, 1), Tend, Tend]));
}

#[test]
fn chunks_that_are_used_again_survive_every_crash() {
    use Step::*;
    survive(&Run::single(&[
        Write(0, 3),
        Write(3, 3),
        Flush,
        Write(0, 3),
        Write(6, 3),
        Flush,
        Write(0, 1),
        Write(0, 2),
    ]));
}

#[test]
fn writes_of_several_entries_survive_every_crash() {
    use Step::*;
    survive(&Run::single(&[Write(2, 5), Tend, Flush]));
}

#[test]
fn zeroes_and_discards_survive_every_crash() {
    use Step::*;
    survive(&Run::single(&[
        Write(0, 2),
        Discard(0, 1),
        Write(20, 2),
        Flush,
        Zeroes(1, 160),
        Write(30, 1),
        Flush,
        Discard(2, 150),
    ]));
}

#[test]
fn openings_survive_every_crash() {
    use Step::*;
    survive(&Run::single(&[Write(0, 2), Write(1, 2), Reopen, Write(4, 1), Reopen, Reopen]));
}

#[test]
fn detachment_survives_every_crash() {
    use Step::*;
    survive(&Run::single(&[Write(0, 2), Write(5, 1), Detach]));
}

#[test]
fn a_creation_over_another_cache_survives_every_crash() {
    use Step::*;
    survive(&Run::single(&[Write(0, 3), Write(3, 3), Write(6, 1), Overwrite]));
}
