//! The plug-in's arguments on QEMU's command line.

use std::path::PathBuf;

/// Why arguments cannot be used.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum ArgumentError {
    #[error("argument {0:?} is not of the form name=value")]
    NoValue(String),
    #[error(
        "there is no argument {0:?}; there are out, pm, ram, disk, reads, stack, orc, with_parent, from_boot, repeat, \
         returns, operations, coverage"
    )]
    Unknown(String),
    #[error("{name}={value}: must be on or off")]
    NotSwitch { name: String, value: String },
    #[error("pm={0}: must be a start and a length, such as pm=0x10000000+64M")]
    NoRange(String),
    #[error(
        "disk={0}: must be a length, a block size unless it is 512, and a file, such as disk=1G/4096@FILE"
    )]
    NoDisk(String),
    #[error("say {0}=")]
    Missing(&'static str),
}

/// Arguments as they are given.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Arguments {
    /// `out=`: where the trace goes, a file or a pipe.
    pub(crate) out: PathBuf,
    /// `pm=`: files in user mode, any number; one physical range in a guest.
    pub(crate) pm: Vec<String>,
    /// `ram=`: the guest's memory as a shared file.
    pub(crate) ram: Option<PathBuf>,
    /// `disk=`: NVMe disks of a guest, any number.
    pub(crate) disks: Vec<String>,
    /// `reads=on`: loads, too.
    pub(crate) has_reads: bool,
    /// `stack=on`: return addresses of each event, by frame pointers.
    pub(crate) has_stacks: bool,
    /// `orc=`: where a guest's kernel has its tables of frames: return addresses of each of its events.
    pub(crate) orc: Option<PathBuf>,
    /// `with_parent=on`: QEMU is killed when the process that started it is gone.
    pub(crate) is_with_parent: bool,
    /// `from_boot=on`: a guest is traced from its first instruction on, not from the hypercall `start`.
    pub(crate) is_from_boot: bool,
    /// `repeat=on`: `success` and `fail` do not end the trace of a guest, the next `start` goes on with it.
    pub(crate) is_repeated: bool,
    /// `returns=on`: a message wherever a guest's kernel returns to a program after it has used PM.
    pub(crate) has_returns: bool,
    /// `operations=`: a file into which a program writes its log of operations; what it writes there becomes
    /// messages.
    pub(crate) operations: Option<PathBuf>,
    /// `coverage=`: where it goes which blocks of a program's code ran.
    pub(crate) coverage: Option<PathBuf>,
}

impl Arguments {
    /// # Errors
    /// What is unknown, malformed or missing.
    pub(crate) fn parse<'a>(
        arguments: impl IntoIterator<Item = &'a str>,
    ) -> Result<Arguments, ArgumentError> {
        let mut parsed = Arguments::default();
        for argument in arguments {
            let (name, value) =
                argument.split_once('=').ok_or_else(|| ArgumentError::NoValue(argument.to_owned()))?;
            match name {
                "out" => parsed.out = value.into(),
                "pm" => parsed.pm.push(value.to_owned()),
                "ram" => parsed.ram = Some(value.into()),
                "disk" => parsed.disks.push(value.to_owned()),
                "reads" => parsed.has_reads = switch(name, value)?,
                "stack" => parsed.has_stacks = switch(name, value)?,
                "orc" => parsed.orc = Some(value.into()),
                "with_parent" => parsed.is_with_parent = switch(name, value)?,
                "from_boot" => parsed.is_from_boot = switch(name, value)?,
                "repeat" => parsed.is_repeated = switch(name, value)?,
                "returns" => parsed.has_returns = switch(name, value)?,
                "operations" => parsed.operations = Some(value.into()),
                "coverage" => parsed.coverage = Some(value.into()),
                _ => return Err(ArgumentError::Unknown(name.to_owned())),
            }
        }
        match (parsed.out.as_os_str().is_empty(), parsed.pm.is_empty()) {
            (true, _) => Err(ArgumentError::Missing("out")),
            (_, true) => Err(ArgumentError::Missing("pm")),
            _ => Ok(parsed),
        }
    }
}

fn switch(name: &str, value: &str) -> Result<bool, ArgumentError> {
    match value {
        "on" => Ok(true),
        "off" => Ok(false),
        _ => Err(ArgumentError::NotSwitch { name: name.to_owned(), value: value.to_owned() }),
    }
}

