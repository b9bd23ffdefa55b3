//! A line of threads: each waits until those that came before it have gone.
//!
//! A lock alone does not keep the order: a thread that comes at the right moment takes it before those that
//! sleep. Nothing is allocated, and a thread that leaves wakes the next one, and those a whole number of
//! [`BELLS`] after it.

use fastness_sync::{Condvar, Mutex, lock, wait};

/// Threads that wait share so many condition variables.
#[cfg(not(loom))]
const BELLS: usize = 16;
#[cfg(loom)]
const BELLS: usize = 2;

#[derive(Debug)]
pub(super) struct Turns {
    line: Mutex<Line>,
    bells: [Condvar; BELLS],
}

#[derive(Debug, Default)]
struct Line {
    /// The number of the next thread that comes.
    next: u64,
    /// The number whose turn it is.
    turn: u64,
}

impl Default for Turns {
    fn default() -> Self {
        Turns { line: Mutex::new(Line::default()), bells: std::array::from_fn(|_| Condvar::new()) }
    }
}

impl Turns {
    /// Waits for this thread's turn, which lasts until the guard is dropped.
    pub(super) fn wait_for_turn(&self) -> Turn<'_> {
        let mut line = lock(&self.line);
        let number = line.next;
        line.next += 1;
        while line.turn != number {
            line = wait(self.bell(number), line);
        }
        Turn(self)
    }

    /// How many threads have come so far.
    #[cfg(all(test, not(any(loom, shuttle))))]
    pub(super) fn come(&self) -> u64 {
        lock(&self.line).next
    }

    fn bell(&self, number: u64) -> &Condvar {
        &self.bells[(number % BELLS as u64) as usize]
    }
}

/// This thread is the head of the line.
pub(super) struct Turn<'a>(&'a Turns);

impl Drop for Turn<'_> {
    fn drop(&mut self) {
        let mut line = lock(&self.0.line);
        line.turn += 1;
        let (next, is_waited_for) = (line.turn, line.turn < line.next);
        drop(line);
        if is_waited_for {
            self.0.bell(next).notify_all();
        }
    }
}
