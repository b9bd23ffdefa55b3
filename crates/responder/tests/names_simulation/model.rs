//! The model: what there is, by paths.

use std::collections::BTreeMap;

use fastness_responder::Renaming;

use crate::support::history::Tree;

/// A file or a directory.
#[derive(Debug, Clone)]
pub(super) struct Node {
    /// `None`: a directory.
    pub(super) content: Option<Vec<u8>>,
    pub(super) mode: u32,
}

/// What there is, by paths.
#[derive(Debug, Clone, Default)]
pub(super) struct Files {
    pub(super) nodes: Vec<Node>,
    pub(super) names: BTreeMap<String, usize>,
}

impl Files {
    pub(super) fn tree(&self) -> Tree {
        let mut tree = Tree::new();
        for (path, &node) in &self.names {
            let Node { content, mode } = &self.nodes[node];
            if *mode != if content.is_some() { 0o600 } else { 0o700 } {
                tree.insert(format!("{path}:"), mode.to_le_bytes().to_vec());
            }
            match content {
                Some(content) => tree.insert(path.clone(), content.clone()),
                None => tree.insert(format!("{path}/"), Vec::new()),
            };
        }
        tree
    }

    pub(super) fn is_directory(&self, path: &str) -> bool {
        path.is_empty() || self.names.get(path).is_some_and(|node| self.nodes[*node].content.is_none())
    }

    pub(super) fn has_parent(&self, path: &str) -> bool {
        self.is_directory(path.rsplit_once('/').map_or("", |(parent, _)| parent))
    }

    pub(super) fn below(&self, path: &str) -> Vec<String> {
        let inside = format!("{path}/");
        self.names.keys().filter(|name| name.starts_with(&inside)).cloned().collect()
    }

    pub(super) fn make(&mut self, path: &str, content: Option<Vec<u8>>) -> Option<usize> {
        if !self.has_parent(path) || self.names.contains_key(path) {
            return None;
        }
        let mode = if content.is_some() { 0o600 } else { 0o700 };
        self.nodes.push(Node { content, mode });
        self.names.insert(path.to_owned(), self.nodes.len() - 1);
        Some(self.nodes.len() - 1)
    }

    pub(super) fn remove(&mut self, path: &str, is_directory: bool) -> Option<()> {
        self.names.get(path)?;
        if self.is_directory(path) != is_directory || !self.below(path).is_empty() {
            return None;
        }
        self.names.remove(path).map(drop)
    }

    /// Takes a name with what is below it.
    pub(super) fn take(&mut self, path: &str) -> Vec<(String, usize)> {
        let mut all = self.below(path);
        all.extend(self.names.contains_key(path).then(|| path.to_owned()));
        let mut taken = Vec::new();
        for name in all {
            taken.push((name[path.len()..].to_owned(), self.names.remove(&name).unwrap()));
        }
        taken
    }

    pub(super) fn put(&mut self, path: &str, taken: Vec<(String, usize)>) {
        self.names.extend(taken.into_iter().map(|(rest, node)| (format!("{path}{rest}"), node)));
    }

    pub(super) fn rename(&mut self, from: &str, to: &str, how: Renaming) -> Option<()> {
        let node = *self.names.get(from)?;
        let other = self.names.get(to).copied();
        let contains = |outer: &str, inner: &str| inner.starts_with(&format!("{outer}/"));
        if !self.has_parent(to) || contains(from, to) {
            return None;
        }
        match (how, other) {
            (Renaming::Keep, Some(_)) | (Renaming::Exchange, None) => return None,
            (_, Some(other)) if other == node => return Some(()),
            (Renaming::Exchange, Some(_)) if contains(to, from) => return None,
            (Renaming::Replace, Some(_)) => {
                if self.is_directory(from) != self.is_directory(to) || !self.below(to).is_empty() {
                    return None;
                }
                self.names.remove(to);
            }
            _ => {}
        }
        let (moved, back) = (self.take(from), self.take(to));
        self.put(to, moved);
        self.put(from, back);
        Some(())
    }

    pub(super) fn link(&mut self, from: &str, to: &str) -> Option<()> {
        let node = *self.names.get(from)?;
        let is_file = self.nodes[node].content.is_some();
        if !is_file || !self.has_parent(to) || self.names.contains_key(to) {
            return None;
        }
        self.names.insert(to.to_owned(), node);
        Some(())
    }
}
