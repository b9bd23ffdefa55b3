//! A meter outside of the machine, over a line protocol.
//!
//! The meter sends a line for each reading, over TCP or through a file (a FIFO, a serial port): `watts NUMBER
//! [NAME]`, `joules NUMBER [NAME]` (since some time in the past) or `bytes NUMBER` (the same). Readings with
//! different names are added up. A reading counts for the time at which it arrives. Lines end with a newline
//! and have at most 256 bytes; empty ones and those that begin with `#` mean nothing.
//!
//! Between two readings of watts the power is that of the first one, afterwards the mean of both. What does
//! not keep to the protocol ends the meter, with the line; so does silence for three seconds.

use std::fs::File;
use std::io::{self, Read};
use std::net::{TcpStream, ToSocketAddrs};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use fastness_sync::{Mutex, lock};

use crate::error::CostError;

const LINE_BYTES_MAX: usize = 256;
const NAMES_MAX: usize = 32;
/// How long a meter may be silent.
const SILENCE_MAX: Duration = Duration::from_secs(3);
const CONNECT_MAX: Duration = Duration::from_secs(5);
/// How often the reading thread looks whether it should end.
const LOOK: Duration = Duration::from_millis(200);

/// A meter outside of the machine.
#[derive(Debug)]
pub struct External {
    address: String,
    state: Arc<Mutex<State>>,
    ends: Arc<AtomicBool>,
}

impl External {
    /// Connects to `HOST:PORT`, or opens the path of a file; waits for the first reading.
    ///
    /// # Errors
    /// [`CostError::Unreachable`], [`CostError::Silent`], [`CostError::Ended`], [`CostError::Line`].
    pub fn connect(address: &str) -> Result<External, CostError> {
        let unreachable = |source| CostError::Unreachable { address: address.to_owned(), source };
        let input = open(address).map_err(unreachable)?;
        let (state, ends) = (Arc::<Mutex<State>>::default(), Arc::<AtomicBool>::default());
        let meter = External { address: address.to_owned(), state: state.clone(), ends: ends.clone() };
        let read = move || {
            let outcome =
                follow(input, &ends, |line, text| lock(&state).take_line(line, text, Instant::now()));
            let mut state = lock(&state);
            state.over = state.over.take().or(Some(outcome.map_or_else(Over::Failed, |()| Over::Ended)));
        };
        std::thread::Builder::new().name("meter".to_owned()).spawn(read).map_err(CostError::Thread)?;
        let started = Instant::now();
        while !lock(&meter.state).has_energy() {
            meter.check(started)?;
            std::thread::sleep(Duration::from_millis(10));
        }
        Ok(meter)
    }

    pub(crate) fn describe(&self) -> String {
        format!("the meter {}", self.address)
    }

    pub(crate) fn joules(&self) -> Result<Option<f64>, CostError> {
        let now = Instant::now();
        self.check(now)?;
        Ok(Some(lock(&self.state).joules(now)))
    }

    pub(crate) fn bytes(&self) -> Result<Option<u64>, CostError> {
        self.check(Instant::now())?;
        Ok(lock(&self.state).bytes)
    }

    /// Whether it still sends; before the first reading, it may be silent from `started` on.
    fn check(&self, started: Instant) -> Result<(), CostError> {
        let state = lock(&self.state);
        let address = self.address.clone();
        match &state.over {
            Some(Over::Ended) => return Err(CostError::Ended { address }),
            Some(Over::Failed(source)) => {
                let source = io::Error::new(source.kind(), source.to_string());
                return Err(CostError::Unreachable { address, source });
            }
            Some(Over::Line { line, why, text }) => {
                return Err(CostError::Line { address, line: *line, why, text: text.clone() });
            }
            None => {}
        }
        if state.newest.unwrap_or(started).elapsed() > SILENCE_MAX {
            return Err(CostError::Silent { address, seconds: SILENCE_MAX.as_secs_f64() });
        }
        Ok(())
    }
}

impl Drop for External {
    fn drop(&mut self) {
        // A thread that reads a file ends with its next line, or with the process.
        self.ends.store(true, Ordering::Relaxed);
    }
}

fn open(address: &str) -> io::Result<Box<dyn Read + Send>> {
    if address.contains('/') {
        return Ok(Box::new(File::open(address)?));
    }
    let mut failed = io::Error::new(io::ErrorKind::InvalidInput, "neither HOST:PORT nor a path");
    for address in address.to_socket_addrs()? {
        match TcpStream::connect_timeout(&address, CONNECT_MAX) {
            Ok(stream) => {
                stream.set_read_timeout(Some(LOOK))?;
                return Ok(Box::new(stream));
            }
            Err(error) => failed = error,
        }
    }
    Err(failed)
}

