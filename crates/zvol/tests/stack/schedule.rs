//! Several threads at one time, in an order that the seed draws. One of them runs, from *gate* to gate; gates
//! are accesses to media, and locks. At one of them, at its end, or when it cannot go on, another one has its
//! turn.
//!
//! A lock that is taken is no reason to sleep but to let others go on, and so are a condition and a sleep
//! (`fastness_sync`, through which all of our locks and sleeps go; a test of the architecture holds that).
//! A thread that sleeps in the system all the same, on a lock inside of a library, is seen from outside; and
//! the one that runs looks at each gate whether another was woken, and waits until that is at a gate, too.
//! The memory allocator and this scheduler have locks as well, but threads that run give them back soon.

use std::cell::RefCell;
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::{Duration, Instant};

use fastness_sync::turns::{Decider, decide_by, is_undisturbed};

use crate::rng::Rng;
use crate::shorten::caught;

/// A thread that sleeps so long is called blocked. One that waits for another that runs, or could run if a
/// CPU were free, sleeps shorter.
const ASLEEP: Duration = Duration::from_millis(20);
/// Nobody sleeps longer, but for ever.
const PATIENCE: Duration = Duration::from_secs(10);
/// Turns between two accesses to media: whoever looks for a lock or a condition that long never gets it.
const TURNS_MAX: u32 = 50_000;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum At {
    /// It may go on, and has not seen that yet.
    Called,
    /// On its way to a gate, or blocked.
    Somewhere,
    Gate,
    /// It cannot go on before another one has.
    Blocked,
    End,
}

#[derive(Debug)]
struct Thread {
    at: At,
    /// Gates that it may pass.
    gates: u64,
    /// Where the system tells of it.
    status: Option<Arc<File>>,
}

/// The threads of one race.
#[derive(Debug, Default)]
struct Race {
    threads: Mutex<Vec<Thread>>,
    changed: Condvar,
    /// Turns since the last access to a medium.
    turns: AtomicU32,
}

thread_local! {
    static ME: RefCell<Option<(Arc<Race>, usize)>> = const { RefCell::new(None) };
    /// Gates of this thread's world so far.
    static CLOCK: RefCell<Option<Arc<AtomicU64>>> = const { RefCell::new(None) };
}

/// From now on the time of this thread goes by what it does.
pub fn set_clock() {
    decide_by(Decider { is_one: || ME.with_borrow(Option::is_some), take, now, sleep, number });
    CLOCK.set(Some(Arc::default()));
}

fn now() -> Option<Instant> {
    static START: OnceLock<Instant> = OnceLock::new();
    let gates = CLOCK.with_borrow(|clock| clock.as_ref().map(|clock| clock.load(Ordering::SeqCst)))?;
    Some(*START.get_or_init(Instant::now) + Duration::from_micros(gates))
}

/// Time goes on by it; whoever has to be waited for has its turn.
fn sleep(rest: Duration) -> bool {
    let micros = u64::try_from(rest.as_micros()).unwrap_or(u64::MAX);
    let has_clock =
        CLOCK.with_borrow(|clock| clock.as_ref().map(|clock| clock.fetch_add(micros, Ordering::SeqCst)));
    take(true);
    has_clock.is_some()
}

/// Counters and locks are divided over threads by their numbers. Those that the process gives depend on what
/// other worlds have begun meanwhile.
fn number() -> Option<u64> {
    let of_race = ME.with_borrow(|me| me.as_ref().map(|(_, me)| 1 + *me as u64));
    of_race.or(CLOCK.with_borrow(|clock| clock.as_ref().map(|_| 0)))
}

/// An access to a medium; another thread may have its turn here.
pub fn gate() {
    ME.with_borrow(|me| me.as_ref().map(|(race, _)| race.turns.store(0, Ordering::SeqCst)));
    if !is_undisturbed() {
        take(false);
    }
}

fn take(is_blocked: bool) {
    CLOCK.with_borrow(|clock| clock.as_ref().map(|clock| clock.fetch_add(1, Ordering::SeqCst)));
    let me = ME.with_borrow(Clone::clone);
    if let Some((race, me)) = me {
        race.pass(me, is_blocked);
    }
}

