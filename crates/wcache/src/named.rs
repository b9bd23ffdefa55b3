//! Origins by name.

use std::path::Path;

use fastness_remote::is_remote;

use crate::file_origin::FileOrigin;
use crate::origin::Origin;
use crate::remote_origin::RemoteOrigin;

/// The origin of that name: a path, an RBD image, or an NBD export, as [`fastness_remote`] names them.
pub fn origin_named(name: &Path) -> Box<dyn Origin> {
    match name.to_str() {
        Some(remote) if is_remote(remote) => Box::new(RemoteOrigin::new(remote)),
        _ => Box::new(FileOrigin::new(name)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_lead_to_the_kind_of_origin() {
        for name in ["rbd:tank/disk", "nbd://h/x", "/dev/zero"] {
            assert_eq!(origin_named(Path::new(name)).path(), name.as_bytes());
        }
    }
}
