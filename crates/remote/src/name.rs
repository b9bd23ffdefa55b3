//! Names of devices.
//!
//! ```text
//! rbd:POOL/IMAGE[@OPTION=VALUE,...]       conf=FILE, id=NAME, timeout=SECONDS, block=512|4096
//! rbd:POOL[@OPTION=VALUE,...]             all images of a pool, where a folder of devices is meant
//! nbd://HOST[:PORT]/EXPORT                also nbds://; &timeout=SECONDS
//! nbd+unix:///EXPORT?socket=PATH          also nbds+unix://
//! anything else                           a path; a file with such a name is ./rbd:...
//! ```

use crate::error::OpenError;

/// What begins the name of a device that is no path.
const SCHEMES: [&str; 5] = ["rbd:", "nbd://", "nbd+unix://", "nbds://", "nbds+unix://"];
/// Longest name.
const NAME_BYTES_MAX: usize = 4000;
/// Longest time that a request may take, if one is set: a day.
const TIMEOUT_S_MAX: u32 = 86_400;

/// Whether a name is not the path of a file, but that of a device that a client library reaches.
pub fn is_remote(name: impl AsRef<std::ffi::OsStr>) -> bool {
    let name = name.as_ref().as_encoded_bytes();
    SCHEMES.iter().any(|scheme| name.starts_with(scheme.as_bytes()))
}

/// Name of an image, or of all images of a pool.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct RbdName {
    /// As it was given.
    pub(crate) whole: String,
    pub(crate) pool: String,
    pub(crate) image: Option<String>,
    /// Ceph's configuration; otherwise that of `CEPH_CONF`, or the usual one.
    pub(crate) conf: Option<String>,
    /// User of the cluster, without `client.`; otherwise `admin`.
    pub(crate) id: Option<String>,
    /// After how long a request fails; otherwise never.
    pub(crate) timeout_s: Option<u32>,
    pub(crate) block_bytes: u32,
}

/// Name of an NBD export.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct NbdName {
    /// As it was given.
    pub(crate) whole: String,
    /// For the library.
    pub(crate) uri: String,
    /// After how long a request fails; otherwise never.
    pub(crate) timeout_s: Option<u32>,
}

/// A device's name, taken apart.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Name {
    Path,
    Rbd(RbdName),
    Nbd(NbdName),
}

/// Takes a name apart.
///
/// # Errors
/// [`OpenError::Name`].
pub(crate) fn parse(name: &str) -> Result<Name, OpenError> {
    let wrong = |why: &str| OpenError::Name { name: name.to_owned(), why: why.to_owned() };
    if !is_remote(name) {
        return Ok(Name::Path);
    }
    if name.len() > NAME_BYTES_MAX || name.contains('\0') {
        return Err(wrong("it is too long, or has a zero byte in it"));
    }
    match name.strip_prefix("rbd:") {
        Some(rest) => rbd(name, rest).map(Name::Rbd),
        None => nbd(name).map(Name::Nbd),
    }
    .map_err(|why| wrong(&why))
}

fn rbd(whole: &str, rest: &str) -> Result<RbdName, String> {
    let (place, options) = rest.split_once('@').unwrap_or((rest, ""));
    let (pool, image) = match place.split_once('/') {
        Some((pool, image)) => (pool, Some(image)),
        None => (place, None),
    };
    if pool.is_empty() || image.is_some_and(|image| image.is_empty() || image.contains('/')) {
        return Err("it must be rbd:POOL/IMAGE, and then perhaps @conf=FILE".to_owned());
    }
    let mut name = RbdName {
        whole: whole.to_owned(),
        pool: pool.to_owned(),
        image: image.map(str::to_owned),
        conf: None,
        id: None,
        timeout_s: None,
        block_bytes: 512,
    };
    for option in options.split(',').filter(|option| !option.is_empty()) {
        match option.split_once('=') {
            Some(("conf", file)) if file.starts_with('/') => name.conf = Some(file.to_owned()),
            Some(("conf", _)) => return Err("conf= needs an absolute path".to_owned()),
            Some(("id", id)) if !id.is_empty() => name.id = Some(id.to_owned()),
            Some(("timeout", seconds)) => name.timeout_s = Some(timeout(seconds)?),
            Some(("block", "512")) => name.block_bytes = 512,
            Some(("block", "4096")) => name.block_bytes = 4096,
            Some(("block", _)) => return Err("blocks have 512 or 4096 bytes".to_owned()),
            _ => {
                return Err(format!("{option} is none of conf=FILE, id=NAME, timeout=SECONDS, block=BYTES"));
            }
        }
    }
    Ok(name)
}

