//! The numbers of a host that placements change: its users and the places given out, in one word.
//!
//! Snapshots are replaced several times a second; what was given out must count at once and must not be lost with one of
//! them. So these numbers live in a cell that outlives all snapshots, packed into one word: a placement reads the word,
//! ranks by it, and reserves by compare-exchange on exactly that word. If anything changed in between (another place, a
//! report), it ranks again. Two placements can never both take the last place, and no lock is held by anyone.
//!
//! | bits | content |
//! |---|---|
//! | 63 | users are known |
//! | 43..=62 | users seen |
//! | 24..=42 | users of places given out |
//! | 12..=23 | places given out |
//! | 11 | silent: the host did not answer when it was last asked |
//! | 0..=10 | version: grows with every change |

#[cfg(not(loom))]
use std::sync::atomic::{AtomicU64, Ordering};

// Tried in every order of steps by `tests/loom_cells.rs`.
#[cfg(loom)]
use loom::sync::atomic::{AtomicU64, Ordering};

const VERSION_BITS: u32 = 11;
const SILENT: u64 = 1 << VERSION_BITS;
const PLACES_BITS: u32 = 12;
const PENDING_BITS: u32 = 19;
const USERS_BITS: u32 = 20;

const PLACES_SHIFT: u32 = VERSION_BITS + 1;
const PENDING_SHIFT: u32 = PLACES_SHIFT + PLACES_BITS;
const USERS_SHIFT: u32 = PENDING_SHIFT + PENDING_BITS;
const KNOWN_SHIFT: u32 = USERS_SHIFT + USERS_BITS;

const fn mask(bits: u32) -> u64 {
    (1 << bits) - 1
}

/// The content of a cell at one instant.
#[derive(Copy, Clone, PartialEq, Eq, Debug, Default)]
pub struct CellWord(u64);

impl CellWord {
    fn pack(users: Option<u32>, pending_users: u32, places: u32, silent_and_version: u64) -> Self {
        let cap = |value: u32, bits: u32| u64::from(value).min(mask(bits));
        let known = u64::from(users.is_some());
        Self(
            known << KNOWN_SHIFT
                | cap(users.unwrap_or(0), USERS_BITS) << USERS_SHIFT
                | cap(pending_users, PENDING_BITS) << PENDING_SHIFT
                | cap(places, PLACES_BITS) << PLACES_SHIFT
                | silent_and_version & (SILENT | mask(VERSION_BITS)),
        )
    }

    const fn field(self, shift: u32, bits: u32) -> u32 {
        // At most 20 bits: it fits.
        (self.0 >> shift & mask(bits)) as u32
    }

    /// Users seen on the host, up to about a million. Absent: not known.
    pub fn users(self) -> Option<u32> {
        (self.0 >> KNOWN_SHIFT == 1).then(|| self.field(USERS_SHIFT, USERS_BITS))
    }

    /// Users of places given out and not seen yet.
    pub const fn pending_users(self) -> u32 {
        self.field(PENDING_SHIFT, PENDING_BITS)
    }

    /// Places given out and not seen yet.
    pub const fn places(self) -> u32 {
        self.field(PLACES_SHIFT, PLACES_BITS)
    }

    /// The host did not answer when it was last asked for a place: it ranks last until it is heard again.
    pub const fn is_silent(self) -> bool {
        self.0 & SILENT != 0
    }

    fn next(self, users: Option<u32>, pending_users: u32, places: u32) -> Self {
        let version = ((self.0 & mask(VERSION_BITS)) + 1) & mask(VERSION_BITS);
        Self::pack(users, pending_users, places, self.0 & SILENT | version)
    }
}

/// What a report changes in a cell.
#[derive(Copy, Clone, PartialEq, Eq, Debug, Default)]
pub struct CellChange {
    /// The users seen now.
    pub users: Option<u32>,
    /// Users of places that came (positive) or ended (negative).
    pub pending_users: i64,
    /// Places that came (positive) or ended (negative).
    pub places: i64,
}

/// The cell of one host.
#[derive(Debug, Default)]
pub struct HostCell {
    word: AtomicU64,
}

impl HostCell {
    /// A cell of a host of which nothing is known.
    pub fn new() -> Self {
        Self::default()
    }

    /// The numbers now.
    pub fn load(&self) -> CellWord {
        CellWord(self.word.load(Ordering::Acquire))
    }

    /// Counts a place of `users` users, if nothing has changed since `ranked` was read. Whether it did.
    ///
    /// A full field refuses rather than overflows: 4095 places at once on one host are a fault, not a farm.
    pub fn reserve(&self, ranked: CellWord, users: u32) -> bool {
        let pending = u64::from(ranked.pending_users()) + u64::from(users);
        let places = ranked.places() + 1;
        if pending > mask(PENDING_BITS) || u64::from(places) > mask(PLACES_BITS) {
            return false;
        }
        let next = ranked.next(ranked.users(), ranked.pending_users() + users, places);
        self.word.compare_exchange(ranked.0, next.0, Ordering::AcqRel, Ordering::Acquire).is_ok()
    }

