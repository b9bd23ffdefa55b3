//! The control socket of a node.

use std::io::{self, BufRead, BufReader, Read, Write};
use std::os::unix::net::UnixStream;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use fastness_error::{ErrorKind, panic_text};
use fastness_nbd::{Endpoint, Listener};
use rustix::event::{PollFd, PollFlags, poll};
use serde_json::Value;

use crate::error::StartError;
use crate::node::Node;
use crate::protocol::{Failure, Message, Request};
use crate::topology::Tell;

/// Clients at one time; one more is closed at once.
const CLIENTS_MAX: usize = 32;
/// Longest request: a few names and properties.
const REQUEST_BYTES_MAX: u64 = 1 << 20;
/// A client that says nothing, or takes nothing, for so long has gone.
const IDLE: Duration = Duration::from_secs(60);

/// A listener, and a thread for each client. Ends when it is dropped; requests that are under way are not waited for.
#[derive(Debug)]
pub struct Control {
    wake: UnixStream,
    thread: Option<JoinHandle<()>>,
}

impl Control {
    /// Listens at `path` (mode 0600). A socket whose owner is dead is replaced.
    ///
    /// # Errors
    /// [`StartError::Control`]: somebody listens there, or the path cannot be used.
    pub fn start(node: &Arc<Node>, path: &Path) -> Result<Control, StartError> {
        let control = |source| StartError::Control { path: path.to_owned(), source };
        let system = |source| StartError::System { what: "start the control thread", source };
        let listener = Listener::bind(&Endpoint::Unix(path.to_owned())).map_err(control)?;
        let (wake, woken) = UnixStream::pair().map_err(system)?;
        let node = node.clone();
        let thread = std::thread::Builder::new()
            .name("control".to_owned())
            .spawn(move || accept(&listener, &woken, &node))
            .map_err(system)?;
        Ok(Control { wake, thread: Some(thread) })
    }

    /// Whether somebody listens at `path`.
    pub fn is_alive(path: &Path) -> bool {
        UnixStream::connect(path).is_ok()
    }
}

impl Drop for Control {
    fn drop(&mut self) {
        // If the pipe is full, the thread is awake.
        let _ = (&self.wake).write(&[0]);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

fn accept(listener: &Listener, woken: &UnixStream, node: &Arc<Node>) {
    let clients = Arc::new(AtomicUsize::new(0));
    loop {
        let mut waits =
            [PollFd::from_borrowed_fd(listener.as_fd(), PollFlags::IN), PollFd::new(woken, PollFlags::IN)];
        match poll(&mut waits, None) {
            Ok(_) if !waits[1].revents().is_empty() => return,
            Ok(_) | Err(rustix::io::Errno::INTR) => {}
            Err(_) => return,
        }
        let Ok(socket) = listener.accept() else {
            // Gone again, or no descriptors left: others wait in the backlog.
            std::thread::sleep(Duration::from_millis(10));
            continue;
        };
        if clients.fetch_add(1, Ordering::SeqCst) >= CLIENTS_MAX {
            clients.fetch_sub(1, Ordering::SeqCst);
            continue;
        }
        let (node, own) = (node.clone(), clients.clone());
        let thread = std::thread::Builder::new().name("control-client".to_owned()).spawn(move || {
            // A client that broke off is nobody's error.
            let _ = serve(UnixStream::from(socket), &node);
            own.fetch_sub(1, Ordering::SeqCst);
        });
        if thread.is_err() {
            clients.fetch_sub(1, Ordering::SeqCst);
        }
    }
}

fn serve(socket: UnixStream, node: &Node) -> io::Result<()> {
    socket.set_nonblocking(false)?;
    socket.set_read_timeout(Some(IDLE))?;
    socket.set_write_timeout(Some(IDLE))?;
    let mut output = socket.try_clone()?;
    let mut input = BufReader::new(socket);
    let mut line = Vec::new();
    loop {
        line.clear();
        let len = (&mut input).take(REQUEST_BYTES_MAX).read_until(b'\n', &mut line)?;
        if len == 0 {
            return Ok(());
        }
        if line.last() != Some(&b'\n') {
            let text = format!("a request has {REQUEST_BYTES_MAX} bytes at most, and ends with a newline");
            return say(&mut output, &Message::Failed(Failure::refuse(ErrorKind::Invalid, text)));
        }
        let result = match serde_json::from_slice::<Request>(&line) {
            Ok(request) => {
                let mut tell = |report| say(&mut output, &Message::Progress(report)).is_ok();
                handle(node, request, &mut tell)
            }
            Err(error) => Err(Failure::new(ErrorKind::Invalid, &error)),
        };
        let said = say(&mut output, &result.map_or_else(Message::Failed, Message::Done));
        node.end_if_asked();
        said?;
    }
}

/// A panic in a request is that client's error, and does not cost the thread: others wait for what it holds.
fn handle(node: &Node, request: Request, tell: Tell<'_>) -> Result<Value, Failure> {
    let handled = catch_unwind(AssertUnwindSafe(|| node.handle(request, tell)));
    handled.unwrap_or_else(|panic| {
        let text = format!("a defect of this program: the request panicked: {}", panic_text(&*panic));
        Err(Failure::refuse(ErrorKind::Bug, text))
    })
}

fn say(output: &mut UnixStream, message: &Message) -> io::Result<()> {
    let mut line = serde_json::to_vec(message)?;
    line.push(b'\n');
    output.write_all(&line)
}
