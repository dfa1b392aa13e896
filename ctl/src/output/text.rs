//! How is one value written?
//!
//! Names, reasons and messages come from hosts and users. A terminal would obey the control characters in them, and
//! a reader would be fooled by characters that turn the direction of the text, so both are shown as escapes. A value
//! that is not known is a dash, never a zero.

use std::fmt::Write as _;
use std::time::Duration;

/// What stands for a value that is not known.
pub(crate) const ABSENT: &str = "-";

/// The text with every character escaped that a terminal could obey or that changes how the rest is read.
pub(crate) fn clean(text: &str) -> String {
    let mut cleaned = String::with_capacity(text.len());
    for character in text.chars() {
        if character.is_control() || is_invisible(character) {
            cleaned.extend(character.escape_default());
        } else {
            cleaned.push(character);
        }
    }
    cleaned
}

/// Characters without width and those that set the direction of the text.
const fn is_invisible(character: char) -> bool {
    matches!(character,
        '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2060}'..='\u{2069}' | '\u{feff}')
}

/// [`clean`], with a dash for an empty text.
pub(crate) fn clean_or_dash(text: &str) -> String {
    if text.is_empty() { ABSENT.to_owned() } else { clean(text) }
}

/// A value by its own `Display`, or a dash.
pub(crate) fn or_dash<T: ToString>(value: Option<T>) -> String {
    value.map_or_else(|| ABSENT.to_owned(), |value| value.to_string())
}

/// A number with this many decimals, or a dash.
pub(crate) fn decimal(value: Option<f64>, decimals: usize) -> String {
    value.map_or_else(|| ABSENT.to_owned(), |value| format!("{value:.decimals$}"))
}

/// A percentage with one decimal, or a dash.
pub(crate) fn percent(value: Option<f64>) -> String {
    value.map_or_else(|| ABSENT.to_owned(), |value| format!("{value:.1}%"))
}

/// A time in the unit that a person would choose: `350us`, `12.0ms`, `1.2s`, `3m05s`, `2h10m`, `4d03h`.
pub(crate) fn duration(duration: Duration) -> String {
    let seconds = duration.as_secs();
    match duration.as_micros() {
        0 => "0s".to_owned(),
        us @ 1..1_000 => format!("{us}us"),
        1_000..1_000_000 => format!("{:.1}ms", duration.as_secs_f64() * 1e3),
        _ => match seconds {
            0..60 => format!("{:.1}s", duration.as_secs_f64()),
            60..3_600 => format!("{}m{:02}s", seconds / 60, seconds % 60),
            3_600..86_400 => format!("{}h{:02}m", seconds / 3_600, seconds % 3_600 / 60),
            _ => format!("{}d{:02}h", seconds / 86_400, seconds % 86_400 / 3_600),
        },
    }
}

/// Whole milliseconds, from a second on as [`duration`], or a dash.
pub(crate) fn milliseconds(ms: Option<u64>) -> String {
    match ms {
        None => ABSENT.to_owned(),
        Some(ms @ 1..1_000) => format!("{ms}ms"),
        Some(ms) => duration(Duration::from_millis(ms)),
    }
}

/// Microseconds as [`duration`], or a dash; negative and non-finite ones too, since no time is like that.
pub(crate) fn microseconds(us: Option<f64>) -> String {
    us.and_then(|us| Duration::try_from_secs_f64(us / 1e6).ok()).map_or_else(|| ABSENT.to_owned(), duration)
}

/// Bytes in the largest binary unit that leaves at least 1.
pub(crate) fn bytes(count: u64) -> String {
    const UNITS: [&str; 5] = ["KiB", "MiB", "GiB", "TiB", "PiB"];
    let mut value = count as f64 / 1024.0;
    if value < 1.0 {
        return format!("{count} B");
    }
    let mut unit = UNITS[0];
    for larger in &UNITS[1..] {
        if value < 1024.0 {
            break;
        }
        value /= 1024.0;
        unit = larger;
    }
    format!("{value:.1} {unit}")
}

/// Words with commas between them, or a dash.
pub(crate) fn list<S: AsRef<str>>(items: &[S]) -> String {
    let mut joined = String::new();
    for item in items {
        let comma = if joined.is_empty() { "" } else { "," };
        let _ = write!(joined, "{comma}{}", clean(item.as_ref()));
    }
    if joined.is_empty() { ABSENT.to_owned() } else { joined }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_terminal_would_obey_is_escaped() {
        assert_eq!(clean("a\u{1b}[31mb\nc\u{9b}d"), "a\\u{1b}[31mb\\nc\\u{9b}d");
        assert_eq!(clean("user\u{202e}gpj"), "user\\u{202e}gpj");
        assert_eq!(clean("Käthe 北"), "Käthe 北");
    }

    #[test]
    fn what_is_not_known_is_a_dash() {
        assert_eq!(or_dash::<u32>(None), "-");
        assert_eq!(or_dash(Some(0)), "0");
        assert_eq!(percent(None), "-");
        assert_eq!(decimal(None, 2), "-");
        assert_eq!(clean_or_dash(""), "-");
        assert_eq!(list::<String>(&[]), "-");
        assert_eq!(microseconds(Some(f64::NAN)), "-");
    }

    #[test]
    fn times_are_written_in_the_unit_that_a_person_would_choose() {
        for (ms, text) in [
            (0, "0s"),
            (350, "350ms"),
            (1_200, "1.2s"),
            (185_000, "3m05s"),
            (7_800_000, "2h10m"),
            (356_400_000, "4d03h"),
        ] {
            assert_eq!(milliseconds(Some(ms)), text);
        }
        assert_eq!(microseconds(Some(350.0)), "350us");
    }

    #[test]
    fn bytes_are_written_in_binary_units() {
        assert_eq!(bytes(512), "512 B");
        assert_eq!(bytes(1536), "1.5 KiB");
        assert_eq!(bytes(8 << 30), "8.0 GiB");
        assert_eq!(bytes(u64::MAX), "16384.0 PiB");
    }
}
