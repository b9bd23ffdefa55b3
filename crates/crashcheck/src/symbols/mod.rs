//! Addresses of instructions as names: lines of a program's source, or functions of a guest's kernel.

mod kernel;
mod kernel_lines;
mod lines;
mod program;

pub use kernel::{KernelSymbols, KernelSymbolsError};
pub use kernel_lines::KernelLines;
pub use program::Symbols;
pub(crate) use program::modules;

/// Says where an instruction comes from, if it knows; it gets the address, and whether that is the kernel's.
pub type Find<'a> = dyn Fn(u64, bool) -> Option<String> + 'a;

/// A return address, and where the call before it comes from: what follows a call may be of another line, or
/// of another function.
pub(crate) fn caller(symbols: &Find<'_>, address: u64, is_kernel: bool) -> String {
    match symbols(address.wrapping_sub(1), is_kernel) {
        Some(symbol) => format!("{address:#x} {symbol}"),
        None => format!("{address:#x}"),
    }
}
