//! Every image that a crash can leave (`pm-model`) of a cache on two sides, opened with both and with either
//! alone; sides that go away in use, at any copy, and come back after the crash.

#[path = "traced/survive.rs"]
mod survive;
#[path = "traced/world.rs"]
mod world;

use survive::{Run, survive};
use world::Step;

#[test]
fn writes_and_write_backs_survive_every_crash_with_the_loss_of_either_side() {
    use Step::*;
    survive(&Run::mirrored(&[Write(0, 2), Write(1, 2), Tend, Write(2, 1)]));
}

#[test]
fn chunks_that_are_used_again_survive_every_crash_with_the_loss_of_either_side() {
    use Step::*;
    survive(&Run::mirrored(&[Write(0, 3), Write(3, 3), Flush, Write(0, 3), Discard(20, 140)]));
}

#[test]
fn openings_survive_every_crash_with_the_loss_of_either_side() {
    use Step::*;
    survive(&Run::mirrored(&[Write(0, 2), Reopen, Write(4, 1), ReopenAlone(1), Write(0, 1), Reopen]));
}

/// An origin without a mark: a side that is alone is used only if somebody takes that upon himself.
#[test]
fn the_same_in_front_of_an_origin_without_a_mark() {
    use Step::*;
    let steps = [Write(0, 2), Write(4, 1), ReopenAlone(0), Write(0, 1), Reopen];
    survive(&Run { can_be_marked: false, ..Run::mirrored(&steps) });
}

#[test]
fn detachment_and_creation_survive_every_crash_with_the_loss_of_either_side() {
    use Step::*;
    survive(&Run::mirrored(&[Write(0, 2), Detach]));
    survive(&Run::mirrored(&[Write(0, 3), Write(3, 3), Overwrite]));
}

#[test]
fn a_side_that_joins_and_leaves_survives_every_crash() {
    use Step::*;
    survive(&Run { sides: 1, ..Run::mirrored(&[Write(0, 2), Attach, Write(1, 2), DetachSide, Write(3, 1)]) });
    survive(&Run::mirrored(&[Write(0, 2), ReopenAlone(0), Write(1, 2), Attach, Write(3, 1)]));
}

/// Wherever it is in what it was doing. Copies of an entry are three, those of an update of the state two.
#[test]
fn a_side_that_goes_away_in_use_is_out_before_anything_more_is_acknowledged() {
    use Step::*;
    let steps = [Write(0, 2), Write(1, 2), Tend, Write(2, 1), Tend, Write(0, 1), Write(4, 1), Flush];
    for (number, copies) in (1..18).enumerate() {
        let goes_away = Some((number % 2, copies));
        let can_be_marked = number % 3 != 2;
        let run = Run { goes_away, can_be_marked, ..Run::mirrored(&steps) };
        let budget = fastness_pm_model::Budget { exhaustive_limit: 16, samples: 8, seed: copies };
        survive(&Run { budget, images_min: 200, ..run });
    }
}
