//! Serves memory over NBD until its standard input ends.
//!
//! ```text
//! serve_memory (unix:PATH | HOST:PORT) SIZE_BYTES [MINIMUM_BLOCK_BYTES]
//! ```
//! Prints `ready ENDPOINT` when clients can connect.
#![allow(clippy::print_stdout)]

use std::error::Error;
use std::io::{self, Read};
use std::sync::Arc;
use std::{env, thread};

use fastness_nbd::{BlockSizes, Endpoint, Limits, MemoryExport, Server, SingleExport};

fn main() -> Result<(), Box<dyn Error>> {
    let arguments: Vec<String> = env::args().skip(1).collect();
    let [endpoint, size_bytes, blocks @ ..] = &arguments[..] else {
        return Err("usage: serve_memory (unix:PATH | HOST:PORT) SIZE_BYTES [MINIMUM_BLOCK_BYTES]".into());
    };
    let endpoint = match endpoint.strip_prefix("unix:") {
        Some(path) => Endpoint::Unix(path.into()),
        None => Endpoint::Tcp(endpoint.parse()?),
    };
    let mut sizes = BlockSizes::default();
    if let Some(minimum) = blocks.first() {
        sizes.minimum = minimum.parse()?;
        sizes.preferred = sizes.preferred.max(sizes.minimum);
    }
    let export = MemoryExport::with_blocks(size_bytes.parse()?, sizes);
    let exports = Arc::new(SingleExport::new("memory", Arc::new(export)));
    let server = Arc::new(Server::bind(&endpoint, exports, Limits::default())?);
    match server.endpoint() {
        Endpoint::Unix(path) => println!("ready unix:{}", path.display()),
        Endpoint::Tcp(address) => println!("ready {address}"),
    }
    let serving = thread::spawn({
        let server = server.clone();
        move || server.serve()
    });
    io::stdin().read_to_end(&mut Vec::new())?;
    let report = server.shutdown();
    println!("{:?} {report:?}", server.stats());
    serving.join().expect("serving does not panic")?;
    Ok(())
}
