//! What all connections share: the exports, the pool, the budget, and the shutdown.

use std::collections::HashMap;
use std::os::fd::OwnedFd;
use std::ptr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use fastness_sync::{Condvar, Mutex, lock, wait_for};

use crate::budget::{Budget, ServerBudget};
use crate::connection::{Connection, Expected, Patiences};
use crate::error::{BindError, ConnectionError};
use crate::export::{Export, Exports};
use crate::input::{Input, Patience};
use crate::limits::{FLOOR_BYTES, Limits};
use crate::options::Negotiation;
use crate::output::Output;
use crate::pool::Pool;
use crate::socket::Socket;
use crate::tls::Tls;
use crate::wire::HeaderMode;

/// A server without a listener, for sockets from elsewhere. [`crate::Server`] adds a listener.
pub struct Service {
    exports: Arc<dyn Exports>,
    limits: Limits,
    tls: Option<Tls>,
    pool: Pool,
    budget: Arc<ServerBudget>,
    registry: Mutex<Registry>,
    changed: Condvar,
    /// Requests are answered with `ESHUTDOWN`.
    is_draining: Arc<AtomicBool>,
    counters: Counters,
}

#[derive(Default)]
struct Registry {
    next_id: u64,
    connections: HashMap<u64, Member>,
}

struct Member {
    socket: Arc<Socket>,
    /// What it is connected to, once that is agreed upon.
    export: Option<Arc<dyn Export>>,
}

impl Member {
    fn is_of(&self, export: Option<&Arc<dyn Export>>) -> bool {
        let same = |ours: &Arc<dyn Export>, other| ptr::addr_eq(Arc::as_ptr(ours), Arc::as_ptr(other));
        export.is_none_or(|other| self.export.as_ref().is_some_and(|ours| same(ours, other)))
    }
}

#[derive(Default)]
struct Counters {
    accepted: AtomicU64,
    refused: AtomicU64,
    protocol_errors: AtomicU64,
    timed_out: AtomicU64,
    tls_failures: AtomicU64,
}

/// What a server has seen so far.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct Stats {
    /// Current connections.
    pub connections: usize,
    /// Those of them that have TLS.
    pub secure: usize,
    /// Those of them whose client has shown a certificate.
    pub certified: usize,
    /// Connections ever served.
    pub accepted: u64,
    /// Connections not served: too many, or shutting down, or an export that is unavailable.
    pub refused: u64,
    /// Connections cut because the client broke a rule.
    pub protocol_errors: u64,
    /// Connections cut because the client took too long.
    pub timed_out: u64,
    /// Connections cut because TLS failed: no certificate, a bad one, damaged bytes.
    pub tls_failures: u64,
}

/// Connections of one export, at this moment.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct Clients {
    /// All of them.
    pub all: usize,
    /// Those through TLS.
    pub secure: usize,
    /// Those whose client has shown a certificate.
    pub certified: usize,
}

/// How a shutdown went.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ShutdownReport {
    /// Connections that had to be cut after [`Limits::shutdown_grace`].
    pub cut: usize,
}

impl Service {
    /// Starts the workers.
    ///
    /// # Errors
    /// A limit is too low, or threads cannot be started.
    pub fn new(exports: Arc<dyn Exports>, limits: Limits) -> Result<Self, BindError> {
        Self::with_tls(exports, limits, None)
    }

    /// The same; with `tls`, no client is served without TLS.
    ///
    /// # Errors
    /// As [`Service::new`].
    pub fn with_tls(exports: Arc<dyn Exports>, limits: Limits, tls: Option<Tls>) -> Result<Self, BindError> {
        limits.check()?;
        let pool = Pool::start(limits.workers).map_err(BindError::system("start the workers"))?;
        Ok(Self {
            exports,
            pool,
            budget: Arc::new(ServerBudget::new(limits.server_bytes_max)),
            limits,
            tls,
            registry: Mutex::default(),
            changed: Condvar::new(),
            is_draining: Arc::default(),
            counters: Counters::default(),
        })
    }

    /// Serves one connected stream socket, in the calling thread, until it ends.
    ///
    /// # Errors
    /// The connection did not end as the protocol requires; the service is not affected.
    pub fn serve_connection(&self, socket: impl Into<OwnedFd>) -> Result<(), ConnectionError> {
        let socket = Arc::new(Socket::new(socket.into()));
        let outcome = match self.register(&socket) {
            Ok(id) => {
                // Removed even if the thread unwinds: a shutdown waits for it.
                let _registered = Registered { service: self, id };
                self.counters.accepted.fetch_add(1, Ordering::Relaxed);
                self.serve(id, &socket)
            }
            Err(refused) => Err(refused),
        };
        let counter = match &outcome {
            Ok(()) | Err(ConnectionError::Lost(_)) => None,
            Err(ConnectionError::Refused { .. }) => Some(&self.counters.refused),
            Err(ConnectionError::Protocol { .. }) => Some(&self.counters.protocol_errors),
            Err(ConnectionError::TimedOut { .. }) => Some(&self.counters.timed_out),
            Err(ConnectionError::Tls { .. }) => Some(&self.counters.tls_failures),
        };
        if let Some(counter) = counter {
            counter.fetch_add(1, Ordering::Relaxed);
        }
        outcome
    }

    fn register(&self, socket: &Arc<Socket>) -> Result<u64, ConnectionError> {
        let mut registry = lock(&self.registry);
        if self.is_draining.load(Ordering::SeqCst) {
            return Err(ConnectionError::Refused { why: "the server is shutting down" });
        }
        if registry.connections.len() >= self.limits.connections_max {
            return Err(ConnectionError::Refused { why: "too many connections" });
        }
        let id = registry.next_id;
        registry.next_id += 1;
        registry.connections.insert(id, Member { socket: socket.clone(), export: None });
        Ok(id)
    }

