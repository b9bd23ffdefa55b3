//! Where a guest's kernel has the tables by which return addresses are found without frame pointers (ORC).

use std::collections::{BTreeMap, BTreeSet};

/// Shell: the release, the borders of the kernel's own tables, and of each module the sections with their
/// addresses.
pub(super) const QUESTION: &str = "\
uname -r; grep -E ' __(start|stop)_orc_unwind(_ip)?$' /proc/kallsyms
grep -H . /sys/module/*/sections/.* 2>/dev/null | sed 's#^/sys/module/##; s#/sections/# #; s/:/ /'; true";

/// The first release with the format of today.
const NEW_FORMAT: (u32, u32) = (6, 4);
/// Most elements of a module's table if nothing says where it ends.
const MODULE_MAX: u64 = 64 << 10;
/// What the tracer takes: most elements, and most tables.
const ELEMENTS_MAX: u64 = 8 << 20;
const TABLES_MAX: usize = 1000;

/// What the tracer's argument `orc=` is a file of; empty for a kernel without such tables.
pub(super) fn tables(said: &str) -> Option<String> {
    let mut lines = said.lines();
    let format = if release(lines.next()?)? >= NEW_FORMAT { "new" } else { "old" };
    let mut borders = BTreeMap::new();
    let mut modules: BTreeMap<&str, BTreeMap<&str, u64>> = BTreeMap::new();
    for line in lines {
        let words: Vec<&str> = line.split(' ').collect();
        match words[..] {
            [address, _, name] if name.starts_with("__") => {
                borders.insert(name, u64::from_str_radix(address, 16).ok()?);
            }
            [module, section, address] => {
                let address = u64::from_str_radix(address.strip_prefix("0x")?, 16).ok()?;
                modules.entry(module).or_default().insert(section, address);
            }
            _ => return None,
        }
    }
    let border = |name| borders.get(name).copied().filter(|address| *address > 0);
    let (Some(begins), Some(end), Some(entries)) =
        (border("__start_orc_unwind_ip"), border("__stop_orc_unwind_ip"), border("__start_orc_unwind"))
    else {
        return Some(String::new());
    };
    let mut text = format!("{format}\n");
    let mut table = |begins: u64, entries: u64, count: u64| {
        text += &format!("{begins:#x} {entries:#x} {}\n", count.min(ELEMENTS_MAX));
    };
    table(begins, entries, end.checked_sub(begins)? / 4);
    for sections in modules.values().take(TABLES_MAX) {
        let of = |name| sections.get(name).copied().filter(|address| *address > 0);
        let (Some(begins), Some(entries)) = (of(".orc_unwind_ip"), of(".orc_unwind")) else { continue };
        let addresses: BTreeSet<u64> = sections.values().copied().collect();
        // A table ends at the next section at the latest; the tracer finds where it does.
        let most = |start: u64, of_bytes: u64| {
            let next = addresses.range(start + 1..).next();
            next.map_or(MODULE_MAX, |next| (next - start) / of_bytes)
        };
        table(begins, entries, most(begins, 4).min(most(entries, 6)));
    }
    Some(text)
}

/// Major and minor number.
fn release(text: &str) -> Option<(u32, u32)> {
    let mut numbers = text.split(|c: char| !c.is_ascii_digit()).map(|number| number.parse().ok());
    Some((numbers.next()??, numbers.next()??))
}

#[cfg(test)]
mod tests {
    use super::*;

    const KERNEL: &str = "ffffffff82c00000 r __start_orc_unwind_ip\nffffffff82c00400 r __stop_orc_unwind_ip\n\
        ffffffff82c00400 r __start_orc_unwind\nffffffff82c00a00 r __stop_orc_unwind\n";

    #[test]
    fn tables_of_a_kernel_and_its_modules_are_found() {
        let said = format!(
            "6.12.95+deb12-amd64\n{KERNEL}ext4 .orc_unwind_ip 0xffffffffc0001000\n\
             ext4 .orc_unwind 0xffffffffc0002000\next4 .note 0xffffffffc0001100\next4 .text 0xffffffffc0000000\n\
             nd_e820 .text 0xffffffffc0008000\n"
        );
        let expected = "new\n0xffffffff82c00000 0xffffffff82c00400 256\n\
            0xffffffffc0001000 0xffffffffc0002000 64\n";
        assert_eq!(tables(&said).unwrap(), expected);
        assert!(tables(&format!("6.1.0-44-amd64\n{KERNEL}")).unwrap().starts_with("old\n"));
        assert!(tables(&format!("5.10.0\n{KERNEL}")).unwrap().starts_with("old\n"));
    }

    #[test]
    fn a_kernel_without_them_has_none() {
        assert_eq!(tables("6.12.0\n").unwrap(), "");
        let hidden = KERNEL.replace("ffffffff82c0", "000000000000");
        assert_eq!(tables(&format!("6.12.0\n{}", hidden.replace("0400", "0000"))).unwrap(), "");
        for other in ["", "what\n", "6.12.0\nsomething else here now\n", "6.12.0\nzz r __start_orc_unwind\n"]
        {
            assert_eq!(tables(other), None, "{other:?}");
        }
    }
}
