//! Which top-level modules of a crate use each other, read from its source.
//!
//! A folder of modules counts as one, unless its own file does nothing but declare them: then each of them
//! counts (`devices::label`). The root file is the module `lib`: what it re-exports is traced to where it is
//! defined, so `crate::Error` means the module `error`. Code under `#[cfg(test)]` does not count.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};
use std::str::FromStr;

use proc_macro2::{Delimiter, TokenStream, TokenTree};

/// The name of the root file's module.
const ROOT: &str = "lib";

/// The modules that each module uses, and an example of what it uses there: `file.rs: crate::a::B`.
pub(crate) type Graph = BTreeMap<String, BTreeMap<String, String>>;

/// The graph of the crate whose root file is `root_file`.
pub(crate) fn graph(root_file: &Path) -> Graph {
    let mut reader = Reader::default();
    reader.read_file(root_file, root_file.parent().unwrap(), &[]);
    reader.graph()
}

/// The graph of a crate that is one piece of text.
#[cfg(test)]
fn graph_of_text(text: &str) -> Graph {
    let mut reader = Reader::default();
    reader.read_tokens(tokens(text), &Place { file: "lib.rs".into(), folder: "".into(), module: Vec::new() });
    reader.graph()
}

/// The largest sets of modules of which each one uses each other, over however many steps; sets of one are
/// left out.
pub(crate) fn cycles(graph: &Graph) -> BTreeSet<BTreeSet<String>> {
    let reached = |from: &String| {
        let mut reached = BTreeSet::new();
        let mut next = vec![from];
        while let Some(module) = next.pop() {
            for used in graph.get(module).into_iter().flat_map(BTreeMap::keys) {
                if reached.insert(used.clone()) {
                    next.push(used);
                }
            }
        }
        reached
    };
    let reached: BTreeMap<&String, BTreeSet<String>> =
        graph.keys().map(|from| (from, reached(from))).collect();
    let cycle = |from: &String| -> BTreeSet<String> {
        let returns = |to: &&String| reached.get(to).is_some_and(|back| back.contains(from));
        reached[from].iter().filter(returns).cloned().collect()
    };
    graph.keys().map(cycle).filter(|cycle| cycle.len() > 1).collect()
}

/// Where tokens stand.
struct Place {
    file: PathBuf,
    /// The folder of the files of the modules that are declared here.
    folder: PathBuf,
    /// From the root to the module; empty in the root.
    module: Vec<String>,
}

#[derive(Default)]
struct Reader {
    modules: BTreeSet<String>,
    /// Top-level modules that do nothing but declare others.
    rooms: BTreeSet<String>,
    /// What the root imports or re-exports, by the name that it has there.
    names: BTreeMap<String, Vec<String>>,
    uses: Vec<Use>,
}

/// A path from the root that `module` mentions.
struct Use {
    module: String,
    file: PathBuf,
    path: Vec<String>,
}

impl Reader {
    fn graph(&self) -> Graph {
        let mut graph: Graph = self.modules.iter().map(|module| (module.clone(), BTreeMap::new())).collect();
        graph.insert(ROOT.to_owned(), BTreeMap::new());
        for Use { module, file, path } in &self.uses {
            if let Some(used) = self.module_of(path)
                && used != *module
            {
                let example = format!("{}: crate::{}", file.display(), path.join("::"));
                graph.get_mut(module).unwrap().entry(used).or_insert(example);
            }
        }
        graph
    }

    /// The module that defines what `path` leads to from the root; none if that is another crate.
    fn module_of(&self, path: &[String]) -> Option<String> {
        let Some(first) = path.first() else { return Some(ROOT.to_owned()) };
        if let Some(module) = self.module_at(path) {
            return Some(module);
        }
        match self.names.get(first) {
            // Not defined by any module, hence by the root itself.
            None => Some(ROOT.to_owned()),
            Some(source) => self.module_at(source),
        }
    }

    /// The module at the beginning of `path`.
    fn module_at(&self, path: &[String]) -> Option<String> {
        let length = if self.rooms.contains(&path[0]) { path.len().min(2) } else { 1 };
        Some(path[..length].join("::")).filter(|module| self.modules.contains(module))
    }

    fn read_file(&mut self, file: &Path, folder: &Path, module: &[String]) {
        let text = fs::read_to_string(file).unwrap_or_else(|error| panic!("{}: {error}", file.display()));
        let place = Place { file: file.to_owned(), folder: folder.to_owned(), module: module.to_vec() };
        self.read_tokens(tokens(&text), &place);
    }

