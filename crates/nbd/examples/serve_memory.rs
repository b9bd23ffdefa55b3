//! Serves memory over NBD until its standard input ends.
//!
//! ```text
//! serve_memory (unix:PATH | HOST:PORT) SIZE_BYTES [MINIMUM_BLOCK_BYTES]
//!              [--tls-dir=DIR | --tls-verify-peer=DIR]
//! ```
//! Prints `ready ENDPOINT` when clients can connect.
#![allow(clippy::print_stdout)]

use std::error::Error;
use std::io::{self, Read};
use std::sync::Arc;
use std::{env, thread};

use fastness_nbd::{Access, BlockSizes, Endpoint, Limits, MemoryExport, Server, SingleExport, Tls};

fn main() -> Result<(), Box<dyn Error>> {
    let mut arguments: Vec<String> = env::args().skip(1).collect();
    let mut access = Access::default();
    for option in arguments.extract_if(.., |argument| argument.starts_with("--")) {
        access.tls = Some(match option.split_once('=') {
            Some(("--tls-dir", folder)) => Tls::load(folder.as_ref(), false)?,
            Some(("--tls-verify-peer", folder)) => Tls::load(folder.as_ref(), true)?,
            _ => return Err(format!("unknown option {option}").into()),
        });
    }
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
    let server = Arc::new(Server::bind_with(&endpoint, exports, Limits::default(), access)?);
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
