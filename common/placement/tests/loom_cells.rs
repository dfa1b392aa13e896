//! Every order of steps of those who change a host's cell at the same time: nothing is lost, nothing is counted twice.
//!
//! ```sh
//! RUSTFLAGS="--cfg loom" cargo test -p usher-placement --test loom_cells --release
//! ```

#![cfg(loom)]

use loom::{sync::Arc, thread};
use usher_placement::farm::{CellChange, CellWord, HostCell};

fn numbers(word: CellWord) -> (Option<u32>, u32, u32) {
    (word.users(), word.pending_users(), word.places())
}

/// Ranks and reserves until it succeeds, as a placement does.
fn reserve(cell: &HostCell, users: u32) {
    while !cell.reserve(cell.load(), users) {
        thread::yield_now();
    }
}

/// Takes a place only below `limit` users. Whether it did.
fn reserve_below(cell: &HostCell, limit: u32) -> bool {
    loop {
        let word = cell.load();
        if word.users().unwrap_or(limit) + word.pending_users() >= limit {
            return false;
        }
        if cell.reserve(word, 1) {
            return true;
        }
        thread::yield_now();
    }
}

#[test]
fn two_placements_are_both_counted() {
    loom::model(|| {
        let cell = Arc::new(HostCell::new());
        let other = cell.clone();
        let placing = thread::spawn(move || reserve(&other, 2));
        reserve(&cell, 3);
        placing.join().unwrap();
        assert_eq!(numbers(cell.load()), (None, 5, 2));
    });
}

#[test]
fn of_two_placements_that_want_the_last_place_one_gets_it() {
    loom::model(|| {
        let cell = Arc::new(HostCell::new());
        cell.apply(CellChange { users: Some(9), ..CellChange::default() });
        let other = cell.clone();
        let placing = thread::spawn(move || reserve_below(&other, 10));
        let here = reserve_below(&cell, 10);
        let there = placing.join().unwrap();
        assert!(here != there, "one of them, and not both");
        assert_eq!(numbers(cell.load()), (Some(9), 1, 1));
    });
}

#[test]
fn a_place_that_ends_while_another_is_given_leaves_the_other() {
    loom::model(|| {
        let cell = Arc::new(HostCell::new());
        reserve(&cell, 2);
        let other = cell.clone();
        let ending = thread::spawn(move || other.release(2));
        reserve(&cell, 3);
        ending.join().unwrap();
        assert_eq!(numbers(cell.load()), (None, 3, 1));
    });
}

#[test]
fn a_report_a_placement_and_an_end_lose_nothing_of_each_other() {
    loom::model(|| {
        let cell = Arc::new(HostCell::new());
        cell.apply(CellChange { users: Some(4), pending_users: 2, places: 2 });
        let (reporting, ending) = (cell.clone(), cell.clone());
        // The session of one place is seen.
        let change = CellChange { users: Some(5), pending_users: -1, places: -1 };
        let reporting = thread::spawn(move || reporting.apply(change));
        let ending = thread::spawn(move || ending.release(1));
        reserve(&cell, 1);
        reporting.join().unwrap();
        ending.join().unwrap();
        assert_eq!(numbers(cell.load()), (Some(5), 1, 1));
    });
}

#[test]
fn no_reader_sees_a_login_neither_as_a_place_nor_as_a_user() {
    loom::model(|| {
        let cell = Arc::new(HostCell::new());
        cell.apply(CellChange { users: Some(4), pending_users: 1, places: 1 });
        let other = cell.clone();
        let change = CellChange { users: Some(5), pending_users: -1, places: -1 };
        let reporting = thread::spawn(move || other.apply(change));
        let word = cell.load();
        assert_eq!(word.users().unwrap() + word.pending_users(), 5);
        reporting.join().unwrap();
    });
}

#[test]
fn a_host_that_falls_silent_while_places_are_given_stays_silent_and_loses_none() {
    loom::model(|| {
        let cell = Arc::new(HostCell::new());
        let other = cell.clone();
        let silent = thread::spawn(move || other.set_silent(true));
        reserve(&cell, 1);
        silent.join().unwrap();
        let word = cell.load();
        assert_eq!((numbers(word), word.is_silent()), ((None, 1, 1), true));
    });
}
