use super::*;

/// Every interleaving of a few threads: a slot's value is never reached by two at once (loom's cell fails
/// otherwise), no wake-up is lost (loom fails on a deadlock), and no update is lost.
#[cfg(loom)]
mod model {
    use super::*;
    use loom::sync::Arc;

    /// `preemptions`: switches away from a runnable thread.
    fn check(slots: usize, threads: usize, rounds: usize, preemptions: usize) {
        let mut model = loom::model::Builder::new();
        model.preemption_bound = Some(preemptions);
        model.check(move || {
            let slots = Arc::new(CommitSlots::new(vec![0usize; slots]));
            let work = move |slots: &CommitSlots<usize>| {
                for _ in 0..rounds {
                    *slots.acquire() += 1;
                }
            };
            let others: Vec<_> = (1..threads)
                .map(|_| {
                    let slots = Arc::clone(&slots);
                    loom::thread::spawn(move || work(&slots))
                })
                .collect();
            work(&slots);
            others.into_iter().for_each(|thread| thread.join().unwrap());
            let sum: usize = slots.values.iter().map(|slot| slot.0.with(|value| unsafe_read(value))).sum();
            assert_eq!(sum, threads * rounds);
        });
    }

    #[allow(unsafe_code)]
    fn unsafe_read(value: *const usize) -> usize {
        // SAFETY: all threads have been joined.
        unsafe { *value }
    }

    // The bounds are chosen so that each takes some seconds (two rounds of two threads without a bound: two
    // minutes); scripts/planted-defects has the defects that these find.

    #[test]
    fn one_slot_two_threads() {
        check(1, 2, 2, 5);
    }

    /// The head sleeps, is barged, rests, and gets a hand-off.
    #[test]
    fn one_slot_two_threads_many_rounds() {
        check(1, 2, 3, 4);
    }

    #[test]
    fn one_slot_three_threads() {
        check(1, 3, 1, 4);
    }

    #[test]
    fn one_slot_three_threads_two_rounds() {
        check(1, 3, 2, 2);
    }

    #[test]
    fn two_slots_three_threads() {
        check(2, 3, 1, 4);
    }

    #[test]
    fn two_slots_four_threads() {
        check(2, 4, 1, 2);
    }
}

#[cfg(not(loom))]
mod real {
    use super::*;
    use std::sync::atomic::{AtomicUsize, Ordering};

    #[test]
    fn a_thread_gets_its_last_slot_or_the_lowest_free_one() {
        let slots = CommitSlots::new(0..3);
        let (a, b) = (slots.acquire(), slots.acquire());
        assert_eq!((a.index(), b.index()), (0, 1));
        drop((a, b));
        assert_eq!(slots.acquire().index(), 1, "its last");
        let _held = slots.acquire();
        assert_eq!(slots.acquire().index(), 0, "the lowest free one");
    }

    #[test]
    fn no_more_holders_than_slots_and_no_update_is_lost() {
        const THREADS: usize = 8;
        const ROUNDS: usize = 3000;
        let slots = CommitSlots::new([0usize; 2]);
        let holders = AtomicUsize::new(0);
        std::thread::scope(|scope| {
            for _ in 0..THREADS {
                scope.spawn(|| {
                    for round in 0..ROUNDS {
                        let mut slot = slots.acquire();
                        assert!(holders.fetch_add(1, Ordering::SeqCst) < 2);
                        *slot += 1;
                        if round % 64 == 0 {
                            std::thread::yield_now();
                        }
                        holders.fetch_sub(1, Ordering::SeqCst);
                    }
                });
            }
        });
        assert_eq!(slots.into_values().sum::<usize>(), THREADS * ROUNDS);
    }

    #[test]
    fn a_waiter_gets_the_slot_of_a_holder_that_sleeps() {
        let slots = CommitSlots::new([0usize; 1]);
        std::thread::scope(|scope| {
            let held = slots.acquire();
            let waiters: Vec<_> = (0..3).map(|_| scope.spawn(|| *slots.acquire() += 1)).collect();
            while slots.waits() < 3 {
                std::thread::yield_now();
            }
            std::thread::sleep(std::time::Duration::from_millis(5));
            drop(held);
            waiters.into_iter().for_each(|waiter| waiter.join().unwrap());
        });
        assert_eq!(slots.into_values().sum::<usize>(), 3);
    }
}
