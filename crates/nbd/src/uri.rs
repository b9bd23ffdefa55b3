//! URIs of exports, as `nbdinfo`, QEMU and libnbd take them.

use std::os::unix::ffi::OsStrExt;

use crate::listen::Endpoint;

/// Bytes that stand for themselves in a URI.
fn is_plain(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || b"-._~/:@".contains(&byte)
}

fn escaped(bytes: &[u8]) -> String {
    let mut text = String::with_capacity(bytes.len());
    for &byte in bytes {
        if is_plain(byte) {
            text.push(char::from(byte));
        } else {
            text.push_str(&format!("%{byte:02X}"));
        }
    }
    text
}

impl Endpoint {
    /// The URI of an export that is served here. Names and paths may have any bytes: those with a meaning
    /// in a URI are escaped.
    ///
    /// Source: NBD URI specification (`doc/uri.md` of the protocol's repository).
    pub fn uri(&self, export: &str) -> String {
        self.uri_with("nbd", export)
    }

    /// The same where TLS is required.
    pub fn tls_uri(&self, export: &str) -> String {
        self.uri_with("nbds", export)
    }

    fn uri_with(&self, scheme: &str, export: &str) -> String {
        let export = escaped(export.as_bytes());
        match self {
            Endpoint::Unix(path) => {
                format!("{scheme}+unix:///{export}?socket={}", escaped(path.as_os_str().as_bytes()))
            }
            Endpoint::Tcp(address) => format!("{scheme}://{address}/{export}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_with_any_bytes_are_one_part_of_the_uri() {
        let unix = |path: &str| Endpoint::Unix(path.into());
        assert_eq!(unix("/run/d.sock").uri("disk.img"), "nbd+unix:///disk.img?socket=/run/d.sock");
        assert_eq!(
            unix("/run/a b&c#d").uri("my disk?100%.img"),
            "nbd+unix:///my%20disk%3F100%25.img?socket=/run/a%20b%26c%23d"
        );
        assert_eq!(unix("/run/t:v.nbd").uri("t:v"), "nbd+unix:///t:v?socket=/run/t:v.nbd");
        let tcp = Endpoint::Tcp("[::1]:10809".parse().unwrap());
        assert_eq!(tcp.uri("\u{e9}"), "nbd://[::1]:10809/%C3%A9");
        assert_eq!(tcp.tls_uri("a/b"), "nbds://[::1]:10809/a/b");
        assert_eq!(unix("/run/d.sock").tls_uri("a"), "nbds+unix:///a?socket=/run/d.sock");
    }
}