    fn read_tokens(&mut self, tokens: TokenStream, place: &Place) {
        let tokens: Vec<TokenTree> = tokens.into_iter().collect();
        let word = |at: usize| match tokens.get(at) {
            Some(TokenTree::Ident(word)) => Some(word.to_string()),
            _ => None,
        };
        let is_punct = |at: usize, char: char| matches!(tokens.get(at), Some(TokenTree::Punct(it)) if it.as_char() == char);
        let is_separator = |at: usize| is_punct(at, ':') && is_punct(at + 1, ':');
        let mut at = 0;
        while at < tokens.len() {
            match &tokens[at] {
                TokenTree::Punct(punct)
                    if punct.as_char() == '#' && is_test_attribute(tokens.get(at + 1)) =>
                {
                    at = end_of_item(&tokens, at + 2);
                }
                TokenTree::Ident(ident) if ident == "mod" && word(at + 1).is_some() => {
                    self.read_module(&word(at + 1).unwrap(), tokens.get(at + 2), place);
                    at += 3;
                }
                // `pub(in crate::a)` uses nothing.
                TokenTree::Ident(ident) if ident == "pub" => {
                    at += 1;
                    if let Some(TokenTree::Group(group)) = tokens.get(at)
                        && group.delimiter() == Delimiter::Parenthesis
                        && !group.stream().is_empty()
                    {
                        at += 1;
                    }
                    if word(at).as_deref() == Some("use") {
                        at = self.read_import(&tokens, at + 1, true, place);
                    }
                }
                // `use<'a>` is a bound.
                TokenTree::Ident(ident) if ident == "use" && !is_punct(at + 1, '<') => {
                    at = self.read_import(&tokens, at + 1, false, place);
                }
                TokenTree::Ident(_) if is_separator(at + 1) && !(at >= 2 && is_separator(at - 2)) => {
                    let mut path = vec![word(at).unwrap()];
                    at += 1;
                    while is_separator(at)
                        && let Some(segment) = word(at + 2)
                    {
                        path.push(segment);
                        at += 3;
                    }
                    self.note(path, place);
                }
                TokenTree::Group(group) => {
                    self.read_tokens(group.stream(), place);
                    at += 1;
                }
                _ => at += 1,
            }
        }
    }

    /// `mod name;` or `mod name { ... }`, of which `body` is the last token.
    fn read_module(&mut self, name: &str, body: Option<&TokenTree>, place: &Place) {
        let module = [&place.module[..], &[name.to_owned()]].concat();
        if place.module.is_empty() || place.module.len() == 1 && self.rooms.contains(&place.module[0]) {
            self.modules.insert(module.join("::"));
        }
        let folder = place.folder.join(name);
        if let Some(TokenTree::Group(group)) = body {
            self.read_tokens(group.stream(), &Place { file: place.file.clone(), folder, module });
        } else {
            let beside = place.folder.join(format!("{name}.rs"));
            let file = if beside.exists() { beside } else { folder.join("mod.rs") };
            if place.module.is_empty() && declares_only(&file) {
                self.modules.remove(name);
                self.rooms.insert(name.to_owned());
            }
            self.read_file(&file, &folder, &module);
        }
    }

    /// What follows `use`; returns where it ends.
    fn read_import(&mut self, tokens: &[TokenTree], start: usize, is_public: bool, place: &Place) -> usize {
        let is_end = |token: &TokenTree| matches!(token, TokenTree::Punct(punct) if punct.as_char() == ';');
        let end = start + tokens[start..].iter().position(is_end).expect("`use` ends with `;`");
        let mut paths = Vec::new();
        import_tree(&tokens[start..end], &[], &mut paths);
        for (mut path, name) in paths {
            if place.module.is_empty() {
                if path[0] == "crate" || path[0] == "self" {
                    path.remove(0);
                }
                self.names.insert(name, path.clone());
                // A re-export is no use: it only says where something is found.
                if is_public {
                    continue;
                }
            }
            self.note(path, place);
        }
        end + 1
    }

    /// Notes a path that is written at `place`, if it leads through the root.
    fn note(&mut self, mut path: Vec<String>, place: &Place) {
        let mut module = place.module.clone();
        match path[0].as_str() {
            "crate" => {
                module.clear();
                path.remove(0);
            }
            "super" => {
                while path.first().is_some_and(|first| first == "super") {
                    module.pop();
                    path.remove(0);
                }
            }
            "self" => {
                path.remove(0);
            }
            // In the root a path may begin with a module; elsewhere it leads further down, or away.
            _ if module.is_empty() => {}
            _ => return,
        }
        let path = [module, path].concat();
        let module = match &place.module[..] {
            [] => ROOT.to_owned(),
            module => self.module_at(module).expect("the module of the code itself"),
        };
        self.uses.push(Use { module, file: place.file.clone(), path });
    }
}

