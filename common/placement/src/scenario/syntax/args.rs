//! What stands behind the verb of one line?
//!
//! Bare words are taken in their order, `key=value` by key, wherever it stands. Whatever nobody asked for is unknown;
//! the words that were asked for are what is allowed. All faults of the line are kept, so that one run shows them all.

use std::collections::{HashSet, VecDeque};

use super::{
    MAX_ERRORS,
    error::{SyntaxError, nearest, quoted},
    token::{Text, Word},
    value::{self, choice},
};

/// A `key=value`.
struct Keyed {
    key: Text,
    name: String,
    value: Text,
    is_taken: bool,
}

/// The words of one line that no one has read yet.
pub(super) struct Args {
    verb: String,
    line: u32,
    /// Where a missing word would stand.
    end_column: u32,
    bare: VecDeque<Text>,
    keyed: Vec<Keyed>,
    /// Keys that were asked for.
    keys: Vec<&'static str>,
    /// Bare words that may stand anywhere.
    flags: Vec<&'static str>,
    is_short: bool,
    errors: Vec<SyntaxError>,
}

impl Args {
    /// The words behind `verb`.
    pub(super) fn new(verb: &str, line: u32, end_column: u32, words: &[Word]) -> Self {
        let mut args = Self {
            verb: verb.to_owned(),
            line,
            end_column,
            bare: VecDeque::new(),
            keyed: Vec::new(),
            keys: Vec::new(),
            flags: Vec::new(),
            is_short: false,
            errors: Vec::new(),
        };
        let mut seen = HashSet::new();
        for word in words {
            let Some((key, value)) = word.text.key_and_value() else {
                args.bare.push_back(word.text.clone());
                continue;
            };
            let name = key.to_string();
            if seen.insert(name.clone()) {
                args.keyed.push(Keyed { key, name, value, is_taken: false });
            } else {
                args.fault(key.plain_fault(format!("{} is given twice", quoted(&name))));
            }
        }
        args
    }

    /// The verb has a second word, if the next one is this. A verb that is followed by two bare words always has one.
    pub(super) fn next_is_second_word(&mut self, word: &str) -> bool {
        if self.next_is(word) {
            self.verb = format!("{} {word}", self.verb);
            return true;
        }
        let meant = self.bare.front().filter(|_| self.bare.len() > 1).and_then(|next| {
            let suggestion = Some(nearest(&next.to_string(), [word])?);
            let fault = next.plain_fault(format!("unknown word {} behind {}", next.quoted(), self.verb));
            Some(SyntaxError { suggestion, ..fault })
        });
        meant.is_some_and(|error| {
            self.fault(error);
            self.bare.pop_front();
            true
        })
    }

    /// Takes the next bare word if it is this one.
    pub(super) fn next_is(&mut self, word: &str) -> bool {
        let is_next = self.bare.front().is_some_and(|next| next.is_bare(word));
        if is_next {
            self.bare.pop_front();
        }
        is_next
    }

    /// Whether a bare word is left.
    pub(super) fn has_next(&self) -> bool {
        !self.bare.is_empty()
    }

    /// The next bare word, which must be there.
    pub(super) fn next<T>(
        &mut self,
        what: &str,
        read: impl FnOnce(&Text) -> Result<T, SyntaxError>,
    ) -> Option<T> {
        match self.bare.pop_front() {
            Some(text) => self.keep(read(&text)),
            None => {
                self.missing(what);
                None
            }
        }
    }

    /// The value of a key, if it was given.
    pub(super) fn get<T>(
        &mut self,
        key: &'static str,
        read: impl FnOnce(&Text) -> Result<T, SyntaxError>,
    ) -> Option<T> {
        let text = self.take(key)?;
        self.keep(read(&text))
    }

    /// The word of a key, if it was given.
    pub(super) fn take(&mut self, key: &'static str) -> Option<Text> {
        self.keys.push(key);
        let keyed = self.keyed.iter_mut().find(|keyed| !keyed.is_taken && keyed.name == key)?;
        keyed.is_taken = true;
        Some(keyed.value.clone())
    }

