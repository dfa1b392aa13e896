//! How is a value that came over the wire refused?
//!
//! With a [`FieldFault`] that names the field, the value and what is allowed. Peers choose what they send, so both the
//! shown values and the number of faults kept of one message are bounded.

use std::{fmt, ops::RangeInclusive};

use usher_types::{
    BootId, DecisionId, GatewayId, HostId, HostName, OperationName, PoolName, RequestId, ResourceId, Zone,
};

pub use usher_types::FieldFault;

/// Longest name, in bytes; the protocol's own limit.
pub(crate) const MAX_NAME_BYTES: usize = 256;
/// Longest text meant for people, in bytes; the protocol's own limit.
pub(crate) const MAX_TEXT_BYTES: usize = 1024;
/// Longest part of a refused value that is shown: enough to recognise it in a log line.
const MAX_SHOWN_BYTES: usize = 64;
/// A page of nothing but wrong entries must not become a hundred times its size in faults.
const MAX_FAULTS: usize = 256;

/// What was refused of one message.
#[derive(Debug, Default)]
pub(crate) struct Faults {
    kept: Vec<FieldFault>,
    more: usize,
}

impl Faults {
    pub(crate) fn push(&mut self, fault: FieldFault) {
        if self.kept.len() < MAX_FAULTS {
            self.kept.push(fault);
        } else {
            self.more += 1;
        }
    }

    /// The value, or absent and the fault noted.
    pub(crate) fn ok<T>(&mut self, result: Result<T, FieldFault>) -> Option<T> {
        result.map_err(|fault| self.push(fault)).ok()
    }

    /// All faults; past 256 the last one says how many more there were.
    pub(crate) fn into_vec(mut self) -> Vec<FieldFault> {
        if self.more > 0 {
            self.kept.push(FieldFault::new("further fields", format!("{} faults", self.more), "none"));
        }
        self.kept
    }

    /// Cuts a list to `max` entries and notes that.
    pub(crate) fn cut_list<T>(&mut self, field: &str, list: &mut Vec<T>, max: usize) {
        if list.len() > max {
            self.push(FieldFault::new(field, format!("{} entries", list.len()), format!("at most {max}")));
            list.truncate(max);
        }
    }

    /// Cuts a text to `max_bytes` and notes that.
    pub(crate) fn cut_text(&mut self, field: &str, text: String, max_bytes: usize) -> String {
        if text.len() > max_bytes {
            let allowed = format!("at most {max_bytes}; it was cut");
            self.push(FieldFault::new(field, format!("{} bytes", text.len()), allowed));
        }
        cut(text, max_bytes)
    }

    /// Converts each entry; those refused are left out and noted with their position.
    pub(crate) fn entries<W, T>(
        &mut self,
        field: &str,
        list: Vec<W>,
        convert: impl Fn(W) -> Result<T, FieldFault>,
    ) -> Vec<T> {
        let mut taken = Vec::with_capacity(list.len());
        for (i, entry) in list.into_iter().enumerate() {
            match convert(entry) {
                Ok(entry) => taken.push(entry),
                Err(fault) => self.push(nested(fault, format_args!("{field}[{i}]"))),
            }
        }
        taken
    }
}

/// The fault of a field inside `parent`.
pub(crate) fn nested(mut fault: FieldFault, parent: impl fmt::Display) -> FieldFault {
    fault.field = format!("{parent}.{}", fault.field);
    fault
}

/// Cuts a text to at most `max_bytes`, at a character's boundary.
pub fn cut(mut text: String, max_bytes: usize) -> String {
    text.truncate(text.floor_char_boundary(max_bytes));
    text
}

/// A refused text: quoted, control characters escaped, at most its first 64 bytes.
pub(crate) fn shown(text: &str) -> String {
    let part = &text[..text.floor_char_boundary(MAX_SHOWN_BYTES)];
    if part.len() < text.len() { format!("{part:?}... ({} bytes)", text.len()) } else { format!("{part:?}") }
}

/// An id that a field of the wire can hold.
pub trait WireId: Sized {
    /// What is allowed, as a fault says it.
    const ALLOWED: &'static str;

    /// The id, if the text is one.
    fn from_wire(text: &str) -> Option<Self>;
}

macro_rules! wire_ids {
    ($allowed:literal: $($id:ident),+) => {
        $(impl WireId for $id {
            const ALLOWED: &'static str = $allowed;

            fn from_wire(text: &str) -> Option<Self> {
                Self::new(text).ok()
            }
        })+
    };
}

