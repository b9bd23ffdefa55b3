//! The place in the source that a store is blamed on.

/// How the names of functions begin, without underscores, that copy, fill or store for whoever calls them.
const HELPERS: [&str; 27] = [
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
];
/// Of standard libraries, which store for whoever calls them.
const LIBRARIES: [&str; 7] = ["core::", "std::", "alloc::", "<core::", "<std::", "<alloc::", "<T as core::"];
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

/// Whether a place says little: code that stores for whoever calls it, or code without a name.
pub(super) fn is_helper(place: &str) -> bool {
    let name = function(place).trim_start_matches('_');
    name == UNKNOWN
        || HELPERS.iter().any(|helper| name.starts_with(helper))
        || LIBRARIES.iter().any(|library| function(place).starts_with(library))
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
        assert_eq!(of("0x5555 in libdb.so", &["0x6 main (a.c:1)"]), "0x5555 in libdb.so");
        assert_eq!(of("an unknown instruction", &[]), "an unknown instruction");
        assert_eq!(of("0x5 .cold", &[]), "0x5 .cold");
    }

    #[test]
    fn names_that_only_look_like_helpers_are_none() {
        for place in ["commit (memcpy.c:3)", "0x5 in memcpy.so", "my_memcpy_user (a.c:1)", "stdx::put"] {
            assert!(!is_helper(place), "{place}");
        }
        for place in ["__memset_avx2 (memset.S:3)", "memcpy", "copy_mc_fragile [nfit]", "std::copy<int*>"] {
            assert!(is_helper(place), "{place}");
        }
    }
}
