//! A program that fails, made shorter: steps are left out for as long as it fails in the same way.

use std::cell::RefCell;
use std::collections::BTreeSet;
use std::panic::{AssertUnwindSafe, catch_unwind, set_hook, take_hook};
use std::sync::Once;

/// What left out steps are called: life, number.
pub type Skipped = BTreeSet<(u64, u64)>;

/// How a run failed.
#[derive(Debug, Clone)]
pub struct Failed {
    pub text: String,
    pub story: Vec<String>,
}

impl Failed {
    /// What two failures of one cause have in common: their words, not their numbers.
    fn likeness(&self) -> String {
        let words = self.text.chars().filter(|letter| !letter.is_ascii_digit());
        words.take_while(|letter| *letter != '[').take(60).collect()
    }

    /// The steps that it did, by their names.
    fn steps(&self) -> Vec<(u64, u64)> {
        let step = |line: &String| {
            let (life, step) = line.split_once(' ')?.0.split_once('.')?;
            Some((life.parse().ok()?, step.parse().ok()?))
        };
        self.story.iter().filter_map(step).collect()
    }
}

thread_local! {
    /// Where a run in this thread failed; `None` outside of one.
    static FAILED_AT: RefCell<Option<String>> = const { RefCell::new(None) };
}

/// Runs without a word on the terminal; a panic is told with its place.
pub fn caught<T>(run: impl FnOnce() -> T) -> Result<T, String> {
    static HOOK: Once = Once::new();
    HOOK.call_once(|| {
        let others = take_hook();
        set_hook(Box::new(move |info| {
            let is_ours = FAILED_AT.with_borrow_mut(|at| {
                at.as_mut().map(|at| *at = info.location().map(ToString::to_string).unwrap_or_default())
            });
            is_ours.unwrap_or_else(|| others(info));
        }));
    });
    FAILED_AT.set(Some(String::new()));
    let ran = catch_unwind(AssertUnwindSafe(run));
    let at = FAILED_AT.take().unwrap_or_default();
    ran.map_err(|panic| {
        let text = panic.downcast_ref::<String>().map(String::as_str);
        let text = text.or(panic.downcast_ref::<&str>().copied()).unwrap_or("?");
        format!("{text} ({at})")
    })
}

/// Runs at most so many times.
const RUNS_MAX: usize = 600;

/// Leaves out what the failure does not need: first many steps at a time, at last one by one.
pub fn shorten(mut failed: Failed, run: impl Fn(&Skipped) -> Option<Failed>) -> Failed {
    let (likeness, mut skipped, mut runs) = (failed.likeness(), Skipped::new(), 0);
    let mut size = failed.steps().len().div_ceil(2);
    while size > 0 && runs < RUNS_MAX {
        let steps = failed.steps();
        for part in steps.rchunks(size) {
            let tried: Skipped = skipped.iter().chain(part).copied().collect();
            runs += 1;
            if let Some(shorter) = run(&tried).filter(|shorter| shorter.likeness() == likeness) {
                (failed, skipped) = (shorter, tried);
            }
        }
        size = if size == 1 { 0 } else { size.div_ceil(2) };
    }
    failed
}
