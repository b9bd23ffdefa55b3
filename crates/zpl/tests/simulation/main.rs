//! Random operations on files, against a model, with crashes: what was synced is there, of what was not
//! synced exactly that what the log or a txg has. One seed is one run.
//!
//! `FASTNESS_FILES_SEEDS=0..2000 cargo test -p fastness-zpl --test simulation`; with `FASTNESS_FILES_TRACE=1`
//! it shows what one does.
#![allow(clippy::print_stdout, reason = "seeds, and what they do")]

#[path = "../support/mod.rs"]
mod support;

mod drive;
mod model;
mod partial;
mod run;

/// Seeds to run; 0..150 unless told.
fn seeds() -> std::ops::Range<u64> {
    let Ok(text) = std::env::var("FASTNESS_FILES_SEEDS") else { return 0..150 };
    let (from, to) = text.split_once("..").expect("FASTNESS_FILES_SEEDS=FROM..TO");
    from.parse().expect("a number")..to.parse().expect("a number")
}

#[test]
fn files_behave_like_the_model_through_crashes() {
    let mut met = run::Met::default();
    for seed in seeds() {
        println!("seed {seed}");
        run::run(seed, &mut met);
    }
    println!("{met:?}");
    // What no run ever does is not tested.
    if seeds().count() >= 100 {
        met.check();
    }
}
