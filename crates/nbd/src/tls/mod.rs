//! TLS: which certificates, and the channel that a connection becomes.
//!
//! [`Tls`] is made from files (`files`), which can be read again, and serves all connections. A [`Channel`]
//! is one connection's: its handshake (`accept`), its bytes in both directions (`channel`), and which records
//! have arrived whole (`records`).
//!
//! TLS 1.3 only. Sessions are not resumed: each connection shows its certificate, and each is judged anew.
//! Source: RFC 8446; NBD `doc/proto.md`, "TLS support", server mode `FORCEDTLS`.

mod accept;
mod channel;
mod files;
mod records;

pub(crate) use self::channel::Channel;
pub use self::files::{CA_FILE, CERTIFICATE_FILE, KEY_FILE, Tls, TlsError};
