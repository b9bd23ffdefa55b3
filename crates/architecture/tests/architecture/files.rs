//! Fences say what they are for, files stay short, comments stay narrow.

use std::path::Path;

use super::{root, sources};

/// Lines of a source file at which to ask what second idea lives there.
const LINES_MAX: usize = 400;

fn is_test(path: &Path) -> bool {
    path.components().any(|part| part.as_os_str() == "tests" || part.as_os_str() == "examples")
        || path.file_name().is_some_and(|name| name == "tests.rs" || name == "shapes.rs")
}

/// A call of `fence`, `_mm_sfence` or `write_back` outside of tests has a PERSIST comment within 12 lines
/// above.
#[test]
fn every_fence_says_what_it_orders() {
    let mut missing = Vec::new();
    // The model talks about fences, it issues none.
    let is_real = |path: &Path| !is_test(path) && !path.starts_with(root().join("crates/pm-model"));
    for (path, text) in sources().iter().filter(|(path, _)| is_real(path)) {
        let lines: Vec<&str> = text.lines().collect();
        let end = lines.iter().position(|line| line.trim() == "#[cfg(test)]").unwrap_or(lines.len());
        for (index, line) in lines[..end].iter().enumerate() {
            let code = line.split("//").next().unwrap();
            let calls = ["fence()", "_mm_sfence()", ".write_back("].iter().any(|call| code.contains(call));
            let declares = code.contains("fn ") || code.contains("is_fence()");
            let near = &lines[index.saturating_sub(12)..=(index + 6).min(end - 1)];
            if calls && !declares && !near.iter().any(|line| line.contains("PERSIST")) {
                missing.push(format!("{}:{}: {}", path.display(), index + 1, line.trim()));
            }
        }
    }
    assert!(missing.is_empty(), "without a PERSIST comment:\n{}", missing.join("\n"));
}

#[test]
fn source_files_stay_short() {
    let long: Vec<_> = sources()
        .iter()
        .filter(|(path, _)| !is_test(path))
        .map(|(path, text)| (path.clone(), text.lines().count()))
        .filter(|&(_, lines)| lines > LINES_MAX)
        .collect();
    assert!(long.is_empty(), "longer than {LINES_MAX} lines: {long:?}");
}

/// `rustfmt` sees to code, and leaves comments as they are. Tables and drawings may be wider.
#[test]
fn comments_are_within_110_columns() {
    let mut long = Vec::new();
    for (path, text) in sources() {
        let mut is_drawing = false;
        for (index, line) in text.lines().enumerate() {
            let comment = line.trim_start();
            let said = comment.trim_start_matches(['/', '!']).trim_start();
            is_drawing = comment.starts_with("//") && is_drawing != said.starts_with("```");
            if comment.starts_with("//")
                && !is_drawing
                && !said.starts_with('|')
                && line.chars().count() > 110
            {
                long.push(format!("{}:{}", path.display(), index + 1));
            }
        }
    }
    assert!(long.is_empty(), "longer than 110 columns:\n{}", long.join("\n"));
}
