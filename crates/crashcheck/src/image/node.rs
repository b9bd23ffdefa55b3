//! Nodes of the tree: pages, and what holds them together.

use std::sync::{Arc, OnceLock};

/// Bytes of a page: what one change copies.
pub const PAGE_BYTES: usize = 4096;
/// Children of an inner node.
pub(super) const WIDTH: usize = 64;

type Hash = [u8; 32];

/// A page and its hash; the hash is `None` inside for zeroes.
#[derive(Debug, Clone)]
pub(super) struct Page {
    bytes: Box<[u8; PAGE_BYTES]>,
    hash: OnceLock<Option<Hash>>,
}

impl Default for Page {
    fn default() -> Page {
        Page { bytes: Box::new([0; PAGE_BYTES]), hash: OnceLock::new() }
    }
}

/// Children; those that are missing are zeroes.
#[derive(Debug, Clone)]
pub(super) struct Inner {
    pub(super) children: [Option<Node>; WIDTH],
    hash: OnceLock<Option<Hash>>,
}

impl Default for Inner {
    fn default() -> Inner {
        Inner { children: [const { None }; WIDTH], hash: OnceLock::new() }
    }
}

/// A node; a clone of one is the same node.
#[derive(Debug, Clone)]
pub(super) enum Node {
    Page(Arc<Page>),
    Inner(Arc<Inner>),
}

impl Node {
    pub(super) fn inner(&self) -> &Inner {
        match self {
            Node::Inner(inner) => inner,
            Node::Page(_) => unreachable!("pages are at the lowest level only"),
        }
    }

    /// For changing a child: copies the node if it is shared, and forgets its hash.
    pub(super) fn inner_mut(&mut self) -> &mut Inner {
        match self {
            Node::Inner(inner) => {
                let inner = Arc::make_mut(inner);
                inner.hash.take();
                inner
            }
            Node::Page(_) => unreachable!("pages are at the lowest level only"),
        }
    }

    pub(super) fn bytes(&self) -> &[u8; PAGE_BYTES] {
        match self {
            Node::Page(page) => &page.bytes,
            Node::Inner(_) => unreachable!("the lowest level has pages only"),
        }
    }

    /// As [`inner_mut`](Self::inner_mut), the bytes of a page.
    pub(super) fn bytes_mut(&mut self) -> &mut [u8; PAGE_BYTES] {
        match self {
            Node::Page(page) => {
                let page = Arc::make_mut(page);
                page.hash.take();
                &mut page.bytes
            }
            Node::Inner(_) => unreachable!("the lowest level has pages only"),
        }
    }

    /// Whether two are one node, so that nothing below them differs.
    pub(super) fn is_same(&self, other: &Node) -> bool {
        match (self, other) {
            (Node::Page(one), Node::Page(two)) => Arc::ptr_eq(one, two),
            (Node::Inner(one), Node::Inner(two)) => Arc::ptr_eq(one, two),
            _ => false,
        }
    }

    /// The hash of what is below; `None` for zeroes, whether they take memory or not.
    pub(super) fn hash(&self) -> Option<Hash> {
        match self {
            Node::Page(page) => *page.hash.get_or_init(|| {
                let is_zero = page.bytes.iter().all(|byte| *byte == 0);
                (!is_zero).then(|| *blake3::hash(&page.bytes[..]).as_bytes())
            }),
            Node::Inner(inner) => *inner.hash.get_or_init(|| inner.compute_hash()),
        }
    }
}

impl Inner {
    /// Over the numbers and hashes of the children that are not zero.
    fn compute_hash(&self) -> Option<Hash> {
        let mut hasher = blake3::Hasher::new();
        let mut is_zero = true;
        for (index, child) in self.children.iter().enumerate() {
            if let Some(hash) = child.as_ref().and_then(Node::hash) {
                hasher.update(&[index as u8]);
                hasher.update(&hash);
                is_zero = false;
            }
        }
        (!is_zero).then(|| *hasher.finalize().as_bytes())
    }
}
