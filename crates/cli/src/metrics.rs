//! `fastness metrics`: all counters of running pools, as Prometheus reads them: printed once, or served.

use std::io::Write;
use std::net::{Ipv4Addr, SocketAddr, TcpListener};

use clap::Args;
use fastness_daemon::{Level, say};
use fastness_http::{Limits, Page, Server};
use fastness_terminal::Outcome;

use crate::connect::connect;
use crate::error::{Context, Result};

mod io;
mod look;
mod pools;
mod text;

pub(crate) use look::Wanted;

const EXAMPLES: &str = "\
Examples:
  fastness metrics
  fastness metrics --listen 9749              serve http://127.0.0.1:9749/metrics until Ctrl-C
  fastness metrics tank > /var/lib/node_exporter/fastness.prom.new
A pool that does not answer within 3 seconds is `fastness_up 0`, and so is one whose process was killed.
Latencies are those of the operations that were timed: every synchronous one, and one in 16 of the others.";

/// Arguments of `fastness metrics`.
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct MetricsArgs {
    /// Show only this pool
    pool: Option<String>,
    /// Serve them over HTTP instead, at a port of this host, or ADDRESS:PORT; whoever reaches it reads them
    #[arg(long, value_name = "ADDRESS", value_parser = address)]
    listen: Option<SocketAddr>,
}

/// A port is one of the loopback address.
pub(crate) fn address(text: &str) -> Result<SocketAddr, String> {
    let port = text.parse().ok().map(|port: u16| (Ipv4Addr::LOCALHOST, port).into());
    let address = port.or_else(|| text.parse().ok());
    address.ok_or_else(|| format!("{text} is neither a port nor ADDRESS:PORT, such as 127.0.0.1:9749"))
}

pub(crate) fn run(args: &MetricsArgs, out: &mut dyn Write) -> Result<Outcome> {
    if let Some(address) = args.listen {
        let server = serve(address, Wanted::of(args.pool.as_ref()))?;
        writeln!(out, "http://{}{PATH}", server.address())?;
        out.flush()?;
        loop {
            // Until a signal ends the process: there is nothing to put in order.
            std::thread::park();
        }
    }
    if let Some(pool) = &args.pool {
        // Asked for by name, it has to be there.
        connect(pool)?;
    }
    out.write_all(look::look(&Wanted::of(args.pool.as_ref()))?.text().as_bytes())?;
    Ok(Outcome::Clean)
}

/// Where the counters are served.
const PATH: &str = "/metrics";

/// Serves counters until it is dropped.
pub(crate) fn serve(address: SocketAddr, wanted: Wanted) -> Result<Server> {
    let listener = TcpListener::bind(address).with_context(|| format!("cannot listen at {address}"))?;
    if !address.ip().is_loopback() {
        say(
            Level::Warning,
            format_args!("{address} is no loopback address: whoever reaches it can read the counters"),
        );
    }
    let make = move || match look::look(&wanted) {
        Ok(seen) => seen.text(),
        // A page without a pool: the counters of the others are gone, too, which alerts notice.
        Err(error) => format!("# {}\n", error.texts().join(": ").replace('\n', " ")),
    };
    let page = Page { path: PATH, content_type: text::CONTENT_TYPE, make: Box::new(make) };
    Server::start(listener, page, Limits::default()).context("cannot serve the counters")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_port_alone_is_one_of_this_host() {
        assert_eq!(address("9749").unwrap(), "127.0.0.1:9749".parse().unwrap());
        assert_eq!(address("0.0.0.0:0").unwrap(), "0.0.0.0:0".parse().unwrap());
        assert_eq!(address("[::1]:1").unwrap(), "[::1]:1".parse().unwrap());
        for wrong in ["", "localhost", "65536", "1.2.3.4", ":9749", "tank"] {
            assert!(address(wrong).is_err(), "{wrong}");
        }
    }
}