fn timeout(seconds: &str) -> Result<u32, String> {
    match seconds.parse() {
        Ok(seconds @ 1..=TIMEOUT_S_MAX) => Ok(seconds),
        _ => Err(format!("timeout= needs seconds, 1 to {TIMEOUT_S_MAX}")),
    }
}

fn nbd(whole: &str) -> Result<NbdName, String> {
    let (place, query) = whole.split_once('?').unwrap_or((whole, ""));
    let (own, others): (Vec<&str>, Vec<&str>) =
        query.split('&').filter(|part| !part.is_empty()).partition(|part| part.starts_with("timeout="));
    let timeout_s = own.last().map(|part| timeout(&part["timeout=".len()..])).transpose()?;
    let is_unix = place.starts_with("nbd+unix:") || place.starts_with("nbds+unix:");
    if is_unix && !others.iter().any(|part| part.starts_with("socket=/")) {
        return Err("it must be nbd+unix:///EXPORT?socket=PATH, with an absolute path".to_owned());
    }
    let uri = if others.is_empty() { place.to_owned() } else { format!("{place}?{}", others.join("&")) };
    Ok(NbdName { whole: whole.to_owned(), uri, timeout_s })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rbd(name: &str) -> RbdName {
        match parse(name) {
            Ok(Name::Rbd(name)) => name,
            other => panic!("{name}: {other:?}"),
        }
    }

    #[test]
    fn names_are_taken_apart() {
        assert_eq!(parse("/dev/sda").unwrap(), Name::Path);
        assert_eq!(parse("./rbd:a/b").unwrap(), Name::Path);
        assert!(is_remote("rbd:a") && is_remote("nbd://h/x") && !is_remote("/srv/nbd://h"));
        let plain = rbd("rbd:tank/disk 1");
        assert_eq!((plain.pool.as_str(), plain.image.as_deref()), ("tank", Some("disk 1")));
        assert_eq!((plain.conf, plain.timeout_s, plain.block_bytes), (None, None, 512));
        let full = rbd("rbd:tank/disk@conf=/etc/a,id=me,timeout=30,block=4096");
        assert_eq!((full.conf.as_deref(), full.id.as_deref()), (Some("/etc/a"), Some("me")));
        assert_eq!((full.timeout_s, full.block_bytes), (Some(30), 4096));
        assert_eq!(rbd("rbd:tank@conf=/etc/a").image, None);
    }

    #[test]
    fn exports_keep_what_is_the_librarys() {
        let nbd = |name: &str| match parse(name) {
            Ok(Name::Nbd(name)) => (name.uri, name.timeout_s),
            other => panic!("{name}: {other:?}"),
        };
        assert_eq!(nbd("nbd://host:99/x"), ("nbd://host:99/x".to_owned(), None));
        assert_eq!(
            nbd("nbd+unix:///x?timeout=3&socket=/tmp/s"),
            ("nbd+unix:///x?socket=/tmp/s".to_owned(), Some(3))
        );
        assert_eq!(nbd("nbds://h?timeout=9"), ("nbds://h".to_owned(), Some(9)));
    }

    #[test]
    fn what_is_no_name_is_refused_with_the_reason() {
        let long = format!("rbd:a/{}", "x".repeat(NAME_BYTES_MAX));
        let wrong = [
            "rbd:",
            "rbd:/x",
            "rbd:a/",
            "rbd:a/b/c",
            "rbd:a/b@conf=x",
            "rbd:a/b@timeout=0",
            "rbd:a/b@timeout=-1",
            "rbd:a/b@block=7",
            "rbd:a/b@snap",
            "rbd:a/\0",
            "nbd+unix:///x",
            "nbd+unix:///x?socket=s",
            "nbd://h/x?timeout=x",
            &long,
        ];
        for name in wrong {
            assert!(matches!(parse(name), Err(OpenError::Name { .. })), "{name}");
        }
    }
}
