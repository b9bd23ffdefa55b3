//! What a caller must do about an error is known from its type alone.

use super::{root, sources};

/// Files that ask for the type of something, and why that decides no kind.
const ASKS: &[&str] = &[
    // The payload of a panic has no other interface.
    "crates/base/src/error.rs",
    // The engine hands our own errors back as I/O errors.
    "crates/pool/src/metadata/engine_error.rs",
    // `std::io::Write` and `msync` have no other way to say so.
    "crates/terminal/src/output.rs",
    "crates/pmem/src/error.rs",
    // What a handler keeps during a replay.
    "crates/store/src/handler.rs",
];

#[test]
fn no_type_is_guessed_to_find_a_kind() {
    let mut wrong = String::new();
    let mut asking = Vec::new();
    for (path, text) in sources() {
        let path = path.strip_prefix(root()).unwrap().display().to_string();
        if !path.contains("/src/") {
            continue;
        }
        let lines = text.lines().take_while(|line| line.trim() != "#[cfg(test)]").enumerate();
        for (index, line) in lines.filter(|(_, line)| line.contains("downcast") || line.contains(".is::<")) {
            asking.push(path.clone());
            if !ASKS.contains(&&*path) {
                wrong += &format!("{path}:{}: {}\n", index + 1, line.trim());
            }
        }
    }
    let gone: Vec<_> = ASKS.iter().filter(|path| !asking.iter().any(|file| file == *path)).collect();
    assert!(wrong.is_empty() && gone.is_empty(), "{wrong}no longer: {gone:?}");
}

/// So that a program takes it as it is; `kind` alone would get lost in a chain of errors.
#[test]
fn errors_with_a_kind_have_the_trait() {
    let mut wrong = Vec::new();
    let mut found = 0;
    for (path, text) in sources() {
        let mut name = String::new();
        for line in text.lines() {
            if let Some(rest) = line.strip_prefix("impl") {
                let words = rest.split(|char: char| !(char.is_alphanumeric() || char == '_'));
                name = words.rev().find(|word| word.len() > 1).unwrap_or_default().to_owned();
                if let Some(generic) = rest.strip_prefix("<E> ") {
                    name = generic.split('<').next().unwrap().to_owned();
                }
            }
            if !line.starts_with("    pub fn kind(&self) -> ErrorKind") || !is_error(&text, &name) {
                continue;
            }
            found += 1;
            let has_trait = [format!("HasKind for {name}"), format!("has_kind!({name})")];
            if !has_trait.iter().any(|text_of_it| text.contains(text_of_it)) {
                wrong.push(format!("{}: {name}", path.display()));
            }
        }
    }
    assert!(found > 20, "only {found} errors were found");
    // It becomes one of these itself: `From<impl HasKind> for Failure`.
    wrong.retain(|entry| !entry.ends_with(": Failure"));
    assert!(wrong.is_empty(), "{wrong:#?}");
}

fn is_error(text: &str, name: &str) -> bool {
    text.contains(&format!("Error for {name}")) || text.contains("thiserror::Error")
}
