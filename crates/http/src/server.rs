//! The listener, and a thread for each connection.

use std::io::{self, Write};
use std::net::{SocketAddr, TcpListener};
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, poll};

use crate::connection::{Connection, refuse};
use crate::limits::Limits;
use crate::page::{Page, Pages};

/// A running server; ends when dropped.
#[derive(Debug)]
pub struct Server {
    address: SocketAddr,
    wake: UnixStream,
    thread: Option<JoinHandle<()>>,
}

impl Server {
    /// Serves the page to whoever connects.
    ///
    /// # Errors
    /// The listener cannot be used, or no thread can be started.
    pub fn start(listener: TcpListener, page: Page, limits: Limits) -> io::Result<Server> {
        let address = listener.local_addr()?;
        listener.set_nonblocking(true)?;
        let (wake, woken) = UnixStream::pair()?;
        let pages = Arc::new(Pages::new(page));
        let thread = std::thread::Builder::new()
            .name("http".to_owned())
            .spawn(move || accept(&listener, &woken, &pages, limits))?;
        Ok(Server { address, wake, thread: Some(thread) })
    }

    /// Where it listens.
    pub fn address(&self) -> SocketAddr {
        self.address
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        // If the pipe is full, the thread is awake.
        let _ = (&self.wake).write(&[0]);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

fn accept(listener: &TcpListener, woken: &UnixStream, pages: &Arc<Pages>, limits: Limits) {
    let connections = Arc::new(AtomicUsize::new(0));
    loop {
        let mut waits = [PollFd::new(listener, PollFlags::IN), PollFd::new(woken, PollFlags::IN)];
        match poll(&mut waits, None) {
            Ok(_) if !waits[1].revents().is_empty() => return,
            Ok(_) | Err(rustix::io::Errno::INTR) => {}
            Err(_) => return,
        }
        let Ok((socket, _)) = listener.accept() else {
            // The client is gone again, or no descriptors are left: others wait in the backlog.
            std::thread::sleep(Duration::from_millis(10));
            continue;
        };
        let place = Place::take(&connections);
        if place.is_over(limits.connections_max) {
            // A client that has gone, or does not read, goes without an answer.
            let _ = refuse(socket);
            continue;
        }
        let pages = pages.clone();
        // If no thread starts, the client sees the connection close, and its place is free again.
        let _ = std::thread::Builder::new().name("http-client".to_owned()).spawn(move || {
            let _place = place;
            // What a client does to its connection is no error of ours.
            let _ = socket.set_nonblocking(false);
            let _ = Connection { socket, pages: &pages, limits }.serve();
        });
    }
}

/// A connection among others, until it is dropped.
struct Place {
    all: Arc<AtomicUsize>,
    number: usize,
}

impl Place {
    fn take(all: &Arc<AtomicUsize>) -> Place {
        Place { all: all.clone(), number: all.fetch_add(1, Ordering::SeqCst) }
    }

    fn is_over(&self, max: usize) -> bool {
        self.number >= max
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        self.all.fetch_sub(1, Ordering::SeqCst);
    }
}