    /// Whether another place of `users` users can be counted at all.
    pub fn has_room(word: CellWord, users: u32) -> bool {
        u64::from(word.pending_users()) + u64::from(users) <= mask(PENDING_BITS)
            && u64::from(word.places()) < mask(PLACES_BITS)
    }

    /// Takes back a place of `users` users.
    pub fn release(&self, users: u32) {
        self.update(|word| {
            word.next(
                word.users(),
                word.pending_users().saturating_sub(users),
                word.places().saturating_sub(1),
            )
        });
    }

    /// Counts `users` more users for places that are counted already.
    pub(crate) fn add_pending_users(&self, users: u32) {
        self.update(|word| {
            word.next(word.users(), word.pending_users().saturating_add(users), word.places())
        });
    }

    /// The host has booted: the users that were seen before are gone, how many there are now is not known.
    pub(crate) fn forget_users(&self) {
        self.update(|word| word.next(None, word.pending_users(), word.places()));
    }

    /// Takes over a report: the users seen and the places that came or ended become visible together, so that no
    /// reader ever sees a login in neither of them.
    pub fn apply(&self, change: CellChange) {
        let shifted = |value: u32, by: i64| u32::try_from((i64::from(value) + by).max(0)).unwrap_or(u32::MAX);
        self.update(|word| {
            word.next(
                change.users,
                shifted(word.pending_users(), change.pending_users),
                shifted(word.places(), change.places),
            )
        });
    }

    fn update(&self, step: impl Fn(CellWord) -> CellWord) {
        let mut seen = self.word.load(Ordering::Acquire);
        while let Err(now) =
            self.word.compare_exchange_weak(seen, step(CellWord(seen)).0, Ordering::AcqRel, Ordering::Acquire)
        {
            seen = now;
        }
    }

    /// The host did not answer when it was asked, or it was heard again.
    pub fn set_silent(&self, silent: bool) {
        self.update(|word| {
            let next = word.next(word.users(), word.pending_users(), word.places());
            CellWord(if silent { next.0 | SILENT } else { next.0 & !SILENT })
        });
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn a_word_that_changed_refuses_the_reservation() {
        let cell = HostCell::new();
        let ranked = cell.load();
        assert!(cell.reserve(ranked, 1));
        assert!(!cell.reserve(ranked, 1), "another place came in between");
        let ranked = cell.load();
        cell.apply(CellChange { users: Some(0), ..CellChange::default() });
        assert!(!cell.reserve(ranked, 1), "a report came in between, even if it changed no number");
    }

    #[test]
    fn a_session_that_is_seen_moves_from_pending_to_users_in_one_step() {
        let cell = HostCell::new();
        cell.apply(CellChange { users: Some(4), ..CellChange::default() });
        assert!(cell.reserve(cell.load(), 2));
        cell.apply(CellChange { users: Some(6), pending_users: -2, places: -1 });
        let word = cell.load();
        assert_eq!((word.users(), word.pending_users(), word.places()), (Some(6), 0, 0));
    }

    #[test]
    fn unknown_users_are_not_zero_users() {
        let cell = HostCell::new();
        assert_eq!(cell.load().users(), None);
        cell.apply(CellChange { users: Some(0), ..CellChange::default() });
        assert_eq!(cell.load().users(), Some(0));
    }

    #[test]
    fn a_full_cell_refuses() {
        let cell = HostCell::new();
        cell.apply(CellChange { users: None, pending_users: 0, places: 4095 });
        assert!(!HostCell::has_room(cell.load(), 1));
        assert!(!cell.reserve(cell.load(), 1));
        cell.release(0);
        assert!(cell.reserve(cell.load(), 1));
    }

    #[test]
    fn a_silent_host_is_silent_through_other_changes() {
        let cell = HostCell::new();
        cell.set_silent(true);
        let mut ranked = cell.load();
        for _ in 0..3000 {
            assert!(cell.reserve(ranked, 1));
            cell.release(1);
            ranked = cell.load();
            assert!(ranked.is_silent());
        }
        cell.set_silent(false);
        assert!(!cell.load().is_silent());
        assert!(!cell.reserve(ranked, 1));
    }

    #[test]
    fn concurrent_reservations_are_all_counted() {
        let cell = HostCell::new();
        std::thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| {
                    for _ in 0..500 {
                        while !cell.reserve(cell.load(), 3) {}
                    }
                });
            }
        });
        assert_eq!((cell.load().pending_users(), cell.load().places()), (6000, 2000));
    }

    proptest! {
        #[test]
        fn what_goes_in_comes_out(users in proptest::option::of(0u32..1 << 20), pending in 0u32..1 << 19, places in 0u32..1 << 12) {
            let word = CellWord::pack(users, pending, places, 77);
            prop_assert_eq!((word.users(), word.pending_users(), word.places()), (users, pending, places));
        }

        #[test]
        fn what_is_too_large_saturates(users in any::<u32>(), pending in any::<u32>(), places in any::<u32>()) {
            let word = CellWord::pack(Some(users), pending, places, 0);
            prop_assert_eq!(word.users(), Some(users.min((1 << 20) - 1)));
            prop_assert_eq!(word.places(), places.min((1 << 12) - 1));
        }
    }
}
