//! Does any message, however broken, make a reader panic, or let a value pass that is out of its range?
//!
//! Encodings of valid messages are broken in the ways that find most: values replaced by the worst ones of their kind,
//! bits flipped, parts of other messages put in, ends cut off. Whatever still decodes goes through its reader. What the reader
//! accepts must be in range and must come back from the wire as it is; what it refuses must be said in a few printable
//! words. Runs are numbered, and the same seed makes the same runs:
//!
//! `USHER_FUZZ_RUNS=100000 USHER_FUZZ_SEED=7 cargo test -p usher-proto --test fuzz_conversions`

mod corpus;
mod fields;
mod ranges;
mod targets;

use std::panic::{AssertUnwindSafe, catch_unwind};

use fields::{WORST_NUMBERS, break_a_field};
use targets::{Target, targets};

/// Broken messages per kind of message; a few seconds in all.
const DEFAULT_RUNS: u64 = 5_000;
const DEFAULT_SEED: u64 = 1;

/// SplitMix64: the whole state is one number, so that a run is repeated by its seed alone.
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    /// Below `bound`, which is above 0.
    fn below(&mut self, bound: usize) -> usize {
        usize::try_from(self.next() % bound as u64).expect("below a usize")
    }

    fn of<'a, T>(&mut self, list: &'a [T]) -> &'a T {
        &list[self.below(list.len())]
    }
}

/// Varints of 0, of the largest numbers, and one that never ends.
const WORST_VARINTS: [&[u8]; 5] = [
    &[0],
    &[0x7f],
    &[0xff, 0xff, 0xff, 0xff, 0x0f],
    &[0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x01],
    &[0xff; 11],
];

fn put(bytes: &mut Vec<u8>, at: usize, replaced: usize, part: &[u8]) {
    let end = bytes.len().min(at + replaced);
    bytes.splice(at..end, part.iter().copied());
}

/// Breaks a message in one way. `others` are encodings of all kinds of messages.
fn break_once(random: &mut Random, bytes: &mut Vec<u8>, others: &[Vec<u8>]) {
    let at = random.below(bytes.len() + 1);
    match random.below(8) {
        0 | 1 => {
            let bit = random.below(8);
            if let Some(byte) = bytes.get_mut(at) {
                *byte ^= 1 << bit;
            }
        }
        2 => {
            let byte = random.next().to_le_bytes()[0];
            put(bytes, at, 1, &[byte]);
        }
        3 => bytes.truncate(at),
        4 => {
            let number = random.of(&WORST_NUMBERS).to_le_bytes();
            put(bytes, at, 8, &number);
        }
        5 => {
            let (replaced, varint) = (random.below(3), *random.of(&WORST_VARINTS));
            put(bytes, at, replaced, varint);
        }
        6 => {
            // A message after a message still decodes: its fields win, its lists are appended.
            let other = random.of(others);
            bytes.extend_from_slice(other);
        }
        _ => {
            let other = random.of(others);
            let start = random.below(other.len() + 1);
            let length = random.below(other.len() - start + 1);
            let replaced = random.below(length + 1);
            put(bytes, at, replaced, &other[start..start + length]);
        }
    }
}

fn broken(random: &mut Random, target: &Target, others: &[Vec<u8>]) -> Vec<u8> {
    if random.below(16) == 0 {
        return (0..random.below(64)).map(|_| random.next().to_le_bytes()[0]).collect();
    }
    let mut bytes = random.of(&target.corpus).clone();
    // Its own kind is spliced in as often as all the others together.
    let others = if random.below(2) == 0 { &target.corpus } else { others };
    for _ in 0..=random.below(3) {
        if random.below(2) == 0 {
            break_a_field(random, &mut bytes);
        } else {
            break_once(random, &mut bytes, others);
        }
    }
    bytes
}

/// The message, for `xxd -r -p`.
fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

fn number_from_environment(name: &str, default: u64) -> u64 {
    match std::env::var(name) {
        Ok(text) => text.parse().unwrap_or_else(|_| panic!("{name} = {text}: expected a number")),
        Err(_) => default,
    }
}

#[test]
fn whole_messages_are_accepted() {
    for target in targets() {
        for bytes in &target.corpus {
            assert!((target.feed)(bytes), "{} refuses its own corpus", target.name);
        }
    }
}

#[test]
fn no_broken_message_makes_a_reader_panic_or_passes_out_of_range() {
    let runs = number_from_environment("USHER_FUZZ_RUNS", DEFAULT_RUNS);
    let seed = number_from_environment("USHER_FUZZ_SEED", DEFAULT_SEED);
    let targets = targets();
    let others: Vec<_> = targets.iter().flat_map(|target| target.corpus.iter().cloned()).collect();
    for target in &targets {
        let mut random = Random(seed);
        let mut accepted = 0;
        for run in 0..runs {
            let bytes = broken(&mut random, target, &others);
            // One assertion is as good as a panic: both are shown with what it takes to see them again.
            match catch_unwind(AssertUnwindSafe(|| (target.feed)(&bytes))) {
                Ok(taken) => accepted += u64::from(taken),
                Err(_) => panic!(
                    "{}, run {run} of USHER_FUZZ_RUNS={runs} USHER_FUZZ_SEED={seed}: {}",
                    target.name,
                    hex(&bytes)
                ),
            }
        }
        // If next to nothing gets past the decoder, the readers were not tried.
        assert!(runs < 1000 || accepted > runs / 100, "{}: {accepted} of {runs} accepted", target.name);
    }
}
