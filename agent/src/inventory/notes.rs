//! What went wrong, told in one line however often it did.
//!
//! A look may find a hundred thousand things wrong. The first few are kept, and how many there were.

/// Lines that are kept.
const KEPT: usize = 8;

/// What is to be told of a look.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(super) struct Notes {
    /// The first few.
    pub(super) first: Vec<String>,
    /// How many there were.
    pub(super) count: usize,
}

impl Notes {
    /// One more, made only if it is kept.
    pub(super) fn add(&mut self, line: impl FnOnce() -> String) {
        self.count += 1;
        if self.first.len() < KEPT {
            self.first.push(line());
        }
    }

    /// All of another look.
    pub(super) fn extend(&mut self, other: Self) {
        let room = KEPT.saturating_sub(self.first.len());
        self.first.extend(other.first.into_iter().take(room));
        self.count += other.count;
    }

    /// The first and how many more. Absent: there is nothing to tell.
    pub(super) fn summary(&self) -> Option<String> {
        let first = self.first.first()?;
        Some(match self.count {
            1 => first.clone(),
            count => format!("{first} (and {} more)", count - 1),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_hundred_thousand_faults_are_told_in_one_line() {
        let mut notes = Notes::default();
        assert_eq!(notes.summary(), None);
        notes.add(|| "a".to_owned());
        assert_eq!(notes.summary().as_deref(), Some("a"));
        let mut others = Notes::default();
        (0..100_000).for_each(|n| others.add(|| n.to_string()));
        notes.extend(others);
        assert_eq!(notes.summary().as_deref(), Some("a (and 100000 more)"));
        assert_eq!(notes.first.len(), KEPT);
    }
}
