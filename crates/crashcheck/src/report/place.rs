//! The place in the source that a store is blamed on.

/// How the names of functions begin, without underscores, that copy, fill or store for whoever calls them.
const HELPERS: [&str; 38] = [
    "memcpy",
    "memmove",
    "memset",
    "mempcpy",
    "bcopy",
    "bzero",
    "strcpy",
    "strncpy",
    "strlcpy",
    "strscpy",
    "stpcpy",
    "copy_user",
    "copy_to_nontemporal",
    "copy_from_user",
    "copy_to_user",
    "copy_mc",
    "copy_from_iter",
    "rep_movs",
    "rep_stos",
    "clear_user",
    "clear_page",
    "mm_",
    "mm256_",
    "mm512_",
    "movdir64b",
    "pmem_mem",
    "libc_mem",
    "IO_",
    "vfprintf",
    // Linux: the way of a block from a file system to the driver of persistent memory.
    "pmem_do_write",
    "pmem_submit_bio",
    "pmem_copy_from_iter",
    "write_pmem",
    "submit_bio",
    "submit_bh",
    "dax_copy_from_iter",
    "memcpy_from_iter",
    "iterate_",
];
/// Of standard libraries, which store for whoever calls them.
const LIBRARIES: [&str; 7] = ["core::", "std::", "alloc::", "<core::", "<std::", "<alloc::", "<T as core::"];
/// How the names of libraries begin that copy, or store what is theirs, for whoever calls them.
const FILES: [&str; 9] =
    ["libc.", "libc-", "libm.", "libm-", "libpthread", "libstdc++", "libgcc_s", "ld-", "libpmem.so"];
/// An instruction that the trace does not name.
pub(super) const UNKNOWN: &str = "an unknown instruction";
/// What compilers add to the name of a function.
const ADDED: [&str; 5] = [".isra", ".constprop", ".part", ".cold", ".llvm"];

/// Function and line of the innermost function that is no helper; that of the helper where no caller is
/// known. `at` is an instruction as a report has it, `stack` its callers.
pub(super) fn blamed(at: &str, stack: &[String]) -> String {
    let frames = || std::iter::once(at).chain(stack.iter().map(String::as_str)).flat_map(frames);
    let known = || frames().filter(|frame| !frame.is_empty());
    let has_name = |frame: &&str| !frame.starts_with("0x") || frame.contains(' ');
    let meant = known().find(|frame| has_name(frame) && !is_helper(frame)).or_else(|| known().next());
    meant.map_or_else(|| at.to_owned(), |frame| named(frame).unwrap_or_else(|| at.to_owned()))
}

/// An event as a report has it, without the callers of its instruction.
pub(super) fn without_callers(at: &str) -> &str {
    at.split_once(" < ").map_or(at, |(innermost, _)| innermost)
}

/// The functions of an instruction, inlined into each other, from the innermost that is no helper on, without
/// addresses: what many instructions have in common.
pub(super) fn chain(at: &str) -> String {
    let frames = frames(at);
    let from = frames.iter().position(|frame| !is_helper(frame)).unwrap_or(0);
    let names: Vec<String> = frames[from..].iter().filter_map(|frame| named(frame)).collect();
    match in_file(at) {
        Some(file) => format!("code in {}", file_name(file)),
        None if names.is_empty() => at.to_owned(),
        None => names.join(" in "),
    }
}

/// The functions, files, lines and modules that an instruction names.
pub(super) fn names(at: &str) -> Vec<&str> {
    let mut names = Vec::new();
    for frame in frames(at) {
        let name = function(frame);
        names.push(name.split_once("+0x").map_or(name, |(name, _)| name));
        let place = frame[name.len()..].trim_start().trim_start_matches('(').trim_end_matches(')');
        names.push(place);
        names.extend(place.rsplit_once(':').map(|(file, _)| file));
        names.extend(in_file(frame).map(file_name));
    }
    names.retain(|name| !name.is_empty());
    names
}

/// Whether a place says little: code that stores for whoever calls it, or code without a name.
pub(super) fn is_helper(place: &str) -> bool {
    if let Some(file) = in_file(place) {
        return is_library(file);
    }
    let name = function(place).trim_start_matches('_');
    name == UNKNOWN
        || HELPERS.iter().any(|helper| name.starts_with(helper))
        || LIBRARIES.iter().any(|library| function(place).starts_with(library))
}

/// Whether a file, without its folder, is a library that copies, or stores what is its own, for its callers.
pub(crate) fn is_library(file: &str) -> bool {
    FILES.iter().any(|library| file.starts_with(library))
}

/// The file and the place in it, `libdb.so+0x12`, of an instruction in a file without symbols.
fn in_file(place: &str) -> Option<&str> {
    let after_address = || place.split_once(' ').filter(|(address, _)| address.starts_with("0x"));
    place.strip_prefix("code in ").or_else(|| after_address()?.1.strip_prefix("in "))
}

fn file_name(file: &str) -> &str {
    file.rsplit_once("+0x").map_or(file, |(name, _)| name)
}

/// The functions of an instruction, inlined into each other, innermost first: what follows the address. An
/// instruction of a file without symbols keeps its address.
fn frames(at: &str) -> Vec<&str> {
    let Some((address, rest)) = at.split_once(' ').filter(|(address, _)| address.starts_with("0x")) else {
        return vec![at];
    };
    if address.is_empty() || rest.starts_with("in ") { vec![at] } else { rest.split(" in ").collect() }
}

