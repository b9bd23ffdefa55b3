//! What a cache keeps in its directory for itself. Front ends hide it.

/// The file that says which cache a directory belongs to: a magic number, the id, a checksum.
pub const CACHE_FILE: &str = ".fastness-responder";
/// The same on its way.
pub(crate) const NEXT_CACHE_FILE: &str = ".fastness-responder.new";
/// Where a cache with the protocol Log keeps acknowledged data of files that are not in its directory.
pub const ORPHANS_FILE: &str = ".fastness-responder.orphans";
/// The same on its way.
pub(crate) const NEXT_ORPHANS_FILE: &str = ".fastness-responder.orphans.new";
/// A folder where files wait for their names; only during a recovery.
pub(crate) const NAMES_FOLDER: &str = ".fastness-responder.names";

/// Files and folders at the top of a directory that are its cache's own.
pub const OWN_FILES: [&str; 5] = [CACHE_FILE, NEXT_CACHE_FILE, ORPHANS_FILE, NEXT_ORPHANS_FILE, NAMES_FOLDER];