/// Runs all of them at one time; what each returned, or the text of its panic. `None`: some of them wait for
/// ever.
pub fn run<T: Send + 'static>(
    acts: Vec<Box<dyn FnOnce() -> T + Send>>,
    rng: &mut Rng,
) -> Option<Vec<Result<T, String>>> {
    let race = Arc::new(Race::default());
    let clock = CLOCK.with_borrow(Clone::clone);
    let new = || Thread { at: At::Called, gates: 0, status: None };
    race.threads().extend(acts.iter().map(|_| new()));
    let begin = |(me, act): (usize, Box<dyn FnOnce() -> T + Send>)| {
        let (race, clock) = (race.clone(), clock.clone());
        std::thread::spawn(move || {
            race.threads()[me].status = File::open("/proc/thread-self/stat").ok().map(Arc::new);
            CLOCK.set(clock);
            ME.set(Some((race.clone(), me)));
            gate();
            let done = caught(act);
            ME.set(None);
            race.threads()[me].at = At::End;
            done
        })
    };
    let threads: Vec<_> = acts.into_iter().enumerate().map(begin).collect();
    let join = |thread: std::thread::JoinHandle<_>| thread.join().expect("it has caught what came");
    race.run(rng).then(|| threads.into_iter().map(join).collect())
}

impl Race {
    fn threads(&self) -> MutexGuard<'_, Vec<Thread>> {
        self.threads.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn pass(&self, me: usize, is_blocked: bool) {
        let mut threads = self.threads();
        if is_blocked {
            threads[me].gates = 0;
        }
        while threads[me].gates == 0 {
            threads[me].at = if is_blocked { At::Blocked } else { At::Gate };
            threads = self.changed.wait(threads).unwrap_or_else(PoisonError::into_inner);
        }
        threads[me].gates -= 1;
        threads[me].at = At::Somewhere;
        let is_alone = (0..threads.len()).all(|at| at == me || threads[at].at != At::Somewhere);
        drop(threads);
        if !is_alone {
            self.settle(Some(me));
        }
    }

    /// Waits until everybody else is at a gate, at its end, or asleep.
    fn settle(&self, me: Option<usize>) {
        let mut asleep_since = None;
        loop {
            let is_other = |at: &usize| Some(*at) != me;
            let sleepers: Option<Vec<_>> = {
                let threads = self.threads();
                let others = (0..threads.len()).filter(is_other).map(|at| &threads[at]);
                let moving = others.filter(|thread| matches!(thread.at, At::Called | At::Somewhere));
                moving.map(|thread| thread.status.clone().filter(|_| thread.at == At::Somewhere)).collect()
            };
            // Without the lock: who waits for that one does not sleep for long.
            if sleepers.as_ref().is_some_and(Vec::is_empty) {
                return;
            }
            let is_still = sleepers.is_some_and(|sleepers| sleepers.iter().all(|status| sleeps(status)));
            if !is_still {
                asleep_since = None;
            } else if asleep_since.get_or_insert_with(Instant::now).elapsed() >= ASLEEP {
                return;
            }
            std::thread::yield_now();
        }
    }

    /// Lets them run to their ends; false if that never comes.
    fn run(&self, rng: &mut Rng) -> bool {
        let (turn_max, mut asleep_since, mut last) = (rng.pick(&[2, 20, 200]), None, usize::MAX);
        loop {
            self.settle(None);
            let mut threads = self.threads();
            if threads.iter().all(|thread| thread.at == At::End) {
                return true;
            }
            let at =
                |wanted: At| (0..threads.len()).filter(|at| threads[*at].at == wanted).collect::<Vec<_>>();
            let (mut ready, blocked) = (at(At::Gate), at(At::Blocked));
            // Those who are blocked try again now and then.
            if ready.is_empty() || rng.one_in(4) {
                ready.extend(blocked);
            }
            if ready.is_empty() {
                // Some wake by themselves.
                if asleep_since.get_or_insert_with(Instant::now).elapsed() > PATIENCE {
                    return false;
                }
                drop(threads);
                std::thread::sleep(Duration::from_micros(100));
                continue;
            }
            asleep_since = None;
            if !ready.contains(&last) || rng.one_in(2) {
                last = rng.pick(&ready);
            }
            if self.turns.fetch_add(1, Ordering::SeqCst) > TURNS_MAX {
                return false;
            }
            // One that sleeps in the system may have had some left.
            threads.iter_mut().for_each(|thread| thread.gates = 0);
            (threads[last].gates, threads[last].at) = (1 + rng.below(turn_max), At::Called);
            drop(threads);
            self.changed.notify_all();
        }
    }
}

/// Whether a thread sleeps, as the system says.
fn sleeps(status: &File) -> bool {
    let mut line = [0; 128];
    let Ok(len) = status.read_at(&mut line, 0) else { return false };
    let behind_name = line[..len].iter().rposition(|byte| *byte == b')');
    behind_name.is_some_and(|at| line[at..len].starts_with(b") S"))
}
