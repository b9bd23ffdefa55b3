//! Bytes as short, readable JSON.

use serde_json::{Map, Value};

use super::object;

/// From this many equal bytes on, they are counted. In bytes.
const RUN_MIN: usize = 32;

/// Text as a string; else a list of strings, of `{"byte": "00", "count": 4096}` for equal bytes in a row, and
/// of `{"hex": "..."}`.
///
/// Text is UTF-8 without control characters other than line feeds and tabs. Different bytes are different
/// JSON, and the same bytes always the same.
pub fn content(bytes: &[u8]) -> Value {
    let mut pieces = Vec::new();
    let (mut start, mut at) = (0, 0);
    while at < bytes.len() {
        let run = bytes[at..].iter().take_while(|byte| **byte == bytes[at]).count();
        if run >= RUN_MIN {
            plain(&bytes[start..at], &mut pieces);
            pieces.push(Value::Object(Map::from_iter([
                ("byte".to_owned(), Value::from(format!("{:02x}", bytes[at]))),
                ("count".to_owned(), Value::from(run)),
            ])));
            start = at + run;
        }
        at += run;
    }
    plain(&bytes[start..], &mut pieces);
    match pieces.as_slice() {
        [] => Value::from(""),
        [Value::String(_)] => pieces.remove(0),
        _ => Value::Array(pieces),
    }
}

fn plain(bytes: &[u8], pieces: &mut Vec<Value>) {
    if bytes.is_empty() {
        return;
    }
    let is_text = |text: &&str| text.chars().all(|c| !c.is_control() || matches!(c, '\n' | '\t'));
    pieces.push(match std::str::from_utf8(bytes).ok().filter(is_text) {
        Some(text) => Value::from(text),
        None => {
            object("hex", Value::from(bytes.iter().map(|byte| format!("{byte:02x}")).collect::<String>()))
        }
    });
}
