//! Instructions of a program by numbers that are the same in each run.

use std::io::Read;

use fastness_crashcheck_fuzz::features::{mix, mix_bytes};
use fastness_crashcheck_trace::Reader;
use fastness_crashcheck_trace::module::Module;

use crate::error::Result;
use crate::report::is_library;
use crate::symbols::modules;

/// The files that a traced program was made of, with a hash of each path.
pub(super) struct Code(Vec<(Module, u64, bool)>);

impl Code {
    /// Of the rest of a trace.
    ///
    /// # Errors
    /// Those of the trace.
    pub(super) fn of(reader: &mut Reader<impl Read>) -> Result<Code> {
        let with_hash = |module: Module| {
            let name = module.path.rsplit('/').next().unwrap_or_default();
            let is_own = !is_library(name);
            let hash = mix_bytes(module.path.as_bytes());
            (module, hash, is_own)
        };
        Ok(Code(modules(reader)?.into_iter().map(with_hash).collect()))
    }

    fn find(&self, pc: u64) -> Option<(u64, bool)> {
        let (module, hash, is_own) = self.0.iter().find(|(module, ..)| module.contains(pc))?;
        Some((mix(&[*hash, pc - module.start + module.offset]), *is_own))
    }

    /// A number for an instruction. Where the program's files are not known it is the address, which is the
    /// same in each run as long as nothing moves it.
    pub(super) fn number(&self, pc: u64) -> u64 {
        self.find(pc).map_or(pc, |(number, _)| number)
    }

    /// Of an instruction of the program itself: not of the C library and the like, which prints, and is
    /// loaded at another place each time.
    pub(super) fn own(&self, pc: u64) -> Option<u64> {
        match self.find(pc) {
            Some((number, is_own)) => is_own.then_some(number),
            None => self.0.is_empty().then_some(pc),
        }
    }
}
