//! Symbolic names of errors.

use std::io;

/// As `EIO at read`.
pub(super) fn at(operation: &str, error: &io::Error) -> String {
    match error.raw_os_error() {
        Some(number) => format!("{} at {operation}", name(number)),
        None => format!("{error} at {operation}"),
    }
}

/// Linux's numbers on x86-64 and AArch64 of what file systems answer.
pub(crate) fn name(number: i32) -> String {
    let name = match number {
        1 => "EPERM",
        2 => "ENOENT",
        4 => "EINTR",
        5 => "EIO",
        6 => "ENXIO",
        9 => "EBADF",
        11 => "EAGAIN",
        12 => "ENOMEM",
        13 => "EACCES",
        14 => "EFAULT",
        16 => "EBUSY",
        17 => "EEXIST",
        18 => "EXDEV",
        19 => "ENODEV",
        20 => "ENOTDIR",
        21 => "EISDIR",
        22 => "EINVAL",
        23 => "ENFILE",
        24 => "EMFILE",
        26 => "ETXTBSY",
        27 => "EFBIG",
        28 => "ENOSPC",
        30 => "EROFS",
        31 => "EMLINK",
        36 => "ENAMETOOLONG",
        39 => "ENOTEMPTY",
        40 => "ELOOP",
        61 => "ENODATA",
        74 => "EFSBADCRC",
        75 => "EOVERFLOW",
        95 => "EOPNOTSUPP",
        116 => "ESTALE",
        117 => "EFSCORRUPTED",
        122 => "EDQUOT",
        133 => "EHWPOISON",
        _ => return format!("error {number}"),
    };
    name.to_owned()
}
