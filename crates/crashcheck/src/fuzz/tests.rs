//! The loop, with a program that is none: what it runs is decided by the bytes of its input.

use std::collections::BTreeMap;
use std::sync::Mutex;

use fastness_crashcheck_fuzz::Features;
use fastness_crashcheck_fuzz::bytes::{self, Mutator};
use fastness_pm_model::Rng;

use super::*;
use crate::error::Result;
use crate::process::Ending;

/// A line `put LENGTH` with a length that is no multiple of 8, and above 99, kills it; `no` is refused.
#[derive(Default)]
struct Fake {
    judged: Mutex<Vec<Vec<u8>>>,
}

impl Fake {
    fn is_fatal(line: &str) -> bool {
        let len = line.strip_prefix("put ").and_then(|len| len.trim().parse::<u64>().ok());
        len.is_some_and(|len| len > 99 && len % 8 != 0)
    }
}

impl Subject for Fake {
    fn name(&self) -> &str {
        "fake"
    }

    fn seeds(&self) -> Vec<Vec<u8>> {
        vec![b"put 64\n".to_vec(), b"no\n".to_vec()]
    }

    fn mutate(&self, input: &[u8], other: &[u8], rng: &mut Rng) -> Vec<u8> {
        Mutator::default().mutate(input, other, rng)
    }

    fn shrink(
        &self,
        input: &[u8],
        most: usize,
        fails: &mut dyn FnMut(&[u8]) -> Result<bool>,
    ) -> Result<Vec<u8>> {
        bytes::shrink(input, most, fails)
    }

    fn run(&self, place: &Place, input: &[u8]) -> Result<Ran> {
        crate::error::make_dir(&place.work)?;
        std::fs::write(&place.trace, input).unwrap();
        let text = String::from_utf8_lossy(input);
        let mut features = Features::default();
        for line in text.lines() {
            features.add_block(line.len() as u64, 1);
        }
        let ending = match text.lines().any(Fake::is_fatal) {
            true => Ending::Signal(11),
            false => Ending::Code(i32::from(text.contains("no"))),
        };
        Ok(Ran::Ended(ending, features))
    }

    fn judge(&self, place: &Place, _: Depth, _: Option<Instant>) -> Result<Option<Report>> {
        self.judged.lock().unwrap().push(std::fs::read(&place.trace).unwrap());
        Ok(None)
    }
}

/// What a session leaves: files of the corpus, and its result.
fn session(fake: &Fake, threads: usize, seed: u64) -> (BTreeMap<String, Vec<u8>>, Fuzzed, tempfile::TempDir) {
    let folder = tempfile::tempdir().unwrap();
    let corpus = folder.path().join("corpus");
    let fuzz = Fuzz {
        subject: fake,
        work: &folder.path().join("work"),
        threads,
        seed,
        runs: Some(2000),
        findings_max: None,
        deadline: None,
        corpus: Some(&corpus),
        output: &folder.path().join("found"),
        shrink_runs: 1000,
        ignore: "",
        tell: &|_| (),
    };
    let fuzzed = fuzz.run().unwrap();
    let file = |entry: std::io::Result<std::fs::DirEntry>| {
        let entry = entry.unwrap();
        (entry.file_name().into_string().unwrap(), std::fs::read(entry.path()).unwrap())
    };
    (std::fs::read_dir(corpus).unwrap().map(file).collect(), fuzzed, folder)
}

#[test]
fn one_seed_gives_the_same_inputs_whatever_the_number_of_threads() {
    let (one, fuzzed, _folder) = session(&Fake::default(), 1, 5);
    let (four, other, _folder) = session(&Fake::default(), 4, 5);
    assert_eq!((&one, fuzzed.totals), (&four, other.totals));
    assert!(one.len() > 10 && one.len() == fuzzed.totals.kept, "{}", one.len());
    assert_ne!(one, session(&Fake::default(), 1, 6).0);
}

#[test]
fn a_program_that_is_killed_is_one_finding_with_a_small_input() {
    let (_, fuzzed, _folder) = session(&Fake::default(), 2, 5);
    let [finding] = &fuzzed.findings[..] else { panic!("{:?}", fuzzed.findings) };
    assert_eq!(finding.cause, FindingCause::Ended(Ending::Signal(11)));
    // No byte can go, and no number be halved.
    let small = std::fs::read_to_string(&finding.input).unwrap();
    assert!(Fake::is_fatal(&small) && small.len() == "put 100".len(), "{small}");
    assert!(finding.report.is_none() && finding.name == "fake-1");
}

#[test]
fn crashes_of_inputs_that_are_refused_are_not_tested() {
    let fake = Fake::default();
    let (kept, fuzzed, _folder) = session(&fake, 2, 5);
    let judged = fake.judged.into_inner().unwrap();
    let has_no = |input: &Vec<u8>| String::from_utf8_lossy(input).contains("no");
    assert!(fuzzed.totals.refused > 100 && kept.values().any(has_no));
    assert!(!judged.iter().any(has_no) && judged.len() > 10, "{}", judged.len());
    assert!(judged.iter().all(|input| kept.values().any(|one| one == input)), "only what is new");
}
