use super::*;

use std::io::Write;
use std::net::TcpListener;

fn seconds(of: f64) -> Duration {
    Duration::from_secs_f64(of)
}

fn near(is: f64, expected: f64) -> bool {
    (is - expected).abs() < 1e-6
}

#[test]
fn power_and_energy_of_all_names_are_added_up() {
    let start = Instant::now();
    let mut state = State::default();
    let take =
        |state: &mut State, at: f64, text: &str| state.take_reading(text.as_bytes(), start + seconds(at));
    take(&mut state, 0.0, "watts 100 atx").unwrap();
    take(&mut state, 0.0, "joules 5000 dram\r").unwrap();
    take(&mut state, 0.0, "# a comment").unwrap();
    take(&mut state, 0.0, "").unwrap();
    take(&mut state, 0.0, "bytes 10").unwrap();
    assert!(near(state.joules(start + seconds(0.5)), 50.0), "the power of the last reading");
    take(&mut state, 1.0, "watts 200 atx").unwrap();
    take(&mut state, 1.0, "joules 5010.5 dram").unwrap();
    assert!(near(state.joules(start + seconds(1.0)), 150.0 + 10.5), "the mean of both");
    assert!(near(state.joules(start + seconds(2.0)), 150.0 + 200.0 + 21.0));
    take(&mut state, 2.0, "bytes 4096").unwrap();
    assert_eq!(state.bytes, Some(4096));
}

#[test]
fn what_is_not_of_the_protocol_is_refused_with_its_line() {
    let long = "x".repeat(257);
    let names: Vec<String> = (0..33).map(|name| format!("watts 1 n{name}")).collect();
    let cases: &[(&[&str], &str)] = &[
        (&["volts 12"], "neither"),
        (&["watts"], "no number"),
        (&["watts many"], "no number"),
        (&["watts NaN"], "no number"),
        (&["watts inf"], "no number"),
        (&["watts -3"], "no number"),
        (&["watts 1e300"], "no number"),
        (&["watts 1 2 3"], "three words"),
        (&["joules 5", "joules 4"], "less than before"),
        (&["joules 5", "watts 4"], "mixes"),
        (&["bytes 5", "bytes 4"], "less than before"),
        (&["bytes 1.5"], "no number"),
        (&["bytes 1 x"], "two words"),
        (&[&long], "too long"),
    ];
    for (lines, expected) in cases {
        let mut state = State::default();
        let taken: Vec<_> =
            lines.iter().map(|line| state.take_reading(line.as_bytes(), Instant::now())).collect();
        assert!(taken.last().unwrap().is_err_and(|why| why.contains(expected)), "{lines:?}: {taken:?}");
    }
    let mut state = State::default();
    assert!(state.take_reading(b"watts \xff", Instant::now()).is_err());
    let taken: Vec<_> =
        names.iter().map(|line| state.take_reading(line.as_bytes(), Instant::now())).collect();
    assert_eq!(taken.last(), Some(&Err("has one name too many")));
}

/// A meter that says these lines, waits, and hangs up.
fn meter_that_says(lines: &'static [u8], rest: Duration) -> (String, std::thread::JoinHandle<()>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap().to_string();
    let serve = move || {
        let (mut client, _) = listener.accept().unwrap();
        // The client may have hung up on what it does not understand.
        let _ = client.write_all(lines);
        std::thread::sleep(rest);
    };
    (address, std::thread::spawn(serve))
}

#[test]
fn a_meter_over_tcp_is_read_until_it_ends() {
    let (address, thread) = meter_that_says(b"watts 40\nwatts 2 fan\nbytes 7\n", Duration::from_millis(300));
    let meter = External::connect(&address).unwrap();
    std::thread::sleep(Duration::from_millis(50));
    let (first, at) = (meter.joules().unwrap().unwrap(), Instant::now());
    std::thread::sleep(Duration::from_millis(50));
    let used = meter.joules().unwrap().unwrap() - first;
    let expected = 42.0 * at.elapsed().as_secs_f64();
    assert!(used > 2.0 && (used - expected).abs() < expected / 2.0, "{used} J, about {expected}");
    assert_eq!(meter.bytes().unwrap(), Some(7));
    thread.join().unwrap();
    std::thread::sleep(Duration::from_millis(100));
    assert!(matches!(meter.joules(), Err(CostError::Ended { .. })));
}

#[test]
fn a_meter_that_is_none_is_refused() {
    let (address, thread) = meter_that_says(b"watts 1\nSSH-2.0-OpenSSH\n", Duration::from_millis(300));
    let error = match External::connect(&address) {
        Err(error) => error,
        Ok(meter) => {
            std::thread::sleep(Duration::from_millis(100));
            meter.joules().unwrap_err()
        }
    };
    assert!(matches!(&error, CostError::Line { line: 2, .. }), "{error}");
    thread.join().unwrap();
    let gone = External::connect(&address).unwrap_err();
    assert!(matches!(gone, CostError::Unreachable { .. }), "{gone}");
    for address in ["/no/such/meter", "nonsense"] {
        assert!(matches!(External::connect(address), Err(CostError::Unreachable { .. })), "{address}");
    }
}

#[test]
fn a_silent_meter_is_not_waited_for() {
    let (address, thread) = meter_that_says(b"# nothing yet\n", SILENCE_MAX + Duration::from_secs(1));
    let error = External::connect(&address).unwrap_err();
    assert!(matches!(error, CostError::Silent { .. }), "{error}");
    thread.join().unwrap();
}

#[test]
fn a_file_is_a_meter_and_lines_have_a_limit() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("readings");
    std::fs::write(&path, "y".repeat(1 << 20)).unwrap();
    let error = External::connect(path.to_str().unwrap()).unwrap_err();
    assert!(matches!(&error, CostError::Line { line: 1, why: "is too long", .. }), "{error}");
    std::fs::write(&path, "").unwrap();
    let error = External::connect(path.to_str().unwrap()).unwrap_err();
    assert!(matches!(error, CostError::Ended { .. }), "{error}");
}
