//! Lines of a kernel's source, by its debug symbols.
//!
//! The kernel itself is where its file says (`nokaslr`). A module's file is relocatable: its sections of code
//! are put one after another here, its debug symbols relocated to that, and an instruction is found by the
//! function that the kernel's own table names, and the distance from its beginning.

use std::borrow::Cow;
use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use gimli::{EndianReader, LittleEndian};
use object::{
    File, Object as _, ObjectSection as _, ObjectSymbol as _, Relocation, RelocationKind, RelocationTarget,
    SectionIndex, SectionKind,
};

use super::lines::{joined, text};

type Bytes = EndianReader<LittleEndian, Arc<[u8]>>;

/// Between sections of code of a module.
const SECTION_BYTES: u64 = 1 << 24;
/// Most files of a folder, and how deep they are.
const FILES_MAX: usize = 100_000;
const DEPTH_MAX: usize = 16;

/// Debug symbols of a kernel and its modules; each file is read when something of it is asked for.
#[derive(Debug, Default)]
pub struct KernelLines {
    vmlinux: Option<PathBuf>,
    /// By name, as the kernel has it.
    modules: HashMap<String, PathBuf>,
    /// By module; the kernel's own is the empty name. None of what has no debug symbols.
    read: Mutex<HashMap<String, Option<Code>>>,
    known: Mutex<HashMap<u64, Option<String>>>,
}

/// One file with code.
struct Code {
    context: addr2line::Context<Bytes>,
    /// Of a module: addresses of functions, where its sections were put.
    functions: HashMap<String, u64>,
}

impl std::fmt::Debug for Code {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Code").field("functions", &self.functions.len()).finish_non_exhaustive()
    }
}

impl KernelLines {
    /// A kernel with its debug symbols, or a folder that has that (`vmlinux*`) and modules (`*.ko`,
    /// `*.ko.debug`) somewhere in it.
    ///
    /// # Errors
    /// Those of the file system, and that there is none of them.
    pub fn find(path: &Path) -> std::io::Result<KernelLines> {
        let mut lines = KernelLines::default();
        if std::fs::metadata(path)?.is_file() {
            lines.vmlinux = Some(path.to_owned());
            return Ok(lines);
        }
        let mut folders = vec![(path.to_owned(), 0)];
        let mut count = 0;
        while let Some((folder, depth)) = folders.pop() {
            for entry in std::fs::read_dir(&folder)? {
                let entry = entry?;
                count += 1;
                if count > FILES_MAX {
                    return Err(std::io::Error::other(format!("more than {FILES_MAX} files")));
                }
                let kind = entry.file_type()?;
                match kind.is_dir() {
                    true if depth < DEPTH_MAX => folders.push((entry.path(), depth + 1)),
                    true => {}
                    false => lines.add(&entry.path()),
                }
            }
        }
        match lines.vmlinux.is_none() && lines.modules.is_empty() {
            true => Err(std::io::Error::other("there is no vmlinux and no module in it")),
            false => Ok(lines),
        }
    }

    fn add(&mut self, path: &Path) {
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        let module = name.strip_suffix(".ko").or_else(|| name.strip_suffix(".ko.debug"));
        match module {
            // The kernel has underscores in names.
            Some(module) => drop(self.modules.insert(module.replace('-', "_"), path.to_owned())),
            None if name.starts_with("vmlinux") => self.vmlinux = Some(path.to_owned()),
            None => {}
        }
    }

    /// Functions, files and lines of an instruction, innermost first. `named` is what the kernel's table
    /// says: `function+0x1a`, and of a module `function+0x1a [module]`.
    pub fn of(&self, pc: u64, named: &str) -> Option<String> {
        let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        known.entry(pc).or_insert_with(|| self.look_up(pc, named)).clone()
    }

    fn look_up(&self, pc: u64, named: &str) -> Option<String> {
        let (function, module) = named.split_once(" [").unwrap_or((named, ""));
        let module = module.trim_end_matches(']');
        let mut read = self.read.lock().unwrap_or_else(PoisonError::into_inner);
        let code = read.entry(module.to_owned()).or_insert_with(|| {
            let path = if module.is_empty() { self.vmlinux.as_ref() } else { self.modules.get(module) };
            Code::read(&std::fs::read(path?).ok()?)
        });
        let code = code.as_ref()?;
        let address = match module.is_empty() {
            true => pc,
            false => {
                let (name, offset) = function.split_once("+0x")?;
                code.functions.get(name)?.checked_add(u64::from_str_radix(offset, 16).ok()?)?
            }
        };
        code.find(address)
    }
}

impl Code {
    fn read(bytes: &[u8]) -> Option<Code> {
        let file = File::parse(bytes).ok()?;
        let is_relocatable = file.kind() == object::ObjectKind::Relocatable;
        let mut places = HashMap::new();
        if is_relocatable {
            let text = file.sections().filter(|section| section.kind() == SectionKind::Text);
            places.extend((1..).zip(text).map(|(number, section)| (section.index(), number * SECTION_BYTES)));
        }
        let load = |id: gimli::SectionId| -> Result<Bytes, gimli::Error> {
            let bytes = relocated(&file, id.name(), &places).unwrap_or_default();
            Ok(EndianReader::new(bytes.into(), LittleEndian))
        };
        let context = addr2line::Context::from_dwarf(gimli::Dwarf::load(load).ok()?).ok()?;
        let function = |symbol: object::Symbol<'_, '_>| {
            let place = places.get(&symbol.section_index()?)?;
            Some((symbol.name().ok()?.to_owned(), place + symbol.address()))
        };
        let functions = file.symbols().filter_map(function).collect();
        Some(Code { context, functions })
    }

    fn find(&self, address: u64) -> Option<String> {
        let mut frames = self.context.find_frames(address).skip_all_loads().ok()?;
        let mut found = Vec::new();
        while let Ok(Some(frame)) = frames.next() {
            let name = frame.function.and_then(|function| function.raw_name().ok().map(Cow::into_owned));
            found.extend(text(name, frame.location.as_ref()));
        }
        joined(found)
    }
}

/// A section with what it says of addresses, where sections of code are at these places.
fn relocated(file: &File<'_>, name: &str, places: &HashMap<SectionIndex, u64>) -> Option<Vec<u8>> {
    let section = file.section_by_name(name)?;
    let mut bytes = section.uncompressed_data().ok()?.into_owned();
    let value = |relocation: &Relocation| {
        let RelocationTarget::Symbol(symbol) = relocation.target() else { return None };
        let symbol = file.symbol_by_index(symbol).ok()?;
        let place = symbol.section_index().and_then(|index| places.get(&index)).copied().unwrap_or(0);
        let is_meant = relocation.kind() == RelocationKind::Absolute;
        is_meant.then(|| (place + symbol.address()).wrapping_add(relocation.addend() as u64))
    };
    for (at, relocation) in section.relocations() {
        let len = usize::from(relocation.size() / 8);
        let end = usize::try_from(at).ok().and_then(|at| at.checked_add(len));
        if let (Some(value), Some(end)) = (value(&relocation), end)
            && let Some(to) = bytes.get_mut(end - len..end)
            && len <= 8
        {
            to.copy_from_slice(&value.to_le_bytes()[..len]);
        }
    }
    Some(bytes)
}

#[cfg(test)]
mod tests;
