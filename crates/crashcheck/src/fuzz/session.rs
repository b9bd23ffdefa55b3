//! The loop.

use std::path::Path;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Instant;

use fastness_crashcheck_fuzz::{Corpus, Features};
use fastness_pm_model::Rng;

use super::findings::Findings;
use super::subject::{Depth, Place, Ran, Subject};
use super::{Fuzz, Fuzzed, ROUND, Told, Totals, corpus};
use crate::error::Result;
use crate::process::Ending;
use crate::report::Report;

impl Fuzz<'_> {
    /// Fuzzes until the time is over, or enough inputs were run.
    ///
    /// # Errors
    /// [`CheckError`](crate::CheckError); that the program cannot be traced at all.
    pub fn run(&self) -> Result<Fuzzed> {
        let mut session = Session {
            fuzz: self,
            corpus: Corpus::default(),
            rng: Rng::new(self.seed),
            totals: Totals::default(),
            findings: Findings::new(self),
            places: (0..ROUND).map(|index| Place::new(self.work, &format!("run{index}"))).collect(),
            shrinker: Place::new(self.work, "shrink"),
        };
        let mut begin = corpus::read(self.corpus)?;
        if begin.is_empty() {
            begin = self.subject.seeds();
        }
        for inputs in begin.chunks(ROUND) {
            if !session.is_over() {
                session.round(inputs)?;
            }
        }
        while !session.is_over() {
            let inputs: Vec<Vec<u8>> = (0..ROUND).map(|_| session.next()).collect();
            session.round(&inputs)?;
        }
        let Session { totals, findings, .. } = session;
        Ok(Fuzzed { totals, findings: findings.into_found() })
    }

    pub(super) fn is_over(&self) -> bool {
        self.deadline.is_some_and(|deadline| Instant::now() >= deadline)
    }
}

/// Runs one input, and reports what its crashes leave, with all images that the test asks for. The ending is
/// that of the program; a report is there if it has ended well.
///
/// # Errors
/// [`CheckError`](crate::CheckError)
pub fn replay(subject: &dyn Subject, work: &Path, input: &Path) -> Result<(Ending, Option<Report>)> {
    let place = Place::new(work, "replay");
    match subject.run(&place, &corpus::read_one(input)?)? {
        Ran::Refused(error) => Err(error),
        Ran::Ended(ending, _) if ending.is_success() => {
            Ok((ending, subject.judge(&place, Depth::Full, None)?))
        }
        Ran::Ended(ending, _) => Ok((ending, None)),
    }
}

struct Session<'a> {
    fuzz: &'a Fuzz<'a>,
    corpus: Corpus<Vec<u8>>,
    rng: Rng,
    totals: Totals,
    findings: Findings<'a>,
    /// One for each input of a round.
    places: Vec<Place>,
    /// For inputs that are made smaller.
    shrinker: Place,
}

impl Session<'_> {
    fn is_over(&self) -> bool {
        let is_done = |most: Option<u64>, now: u64| most.is_some_and(|most| now >= most);
        self.fuzz.is_over()
            || is_done(self.fuzz.runs, self.totals.runs)
            || is_done(self.fuzz.findings_max.map(|most| most as u64), self.findings.len() as u64)
    }

    /// The next input.
    fn next(&mut self) -> Vec<u8> {
        let other = self.corpus.any(&mut self.rng).cloned().unwrap_or_default();
        let input = self.corpus.choose(&mut self.rng).cloned().unwrap_or_default();
        self.fuzz.subject.mutate(&input, &other, &mut self.rng)
    }

    /// Runs inputs at once, then looks at what they did in order.
    fn round(&mut self, inputs: &[Vec<u8>]) -> Result<()> {
        for (index, (input, ran)) in inputs.iter().zip(self.run_all(inputs)?).enumerate() {
            self.totals.runs += 1;
            match ran {
                None => {}
                Some(Ran::Refused(error)) => {
                    self.totals.refused += 1;
                    // It is not the inputs.
                    if self.totals.refused == self.totals.runs && self.totals.runs >= inputs.len() as u64 {
                        return Err(error);
                    }
                }
                Some(Ran::Ended(ending, features)) => self.look(input, ending, &features, index)?,
            }
        }
        (self.fuzz.tell)(&Told::Round(self.totals, self.findings.len()));
        Ok(())
    }

    /// Those that the time is over for are not run.
    fn run_all(&self, inputs: &[Vec<u8>]) -> Result<Vec<Option<Ran>>> {
        let next = AtomicUsize::new(0);
        let ran: Mutex<Vec<Option<Result<Ran>>>> = Mutex::new(inputs.iter().map(|_| None).collect());
        std::thread::scope(|scope| {
            for _ in 0..self.fuzz.threads.max(1) {
                scope.spawn(|| {
                    while !self.fuzz.is_over()
                        && let index = next.fetch_add(1, Ordering::Relaxed)
                        && let (Some(input), Some(place)) = (inputs.get(index), self.places.get(index))
                    {
                        let result = self.fuzz.subject.run(place, input);
                        ran.lock().unwrap_or_else(std::sync::PoisonError::into_inner)[index] = Some(result);
                    }
                });
            }
        });
        let ran = ran.into_inner().unwrap_or_else(std::sync::PoisonError::into_inner);
        ran.into_iter().map(Option::transpose).collect()
    }

    /// Keeps what is new, and tests its crashes.
    fn look(&mut self, input: &[u8], ending: Ending, features: &Features, index: usize) -> Result<()> {
        match ending {
            Ending::Signal(_) | Ending::TimedOut | Ending::Panicked | Ending::TooMuchOutput => {
                return self.findings.add_ending(input, ending, &self.shrinker);
            }
            Ending::Code(_) => {}
        }
        self.totals.refused += u64::from(!ending.is_success());
        if self.corpus.add(input.to_vec(), input.len(), features) == 0 {
            return Ok(());
        }
        (self.totals.kept, self.totals.features) = (self.corpus.len(), self.corpus.features());
        if let Some(folder) = self.fuzz.corpus {
            corpus::save(folder, input)?;
        }
        if !ending.is_success() || self.fuzz.is_over() {
            return Ok(());
        }
        if let Some(report) =
            self.fuzz.subject.judge(&self.places[index], Depth::Quick, self.fuzz.deadline)?
        {
            self.totals.tested += 1;
            self.totals.images += report.totals.images;
            self.findings.add_report(input, &report, &self.shrinker)?;
        }
        Ok(())
    }
}