/// Without the distance from the beginning of the function, which changes with each build.
fn named(frame: &str) -> Option<String> {
    if let Some(file) = in_file(frame) {
        return Some(format!("code in {}", if is_helper(frame) { file_name(file) } else { file }));
    }
    let function = function(frame);
    let rest = &frame[function.len()..];
    let name = function.split_once("+0x").map_or(function, |(name, _)| name);
    let cut = ADDED.iter().filter_map(|added| name.find(added)).min().unwrap_or(name.len());
    (cut > 0).then(|| format!("{}{rest}", &name[..cut]))
}

/// The name in `function (file.c:42)`, and in `function+0x1a [module]`.
fn function(frame: &str) -> &str {
    let end = frame.rfind(" (").or_else(|| frame.rfind(" [")).unwrap_or(frame.len());
    &frame[..end]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_innermost_function_that_is_no_helper_is_blamed() {
        let of = |at: &str, stack: &[&str]| {
            blamed(at, &stack.iter().map(|frame| (*frame).to_owned()).collect::<Vec<_>>())
        };
        assert_eq!(
            of("0x5555 commit (journal.c:12)", &["0x6666 main (journal.c:90)"]),
            "commit (journal.c:12)"
        );
        let block = [
            "0x1 pmem_do_write+0x9e [nd_pmem]",
            "0x2 __submit_bio+0x15b",
            "0x3 jbd2_write_superblock+0x9e [jbd2]",
        ];
        assert_eq!(of("0xffff __memcpy_flushcache+0x97", &block), "jbd2_write_superblock [jbd2]");
        assert_eq!(
            without_callers("sfence at 0x1 f+0x1 (kernel) < 0x2 g+0x2 < 0x3"),
            "sfence at 0x1 f+0x1 (kernel)"
        );
        let inlined = "0x5555 _mm_stream_si64 (emmintrin.h:1509) in put (log.c:7) in main (log.c:20)";
        assert_eq!(of(inlined, &[]), "put (log.c:7)");
        let copy = "0x7ffff __memmove_avx_unaligned_erms";
        assert_eq!(of(copy, &[]), "__memmove_avx_unaligned_erms", "no caller is known");
        assert_eq!(of(copy, &["0x41", "0x42 memcpy", "0x43 put (log.c:7)"]), "put (log.c:7)");
        assert_eq!(of("0x5 core::ptr::write (mod.rs:3) in db::put (db.rs:9)", &[]), "db::put (db.rs:9)");
        // Kernels: without the offset.
        assert_eq!(of("0xffffffff81c __memcpy_flushcache+0x92", &[]), "__memcpy_flushcache");
        let stack = ["0xffffffffc01 nova_append.isra.0+0x1a2 [nova]"];
        assert_eq!(of("0xffffffff81c __memcpy_flushcache+0x92", &stack), "nova_append [nova]");
        // Without symbols.
        assert_eq!(of("0x5555", &[]), "0x5555");
        // The place in a file is the same in each run, that in memory is not.
        assert_eq!(of("0x7f5555 in libdb.so+0x12", &["0x6 main (a.c:1)"]), "code in libdb.so+0x12");
        assert_eq!(of("0x7f5555 in libc.so.6+0x12", &["0x6 main (a.c:1)"]), "main (a.c:1)");
        assert_eq!(of("0x7f5555 in libc.so.6+0x12", &["0x6"]), "code in libc.so.6");
        assert!(is_helper("code in libc.so.6") && !is_helper("code in libdb.so+0x12"));
        assert_eq!(of("an unknown instruction", &[]), "an unknown instruction");
        assert_eq!(of("0x5 .cold", &[]), "0x5 .cold");
    }

    #[test]
    fn instructions_with_the_same_functions_are_one_place() {
        let inlined = "0x5 _mm_clflush (emmintrin.h:9) in flush (pm.h:24) in move (bank.c:17)";
        assert_eq!(chain(inlined), "flush (pm.h:24) in move (bank.c:17)");
        assert_eq!(names(inlined)[3..6], ["flush", "pm.h:24", "pm.h"]);
        assert_eq!(chain("0xff nova_flush.isra.0+0x12 [nova]"), "nova_flush [nova]");
        assert_eq!(names("0xff nova_flush+0x12 [nova]"), ["nova_flush", "[nova]"]);
        assert_eq!(chain("0x7f00 in libpmemobj.so.1+0x90"), "code in libpmemobj.so.1");
        assert!(names("0x7f00 in libpmemobj.so.1+0x90").contains(&"libpmemobj.so.1"));
        for at in ["0x7f00", "an unknown instruction", "0x5 memcpy"] {
            assert_eq!(chain(at), at.trim_start_matches("0x5 "));
        }
    }

    #[test]
    fn names_that_only_look_like_helpers_are_none() {
        for place in ["commit (memcpy.c:3)", "0x5 in memcpy.so+0x1", "my_memcpy_user (a.c:1)", "stdx::put"] {
            assert!(!is_helper(place), "{place}");
        }
        for place in ["__memset_avx2 (memset.S:3)", "memcpy", "copy_mc_fragile [nfit]", "std::copy<int*>"] {
            assert!(is_helper(place), "{place}");
        }
    }
}
