//! The page, and who makes it when many want it.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Instant;

/// What is served.
pub struct Page {
    /// Where, such as `/metrics`.
    pub path: &'static str,
    /// `Content-Type`.
    pub content_type: &'static str,
    /// Makes it. Called by one thread at a time.
    pub make: Box<dyn Fn() -> String + Send + Sync>,
}

impl std::fmt::Debug for Page {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Page({})", self.path)
    }
}

/// A page, and the last one that was made.
#[derive(Debug)]
pub(crate) struct Pages {
    pub(crate) page: Page,
    /// And when its making began.
    last: Mutex<Option<(Instant, Arc<String>)>>,
}

impl Pages {
    pub(crate) fn new(page: Page) -> Pages {
        Pages { page, last: Mutex::default() }
    }

    /// A page whose making began at `asked` or later; none if the making panicked.
    pub(crate) fn since(&self, asked: Instant) -> Option<Arc<String>> {
        let mut last = self.last.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((begun, page)) = &*last
            && *begun >= asked
        {
            return Some(page.clone());
        }
        let begun = Instant::now();
        let page = Arc::new(catch_unwind(AssertUnwindSafe(|| (self.page.make)())).ok()?);
        *last = Some((begun, page.clone()));
        Some(page)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicU64, Ordering};

    use super::*;

    fn pages(make: impl Fn() -> String + Send + Sync + 'static) -> Pages {
        Pages::new(Page { path: "/", content_type: "", make: Box::new(make) })
    }

    #[test]
    fn a_page_is_no_older_than_the_request_and_shared_by_those_who_waited() {
        let made = AtomicU64::new(0);
        let pages = pages(move || made.fetch_add(1, Ordering::SeqCst).to_string());
        let before = Instant::now();
        assert_eq!(*pages.since(before).unwrap(), "0");
        assert_eq!(*pages.since(before).unwrap(), "0", "it was asked for before the page was made");
        assert_eq!(*pages.since(Instant::now()).unwrap(), "1");
    }

    #[test]
    fn a_panic_costs_one_page() {
        let made = AtomicU64::new(0);
        let pages = pages(move || match made.fetch_add(1, Ordering::SeqCst) {
            0 => panic!("no page"),
            _ => "page".to_owned(),
        });
        assert_eq!(pages.since(Instant::now()), None);
        assert_eq!(*pages.since(Instant::now()).unwrap(), "page");
    }
}