/// Hands out lines, with their numbers, until one is refused, the input ends, or nobody wants more.
fn follow(
    mut input: impl Read,
    ends: &AtomicBool,
    mut each: impl FnMut(u64, &[u8]) -> bool,
) -> io::Result<()> {
    let (mut buffer, mut line, mut number) = ([0; 512], Vec::new(), 0);
    while !ends.load(Ordering::Relaxed) {
        let count = match input.read(&mut buffer) {
            Ok(0) => return Ok(()),
            Ok(count) => count,
            Err(error) => match error.kind() {
                io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut | io::ErrorKind::Interrupted => continue,
                _ => return Err(error),
            },
        };
        for &byte in &buffer[..count] {
            if byte != b'\n' && line.len() <= LINE_BYTES_MAX {
                line.push(byte);
                continue;
            }
            // Its end, or it is too long already: then it is refused.
            number += 1;
            if !each(number, &line) {
                return Ok(());
            }
            line.clear();
        }
    }
    Ok(())
}

/// Why nothing comes any more.
#[derive(Debug)]
enum Over {
    Ended,
    Failed(io::Error),
    Line { line: u64, why: &'static str, text: String },
}

#[derive(Debug, Default)]
struct State {
    channels: Vec<Channel>,
    bytes: Option<u64>,
    newest: Option<Instant>,
    over: Option<Over>,
}

/// The readings of one name.
#[derive(Debug)]
struct Channel {
    name: String,
    is_power: bool,
    at: Instant,
    /// Since the first reading, up to `at`.
    joules: f64,
    watts: f64,
    /// The last reading of joules.
    last: f64,
}

impl State {
    fn has_energy(&self) -> bool {
        !self.channels.is_empty()
    }

    fn joules(&self, now: Instant) -> f64 {
        let of = |channel: &Channel| {
            channel.joules + channel.watts * now.saturating_duration_since(channel.at).as_secs_f64()
        };
        self.channels.iter().map(of).sum()
    }

    /// False: the line is not of the protocol.
    fn take_line(&mut self, line: u64, text: &[u8], now: Instant) -> bool {
        match self.take_reading(text, now) {
            Ok(()) => true,
            Err(why) => {
                let text: String = String::from_utf8_lossy(text).chars().take(60).collect();
                self.over = Some(Over::Line { line, why, text: text.escape_debug().to_string() });
                false
            }
        }
    }

    fn take_reading(&mut self, text: &[u8], now: Instant) -> Result<(), &'static str> {
        if text.len() > LINE_BYTES_MAX {
            return Err("is too long");
        }
        let text = std::str::from_utf8(text).map_err(|_| "is not UTF-8")?;
        let mut words = text.split_ascii_whitespace();
        let Some(what) = words.next().filter(|word| !word.starts_with('#')) else { return Ok(()) };
        let value = words.next().ok_or("has no number")?;
        let name = words.next().unwrap_or_default();
        if words.next().is_some() {
            return Err("has more than three words");
        }
        match what {
            "watts" => self.take_energy(name, true, quantity(value)?, now)?,
            "joules" => self.take_energy(name, false, quantity(value)?, now)?,
            "bytes" => {
                let value = value.parse().map_err(|_| "has no number")?;
                if !name.is_empty() {
                    return Err("has more than two words");
                }
                if self.bytes.is_some_and(|before| value < before) {
                    return Err("is less than before");
                }
                self.bytes = Some(value);
            }
            _ => return Err("begins with neither watts, joules nor bytes"),
        }
        self.newest = Some(now);
        Ok(())
    }

    fn take_energy(
        &mut self,
        name: &str,
        is_power: bool,
        value: f64,
        now: Instant,
    ) -> Result<(), &'static str> {
        let Some(channel) = self.channels.iter_mut().find(|channel| channel.name == name) else {
            if self.channels.len() == NAMES_MAX {
                return Err("has one name too many");
            }
            let watts = if is_power { value } else { 0.0 };
            let name = name.to_owned();
            self.channels.push(Channel { name, is_power, at: now, joules: 0.0, watts, last: value });
            return Ok(());
        };
        if channel.is_power != is_power {
            return Err("mixes watts and joules");
        }
        let seconds = now.saturating_duration_since(channel.at).as_secs_f64();
        if is_power {
            channel.joules += (channel.watts + value) / 2.0 * seconds;
            channel.watts = value;
        } else {
            if value < channel.last {
                return Err("is less than before");
            }
            channel.joules += value - channel.last;
            channel.watts = if seconds > 0.0 { (value - channel.last) / seconds } else { channel.watts };
            channel.last = value;
        }
        channel.at = now;
        Ok(())
    }
}

fn quantity(text: &str) -> Result<f64, &'static str> {
    let value: f64 = text.parse().map_err(|_| "has no number")?;
    if value.is_finite() && (0.0..=1e15).contains(&value) { Ok(value) } else { Err("has no number") }
}

#[cfg(test)]
mod tests;
