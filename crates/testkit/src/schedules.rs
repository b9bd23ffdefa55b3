//! Scenarios with threads: with real ones, or in schedules that can be repeated.

/// Runs a scenario that starts threads (of `fastness-sync`): once, with real threads.
#[cfg(not(shuttle))]
pub fn schedules(_seed: u64, scenario: impl Fn() + Send + Sync + 'static) {
    scenario();
}

/// Runs a scenario that starts threads (of `fastness-sync`) in schedules that follow from `seed`: half of
/// them random, half of them such that few switches happen, but anywhere (PCT: Burckhardt and others, "A
/// Randomized Scheduler with Probabilistic Guarantees of Finding Bugs", ASPLOS 2010). `FASTNESS_SCHEDULES` is
/// their number, 10 if it is not set.
///
/// A scenario that hangs fails, and one that fails says how to repeat its schedule.
#[cfg(shuttle)]
pub fn schedules(seed: u64, scenario: impl Fn() + Send + Sync + 'static) {
    use std::sync::Arc;

    use shuttle::scheduler::{PctScheduler, RandomScheduler};

    let text = std::env::var("FASTNESS_SCHEDULES").unwrap_or_else(|_| "10".into());
    let count: usize = text.parse().expect("FASTNESS_SCHEDULES is a number");
    let scenario = Arc::new(scenario);
    let config = || {
        let mut config = shuttle::Config::new();
        config.stack_size = 1 << 20;
        config.max_steps = shuttle::MaxSteps::None;
        config
    };
    let same = Arc::clone(&scenario);
    shuttle::Runner::new(RandomScheduler::new_from_seed(seed, count.div_ceil(2)), config())
        .run(move || same());
    shuttle::Runner::new(PctScheduler::new_from_seed(seed, 4, count / 2), config()).run(move || scenario());
}
