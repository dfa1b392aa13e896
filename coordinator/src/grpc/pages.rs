//! Is this list complete?
//!
//! A long list comes in pages, each far below the limit of a message. Only the whole of it is true: half a list would say
//! that the other half is gone.

/// Entries of a list: far above what one host serves, and a bound on memory.
const MAX_LISTED: usize = 200_000;

/// A list that comes in pages. Page 0 begins it, the last page makes it valid; anything else is dropped.
pub(super) struct Pages<T> {
    generation: u64,
    next_page: Option<u32>,
    entries: Vec<T>,
}

impl<T> Default for Pages<T> {
    fn default() -> Self {
        Self { generation: 0, next_page: None, entries: Vec::new() }
    }
}

impl<T> Pages<T> {
    /// The whole list, if this page completes it.
    pub(super) fn take(&mut self, generation: u64, page: u32, last: bool, entries: Vec<T>) -> Option<Vec<T>> {
        if page == 0 {
            (self.generation, self.next_page) = (generation, Some(0));
            self.entries.clear();
        }
        if self.next_page != Some(page) || self.generation != generation {
            self.next_page = None;
            return None;
        }
        self.next_page = page.checked_add(1);
        self.entries.extend(entries);
        if self.entries.len() > MAX_LISTED {
            tracing::warn!(
                limit = MAX_LISTED,
                "a host lists more entries than are taken, the rest is dropped"
            );
            self.entries.truncate(MAX_LISTED);
        }
        last.then(|| {
            self.next_page = None;
            std::mem::take(&mut self.entries)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_list_is_valid_with_its_last_page_only() {
        let mut pages = Pages::default();
        assert_eq!(pages.take(1, 0, false, vec!["a"]), None);
        assert_eq!(pages.take(1, 1, true, vec!["b"]), Some(vec!["a", "b"]));
        // A page is missing, or belongs to another list: nothing of it is taken.
        assert_eq!(pages.take(2, 0, false, vec!["a"]), None);
        assert_eq!(pages.take(2, 2, true, vec!["c"]), None);
        assert_eq!(pages.take(3, 0, false, vec!["a"]), None);
        assert_eq!(pages.take(4, 1, true, vec!["b"]), None);
        assert_eq!(pages.take(5, 0, true, vec!["z"]), Some(vec!["z"]));
    }
}
