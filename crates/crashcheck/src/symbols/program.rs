//! Addresses of instructions of a program as lines of its source.

use std::borrow::Cow;
use std::cell::RefCell;
use std::collections::HashMap;
use std::io::Read;
use std::path::Path;

use addr2line::Loader;
use fastness_crashcheck_trace::module::Module;
use fastness_crashcheck_trace::{Kind, Reader, Result};
use object::{Object as _, ObjectSegment as _};

use super::lines::{joined, text};

/// The files that a traced program was made of, as its trace names them.
pub struct Symbols {
    modules: Vec<Module>,
    /// By path; `None` for one that is no program, or is not there any more.
    files: RefCell<HashMap<String, Option<Program>>>,
    /// By address: a trace has the same instructions again and again.
    known: RefCell<HashMap<u64, Option<String>>>,
}

/// A file with code.
struct Program {
    loader: Loader,
    /// Of each part that is loaded: offset in the file, length, address in the file's own terms.
    segments: Vec<(u64, u64, u64)>,
}

impl Symbols {
    /// Of the rest of a trace.
    ///
    /// # Errors
    /// Those of the trace.
    pub fn of(reader: &mut Reader<impl Read>) -> Result<Symbols> {
        Ok(Symbols { modules: modules(reader)?, files: RefCell::default(), known: RefCell::default() })
    }

    /// Function, file and line of an instruction, as far as they are known.
    pub fn find(&self, pc: u64) -> Option<String> {
        self.known.borrow_mut().entry(pc).or_insert_with(|| self.look_up(pc)).clone()
    }

    fn look_up(&self, pc: u64) -> Option<String> {
        let module = self.modules.iter().find(|module| module.contains(pc))?;
        let mut files = self.files.borrow_mut();
        let program =
            files.entry(module.path.clone()).or_insert_with(|| Program::load(Path::new(&module.path)));
        let offset = pc - module.start + module.offset;
        let found = program.as_ref().and_then(|program| program.find(offset));
        let file = module.path.rsplit('/').next().unwrap_or_default();
        // The address is another one in the next run, the place in the file is not.
        Some(found.unwrap_or_else(|| format!("in {file}+{offset:#x}")))
    }
}

/// The files that the program of the rest of a trace was made of.
///
/// # Errors
/// Those of the trace.
pub(crate) fn modules(reader: &mut Reader<impl Read>) -> Result<Vec<Module>> {
    let mut modules = Vec::new();
    while let Some(event) = reader.next()? {
        if let Kind::Hypercall(message) = &event.kind {
            modules.extend(Module::of(message));
        }
    }
    Ok(modules)
}

impl Program {
    fn load(path: &Path) -> Option<Program> {
        let bytes = std::fs::read(path).ok()?;
        let file = object::File::parse(&*bytes).ok()?;
        let segment = |segment: object::Segment<'_, '_>| {
            let (offset, len_bytes) = segment.file_range();
            (offset, len_bytes, segment.address())
        };
        let segments = file.segments().map(segment).collect();
        Some(Program { loader: Loader::new(path).ok()?, segments })
    }

    /// By offset in the file.
    fn find(&self, offset: u64) -> Option<String> {
        let address = self.segments.iter().find_map(|(start, len_bytes, address)| {
            let within = offset.checked_sub(*start)?;
            (within < *len_bytes).then(|| address + within)
        })?;
        let mut found = Vec::new();
        // Functions that were inlined come first; that of the instruction is the last.
        if let Ok(mut frames) = self.loader.find_frames(address) {
            while let Ok(Some(frame)) = frames.next() {
                let name = frame.function.and_then(|function| function.demangle().ok().map(Cow::into_owned));
                found.extend(text(name, frame.location.as_ref()));
            }
        }
        if found.is_empty() {
            let name = self.loader.find_symbol(address).map(demangled);
            let location = self.loader.find_location(address).ok().flatten();
            found.extend(text(name, location.as_ref()));
        }
        joined(found)
    }
}

/// A name as the source has it, without the hash of a build.
fn demangled(name: &str) -> String {
    addr2line::demangle_auto(Cow::Borrowed(name), None).into_owned()
}

#[cfg(test)]
mod tests {
    use fastness_crashcheck_trace::{Event, Header, Hypercall, Region, Writer};

    use super::*;

    #[inline(never)]
    fn a_function_of_this_program() -> usize {
        std::hint::black_box(7)
    }

    /// Whether a program was built with debug information.
    fn has_lines(path: &str) -> bool {
        let bytes = std::fs::read(path).unwrap();
        let file = object::File::parse(&*bytes).unwrap();
        file.section_by_name(".debug_line").is_some()
    }

    #[test]
    fn names_of_files_without_debug_information_are_those_of_the_source() {
        let rust = "_ZN2db6append17h8a2e2368c572be87E";
        for (name, is) in [(rust, "db::append"), ("_ZN4cceh3putEi", "cceh::put(int)"), ("main", "main")] {
            assert_eq!(demangled(name), is);
        }
    }

    #[test]
    fn an_instruction_of_this_program_is_found_and_others_are_not() {
        let path = std::env::current_exe().unwrap().to_string_lossy().into_owned();
        let address = a_function_of_this_program as *const () as usize as u64;
        assert_eq!(a_function_of_this_program(), 7);
        let maps = std::fs::read_to_string("/proc/self/maps").unwrap();
        let module = maps.lines().filter(|line| line.ends_with(&path)).find_map(|line| {
            let mut words = line.split_whitespace();
            let (start, end) = words.next()?.split_once('-')?;
            let hex = |text| u64::from_str_radix(text, 16).unwrap();
            let (start, end, offset) = (hex(start), hex(end), hex(words.nth(1)?));
            let path = path.clone();
            (start..end).contains(&address).then_some(Module { start, len_bytes: end - start, offset, path })
        });
        let text = Module { path: "/etc/passwd".to_owned(), start: 0x1000, len_bytes: 0x1000, offset: 0 };
        let regions = vec![Region { name: "pm".to_owned(), start: 0, len_bytes: 64 }];
        let mut writer = Writer::new(Vec::new(), &Header { regions, ..Header::default() }).unwrap();
        for module in [module.unwrap(), text] {
            let value = module.value().unwrap();
            let message =
                Hypercall::Other { action: fastness_crashcheck_trace::module::ACTION, value: &value };
            writer.push(&Event::of(Kind::Hypercall(message))).unwrap();
        }
        let trace = writer.finish().unwrap();
        let symbols = Symbols::of(&mut Reader::new(&trace[..]).unwrap()).unwrap();
        let found = symbols.find(address).unwrap();
        assert!(found.contains("a_function_of_this_program"), "{found}");
        assert_eq!(found.contains("(program.rs:"), has_lines(&path), "{found}");
        assert_eq!(symbols.find(0x1234).unwrap(), "in passwd+0x234");
        assert_eq!(symbols.find(1), None);
    }
}