wire_ids!("1..=128 bytes of A-Z a-z 0-9 _ . -": HostId, BootId, PoolName, DecisionId, OperationName);
wire_ids!("1..=128 bytes without control characters": RequestId, GatewayId, Zone);
wire_ids!("1..=1024 bytes without control characters": ResourceId);
wire_ids!("1..=253 bytes of A-Z a-z 0-9 _ . -": HostName);

/// The id in `field`.
///
/// # Errors
/// The fault, if the text is no such id.
pub fn id<T: WireId>(field: &str, text: &str) -> Result<T, FieldFault> {
    T::from_wire(text).ok_or_else(|| FieldFault::new(field, shown(text), T::ALLOWED))
}

/// A name in `field`: 1..=256 bytes without control characters.
pub(crate) fn name(field: &str, text: String) -> Result<String, FieldFault> {
    if is_name(&text) {
        Ok(text)
    } else {
        Err(FieldFault::new(field, shown(&text), "1..=256 bytes without control characters"))
    }
}

/// A user's login name in `field`, as the peer spells it. The fault does not show it: users' names stay out of logs.
pub(crate) fn user(field: &str, text: String) -> Result<String, FieldFault> {
    if is_name(&text) {
        Ok(text)
    } else {
        let shown = format!("a login name of {} bytes", text.len());
        Err(FieldFault::new(field, shown, "1..=256 bytes without control characters"))
    }
}

/// A path in `field`: 1..=1024 bytes without control characters.
pub(crate) fn path(field: &str, text: String) -> Result<String, FieldFault> {
    if (1..=MAX_TEXT_BYTES).contains(&text.len()) && !text.chars().any(char::is_control) {
        Ok(text)
    } else {
        Err(FieldFault::new(field, shown(&text), "1..=1024 bytes without control characters"))
    }
}

fn is_name(text: &str) -> bool {
    (1..=MAX_NAME_BYTES).contains(&text.len()) && !text.chars().any(char::is_control)
}

/// A number in `field`, finite and within the range.
pub(crate) fn within(field: &str, value: f64, range: RangeInclusive<f64>) -> Result<f64, FieldFault> {
    if range.contains(&value) {
        Ok(value)
    } else {
        Err(FieldFault::new(field, value, format!("{}..={}", range.start(), range.end())))
    }
}

/// A whole number in `field`, within the range.
pub(crate) fn whole<T: PartialOrd + fmt::Display>(
    field: &str,
    value: T,
    range: RangeInclusive<T>,
) -> Result<T, FieldFault> {
    if range.contains(&value) {
        Ok(value)
    } else {
        Err(FieldFault::new(field, value, format!("{}..={}", range.start(), range.end())))
    }
}

/// A message that must be there.
pub(crate) fn required<T>(field: &str, value: Option<T>) -> Result<T, FieldFault> {
    value.ok_or_else(|| FieldFault::new(field, "absent", "a value; it is required"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_fault_names_the_field_the_value_and_what_is_allowed() {
        let fault = id::<PoolName>("pool", "a b").unwrap_err();
        assert_eq!(fault.to_string(), "pool = \"a b\": allowed 1..=128 bytes of A-Z a-z 0-9 _ . -");
        assert_eq!(nested(fault, "place").field, "place.pool");
    }

    #[test]
    fn what_is_shown_of_a_value_is_bounded_and_printable() {
        let fault = name("kind", "é\u{1b}[31m".repeat(1000)).unwrap_err();
        assert!(fault.value.len() < 200, "{}", fault.value);
        assert!(!fault.value.contains('\u{1b}'), "{}", fault.value);
    }

    #[test]
    fn a_fault_does_not_show_a_login_name() {
        let fault = user("user", "alice\n".to_owned()).unwrap_err();
        assert!(!fault.to_string().contains("alice"), "{fault}");
    }

    #[test]
    fn a_text_is_cut_between_characters() {
        assert_eq!(cut("aéé".to_owned(), 4), "aé");
        assert_eq!(cut("abc".to_owned(), 4), "abc");
    }

    #[test]
    fn the_faults_kept_of_one_message_are_bounded() {
        let mut faults = Faults::default();
        for _ in 0..1000 {
            faults.push(FieldFault::new("f", 0, "1"));
        }
        let list = faults.into_vec();
        assert_eq!(list.len(), MAX_FAULTS + 1);
        assert_eq!(list.last().unwrap().value, "744 faults");
    }

    #[test]
    fn case_161_a_host_name_that_is_a_script_is_refused() {
        assert!(id::<HostName>("host_name", "<img src=x onerror=alert(1)>").is_err());
    }
}
