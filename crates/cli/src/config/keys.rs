//! A configuration file, key by key: what is wrong is collected, each with its line, and reading goes on.

use std::net::SocketAddr;
use std::ops::Range;
use std::path::PathBuf;
use std::time::Duration;

use toml::Spanned;
use toml::de::{DeTable, DeValue};

/// Something that is wrong in a file.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Mistake {
    /// From 1.
    pub(crate) line: usize,
    pub(crate) text: String,
}

/// The text of a file, and what is wrong in it.
#[derive(Debug)]
pub(super) struct Source<'a> {
    text: &'a str,
    mistakes: Vec<Mistake>,
}

/// A place in the file.
pub(super) type Span = Range<usize>;

impl<'a> Source<'a> {
    pub(super) fn new(text: &'a str) -> Source<'a> {
        Source { text, mistakes: Vec::new() }
    }

    pub(super) fn wrong(&mut self, at: &Span, text: impl Into<String>) {
        let before = self.text.as_bytes().get(..at.start).unwrap_or_default();
        let line = 1 + before.iter().filter(|byte| **byte == b'\n').count();
        self.mistakes.push(Mistake { line, text: text.into() });
    }

    /// All mistakes, in the order of their lines.
    pub(super) fn finish(mut self) -> Vec<Mistake> {
        self.mistakes.sort();
        self.mistakes
    }
}

/// A table, whose keys are taken one by one.
pub(super) struct Keys<'t, 'i> {
    table: &'t DeTable<'i>,
    /// As it is written in the file.
    name: String,
    known: Vec<&'static str>,
    pub(super) span: Span,
}

impl<'t, 'i> Keys<'t, 'i> {
    pub(super) fn new(table: &'t Spanned<DeTable<'i>>, name: impl Into<String>) -> Keys<'t, 'i> {
        Keys { span: table.span(), table: table.get_ref(), name: name.into(), known: Vec::new() }
    }

    /// The table that a value is.
    pub(super) fn of(
        source: &mut Source<'_>,
        value: &'t Spanned<DeValue<'i>>,
        name: impl Into<String>,
    ) -> Option<Keys<'t, 'i>> {
        let name = name.into();
        match value.get_ref().as_table() {
            Some(table) => Some(Keys { table, name, known: Vec::new(), span: value.span() }),
            None => {
                source.wrong(&value.span(), format!("{name} is {}, and must be a table", kind(value)));
                None
            }
        }
    }

    fn take(&mut self, key: &'static str) -> Option<&'t Spanned<DeValue<'i>>> {
        self.known.push(key);
        self.table.iter().find(|(name, _)| name.get_ref() == key).map(|(_, value)| value)
    }

    pub(super) fn has(&self, key: &str) -> bool {
        self.table.keys().any(|name| name.get_ref() == key)
    }

    /// A value of one type.
    fn value<T>(
        &mut self,
        source: &mut Source<'_>,
        key: &'static str,
        must: &str,
        of: impl Fn(&DeValue<'i>) -> Option<T>,
    ) -> Option<(T, Span)> {
        let value = self.take(key)?;
        let found = of(value.get_ref());
        if found.is_none() {
            source.wrong(&value.span(), format!("{key} is {}, and must be {must}", kind(value)));
        }
        found.map(|found| (found, value.span()))
    }

    pub(super) fn text(&mut self, source: &mut Source<'_>, key: &'static str) -> Option<(String, Span)> {
        let found = self.value(source, key, "a text", |value| value.as_str().map(str::to_owned))?;
        if found.0.is_empty() {
            source.wrong(&found.1, format!("{key} is empty"));
            return None;
        }
        Some(found)
    }

    pub(super) fn flag(&mut self, source: &mut Source<'_>, key: &'static str) -> Option<bool> {
        self.value(source, key, "true or false", DeValue::as_bool).map(|(value, _)| value)
    }

    pub(super) fn texts(&mut self, source: &mut Source<'_>, key: &'static str) -> Vec<(String, Span)> {
        let Some(value) = self.take(key) else { return Vec::new() };
        let texts = value
            .get_ref()
            .as_array()
            .map(|array| array.iter().map(|item| Some((item.get_ref().as_str()?.to_owned(), item.span()))));
        if let Some(Some(texts)) = texts.map(|texts| texts.collect::<Option<Vec<_>>>()) {
            return texts;
        }
        source.wrong(&value.span(), format!("{key} must be a list of texts, such as [\"a\", \"b\"]"));
        Vec::new()
    }

    /// A text that means something.
    pub(super) fn parsed<T>(
        &mut self,
        source: &mut Source<'_>,
        key: &'static str,
        parse: impl Fn(&str) -> Result<T, String>,
    ) -> Option<(T, Span)> {
        let (text, span) = self.text(source, key)?;
        match parse(&text) {
            Ok(value) => Some((value, span)),
            Err(why) => {
                source.wrong(&span, format!("{key}: {why}"));
                None
            }
        }
    }

    /// A port of this host as a number, or ADDRESS:PORT.
    pub(super) fn address(
        &mut self,
        source: &mut Source<'_>,
        key: &'static str,
    ) -> Option<(SocketAddr, Span)> {
        let number = self.table.iter().find(|(name, _)| name.get_ref() == key);
        if let Some(port) = number.and_then(|(_, value)| integer(value.get_ref())) {
            let value = self.take(key)?;
            if let Ok(address) = crate::metrics::address(&port.to_string()) {
                return Some((address, value.span()));
            }
            source.wrong(&value.span(), format!("{key}: {port} is no port"));
            return None;
        }
        self.parsed(source, key, crate::metrics::address)
    }

    /// A path that means the same from everywhere.
    pub(super) fn path(&mut self, source: &mut Source<'_>, key: &'static str) -> Option<(PathBuf, Span)> {
        let (text, span) = self.text(source, key)?;
        absolute(source, &text, &span).map(|path| (path, span))
    }

    /// Bytes: a number, or a text such as 256M.
    pub(super) fn size(&mut self, source: &mut Source<'_>, key: &'static str) -> Option<u64> {
        let must = "a size, such as 1048576 or \"256M\"";
        let size = |value: &DeValue<'_>| match value.as_str() {
            Some(text) => fastness_terminal::size::parse(text).ok(),
            None => integer(value).and_then(|number| number.try_into().ok()),
        };
        self.value(source, key, must, size).map(|(size, _)| size)
    }

