//! Defects that are known and not mended yet, and the features of the simulation that meet them. These features are off,
//! so that what else goes wrong is seen. Whoever mends a defect takes its line out.
//!
//! `FASTNESS_STACK_WITH=A1,A3` turns features on, `FASTNESS_STACK_WITH=all` all of them.

use std::sync::OnceLock;

/// Item of issue 14, and what is left out because of it.
const HELD_BACK: &[(&str, &str)] = &[
    ("A2", "bits flip in log blocks and entries whose loss other blocks or entries prove"),
    ("A5", "the file below a region of persistent memory is cut short while it is in use"),
];

/// Whether the features that meet this defect are on.
pub fn is_on(item: &str) -> bool {
    static WITH: OnceLock<String> = OnceLock::new();
    let with = WITH.get_or_init(|| std::env::var("FASTNESS_STACK_WITH").unwrap_or_default());
    let is_held = HELD_BACK.iter().any(|(held, _)| *held == item);
    !is_held || with.split(',').any(|with| with == item || with == "all")
}
