//! A write cache that is served: its NBD server, its cleaner, and a socket for commands.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::thread::JoinHandle;

use fastness_base::HasKind;
use fastness_nbd::{Access, Endpoint, Limits, Server, SingleExport, Tls};
use fastness_pmem::PmRange;
use fastness_sync::{Mutex, lock};
use fastness_wcache::{Cache, Cleaner, is_remote};
use signal_hook::consts::{SIGINT, SIGTERM};

use crate::block::export::CacheExport;
use crate::block::pairing::Recovery;
use crate::block::report::Report;
use crate::control::{Answer, Control, Request, failed};
use crate::error::FrontError;

/// Where a cache is served.
#[derive(Debug, Clone)]
pub struct ServiceOptions {
    /// For NBD clients.
    pub endpoint: Endpoint,
    /// Which NBD clients are served.
    pub access: Access,
    /// Sockets for commands: one for each region that somebody may ask about.
    pub sockets: Vec<PathBuf>,
}

/// Who is served, with the certificates read: `verifies_clients` only clients with one of their own.
///
/// # Errors
/// [`FrontError::Certificates`].
pub fn access(tls_dir: Option<&Path>, verifies_clients: bool, insecure: bool) -> Result<Access, FrontError> {
    let tls = tls_dir.map(|folder| Tls::load(folder, verifies_clients)).transpose()?;
    Ok(Access { tls, insecure })
}

/// A cache that is served.
pub struct Service {
    cache: Arc<Cache<PmRange>>,
    server: Arc<Server>,
    listener: Mutex<Option<JoinHandle<std::io::Result<()>>>>,
    cleaner: Mutex<Option<Cleaner>>,
    _controls: Vec<Control>,
    report: Report,
    last_error: Arc<Mutex<Option<String>>>,
}

impl std::fmt::Debug for Service {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Service").field("cache", &self.cache).finish_non_exhaustive()
    }
}

/// What clients call the export: the last part of the origin's name, without options. The empty name means
/// it, too.
fn name_of(origin: &str) -> String {
    let place = match (origin.strip_prefix("rbd:"), is_remote(origin)) {
        (Some(image), _) => image.split('@').next(),
        (None, true) => origin.split('?').next(),
        (None, false) => Some(origin),
    };
    let name = place.and_then(|place| place.rsplit('/').next()).filter(|name| !name.is_empty());
    name.unwrap_or("cache").to_owned()
}

impl Service {
    /// Serves a cache from threads of its own until [`end`](Self::end).
    ///
    /// # Errors
    /// [`FrontError`]; nothing is served, and the cache is as it was.
    pub fn start(recovery: Recovery, options: &ServiceOptions) -> Result<Service, FrontError> {
        let report = recovery.report();
        let (cache, name) = (Arc::new(recovery.cache), name_of(&report.origin));
        let last_error = Arc::new(Mutex::new(None));
        let export = CacheExport {
            cache: cache.clone(),
            description: format!("{} with a write cache", report.origin),
            last_error: last_error.clone(),
        };
        let exports = Arc::new(SingleExport::new(name.clone(), Arc::new(export)));
        let tls = options.access.tls.clone();
        let server = Server::bind_with(&options.endpoint, exports, Limits::default(), options.access.clone());
        let server = Arc::new(server?);
        let at = server.endpoint();
        let uri = if tls.is_some() { at.tls_uri(&name) } else { at.uri(&name) };
        let report = Report { uri: Some(uri), pid: Some(std::process::id()), ..report };
        let control = |socket: &PathBuf| {
            let (cache, report, last_error) = (cache.clone(), report.clone(), last_error.clone());
            let tls = tls.clone();
            Control::start(socket, move |request| match (request, &tls) {
                (Request::Reload, Some(tls)) => reload(tls, report_now(&cache, &report, &last_error)),
                _ => answer(&cache, &report, &last_error, request),
            })
        };
        let controls = options.sockets.iter().map(control).collect::<Result<Vec<_>, _>>()?;
        let cleaner = Mutex::new(Some(Cleaner::start(&cache)));
        let serve = server.clone();
        let listener =
            std::thread::Builder::new().name("nbd-listener".to_owned()).spawn(move || serve.serve());
        let listener = listener.map_err(|error| FrontError::io("serve", Path::new(&report.region), error))?;
        let listener = Mutex::new(Some(listener));
        Ok(Service { cache, server, listener, cleaner, _controls: controls, report, last_error })
    }

