//! What a configuration asks for.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::path::PathBuf;

use fastness_daemon::{AccessRequest, Address, MountRequest, absolute as absolute_device};
use toml::de::DeTable;

use super::keys::{Keys, Mistake, Source, Span, absolute};
use super::shared::{Shared, access};
use crate::connect::pool_of;
use crate::files::mount_options;
use crate::start::BoundArgs;

/// A whole file.
#[derive(Debug, Clone, Default)]
pub(crate) struct Config {
    /// Where the counters are served.
    pub(crate) metrics: Option<SocketAddr>,
    /// Other pools that are found are imported, too.
    pub(crate) imports_all: bool,
    pub(crate) pools: Vec<PoolPlan>,
}

/// A pool that is to run.
#[derive(Debug, Clone)]
pub(crate) struct PoolPlan {
    pub(crate) name: String,
    /// Devices, or folders of them; empty for where they were last.
    pub(crate) devices: Vec<PathBuf>,
    /// Possible new paths of the log's regions.
    pub(crate) log: Vec<PathBuf>,
    pub(crate) is_read_only: bool,
    /// A side of a mirror may be missing, even if it may be the newer one.
    pub(crate) is_degraded: bool,
    /// What was served and mounted before is so again.
    pub(crate) restores: bool,
    pub(crate) bounds: BoundArgs,
    pub(crate) volumes: Vec<VolumePlan>,
    pub(crate) mounts: Vec<MountPlan>,
}

/// A volume that is to be served.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct VolumePlan {
    pub(crate) name: String,
    /// None for a socket of its own in the folder of sockets.
    pub(crate) address: Option<Address>,
    /// Which clients are served.
    pub(crate) access: AccessRequest,
    pub(crate) is_read_only: bool,
}

/// A file system that is to be mounted.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct MountPlan {
    pub(crate) name: String,
    pub(crate) path: PathBuf,
    pub(crate) options: MountRequest,
}

impl PoolPlan {
    /// A pool about which nothing is said.
    pub(crate) fn named(name: &str) -> PoolPlan {
        PoolPlan {
            name: name.to_owned(),
            devices: Vec::new(),
            log: Vec::new(),
            is_read_only: false,
            is_degraded: false,
            restores: true,
            bounds: BoundArgs::default(),
            volumes: Vec::new(),
            mounts: Vec::new(),
        }
    }
}

/// Reads a configuration, or says all that is wrong in it.
pub(super) fn read(text: &str) -> Result<Config, Vec<Mistake>> {
    let mut source = Source::new(text);
    let (table, errors) = DeTable::parse_recoverable(text);
    for error in &errors {
        source.wrong(&error.span().unwrap_or_default(), error.message());
    }
    if !errors.is_empty() {
        // What was read around them is a guess.
        return Err(source.finish());
    }
    let mut keys = Keys::new(&table, "");
    let mut config = Config::default();
    if let Some(mut metrics) = keys.table(&mut source, "metrics") {
        config.metrics = metrics.address(&mut source, "listen").map(|(address, _)| address);
        metrics.end(&mut source);
    }
    if let Some(mut import) = keys.table(&mut source, "import") {
        config.imports_all = import.flag(&mut source, "all").unwrap_or_default();
        import.end(&mut source);
    }
    for (name, keys) in keys.named(&mut source, "pools") {
        config.pools.push(pool(&mut source, name, keys));
    }
    // Names, addresses and paths that are taken.
    let mut taken = BTreeMap::new();
    let mut shared = Shared::default();
    for keys in keys.list(&mut source, "volumes") {
        volume(&mut source, keys, &mut config, (&mut taken, &mut shared));
    }
    for keys in keys.list(&mut source, "mounts") {
        mount(&mut source, keys, &mut config, &mut taken);
    }
    keys.end(&mut source);
    let mistakes = source.finish();
    if mistakes.is_empty() { Ok(config) } else { Err(mistakes) }
}

fn pool(source: &mut Source<'_>, name: String, mut keys: Keys<'_, '_>) -> PoolPlan {
    // Whether a pool has the name shows when it is looked for; this one would be another folder.
    if name.is_empty() || name.starts_with('.') || name.contains(['/', '\0']) {
        source.wrong(&keys.span, format!("{name:?} is no name of a pool"));
    }
    let mut plan = PoolPlan::named(&name);
    for (text, span) in keys.texts(source, "devices") {
        // Names of other hosts' devices are no paths.
        match absolute_device(text.as_ref()) {
            Ok(path) if path.as_os_str() == text.as_str() => plan.devices.push(path),
            _ => drop(absolute(source, &text, &span)),
        }
    }
    let regions = keys.texts(source, "log");
    plan.log = regions.iter().filter_map(|(text, span)| absolute(source, text, span)).collect();
    plan.is_read_only = keys.flag(source, "read-only").unwrap_or_default();
    plan.is_degraded = keys.flag(source, "degraded").unwrap_or_default();
    plan.restores = keys.flag(source, "restore").unwrap_or(true);
    let bounds = &mut plan.bounds;
    bounds.cache = keys.size(source, "cache").unwrap_or(bounds.cache);
    bounds.meta_cache = keys.size(source, "meta-cache").unwrap_or(bounds.meta_cache);
    bounds.dirty_max = keys.size(source, "dirty-max").unwrap_or(bounds.dirty_max);
    let timeout = keys.seconds(source, "txg-timeout", (0.1, 600.0));
    bounds.txg_timeout = timeout.unwrap_or(bounds.txg_timeout);
    bounds.wait = keys.seconds(source, "wait", (0.0, 86400.0)).map_or(bounds.wait, |wait| wait.as_secs());
    keys.end(source);
    plan
}

