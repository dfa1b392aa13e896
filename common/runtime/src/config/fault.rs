//! How does a settings struct say what is wrong with its values?
//!
//! It names keys, not lines: where a key stands is the loader's knowledge. So the same validation serves
//! a file, a test and settings that came over the wire.

use std::fmt::Display;
use std::ops::RangeInclusive;

/// One value that is not allowed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fault {
    /// The key's path from the root, `pool.range` or `mounts[1].path`.
    pub key: String,
    /// What is wrong and what is allowed; reads on after the key.
    pub message: String,
}

/// Everything that is wrong with one set of settings.
#[derive(Debug, Default)]
pub struct Faults {
    found: Vec<Fault>,
    prefix: String,
}

impl Faults {
    /// `key = value` is not allowed; `allowed` is the range or the list of what is.
    pub fn reject(&mut self, key: &str, value: impl Display, allowed: impl Display) {
        self.refuse(key, format!("= {value} is not allowed, must be {allowed}"));
    }

    /// Something else about `key`, in words that read on after it: "add up to 95, must be 100".
    pub fn refuse(&mut self, key: &str, message: impl Into<String>) {
        let key = match (self.prefix.is_empty(), key.is_empty()) {
            (true, _) => key.to_owned(),
            (false, true) => self.prefix.clone(),
            (false, false) => format!("{}.{key}", self.prefix),
        };
        self.found.push(Fault { key, message: message.into() });
    }

    /// Rejects a value outside a range. A value that compares with nothing (NaN) is outside.
    pub fn range<T: PartialOrd + Display>(&mut self, key: &str, value: &T, allowed: RangeInclusive<T>) {
        if !allowed.contains(value) {
            self.reject(key, value, format_args!("{}..={}", allowed.start(), allowed.end()));
        }
    }

    /// Validates a part of the settings; its keys are below `key`.
    pub fn nested(&mut self, key: &str, part: &impl Validate) {
        let outer = self.prefix.clone();
        self.prefix = if outer.is_empty() { key.to_owned() } else { format!("{outer}.{key}") };
        part.validate(self);
        self.prefix = outer;
    }

    /// What was found, in order.
    pub fn iter(&self) -> impl Iterator<Item = &Fault> {
        self.found.iter()
    }

    /// Whether nothing is wrong.
    pub fn is_empty(&self) -> bool {
        self.found.is_empty()
    }
}

/// Settings that can judge their own values.
pub trait Validate {
    /// Reports every value that is not allowed, not only the first.
    fn validate(&self, faults: &mut Faults);
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Inner(f64);
    impl Validate for Inner {
        fn validate(&self, faults: &mut Faults) {
            faults.range("range", &self.0, 1.0..=30.0);
        }
    }
    struct Outer(Inner);
    impl Validate for Outer {
        fn validate(&self, faults: &mut Faults) {
            faults.nested("pool", &self.0);
            faults.refuse("name", "is missing");
        }
    }

    #[test]
    fn nested_parts_report_whole_paths_and_the_prefix_ends_with_them() {
        let mut faults = Faults::default();
        Outer(Inner(0.0)).validate(&mut faults);
        let found: Vec<_> = faults.iter().map(|fault| (fault.key.as_str(), fault.message.as_str())).collect();
        assert_eq!(found, [("pool.range", "= 0 is not allowed, must be 1..=30"), ("name", "is missing")]);
    }

    #[test]
    fn not_a_number_is_outside_every_range() {
        for (value, refused) in [(f64::NAN, true), (1.0, false), (30.0, false), (30.1, true)] {
            let mut faults = Faults::default();
            Inner(value).validate(&mut faults);
            assert_eq!(!faults.is_empty(), refused, "{value}");
        }
    }
}