/// Whether a file has declarations of modules and nothing else.
fn declares_only(file: &Path) -> bool {
    let text = fs::read_to_string(file).unwrap_or_default();
    let lines = text.lines().filter(|line| !line.is_empty() && !line.starts_with("//"));
    let is_declaration =
        |line: &str| line.trim_start_matches("pub(crate) ").starts_with("mod ") && line.ends_with(';');
    let mut lines = lines.peekable();
    lines.peek().is_some() && lines.all(is_declaration)
}

fn tokens(text: &str) -> TokenStream {
    TokenStream::from_str(text).unwrap_or_else(|error| panic!("{error} in: {text}"))
}

/// Whether this is the `[cfg(test)]` of `#[cfg(test)]`.
fn is_test_attribute(token: Option<&TokenTree>) -> bool {
    let Some(TokenTree::Group(group)) = token else { return false };
    let text: String = group.stream().to_string().split_whitespace().collect();
    text == "cfg(test)" || text.starts_with("cfg(all(test,")
}

/// The end of the item that begins at `at`: after its block or its semicolon.
fn end_of_item(tokens: &[TokenTree], at: usize) -> usize {
    let ends = |token: &TokenTree| match token {
        TokenTree::Group(group) => group.delimiter() == Delimiter::Brace,
        TokenTree::Punct(punct) => punct.as_char() == ';',
        _ => false,
    };
    tokens[at..].iter().position(ends).map_or(tokens.len(), |length| at + length + 1)
}

/// The paths of a `use`, each with the name that it gets.
fn import_tree(tokens: &[TokenTree], prefix: &[String], paths: &mut Vec<(Vec<String>, String)>) {
    let mut path = prefix.to_vec();
    let mut alias = None;
    let mut at = 0;
    while at < tokens.len() {
        match &tokens[at] {
            TokenTree::Ident(ident) if ident == "as" => {
                alias = Some(tokens[at + 1].to_string());
                at += 1;
            }
            TokenTree::Punct(punct) if punct.as_char() == '*' => path.push("*".to_owned()),
            TokenTree::Ident(ident) => path.push(ident.to_string()),
            TokenTree::Group(group) => {
                let inner: Vec<TokenTree> = group.stream().into_iter().collect();
                let is_comma =
                    |token: &TokenTree| matches!(token, TokenTree::Punct(punct) if punct.as_char() == ',');
                for tree in inner.split(is_comma).filter(|tree| !tree.is_empty()) {
                    import_tree(tree, &path, paths);
                }
                return;
            }
            _ => {}
        }
        at += 1;
    }
    if path.last().is_some_and(|last| last == "self") && path.len() > 1 {
        path.pop();
    }
    let name = alias.unwrap_or_else(|| path.last().unwrap().clone());
    paths.push((path, name));
}

#[test]
fn uses_are_traced_to_the_modules_that_define_them() {
    let graph = graph_of_text(
        "
        pub use a::{A, inner::{self, C as D}};
        use std::fmt;
        use b::helper;
        pub struct Own;
        fn root() { b::x(); }
        /// crate::c::in_a_comment
        mod a {
            use crate::b;
            pub(in crate::c) mod inner {
                fn f() { super::super::d::f(\"crate::e\") }
            }
        }
        mod b { fn f(own: crate::Own, d: crate::D) -> crate::fmt::Result { vec![$crate::c::x()] } }
        mod c { use super::{A as B, inner}; #[cfg(test)] mod tests { use crate::e; } fn f() {} }
        mod d { #[cfg(test)] use crate::{c, e}; fn g() { self::h(); std::e::f() } }
        mod e { mod deep { use super::super::helper; use super::x; } }
        ",
    );
    let found: Vec<_> =
        graph.iter().flat_map(|(from, to)| to.keys().map(move |to| format!("{from} {to}"))).collect();
    assert_eq!(found, ["a b", "a d", "b a", "b c", "b lib", "c a", "e b", "lib b"]);
    let cycle = ["a", "b", "c", "lib"].map(str::to_owned).into();
    assert_eq!(cycles(&graph), [cycle].into());
}