    /// Whether a bare word stands anywhere, or as `word=yes`.
    pub(super) fn flag(&mut self, word: &'static str) -> bool {
        self.flags.push(word);
        if let Some(at) = self.bare.iter().position(|bare| bare.is_bare(word)) {
            self.bare.remove(at);
            return true;
        }
        let values = [("yes", true), ("true", true), ("no", false), ("false", false)];
        let Some(keyed) = self.keyed.iter_mut().find(|keyed| !keyed.is_taken && keyed.name == word) else {
            return false;
        };
        keyed.is_taken = true;
        let value = choice(&keyed.value, "value", &values);
        self.keep(value).unwrap_or(false)
    }

    /// The label behind a final `as`.
    pub(super) fn label(&mut self) -> Option<String> {
        self.flags.push("as");
        let count = self.bare.len();
        if self.bare.back().is_some_and(|last| last.is_bare("as")) {
            self.bare.pop_back();
            self.missing("a label behind as");
            return None;
        }
        if count < 2 || !self.bare[count - 2].is_bare("as") {
            return None;
        }
        let text = self.bare.pop_back()?;
        self.bare.pop_back();
        if text.is("tally") {
            self.fault(
                text.plain_fault("a label cannot be \"tally\": expect would take it for the verb's word"),
            );
            return None;
        }
        self.keep(value::name(&text))
    }

    /// The values of these keys, as they stand in the line.
    pub(super) fn keys_in_order(&mut self, keys: &[&'static str]) -> Vec<(&'static str, Text)> {
        self.keys.extend(keys);
        let mut found = Vec::new();
        for keyed in &mut self.keyed {
            if let Some(key) = keys.iter().find(|key| **key == keyed.name) {
                keyed.is_taken = true;
                found.push((*key, keyed.value.clone()));
            }
        }
        found
    }

    /// All keys that were not taken, and their values.
    pub(super) fn every_key(&mut self) -> Vec<(Text, Text)> {
        let left = self.keyed.iter_mut().filter(|keyed| !keyed.is_taken);
        left.map(|keyed| {
            keyed.is_taken = true;
            (keyed.key.clone(), keyed.value.clone())
        })
        .collect()
    }

    /// Something must stand at the end of the line.
    pub(super) fn missing(&mut self, what: &str) {
        // What is missing behind it follows from this.
        if !self.is_short {
            self.is_short = true;
            let fault = format!("{} needs {what}", self.verb);
            let Self { line, end_column: column, .. } = *self;
            self.fault(SyntaxError { line, column, fault, allowed: None, suggestion: None });
        }
    }

    /// Something is wrong.
    pub(super) fn fault(&mut self, error: SyntaxError) {
        if !self.has_enough_faults() {
            self.errors.push(error);
        }
    }

    /// A line of a million unknown words costs no more than one of fifty.
    pub(super) fn has_enough_faults(&self) -> bool {
        self.errors.len() >= MAX_ERRORS
    }

    fn keep<T>(&mut self, read: Result<T, SyntaxError>) -> Option<T> {
        read.map_err(|error| self.fault(error)).ok()
    }

    /// Whatever is left is unknown. Absent if anything is wrong.
    pub(super) fn finish(&mut self) -> Option<()> {
        for (key, _) in self.every_key() {
            if self.has_enough_faults() {
                break;
            }
            let name = key.to_string();
            let known = || self.keys.iter().chain(&self.flags).copied().filter(|word| *word != "as");
            let fault = format!("unknown key {} of {}", quoted(&name), self.verb);
            let suggestion = nearest(&name, known());
            let allowed = known().collect::<Vec<_>>().join(", ");
            let error = key.fault(fault, if allowed.is_empty() { "no key".to_owned() } else { allowed });
            self.fault(SyntaxError { suggestion, ..error });
        }
        while let Some(bare) = self.bare.pop_front() {
            if self.has_enough_faults() {
                break;
            }
            let word = bare.to_string();
            let keys = nearest(&word, self.keys.iter().copied()).map(|key| format!("{key}="));
            let suggestion = nearest(&word, self.flags.iter().copied()).or(keys);
            let error = bare.plain_fault(format!("unexpected {} in {}", bare.quoted(), self.verb));
            self.fault(SyntaxError { suggestion, ..error });
        }
        self.errors.is_empty().then_some(())
    }

    /// What is wrong.
    pub(super) fn into_errors(self) -> Vec<SyntaxError> {
        self.errors
    }
}
