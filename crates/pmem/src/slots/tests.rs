use super::*;

use std::sync::atomic::{AtomicUsize, Ordering as Order};
use std::sync::{Arc, Mutex as StdMutex};

/// Threads that wait get their slots in the order in which they began to wait.
#[test]
fn who_waits_first_is_served_first() {
    const THREADS: u64 = 12;
    let slots = Arc::new(WriterSlots::new(1));
    let served = StdMutex::new(Vec::new());
    std::thread::scope(|scope| {
        let held = slots.enter();
        for thread in 0..THREADS {
            let (slots, served) = (&slots, &served);
            scope.spawn(move || {
                let _slot = slots.enter();
                served.lock().unwrap().push(thread);
            });
            // It stands in the line.
            while slots.turns.come() <= thread {
                std::thread::yield_now();
            }
        }
        drop(held);
    });
    assert_eq!(served.into_inner().unwrap(), (0..THREADS).collect::<Vec<_>>());
    assert_eq!(slots.waits(), THREADS);
}

#[test]
fn there_are_never_more_writers_than_slots() {
    let slots = WriterSlots::new(3);
    let (inside, most) = (AtomicUsize::new(0), AtomicUsize::new(0));
    std::thread::scope(|scope| {
        for _ in 0..8 {
            scope.spawn(|| {
                for _ in 0..2000 {
                    let _slot = slots.enter();
                    most.fetch_max(inside.fetch_add(1, Order::SeqCst) + 1, Order::SeqCst);
                    std::hint::spin_loop();
                    inside.fetch_sub(1, Order::SeqCst);
                }
            });
        }
    });
    assert!((1..=3).contains(&most.into_inner()));
    assert_eq!(slots.state.0.load(Order::SeqCst), 0, "all are free");
    let taken: Vec<_> = std::iter::from_fn(|| slots.try_enter()).collect();
    assert_eq!((taken.len(), slots.count()), (3, 3));
}

/// A thread that holds no slot for long is not kept from one by threads that never wait.
#[test]
fn a_waiter_does_not_starve() {
    let slots = WriterSlots::new(1);
    let is_over = AtomicUsize::new(0);
    std::thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| {
                while is_over.load(Order::SeqCst) == 0 {
                    // Never waits: it takes the slot whenever that is free.
                    let _slot = slots.try_enter();
                    std::hint::spin_loop();
                }
            });
        }
        for _ in 0..20 {
            let _slot = slots.enter();
        }
        is_over.store(1, Order::SeqCst);
    });
}
