//! Paths of a workload: relative to the directory that it runs in, and never out of it.

use std::fmt;

/// Name of the directory that a workload runs in.
const ROOT: &str = "test";
const PATH_BYTES_MAX: usize = 1024;
/// One more than file systems take, so that a workload can try what they say to that.
const COMPONENT_BYTES_MAX: usize = 256;

/// A path below the directory that a workload runs in, or (`test`) that directory.
///
/// Invariant: components are not empty, not `.` or `..`, and of letters, digits, `.`, `_` and `-`; the first
/// of several is not `test`. So a path cannot leave the directory, unless other programs create symbolic
/// links in it.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Path(String);

/// Why something is not a path.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum PathError {
    /// Too long, or a part of it is.
    #[error("a path has at most {PATH_BYTES_MAX} bytes, and {COMPONENT_BYTES_MAX} between slashes")]
    TooLong,
    /// Empty parts, `.` or `..`.
    #[error("a path is relative, without empty parts, \".\" and \"..\", and does not begin with \"{ROOT}/\"")]
    Component,
    /// A character that is not allowed.
    #[error("a path is of letters, digits, '.', '_', '-' and '/'")]
    Character,
}

impl Path {
    /// Checks a path.
    ///
    /// # Errors
    /// [`PathError`], if it breaks the invariant.
    pub fn new(text: &str) -> Result<Self, PathError> {
        if text.len() > PATH_BYTES_MAX || text.split('/').any(|part| part.len() > COMPONENT_BYTES_MAX) {
            return Err(PathError::TooLong);
        }
        if !text.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"._-/".contains(&byte)) {
            return Err(PathError::Character);
        }
        if text.split('/').any(|part| matches!(part, "" | "." | "..")) || text.starts_with("test/") {
            return Err(PathError::Component);
        }
        Ok(Self(text.to_owned()))
    }

    /// The directory that the workload runs in.
    pub fn root() -> Self {
        Self(ROOT.to_owned())
    }

    /// Is this the directory that the workload runs in?
    pub fn is_root(&self) -> bool {
        self.0 == ROOT
    }

    /// As it was defined.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// Relative to the directory that the workload runs in; that directory itself is `.`.
    pub fn relative(&self) -> &str {
        if self.is_root() { "." } else { &self.0 }
    }

    /// As commands of the published generators name it: without slashes.
    pub fn short(&self) -> String {
        self.0.replace('/', "")
    }

    /// The directory that has it; `None` for what lies in, or is, the directory that the workload runs in.
    pub fn parent(&self) -> Option<Path> {
        self.0.rsplit_once('/').map(|(parent, _)| Path(parent.to_owned()))
    }

    /// Does it lie below `directory`, at any depth?
    pub fn is_below(&self, directory: &Path) -> bool {
        self.0.strip_prefix(directory.as_str()).is_some_and(|rest| rest.starts_with('/'))
    }

    /// The same place below `to` instead of `from`, which it lies below.
    pub(crate) fn moved(&self, from: &Path, to: &Path) -> Path {
        Path(format!("{}{}", to.0, &self.0[from.0.len()..]))
    }
}

impl fmt::Display for Path {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}
