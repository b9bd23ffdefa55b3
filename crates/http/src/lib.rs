//! A server of one page over HTTP/1.1, made anew for each request: for what Prometheus scrapes.
//!
//! ```
//! use std::io::{Read, Write};
//! use std::net::{TcpListener, TcpStream};
//! use fastness_http::{Limits, Page, Server};
//!
//! # fn main() -> std::io::Result<()> {
//! let page = Page { path: "/metrics", content_type: "text/plain", make: Box::new(|| "up 1\n".to_owned()) };
//! let server = Server::start(TcpListener::bind("127.0.0.1:0")?, page, Limits::default())?;
//! let mut client = TcpStream::connect(server.address())?;
//! client.write_all(b"GET /metrics HTTP/1.0\r\n\r\n")?;
//! let mut answer = String::new();
//! client.read_to_string(&mut answer)?;
//! assert!(answer.starts_with("HTTP/1.1 200 OK\r\n") && answer.ends_with("\r\n\r\nup 1\n"));
//! # Ok(())
//! # }
//! ```
//!
//! # Design
//! A thread accepts, and starts one for each connection. Requests of a connection are answered one after the
//! other, those that were sent together, too. The page is made by one thread at a time: a request that comes
//! meanwhile waits and shares the next page, so that no page is older than the request for it.
//!
//! # Hostile clients ([`Limits`])
//! 1. Memory: the head of a request has a length; a body is not read, and its connection is closed.
//! 2. Time: a head, an answer that is not read, and a connection that says nothing have deadlines, which one
//!    byte now and then does not extend.
//! 3. Threads: a connection too many is told so (503) and closed.
//! 4. Invalid input: 400 and similar, and the connection is closed.
//!
//! # Shutdown
//! Dropping the [`Server`] ends the listener. Connections end within their deadlines.
//!
//! Nothing here knows what the page is. Source: RFC 9110, RFC 9112.

#![forbid(unsafe_code)]

mod connection;
mod date;
mod limits;
mod page;
mod request;
mod server;

pub use limits::Limits;
pub use page::Page;
pub use server::Server;
