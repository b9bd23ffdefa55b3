//! What documents name exists.

use std::fs;

use super::{root, sources};

#[test]
fn tests_that_documents_name_exist() {
    let text = fs::read_to_string(root().join("docs/log-scenarios.md")).unwrap();
    let sources: Vec<_> = sources().into_iter().map(|(_, source)| source).collect();
    let mut count = 0;
    // Names between backticks; those with a slash or a dot are files.
    for name in text.split('`').skip(1).step_by(2).filter(|name| !name.contains(['/', '.'])) {
        count += 1;
        let is_there = |source: &String| {
            source
                .match_indices(name)
                .any(|(at, _)| !source[at + name.len()..].starts_with(char::is_alphanumeric))
        };
        assert!(sources.iter().any(is_there), "no test is called {name}");
    }
    assert!(count > 40, "the document names its tests");
}
