//! Addresses that several volumes can have, and which clients come to them.

use std::collections::BTreeMap;

use fastness_daemon::AccessRequest;

use super::keys::{Keys, Source, Span};
use crate::connect::pool_of;

/// Who is served at an address so far.
#[derive(Debug, Default)]
pub(super) struct Shared(BTreeMap<String, (Vec<String>, AccessRequest)>);

impl Shared {
    /// Whether a volume joins others that are served at an address; says why if it cannot. One that nobody
    /// had before is its own from now on.
    pub(super) fn joins(
        &mut self,
        source: &mut Source<'_>,
        (at, span): (&str, &Span),
        volume: &str,
        access: &AccessRequest,
    ) -> bool {
        let Some((volumes, of_them)) = self.0.get_mut(at) else {
            self.0.insert(at.to_owned(), (vec![volume.to_owned()], access.clone()));
            return false;
        };
        let wrong = if pool_of(&volumes[0]) != pool_of(volume) {
            Some("by a volume of another pool above")
        } else if volumes.iter().any(|known| known == volume) {
            Some("by a volume above")
        } else if of_them != access {
            Some("by a volume above with another tls-dir, tls-verify-peer or insecure")
        } else {
            None
        };
        match wrong {
            Some(by) => source.wrong(span, format!("{at} is taken already, {by}")),
            None => volumes.push(volume.to_owned()),
        }
        true
    }
}

/// Which clients of a volume are served.
pub(super) fn access(source: &mut Source<'_>, keys: &mut Keys<'_, '_>) -> AccessRequest {
    let tls_dir = keys.path(source, "tls-dir");
    let verifies_clients = keys.flag(source, "tls-verify-peer").unwrap_or_default();
    let is_insecure = keys.flag(source, "insecure").unwrap_or_default();
    if verifies_clients && !keys.has("tls-dir") {
        source.wrong(&keys.span, "tls-verify-peer needs the folder of certificates, tls-dir");
    }
    if is_insecure && tls_dir.is_some() {
        source.wrong(&keys.span, "insecure is about an address without TLS: leave it or tls-dir out");
    }
    AccessRequest {
        tls_dir: tls_dir.map(|(path, _)| path.display().to_string()),
        verifies_clients,
        is_insecure,
    }
}
