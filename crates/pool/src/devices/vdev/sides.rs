//! One change on all sides of a vdev, and what happens to sides that did not take it.

use std::sync::Arc;

use fastness_blkdev::{BlockDevice, BlockError};

use crate::devices::vdev::{Side, Vdev};
use crate::ids::Guid;
use fastness_sync::order::{lock, read};

/// A side's results for several changes; `None`: the side is not writable.
type Answers = Option<Vec<Result<(), BlockError>>>;

/// The outcome of one change: the sides that do not have it, or an error if no current side has it.
pub(crate) type Outcome = Result<Vec<Guid>, Option<BlockError>>;

impl Vdev {
    /// Runs `act` on every writable side. If a side that is not stale succeeds, those that failed are stale
    /// from now on; if none does, the caller must suspend the pool, and all sides stay as they were.
    pub(crate) fn on_all_sides(
        &self,
        act: impl Fn(&Side, &dyn BlockDevice) -> Result<(), BlockError> + Sync,
    ) -> Result<(), Option<BlockError>> {
        self.change(1, false, |side, device| vec![act(side, device)]).remove(0).map(drop)
    }

    /// Makes `count` changes on every writable side, each judged as in [`on_all_sides`](Self::on_all_sides);
    /// `act` makes them on one side. `at_once`: on all sides in parallel.
    pub(crate) fn change(
        &self,
        count: usize,
        at_once: bool,
        act: impl Fn(&Side, &dyn BlockDevice) -> Vec<Result<(), BlockError>> + Sync,
    ) -> Vec<Outcome> {
        let sides = read(&self.sides);
        let ask = |side: &Arc<Side>| side.writable().map(|device| act(side, &**device));
        let answers: Vec<Answers> = match sides.split_first() {
            Some((first, others)) if at_once && !others.is_empty() => std::thread::scope(|scope| {
                let others: Vec<_> = others.iter().map(|side| scope.spawn(|| ask(side))).collect();
                let others = others.into_iter().map(|other| match other.join() {
                    Ok(answers) => answers,
                    Err(panic) => std::panic::resume_unwind(panic),
                });
                std::iter::once(ask(first)).chain(others.collect::<Vec<_>>()).collect()
            }),
            _ => sides.iter().map(ask).collect(),
        };
        let mut answers: Vec<_> = answers.into_iter().map(|answers| answers.map(Vec::into_iter)).collect();
        (0..count)
            .map(|_| {
                let next =
                    answers.iter_mut().map(|answers| Some(answers.as_mut()?.next().expect("an answer each")));
                self.judge(sides.iter().zip(next))
            })
            .collect()
    }

    fn judge<'a>(
        &self,
        answers: impl Iterator<Item = (&'a Arc<Side>, Option<Result<(), BlockError>>)>,
    ) -> Outcome {
        // If two changes fail on different sides, the second finds the first one's side stale, and has no
        // side left.
        let _judging = lock(&self.judging);
        let (mut is_there, mut failed, mut last) = (false, Vec::new(), None);
        for (side, answer) in answers {
            match answer {
                Some(Ok(())) => is_there |= !side.is_stale(),
                Some(Err(error)) => {
                    side.note_write_error();
                    failed.push(side);
                    last = Some(error);
                }
                None => failed.push(side),
            }
        }
        if !is_there {
            return Err(last);
        }
        let mut missed = Vec::new();
        for side in failed {
            side.set_stale(true);
            missed.push(side.guid);
        }
        Ok(missed)
    }
}
