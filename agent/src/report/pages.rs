//! How is a long list told without holding up what is urgent?
//!
//! In pages below 1 MiB, made one at a time when the stream has room, so that an answer never waits for more than one
//! of them. A list that changes on the way is begun again under its new number: half a list means nothing.

use std::sync::Arc;

use usher_proto::{InventoryPage, SessionsPage};
use usher_types::{
    BootTime, EndedPlace, Endpoint, PendingPlace, PoolName, Replica, Session, Token, ToldOutcome,
};

use crate::host::Listing;

/// Bound of one page's entries: below 1 MiB with room for the fields around them.
const PAGE_BYTES: usize = 900 * 1024;

/// Tags, lengths and numbers around the texts of one entry on the wire.
const OVERHEAD_BYTES: usize = 48;

/// An entry of a list.
pub(super) trait Entry {
    /// No less than its size on the wire.
    fn wire_bytes(&self) -> usize;
}

impl Entry for Replica {
    fn wire_bytes(&self) -> usize {
        let length = |text: &Option<String>| text.as_ref().map_or(0, String::len);
        self.resource_id.as_str().len() + length(&self.path) + length(&self.title) + OVERHEAD_BYTES
    }
}

impl Entry for Session {
    fn wire_bytes(&self) -> usize {
        self.id.len() + self.user.len() + OVERHEAD_BYTES
    }
}

impl Entry for ToldOutcome {
    fn wire_bytes(&self) -> usize {
        self.token.gateway.as_str().len() + self.token.request_id.as_str().len() + OVERHEAD_BYTES
    }
}

fn place_bytes(token: &Token, pool: &PoolName, endpoint: &Endpoint) -> usize {
    let names = token.gateway.as_str().len() + token.request_id.as_str().len() + pool.as_str().len();
    names + endpoint.kind.len() + endpoint.address.len() + 2 * OVERHEAD_BYTES
}

impl Entry for PendingPlace {
    fn wire_bytes(&self) -> usize {
        place_bytes(&self.token, &self.pool, &self.endpoint) + self.user.as_ref().map_or(0, String::len)
    }
}

impl Entry for EndedPlace {
    fn wire_bytes(&self) -> usize {
        place_bytes(&self.token, &self.pool, &self.endpoint)
    }
}

/// A list on its way.
#[derive(Debug)]
pub(super) struct Pages<T> {
    list: Arc<Listing<T>>,
    next: usize,
    page: u32,
}

/// One page of it.
#[derive(Debug)]
pub(super) struct Page<T> {
    pub(super) generation: u64,
    pub(super) page: u32,
    pub(super) last: bool,
    pub(super) taken_at: BootTime,
    pub(super) unlisted: u32,
    pub(super) items: Vec<T>,
}

impl<T: Entry + Clone> Pages<T> {
    pub(super) fn of(list: Arc<Listing<T>>) -> Self {
        Self { list, next: 0, page: 0 }
    }

    /// The next page, at most `max_bytes` long but at least one entry; an empty list is one empty page. Whether it is
    /// the last is in it: do not ask for more then.
    pub(super) fn next_page(&mut self, max_bytes: usize) -> Page<T> {
        let rest = self.list.items.get(self.next..).unwrap_or_default();
        let mut bytes = 0;
        let fits = |(index, entry): &(usize, &T)| {
            bytes += entry.wire_bytes();
            *index == 0 || bytes <= max_bytes
        };
        let items: Vec<T> =
            rest.iter().enumerate().take_while(fits).map(|(_, entry)| entry.clone()).collect();
        self.next += items.len();
        let page = Page {
            generation: self.list.generation,
            page: self.page,
            last: self.next >= self.list.items.len(),
            taken_at: self.list.taken_at,
            unlisted: self.list.unlisted,
            items,
        };
        self.page = self.page.saturating_add(1);
        page
    }
}

pub(super) fn inventory_page(pages: &mut Pages<Replica>) -> InventoryPage {
    let Page { generation, page, last, items, .. } = pages.next_page(PAGE_BYTES);
    InventoryPage { generation, page, last, replicas: items }
}

/// The ages are those of `now`, not of the moment in which the list was made.
pub(super) fn sessions_page(pages: &mut Pages<Session>, now: BootTime) -> SessionsPage {
    let Page { generation, page, last, taken_at, unlisted, mut items } = pages.next_page(PAGE_BYTES);
    for session in &mut items {
        session.age = session.age.map(|age| age + now.since(taken_at));
    }
    SessionsPage { generation, page, last, sessions: items, unlisted_sessions: unlisted }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use usher_types::{ResourceId, SessionState};

    use super::*;

    fn replicas(count: usize) -> Arc<Listing<Replica>> {
        let replica = |n| Replica {
            resource_id: ResourceId::new(format!("r{n}")).unwrap(),
            path: Some("x".repeat(120)),
            title: None,
        };
        Arc::new(Listing {
            generation: 3,
            taken_at: BootTime::ZERO,
            items: (0..count).map(replica).collect(),
            unlisted: 0,
        })
    }

    #[test]
    fn case_121_sixty_thousand_replicas_are_told_in_pages_below_a_mebibyte() {
        let list = replicas(60_000);
        let mut pages = Pages::of(list.clone());
        let mut told = Vec::new();
        for number in 0.. {
            let page = inventory_page(&mut pages);
            assert_eq!((page.generation, page.page), (3, number));
            assert!(page.replicas.iter().map(Entry::wire_bytes).sum::<usize>() < 1024 * 1024);
            told.extend(page.replicas);
            if page.last {
                break;
            }
        }
        assert_eq!(told, list.items);
    }

    #[test]
    fn an_empty_list_is_one_empty_page_and_a_long_entry_has_its_own() {
        let page = Pages::of(replicas(0)).next_page(100);
        assert!(page.last && page.items.is_empty());
        let mut pages = Pages::of(replicas(2));
        assert_eq!(pages.next_page(1).items.len(), 1);
        let last = pages.next_page(1);
        assert!(last.last && last.items.len() == 1);
    }

    #[test]
    fn sessions_are_as_old_as_when_they_are_told() {
        let session =
            |id: &str, age| Session { id: id.into(), user: "a".into(), state: SessionState::Active, age };
        let items = vec![session("1", Some(Duration::from_secs(5))), session("2", None)];
        let list = Listing { generation: 1, taken_at: BootTime::from_millis(1_000), items, unlisted: 4 };
        let page = sessions_page(&mut Pages::of(Arc::new(list)), BootTime::from_millis(3_000));
        assert_eq!(page.sessions[0].age, Some(Duration::from_secs(7)));
        assert_eq!((page.sessions[1].age, page.unlisted_sessions), (None, 4));
    }
}