    /// Seconds within bounds, with a fraction or without.
    pub(super) fn seconds(
        &mut self,
        source: &mut Source<'_>,
        key: &'static str,
        (min, max): (f64, f64),
    ) -> Option<Duration> {
        let number = |value: &DeValue<'_>| match value.as_float() {
            Some(float) => float.as_str().replace('_', "").parse().ok(),
            None => integer(value).map(|number| number as f64),
        };
        let (seconds, span) = self.value(source, key, "a number of seconds", number)?;
        if !(min..=max).contains(&seconds) {
            source.wrong(&span, format!("{key} is {seconds}, and must be from {min} to {max} seconds"));
            return None;
        }
        Some(Duration::from_secs_f64(seconds))
    }

    /// A table in this one.
    pub(super) fn table(&mut self, source: &mut Source<'_>, key: &'static str) -> Option<Keys<'t, 'i>> {
        let value = self.take(key)?;
        Keys::of(source, value, format!("[{key}]"))
    }

    /// Tables in this one by names that the user chose.
    pub(super) fn named(
        &mut self,
        source: &mut Source<'_>,
        key: &'static str,
    ) -> Vec<(String, Keys<'t, 'i>)> {
        let Some(all) = self.table(source, key) else { return Vec::new() };
        let each = all.table.iter().filter_map(|(name, value)| {
            let name = name.get_ref();
            Some((name.to_string(), Keys::of(source, value, format!("[{key}.{name}]"))?))
        });
        each.collect()
    }

    /// Tables in a list.
    pub(super) fn list(&mut self, source: &mut Source<'_>, key: &'static str) -> Vec<Keys<'t, 'i>> {
        let Some(value) = self.take(key) else { return Vec::new() };
        let Some(items) = value.get_ref().as_array() else {
            source.wrong(&value.span(), format!("{key} is {}: begin each with [[{key}]]", kind(value)));
            return Vec::new();
        };
        items.iter().filter_map(|item| Keys::of(source, item, format!("[[{key}]]"))).collect()
    }

    /// What was not taken is not known.
    pub(super) fn end(self, source: &mut Source<'_>) {
        for name in self.table.keys().filter(|name| !self.known.contains(&name.get_ref().as_ref())) {
            let known = self.known.join(", ");
            let place = if self.name.is_empty() { String::new() } else { format!(" of {}", self.name) };
            source.wrong(&name.span(), format!("{} is no key{place}; there are {known}", name.get_ref()));
        }
    }
}

/// Refuses a path that depends on the folder of the process.
pub(super) fn absolute(source: &mut Source<'_>, text: &str, span: &Span) -> Option<PathBuf> {
    let path = PathBuf::from(text);
    if !path.is_absolute() {
        source.wrong(span, format!("{text} is no path from the root"));
        return None;
    }
    Some(path)
}

fn integer(value: &DeValue<'_>) -> Option<i64> {
    let number = value.as_integer()?;
    i64::from_str_radix(&number.as_str().replace('_', ""), number.radix()).ok()
}

/// What a value is, in words.
fn kind(value: &Spanned<DeValue<'_>>) -> String {
    match value.get_ref() {
        DeValue::String(text) => format!("the text \"{text}\""),
        DeValue::Integer(number) => format!("the number {}", number.as_str()),
        DeValue::Float(number) => format!("the number {}", number.as_str()),
        DeValue::Boolean(flag) => flag.to_string(),
        DeValue::Datetime(_) => "a date".to_owned(),
        DeValue::Array(_) => "a list".to_owned(),
        DeValue::Table(_) => "a table".to_owned(),
    }
}
