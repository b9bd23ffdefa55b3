//! Random histories against a vector.

use std::convert::Infallible;

use proptest::prelude::*;

use super::*;
use crate::AppendError;

#[derive(Debug, Clone)]
enum Step {
    Append(usize),
    Barrier,
    Trim,
    Recover,
    /// Recovery begun and abandoned.
    Begin,
    Discard,
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        8 => (0usize..900).prop_map(Step::Append),
        2 => Just(Step::Barrier),
        2 => Just(Step::Trim),
        1 => Just(Step::Recover),
        1 => Just(Step::Begin),
        1 => Just(Step::Discard),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 200, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn a_log_is_a_vector_that_survives(steps in prop::collection::vec(step(), 1..60), chunks in 1usize..5) {
        let len = 16384 + chunks * 1024;
        let (recorder, log) = new_log(len);
        let mut log = Some(log);
        let mut model: Vec<Vec<u8>> = Vec::new();
        for (index, step) in steps.into_iter().enumerate() {
            let open = || RecordLog::open(whole(&recorder, len), &reopen_options(index as u64)).unwrap();
            // After an abandoned recovery, only another recovery helps.
            if log.is_none() && !matches!(step, Step::Begin | Step::Discard) {
                let mut recovery = open();
                recovery.replay(|_, _| Ok::<_, Infallible>(())).unwrap();
                log = Some(recovery.finish().unwrap());
                model.clear();
            }
            match step {
                Step::Append(size) => {
                    let record = vec![index as u8; size];
                    match log.as_ref().unwrap().append(&record) {
                        Ok(_) => model.push(record),
                        Err(error) => {
                            let too_large = matches!(error, AppendError::TooLarge { .. });
                            let full = matches!(error, AppendError::Full { .. });
                            prop_assert!(if size > 768 { too_large } else { full && !model.is_empty() }, "{error}");
                        }
                    }
                }
                Step::Barrier => log.as_mut().unwrap().barrier(),
                Step::Trim => {
                    log.as_mut().unwrap().trim().unwrap();
                    model.clear();
                }
                Step::Recover | Step::Begin | Step::Discard => {
                    drop(log.take());
                    let mut recovery = open();
                    prop_assert_eq!(recovery.records(), model.len());
                    if matches!(step, Step::Discard) {
                        log = Some(recovery.discard().unwrap());
                        model.clear();
                        continue;
                    }
                    let mut found = Vec::new();
                    recovery.replay(|_, bytes| { found.push(bytes.to_vec()); Ok::<_, Infallible>(()) }).unwrap();
                    prop_assert_eq!(&found, &model);
                    if matches!(step, Step::Recover) {
                        log = Some(recovery.finish().unwrap());
                        model.clear();
                    }
                }
            }
        }
        drop(log);
        prop_assert_eq!(records_of(open_image(&recorder.image()).unwrap()), model);
    }
}
