//! Addresses of instructions of a kernel as its functions, by its own table: `/proc/kallsyms`.
//!
//! The table is of one boot: modules are somewhere else in the next, and without `nokaslr` the kernel is,
//! too.

use std::io::Read as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use fastness_base::ErrorKind;

use super::KernelLines;

/// Longest table; that of a distribution's kernel, with modules and data, has 10 to 20 MiB.
const TEXT_MAX_BYTES: usize = 128 << 20;
/// Longest line: the kernel's names have up to 512 bytes, those of its modules up to 56.
const LINE_MAX_BYTES: usize = 1024;
/// Code further than this from the beginning of a function does not belong to it: there are gaps between the
/// last function of a module and the first of the next.
const FUNCTION_MAX_BYTES: u64 = 1 << 20;

/// Why a table of a kernel's symbols cannot be used.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum KernelSymbolsError {
    /// The file.
    #[error("cannot read {}", path.display())]
    File {
        /// Which.
        path: PathBuf,
        /// Why not.
        #[source]
        source: std::io::Error,
    },
    /// No kernel has so many symbols.
    #[error("a table of kernel symbols has at most {} MiB", TEXT_MAX_BYTES >> 20)]
    TooLong,
    /// Not a line of `/proc/kallsyms`.
    #[error("line {number} of the kernel's symbols: {what}")]
    Line {
        /// Its number, from 1.
        number: usize,
        /// What is wrong with it.
        what: &'static str,
    },
    /// `/proc/kallsyms` shows names without addresses to users without the privilege.
    #[error("the kernel hides the addresses of its symbols (kernel.kptr_restrict, or not root)")]
    Hidden,
    /// No function in it.
    #[error("the kernel's symbols contain no function")]
    Empty,
}

impl KernelSymbolsError {
    /// What the caller must do.
    pub fn kind(&self) -> ErrorKind {
        match self {
            KernelSymbolsError::File { .. } => ErrorKind::MediaFailed,
            KernelSymbolsError::TooLong | KernelSymbolsError::Line { .. } => ErrorKind::Corrupt,
            KernelSymbolsError::Hidden | KernelSymbolsError::Empty => ErrorKind::Invalid,
        }
    }
}

fastness_base::has_kind!(KernelSymbolsError);

/// Functions of a kernel and of its modules.
///
/// Memory: the table as text, and 16 bytes a function.
#[derive(Debug, Clone)]
pub struct KernelSymbols {
    text: String,
    /// By address, ascending; of several names for one place the first of the table, as the kernel itself has
    /// it.
    functions: Vec<Function>,
    /// Of its source, where they are known.
    lines: Option<Arc<KernelLines>>,
}

#[derive(Debug, Clone, Copy)]
struct Function {
    address: u64,
    /// Where `name`, or `name\t[module]`, begins in the text, up to the end of the line.
    name: u32,
}

impl KernelSymbols {
    /// Takes the functions of a table, a line each: address, letter, name, and for a module its name in
    /// brackets. What is not code (letters other than `t` and `w`, small or not) is left out.
    ///
    /// # Errors
    /// [`KernelSymbolsError`]; the table is of no use then.
    pub fn parse(text: String) -> Result<KernelSymbols, KernelSymbolsError> {
        if text.len() > TEXT_MAX_BYTES {
            return Err(KernelSymbolsError::TooLong);
        }
        let mut functions = Vec::new();
        let mut at = 0;
        for (index, line) in text.split_inclusive('\n').enumerate() {
            let found =
                function(line).map_err(|what| KernelSymbolsError::Line { number: index + 1, what })?;
            functions.extend(found.map(|(address, name)| Function { address, name: (at + name) as u32 }));
            at += line.len();
        }
        // Stable, so that the first of several names stays the first.
        functions.sort_by_key(|function| function.address);
        functions.dedup_by_key(|function| function.address);
        match functions.last() {
            None => Err(KernelSymbolsError::Empty),
            Some(Function { address: 0, .. }) => Err(KernelSymbolsError::Hidden),
            Some(_) => Ok(KernelSymbols { text, functions, lines: None }),
        }
    }

    /// Reads a table from a file, such as a copy of `/proc/kallsyms`.
    ///
    /// # Errors
    /// [`KernelSymbolsError`]
    pub fn read(path: &Path) -> Result<KernelSymbols, KernelSymbolsError> {
        let file = |source| KernelSymbolsError::File { path: path.to_owned(), source };
        let mut text = String::new();
        // A byte more than `parse` accepts, so that `parse` reports the error. `/proc` does not say how long
        // its files are.
        let limit = TEXT_MAX_BYTES as u64 + 1;
        std::fs::File::open(path)
            .and_then(|file| file.take(limit).read_to_string(&mut text))
            .map_err(file)?;
        KernelSymbols::parse(text)
    }

    /// The same, with lines of the kernel's source.
    pub fn with_lines(self, lines: KernelLines) -> KernelSymbols {
        KernelSymbols { lines: Some(Arc::new(lines)), ..self }
    }

    /// Where an instruction comes from, for people: function and line if that is known, or else what
    /// [`KernelSymbols::find`] says.
    pub fn place(&self, pc: u64) -> Option<String> {
        let named = self.find(pc)?;
        Some(self.lines.as_ref().and_then(|lines| lines.of(pc, &named)).unwrap_or(named))
    }