type Taken = BTreeMap<String, &'static str>;

/// Refuses what two entries cannot both have.
fn take(source: &mut Source<'_>, taken: &mut Taken, what: &str, by: &'static str, span: &Span) {
    if let Some(before) = taken.insert(what.to_owned(), by) {
        source.wrong(span, format!("{what} is taken already, by a {before} above"));
    }
}

/// The pool that a dataset belongs to.
fn pool_for<'c>(
    source: &mut Source<'_>,
    config: &'c mut Config,
    (name, span): &(String, Span),
) -> Option<&'c mut PoolPlan> {
    let of = pool_of(name);
    if of == name {
        source.wrong(span, format!("{name} is no full name, such as {name}/disk"));
        return None;
    }
    let found = config.pools.iter_mut().find(|pool| pool.name == of);
    if found.is_none() {
        source.wrong(span, format!("{name} is of pool {of}, which has no [pools.{of}] in this file"));
    }
    found
}

fn volume(
    source: &mut Source<'_>,
    mut keys: Keys<'_, '_>,
    config: &mut Config,
    (taken, shared): (&mut Taken, &mut Shared),
) {
    let name = keys.text(source, "name");
    let socket = keys.path(source, "socket");
    let vhost_user = keys.path(source, "vhost-user");
    let tcp = keys.address(source, "tcp");
    let is_read_only = keys.flag(source, "read-only").unwrap_or_default();
    let access = access(source, &mut keys);
    if vhost_user.is_some() && access != AccessRequest::default() {
        source.wrong(&keys.span, "a virtual machine is served without tls-dir and insecure");
    }
    let called = name.as_ref().map_or("", |(name, _)| name);
    let mut joins =
        |source: &mut Source<'_>, at: &str, span: &Span| shared.joins(source, (at, span), called, &access);
    if [socket.is_some(), vhost_user.is_some(), tcp.is_some()].iter().filter(|is_set| **is_set).count() > 1 {
        source
            .wrong(&keys.span, "a volume is served at one of socket, tcp and vhost-user: repeat [[volumes]]");
    }
    for ((path, span), is_nbd) in
        socket.iter().map(|at| (at, true)).chain(vhost_user.iter().map(|at| (at, false)))
    {
        if let Err(error) = std::os::unix::net::SocketAddr::from_pathname(path) {
            source.wrong(span, format!("{} cannot be a socket: {error}", path.display()));
        }
        let at = path.display().to_string();
        if !is_nbd || !joins(source, &at, span) {
            take(source, taken, &at, "volume", span);
        }
    }
    if let Some((address, span)) = tcp.as_ref().filter(|(address, _)| address.port() != 0) {
        if !joins(source, &address.to_string(), span) {
            take(source, taken, &address.to_string(), "volume", span);
        }
        if config.metrics == Some(*address) {
            source.wrong(span, format!("{address} is taken already, by [metrics]"));
        }
    }
    let text = |path: PathBuf| path.display().to_string();
    let address = (socket.map(|(path, _)| Address::Unix(text(path))))
        .or(vhost_user.map(|(path, _)| Address::VhostUser(text(path))))
        .or(tcp.map(|(address, _)| Address::Tcp(address.to_string())));
    let Some(name) = name else {
        if !keys.has("name") {
            source.wrong(&keys.span, "this volume has no name");
        }
        return keys.end(source);
    };
    keys.end(source);
    if address.is_none() {
        take(source, taken, &format!("the socket of {}", name.0), "volume", &name.1);
    }
    if let Some(pool) = pool_for(source, config, &name) {
        pool.volumes.push(VolumePlan { name: name.0, address, access, is_read_only });
    }
}

fn mount(source: &mut Source<'_>, mut keys: Keys<'_, '_>, config: &mut Config, taken: &mut Taken) {
    let name = keys.text(source, "name");
    let path = keys.path(source, "path");
    let words = keys.texts(source, "options");
    let mut options = MountRequest::default();
    for (index, (word, span)) in words.iter().enumerate() {
        match mount_options(std::slice::from_ref(word)) {
            Ok(_) if index + 1 < words.len() => {}
            Ok(_) => {
                let all: Vec<_> = words.iter().map(|(word, _)| word.clone()).collect();
                options = mount_options(&all).unwrap_or_default();
            }
            Err(error) => source.wrong(span, error.texts().join(": ")),
        }
    }
    for (key, is_there) in [("name", keys.has("name")), ("path", keys.has("path"))] {
        if !is_there {
            source.wrong(&keys.span, format!("this mount has no {key}"));
        }
    }
    keys.end(source);
    let (Some(name), Some((path, span))) = (name, path) else { return };
    take(source, taken, &path.display().to_string(), "mount", &span);
    take(source, taken, &name.0, "mount", &name.1);
    if let Some(pool) = pool_for(source, config, &name) {
        pool.mounts.push(MountPlan { name: name.0, path, options });
    }
}
