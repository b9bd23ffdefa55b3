//! Litmus files: parsing anything, and judging what is small enough.
#![no_main]

use fastness_crashcheck::litmus::{parse, run_tests};
use fastness_pm_model::Config;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|text: &[u8]| {
    match parse(text) {
        Ok(file) => {
            let small = |test: &&_| {
                let test: &fastness_crashcheck::litmus::LitmusTest = test;
                test.ops.len() <= 5 && test.observe.len() <= 4
            };
            let tests: Vec<_> = file.tests.iter().filter(small).take(2).cloned().collect();
            if let Err((location, problem)) = run_tests(&tests, Config::default()) {
                let _ = format!("{location:?}: {problem}");
            }
        }
        Err((location, problem)) => drop(format!("{location:?}: {problem}")),
    }
});
