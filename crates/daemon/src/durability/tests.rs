use super::*;

const BEFORE: [Before; 2] = [Before::Exported, Before::Crashed];
const GIVEN_UP: [GivenUp; 4] = [GivenUp::Nothing, GivenUp::Log, GivenUp::Tail, GivenUp::Later];
const LOGS: [LogPlace; 4] = [LogPlace::Unused, LogPlace::Vdevs, LogPlace::Persistent, LogPlace::StandsIn];
const VDEVS: [Survival; 3] = [Survival::Nothing, Survival::IfFlushIsKept, Survival::Everything];

/// Every combination of the facts.
fn all() -> Vec<Facts> {
    let mut all = Vec::new();
    for before in BEFORE {
        for given_up in GIVEN_UP {
            for log in LOGS {
                for vdevs in VDEVS {
                    for (volumes, disabled) in [(0, 0), (2, 0), (2, 1), (2, 2)] {
                        let disabled = ["tank/a", "tank/b"][..disabled].iter().map(|name| (*name).to_owned());
                        let disabled = disabled.collect();
                        all.push(Facts { before, given_up, log, vdevs, volumes, disabled });
                    }
                }
            }
        }
    }
    all
}

/// Whether the words promise every flushed write of every volume, without qualification.
fn promises_all(words: &str) -> bool {
    words.contains("every flushed write") && !words.contains("disabled") && !words.contains("if ")
}

#[test]
fn nothing_is_promised_that_is_not_so() {
    for facts in all() {
        let words = facts.words();
        let (given_up, is_crashed) = (facts.given_up != GivenUp::Nothing, facts.before == Before::Crashed);
        let keeps_all = facts.disabled.is_empty();
        assert_eq!(
            promises_all(&words.found),
            is_crashed
                && !given_up
                && keeps_all
                && matches!(facts.log, LogPlace::Vdevs | LogPlace::Persistent),
            "{facts:?}: {}",
            words.found
        );
        assert_eq!(promises_all(&words.after_process_crash), keeps_all, "{facts:?}: {words:?}");
        let log_keeps = facts.log != LogPlace::StandsIn;
        let vdevs_keep = facts.vdevs == Survival::Everything;
        assert_eq!(
            promises_all(&words.after_power_cut),
            keeps_all && log_keeps && vdevs_keep,
            "{facts:?}: {}",
            words.after_power_cut
        );
        // A pool in memory keeps nothing, whatever the other facts.
        assert_eq!(words.after_power_cut.starts_with("nothing"), facts.vdevs == Survival::Nothing);
    }
}

#[test]
fn what_was_lost_is_said() {
    for facts in all() {
        let words = facts.words();
        let (is_unused, given_up) = (facts.log == LogPlace::Unused, facts.given_up != GivenUp::Nothing);
        let is_lost = facts.before == Before::Crashed && (is_unused || given_up)
            || facts.given_up == GivenUp::Later && !is_unused;
        let says_so = words.found.contains("are lost") || words.found.contains("are missing");
        assert_eq!(says_so, is_lost, "{facts:?}: {}", words.found);
        // Even where this loses nothing.
        let says_what = words.found.contains("without ") || words.found.contains("older copies");
        assert_eq!(says_what, given_up && !is_unused, "{facts:?}: {}", words.found);
    }
}

#[test]
fn volumes_that_ignore_flushes_are_named_and_no_others() {
    for facts in all().into_iter().filter(|facts| facts.vdevs != Survival::Nothing) {
        let words = facts.words();
        for text in [&words.after_process_crash, &words.after_power_cut] {
            let is_some = facts.disabled.len() == 1;
            let says_txgs_already = facts.log == LogPlace::StandsIn && text == &words.after_power_cut;
            assert_eq!(text.contains("tank/a"), is_some && !says_txgs_already, "{facts:?}: {text}");
            assert!(!text.contains("tank/b"), "{facts:?}: {text}");
        }
    }
}

#[test]
fn writes_that_were_not_flushed_are_a_prefix_only_where_nothing_is_logged() {
    for facts in all() {
        let is_prefix = facts.volumes > 0 && facts.disabled.len() == facts.volumes;
        assert_eq!(facts.words().not_flushed.contains("whole transaction groups"), is_prefix, "{facts:?}");
    }
}