    /// What there is.
    pub fn report(&self) -> Report {
        report_now(&self.cache, &self.report, &self.last_error)
    }

    /// Stops serving on SIGINT and SIGTERM. A second one ends the process at once, with code 4: what the
    /// origin lacks is in the region.
    ///
    /// # Errors
    /// Signals cannot be handled.
    pub fn end_on_signals(self: &Arc<Self>) -> Result<(), FrontError> {
        let fail = |error| FrontError::io("handle signals for", Path::new(&self.report.region), error);
        let is_ending = Arc::default();
        for signal in [SIGINT, SIGTERM] {
            let code = fastness_base::ErrorKind::Retry.exit_code();
            signal_hook::flag::register_conditional_shutdown(signal, i32::from(code), Arc::clone(&is_ending))
                .map_err(fail)?;
            signal_hook::flag::register(signal, Arc::clone(&is_ending)).map_err(fail)?;
        }
        let mut signals = signal_hook::iterator::Signals::new([SIGINT, SIGTERM]).map_err(fail)?;
        let service = Arc::downgrade(self);
        let wait = move || {
            if signals.forever().next().is_some()
                && let Some(service) = service.upgrade()
            {
                service.server.shutdown();
            }
        };
        std::thread::Builder::new().name("signals".to_owned()).spawn(wait).map_err(fail)?;
        Ok(())
    }

    /// Waits until it is served no more.
    pub fn wait(&self) {
        if let Some(listener) = lock(&self.listener).take() {
            // A listener that failed: there are no new clients, and those that there are go on until the end.
            let _ = listener.join();
        }
    }

    /// Ends the service, and writes everything to the origin; region and origin still belong together.
    ///
    /// # Errors
    /// That of the write-back: what the origin lacks is in the region.
    pub fn end(&self) -> Result<Report, FrontError> {
        self.server.shutdown();
        self.wait();
        drop(lock(&self.cleaner).take());
        let region = PathBuf::from(&self.report.region);
        self.cache
            .flush()
            .map_err(FrontError::block("the origin does not have everything; the rest is in", &region))?;
        Ok(self.report())
    }
}

fn reload(tls: &Tls, report: Report) -> Answer<Report> {
    match tls.reload() {
        Ok(()) => Answer::Done(Box::new(report)),
        Err(error) => {
            let error = FrontError::from(error);
            let (kind, why) = (error.kind(), fastness_base::chain(&error));
            failed(kind, &FrontError::CertificatesStay { kind, why }, Some(report))
        }
    }
}

fn report_now(cache: &Cache<PmRange>, report: &Report, last_error: &Mutex<Option<String>>) -> Report {
    Report { last_error: lock(last_error).clone(), ..report.clone().with_status(cache.status()) }
}

fn answer(
    cache: &Cache<PmRange>,
    report: &Report,
    last_error: &Mutex<Option<String>>,
    request: Request,
) -> Answer<Report> {
    let flushed = match request {
        Request::Status | Request::Reload => Ok(()),
        Request::Flush => cache.flush(),
    };
    let report = report_now(cache, report, last_error);
    match flushed {
        Ok(()) => Answer::Done(Box::new(report)),
        Err(error) => failed(error.kind(), &error, Some(report)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_export_has_the_last_part_of_its_origins_name() {
        for (origin, name) in [
            ("/srv/disk?.img", "disk?.img"),
            ("/dev/sdb", "sdb"),
            ("rbd:tank/disk 1@conf=/etc/ceph/ceph.conf,id=me", "disk 1"),
            ("nbd+unix:///disk?socket=/run/d.sock", "disk"),
            ("nbd://host:10809/x/y", "y"),
            ("nbd+unix:///?socket=/run/d.sock", "cache"),
        ] {
            assert_eq!(name_of(origin), name);
        }
    }
}
