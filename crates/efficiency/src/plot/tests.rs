use super::*;

use std::fs;

fn run(value: &str, speed: f64) -> RunCost {
    RunCost {
        value: Some(value.to_owned()),
        gib_per_s: Some(speed),
        cpu_s_per_gib: Some(2.0 / speed),
        no_energy: Some("no meter: no /sys/class/powercap".to_owned()),
        ..RunCost::default()
    }
}

fn report(name: &str, runs: Vec<RunCost>) -> Report {
    Report {
        name: name.to_owned(),
        cpus: 2.0,
        idle_seconds: 5.0,
        idle_percent: 0.1,
        idle_watts: None,
        meter: None,
        runs,
    }
}

fn drawn(reports: &[Report]) -> String {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("cost.svg");
    draw_costs(&path, reports).unwrap();
    fs::read_to_string(&path).unwrap()
}

#[test]
fn each_report_has_its_curve_in_each_picture_and_what_is_missing_is_said() {
    let reports = [
        report("ext4", vec![run("1", 1.0), run("8", 2.0)]),
        report("<xfs> & co", vec![run("1", 1.5), run("8", 1.0)]),
    ];
    let svg = drawn(&reports);
    assert!(svg.starts_with("<svg") && svg.trim_end().ends_with("</svg>"));
    for text in [
        "ext4",
        "&lt;xfs&gt; &amp; co",
        "Speed [GiB/s]",
        "CPU cost [s/GiB]",
        "no meter: no /sys/class/powercap",
    ] {
        assert!(svg.contains(text), "{text}: {svg}");
    }
    // Three pictures with two points of two reports each, and the heads.
    assert_eq!(svg.matches("<circle").count(), 3 * 4 + 2);
}

#[test]
fn any_values_can_be_drawn() {
    let odd = |value: Option<&str>, speed: f64| RunCost { value: value.map(str::to_owned), ..run("", speed) };
    for values in [
        vec![odd(Some("a"), 1.0), odd(Some("b"), 1.0)],
        vec![odd(None, 1.0)],
        vec![odd(Some("NaN"), f64::NAN), odd(Some("inf"), f64::INFINITY)],
        vec![odd(Some("1e308"), 1e308), odd(Some("-1e308"), -1e308)],
        vec![],
    ] {
        assert!(drawn(&[report("odd", values)]).contains("</svg>"));
    }
    let error = draw_costs(Path::new("/no/such/folder/cost.svg"), &[]).unwrap_err();
    assert!(error.to_string().contains("/no/such/folder/cost.svg"), "{error}");
}