    /// The function that an instruction is in, and its distance from the beginning in bytes, as the
    /// kernel's own messages have it: `function+0x1a`, and of a module `function+0x1a [module]`.
    pub fn find(&self, pc: u64) -> Option<String> {
        let next = self.functions.partition_point(|function| function.address <= pc);
        let function = self.functions.get(next.checked_sub(1)?)?;
        let offset = pc - function.address;
        if offset >= FUNCTION_MAX_BYTES {
            return None;
        }
        let line = self.text.get(function.name as usize..)?.lines().next()?;
        Some(match line.split_once('\t') {
            Some((name, module)) => format!("{name}+{offset:#x} {module}"),
            None => format!("{line}+{offset:#x}"),
        })
    }

    /// The table, as it was read.
    pub fn text(&self) -> &str {
        &self.text
    }
}

/// Address of a line's symbol, and where its name begins; none if that is no code.
fn function(line: &str) -> Result<Option<(u64, usize)>, &'static str> {
    if line.len() > LINE_MAX_BYTES {
        return Err("it is too long");
    }
    let line = line.trim_end_matches('\n');
    let mut words = line.splitn(3, ' ');
    let (Some(address), Some(letter), Some(name)) = (words.next(), words.next(), words.next()) else {
        return Err("an address, a letter and a name are expected");
    };
    let is_hex = address.bytes().all(|byte| byte.is_ascii_hexdigit());
    let address = u64::from_str_radix(address, 16)
        .ok()
        .filter(|_| is_hex)
        .ok_or("it does not begin with an address")?;
    let (own, module) = match name.split_once('\t') {
        Some((own, module)) => (own, Some(module)),
        None => (name, None),
    };
    let is_plain = |text: &str| !text.is_empty() && !text.contains(char::is_control);
    let is_module = |text: &str| is_plain(text) && text.starts_with('[') && text.ends_with(']');
    if !is_plain(own) || !module.is_none_or(is_module) {
        return Err("it has no name, or more than a name and a module");
    }
    let is_code = matches!(letter, "t" | "T" | "w" | "W");
    Ok(is_code.then(|| (address, line.len() - name.len())))
}

#[cfg(test)]
mod tests {
    use super::*;

    const TABLE: &str = "\
ffffffff81000000 T _text
ffffffff81000000 T startup_64
0000000000000000 A fixed_percpu_data
ffffffff81000100 t local_one
ffffffff82000000 D some_data
ffffffff81000040 W weak_one
ffffffffc0200010 t ext4_two\t[ext4]
ffffffffc0200000 T ext4_one\t[ext4]
";

    fn parse(text: &str) -> Result<KernelSymbols, String> {
        KernelSymbols::parse(text.to_owned()).map_err(|error| error.to_string())
    }

    #[test]
    fn instructions_are_in_the_function_before_them() {
        let symbols = parse(TABLE).unwrap();
        let find = |pc| symbols.find(pc);
        assert_eq!(find(0xffff_ffff_8100_0000).unwrap(), "_text+0x0", "the first of two names");
        assert_eq!(find(0xffff_ffff_8100_003f).unwrap(), "_text+0x3f");
        assert_eq!(find(0xffff_ffff_8100_0040).unwrap(), "weak_one+0x0");
        assert_eq!(find(0xffff_ffff_8100_0123).unwrap(), "local_one+0x23");
        assert_eq!(find(0xffff_ffff_c020_000f).unwrap(), "ext4_one+0xf [ext4]");
        assert_eq!(find(0xffff_ffff_c020_0010).unwrap(), "ext4_two+0x0 [ext4]");
        assert_eq!(symbols.text(), TABLE);
    }

    #[test]
    fn what_is_in_no_function_has_no_name() {
        let symbols = parse(TABLE).unwrap();
        for pc in [0, 0x40_1000, 0xffff_ffff_80ff_ffff, 0xffff_ffff_8200_0000, u64::MAX] {
            assert_eq!(symbols.find(pc), None, "{pc:#x}");
        }
    }

    #[test]
    fn tables_that_are_none_are_refused() {
        let refused = |text: &str| parse(text).unwrap_err();
        assert_eq!(refused(""), KernelSymbolsError::Empty.to_string());
        assert_eq!(refused("ffffffff82000000 D some_data\n"), KernelSymbolsError::Empty.to_string());
        assert_eq!(refused("0000000000000000 T _text\n0000000000000000 t other\n"), {
            KernelSymbolsError::Hidden.to_string()
        });
        let good = "ffffffff81000000 T _text\n";
        for line in ["\n", "ffffffff81000000\n", "ffffffff81000000 T\n", "ffffffff81000000 T \n"] {
            assert!(refused(&format!("{good}{line}")).starts_with("line 2 "), "{line:?}");
        }
        for line in
            ["x T _text", "+1 T _text", " T _text", "1ffffffff81000000 T _text", "1 T a\tb", "1 T \t[b]"]
        {
            assert!(refused(line).starts_with("line 1 "), "{line:?}");
        }
        let long = format!("ffffffff81000000 T {}", "x".repeat(LINE_MAX_BYTES));
        assert!(refused(&long).contains("too long"));
        assert!(refused(&"\n".repeat(TEXT_MAX_BYTES + 1)).contains("128 MiB"));
    }

    #[test]
    fn the_table_of_this_machine_is_read() {
        // Names without addresses, unless root asks.
        match KernelSymbols::read(Path::new("/proc/kallsyms")) {
            Ok(symbols) => assert!(symbols.functions.len() > 1000),
            Err(KernelSymbolsError::Hidden | KernelSymbolsError::Empty | KernelSymbolsError::File { .. }) => {
            }
            Err(error) => panic!("{error}"),
        }
        assert!(matches!(
            KernelSymbols::read(Path::new("/nonexistent")),
            Err(KernelSymbolsError::File { .. })
        ));
    }
}
