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
//!
//! Apart from the words stands what each host has listed of the places in its cell: where it cannot be asked, only what it has
//! not listed was taken of its share. It is counted so that it is never too much: a place is in the cell before it is listed, and
//! not listed any more before it leaves.
//!
//! The words of a pool lie side by side, in blocks: a decision reads every one of them, and what is read in one go costs a
//! tenth of what is looked for one by one.

use std::sync::Arc;
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
    /// Of a host of which nothing is known.
    pub(crate) const UNKNOWN: Self = Self(0);
    /// Of a host that is known to have nobody.
    pub(crate) const NOBODY: Self = Self(1 << KNOWN_SHIFT);

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

    /// Users seen, 0 if they are not known. For whoever looks at many words at once.
    pub(crate) const fn users_or_none(self) -> u32 {
        self.field(USERS_SHIFT, USERS_BITS)
    }

    /// Users seen, none if they are not known, and users of places, as they are computed with.
    pub(crate) const fn all_users(self) -> f64 {
        float((self.0 >> USERS_SHIFT & mask(USERS_BITS)) + (self.0 >> PENDING_SHIFT & mask(PENDING_BITS)))
    }

    /// Places, as they are computed with.
    pub(crate) const fn all_places(self) -> f64 {
        float(self.0 >> PLACES_SHIFT & mask(PLACES_BITS))
    }

    /// Whether the users are known.
    pub(crate) const fn knows_users(self) -> bool {
        self.0 >> KNOWN_SHIFT == 1
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

/// A number below 2^52, exactly. The usual conversion does the same for one number; this one does it for many at once.
const fn float(number: u64) -> f64 {
    const SHIFTED: f64 = (1u64 << 52) as f64;
    f64::from_bits(SHIFTED.to_bits() | number) - SHIFTED
}

/// What many words have in common.
#[derive(Copy, Clone, Debug)]
pub(crate) struct SeenWords {
    some: u64,
    all: u64,
}

impl SeenWords {
    pub(crate) fn of(words: &[CellWord]) -> Self {
        let mut seen = Self { some: 0, all: u64::MAX };
        for word in words {
            seen.some |= word.0;
            seen.all &= word.0;
        }
        seen
    }

    /// Whether no host is silent, the users of all are known, and every cell has room for a place of so many users.
    pub(crate) const fn are_calm(self, users: u32) -> bool {
        let nearly_full = 1 << (USERS_SHIFT - 1) | 1 << (PENDING_SHIFT - 1);
        self.some & (SILENT | nearly_full) == 0
            && self.all >> KNOWN_SHIFT == 1
            && (users as u64) < 1 << (PENDING_BITS - 1)
    }

    /// Whether somebody is on the way to any of the hosts.
    pub(crate) const fn have_places(self) -> bool {
        self.some & mask(PLACES_BITS) << PLACES_SHIFT != 0
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

/// What a host has listed of the places that count in its cell.
#[derive(Copy, Clone, PartialEq, Eq, Debug, Default)]
pub struct Listed {
    /// Their users.
    pub users: u32,
    /// How many there are.
    pub places: u32,
}

const LISTED_USERS_SHIFT: u32 = 32;

impl Listed {
    fn packed(self) -> u64 {
        u64::from(self.users) << LISTED_USERS_SHIFT | u64::from(self.places)
    }
}

/// Cells in one block: four kibibytes, which a single host that is left of them may keep.
const BLOCK: usize = 256;

type Block = Arc<[AtomicU64]>;

/// For each cell a word, and after all of these for each what its host has listed of it.
fn block(cells: usize) -> Block {
    (0..2 * cells).map(|_| AtomicU64::new(0)).collect()
}

/// The cell of one host.
#[derive(Clone, Debug)]
pub struct HostCell {
    block: Block,
    at: usize,
}

impl Default for HostCell {
    fn default() -> Self {
        Self { block: block(1), at: 0 }
    }
}

/// Hands out cells that lie side by side, as the hosts of a pool come. A cell is never handed out again: a block lives for
/// as long as anybody has one of its cells.
#[derive(Debug, Default)]
pub(super) struct CellRow {
    last: Option<HostCell>,
}

impl CellRow {
    /// A cell of a host of which nothing is known.
    pub(super) fn add(&mut self) -> HostCell {
        let next = match &self.last {
            Some(last) if last.at + 1 < last.block.len() / 2 => {
                HostCell { block: last.block.clone(), at: last.at + 1 }
            }
            _ => HostCell { block: block(BLOCK), at: 0 },
        };
        self.last = Some(next.clone());
        next
    }
}

/// Cells that are read one after the other: stretches of blocks.
#[derive(Debug, Default)]
pub(super) struct CellRuns {
    runs: Vec<(HostCell, usize)>,
}

impl CellRuns {
    /// These cells come next.
    pub(super) fn push(&mut self, cell: &HostCell) {
        match self.runs.last_mut() {
            Some((first, len)) if Arc::ptr_eq(&first.block, &cell.block) && first.at + *len == cell.at => {
                *len += 1;
            }
            _ => self.runs.push((cell.clone(), 1)),
        }
    }

    /// Reads all, in their order.
    pub(super) fn load_into(&self, words: &mut Vec<CellWord>) {
        for (first, len) in &self.runs {
            let run = &first.block[first.at..first.at + len];
            words.extend(run.iter().map(|word| CellWord(word.load(Ordering::Acquire))));
        }
    }
}

impl HostCell {
    /// A cell of a host of which nothing is known.
    pub fn new() -> Self {
        Self::default()
    }

    fn word(&self) -> &AtomicU64 {
        &self.block[self.at]
    }

    fn listed_word(&self) -> &AtomicU64 {
        &self.block[self.block.len() / 2 + self.at]
    }

    /// What its host listed last of the places that count in it. Of a place that ends while it comes to be listed the end may be
    /// here first: then less than is listed is nothing, and not very much.
    pub fn listed(&self) -> Listed {
        let word = self.listed_word().load(Ordering::Acquire);
        let (users, places) = ((word >> LISTED_USERS_SHIFT) as i32, word as i32);
        Listed { users: users.max(0).unsigned_abs(), places: places.max(0).unsigned_abs() }
    }

    /// Its host lists a place of `users` users more. After it counts in the cell.
    pub(crate) fn list(&self, users: u32) {
        self.listed_word().fetch_add(Listed { users, places: 1 }.packed(), Ordering::AcqRel);
    }

    /// A place of `users` users that its host has listed counts no more, or is not listed any more. Before it leaves the cell.
    pub(crate) fn unlist(&self, users: u32) {
        self.listed_word().fetch_sub(Listed { users, places: 1 }.packed(), Ordering::AcqRel);
    }

    /// It was listed as so many users before.
    pub(crate) fn relist(&self, before: u32, now: u32) {
        let (before, now) = (Listed { users: before, places: 0 }, Listed { users: now, places: 0 });
        self.listed_word().fetch_add(now.packed().wrapping_sub(before.packed()), Ordering::AcqRel);
    }

    /// Of a farm that is told, not heard: all that the host has listed counts.
    pub(super) fn set_listed(&self, listed: Listed) {
        self.listed_word().store(listed.packed(), Ordering::Release);
    }

    /// The numbers now.
    pub fn load(&self) -> CellWord {
        CellWord(self.word().load(Ordering::Acquire))
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
        self.word().compare_exchange(ranked.0, next.0, Ordering::AcqRel, Ordering::Acquire).is_ok()
    }

    /// Whether another place of `users` users can be counted at all.
    pub const fn has_room(word: CellWord, users: u32) -> bool {
        let most = mask(PENDING_BITS) as u32;
        // No side is skipped: this is asked of many hosts at once, where a branch costs more than a comparison.
        (users <= most)
            & (word.pending_users() <= most.wrapping_sub(users))
            & (word.places() < mask(PLACES_BITS) as u32)
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
        let mut seen = self.word().load(Ordering::Acquire);
        while let Err(now) = self.word().compare_exchange_weak(
            seen,
            step(CellWord(seen)).0,
            Ordering::AcqRel,
            Ordering::Acquire,
        ) {
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
    fn a_place_that_ends_before_it_is_listed_is_never_taken_for_many() {
        let cell = HostCell::new();
        cell.unlist(3);
        assert_eq!(cell.listed(), Listed::default());
        cell.list(3);
        assert_eq!(cell.listed(), Listed::default());
        cell.list(2);
        cell.list(1);
        cell.relist(2, 5);
        assert_eq!(cell.listed(), Listed { users: 6, places: 2 });
        cell.unlist(5);
        assert_eq!(cell.listed(), Listed { users: 1, places: 1 });
    }

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