/// A physical range: first byte and length.
///
/// # Errors
/// [`ArgumentError::NoRange`].
pub(crate) fn range(text: &str) -> Result<(u64, u64), ArgumentError> {
    let parsed = text.split_once('+').and_then(|(start, len)| Some((number(start)?, number(len)?)));
    parsed
        .filter(|(start, len)| *len > 0 && start.checked_add(*len).is_some())
        .ok_or_else(|| ArgumentError::NoRange(text.to_owned()))
}

/// A disk: its length, that of its blocks, and the file that it is on.
///
/// # Errors
/// [`ArgumentError::NoDisk`].
pub(crate) fn disk(text: &str) -> Result<(u64, u32, Option<PathBuf>), ArgumentError> {
    let (size, image) = match text.split_once('@') {
        Some((size, image)) if !image.is_empty() => (size, Some(image.into())),
        Some(_) => return Err(ArgumentError::NoDisk(text.to_owned())),
        None => (text, None),
    };
    let (len, block) = size.split_once('/').unwrap_or((size, "512"));
    let block =
        number(block).and_then(|block| u32::try_from(block).ok()).filter(|block| block.is_power_of_two());
    let disk = number(len).filter(|len| *len > 0).zip(block);
    let (len_bytes, block_bytes) = disk.ok_or_else(|| ArgumentError::NoDisk(text.to_owned()))?;
    Ok((len_bytes, block_bytes, image))
}

fn number(text: &str) -> Option<u64> {
    let (digits, unit) = match text.chars().last()? {
        'K' => (&text[..text.len() - 1], 1 << 10),
        'M' => (&text[..text.len() - 1], 1 << 20),
        'G' => (&text[..text.len() - 1], 1 << 30),
        _ => (text, 1),
    };
    let number = match digits.strip_prefix("0x") {
        Some(digits) => u64::from_str_radix(digits, 16),
        None => digits.parse(),
    };
    number.ok()?.checked_mul(unit)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn arguments_are_taken_or_refused() {
        let parsed = Arguments::parse(
            "out=t pm=a pm=b=c reads=on stack=off repeat=on returns=on operations=l coverage=c orc=o"
                .split(' '),
        )
        .unwrap();
        let expected = Arguments {
            out: "t".into(),
            pm: vec!["a".into(), "b=c".into()],
            has_reads: true,
            is_repeated: true,
            has_returns: true,
            operations: Some("l".into()),
            coverage: Some("c".into()),
            orc: Some("o".into()),
            ..Arguments::default()
        };
        assert_eq!(parsed, expected);
        for (arguments, error) in [
            (&["pm=a"][..], ArgumentError::Missing("out")),
            (&["out=t"], ArgumentError::Missing("pm")),
            (&["out=t", "pm=a", "what=1"], ArgumentError::Unknown("what".into())),
            (&["out"], ArgumentError::NoValue("out".into())),
            (
                &["out=t", "pm=a", "reads=1"],
                ArgumentError::NotSwitch { name: "reads".into(), value: "1".into() },
            ),
        ] {
            assert_eq!(Arguments::parse(arguments.iter().copied()), Err(error));
        }
    }

    #[test]
    fn disks() {
        assert_eq!(disk("64M"), Ok((64 << 20, 512, None)));
        assert_eq!(disk("1G/4096"), Ok((1 << 30, 4096, None)));
        assert_eq!(disk("1G/4096@/a@b/c"), Ok((1 << 30, 4096, Some("/a@b/c".into()))));
        assert_eq!(disk("512@f"), Ok((512, 512, Some("f".into()))));
        for text in ["", "0", "1G/0", "1G/3", "x", "1G@", "@f", "1G/512/1"] {
            assert_eq!(disk(text), Err(ArgumentError::NoDisk(text.into())), "{text}");
        }
    }

    #[test]
    fn ranges() {
        assert_eq!(range("0x10000000+64M"), Ok((0x1000_0000, 64 << 20)));
        assert_eq!(range("4096+0x1000"), Ok((4096, 4096)));
        for text in ["", "1", "0x+1", "1+0", "1+M", "0xffffffffffffffff+1", "18446744073709551615G+1"] {
            assert_eq!(range(text), Err(ArgumentError::NoRange(text.into())), "{text}");
        }
    }
}