    fn serve(&self, id: u64, socket: &Arc<Socket>) -> Result<(), ConnectionError> {
        let deadline = Instant::now() + self.limits.handshake_timeout;
        let mut input = Input::new(socket.clone(), Patience::Until(deadline));
        let negotiation = Negotiation {
            exports: &*self.exports,
            socket,
            input: &mut input,
            tls: self.tls.as_ref(),
            deadline,
            is_draining: &|| self.is_draining.load(Ordering::Relaxed),
            mode: HeaderMode::Simple,
            allocation_of: None,
            no_zeroes: false,
        };
        let Some(session) = negotiation.run()? else {
            socket.finish();
            return Ok(());
        };
        if let Some(member) = lock(&self.registry).connections.get_mut(&id) {
            member.export = Some(session.export.clone());
        }
        // Only now: whoever ends an export either is seen here, or sees this connection.
        if session.export.is_ended() {
            return Err(ConnectionError::Refused { why: "the export is not served any more" });
        }
        let limits = &self.limits;
        let budget =
            Budget::new(limits.requests_max, limits.connection_bytes_max, FLOOR_BYTES, self.budget.clone());
        let connection = Arc::new(Connection {
            id,
            socket: socket.clone(),
            session,
            budget: Arc::new(budget),
            output: Output::default(),
            expected: Expected::default(),
            is_draining: self.is_draining.clone(),
        });
        let patience = Patiences {
            request: limits.request_timeout,
            write: limits.write_timeout,
            idle: limits.idle_timeout,
        };
        connection.run(&mut input, &self.pool, &patience)
    }

    /// Refuses new requests, waits for those in flight, closes all connections.
    ///
    /// Requests that have arrived but not begun are answered with `ESHUTDOWN`. After
    /// [`Limits::shutdown_grace`] connections are cut; even then it waits for requests that are being
    /// executed, since the export cannot cancel them.
    pub fn shutdown(&self) -> ShutdownReport {
        let registry = lock(&self.registry);
        self.is_draining.store(true, Ordering::SeqCst);
        drop(registry);
        let report = self.end_connections(None);
        self.pool.stop();
        report
    }

    /// The same for the connections of one export, which is [ended](Export::is_ended); others go on. What has
    /// arrived and not begun is up to the export.
    pub fn end_export(&self, export: &Arc<dyn Export>) -> ShutdownReport {
        self.end_connections(Some(export))
    }

    fn end_connections(&self, of: Option<&Arc<dyn Export>>) -> ShutdownReport {
        self.each_socket(of, Socket::close_input);
        let cut = self.wait_gone(of, Some(self.limits.shutdown_grace));
        if cut > 0 {
            self.each_socket(of, Socket::close);
            self.wait_gone(of, None);
        }
        ShutdownReport { cut }
    }

    fn each_socket(&self, of: Option<&Arc<dyn Export>>, act: fn(&Socket)) {
        let registry = lock(&self.registry);
        registry.connections.values().filter(|one| one.is_of(of)).for_each(|one| act(&one.socket));
    }

    /// Waits for connections to end; returns how many have not.
    fn wait_gone(&self, of: Option<&Arc<dyn Export>>, patience: Option<Duration>) -> usize {
        let deadline = patience.map(|patience| Instant::now() + patience);
        let mut registry = lock(&self.registry);
        while registry.connections.values().any(|one| one.is_of(of)) {
            let Some(deadline) = deadline else {
                registry = fastness_sync::wait(&self.changed, registry);
                continue;
            };
            let left = deadline.saturating_duration_since(Instant::now());
            if left.is_zero() {
                break;
            }
            registry = wait_for(&self.changed, registry, left);
        }
        registry.connections.values().filter(|one| one.is_of(of)).count()
    }

    /// Who is connected to an export.
    pub fn clients(&self, export: &Arc<dyn Export>) -> Clients {
        self.count(Some(export))
    }

    fn count(&self, of: Option<&Arc<dyn Export>>) -> Clients {
        let registry = lock(&self.registry);
        let mut clients = Clients::default();
        for Member { socket, .. } in registry.connections.values().filter(|one| one.is_of(of)) {
            clients.all += 1;
            clients.secure += usize::from(socket.is_secure());
            clients.certified += usize::from(socket.is_certified());
        }
        clients
    }

    /// Counters.
    pub fn stats(&self) -> Stats {
        let Counters { accepted, refused, protocol_errors, timed_out, tls_failures } = &self.counters;
        let clients = self.count(None);
        Stats {
            connections: clients.all,
            secure: clients.secure,
            certified: clients.certified,
            tls_failures: tls_failures.load(Ordering::Relaxed),
            accepted: accepted.load(Ordering::Relaxed),
            refused: refused.load(Ordering::Relaxed),
            protocol_errors: protocol_errors.load(Ordering::Relaxed),
            timed_out: timed_out.load(Ordering::Relaxed),
        }
    }
}

impl Drop for Service {
    fn drop(&mut self) {
        self.pool.stop();
    }
}

/// A connection in the registry.
struct Registered<'a> {
    service: &'a Service,
    id: u64,
}

impl Drop for Registered<'_> {
    fn drop(&mut self) {
        lock(&self.service.registry).connections.remove(&self.id);
        self.service.changed.notify_all();
    }
}
