//! What number does a program deliver?
//!
//! The first line that says anything counts: a plain decimal number, or `none` when there is no value just now. Behind
//! an availability index may stand the name of its source, for people. A lag is in seconds. Whatever else is said (no
//! number, one that is out of range, the output of a program that failed) changes nothing, and is counted and shown:
//! an index that is guessed would send logins to a host that did not ask for them.

use std::time::Duration;

use usher_types::Percent;

use super::words::{HookKind, Said, ended, reason, word};
use crate::program::Finished;

/// Longest lag that is believed: ten years, far beyond any that is one.
const MOST_LAG_SECONDS: f64 = 3650.0 * 86_400.0;

/// What the output of a hook that delivers a value means. Absent: it said nothing.
pub(super) fn understand(kind: HookKind, line: &str, finished: &Finished) -> Result<Option<Said>, String> {
    if !finished.status.success() {
        return Err(ended(finished.status));
    }
    let first = word(line);
    if first.is_empty() {
        return Ok(None);
    }
    if first.eq_ignore_ascii_case("none") {
        return Ok(Some(Said::NoValue));
    }
    let refused = |allowed: &str| format!("the hook said {first:?}, must be {allowed}");
    match kind {
        HookKind::ReplicaLag => {
            let seconds = decimal(&first).filter(|seconds| *seconds <= MOST_LAG_SECONDS);
            let lag = seconds.and_then(|seconds| Duration::try_from_secs_f64(seconds).ok());
            let lag = lag.ok_or_else(|| refused("seconds, as in 12.5, or none"))?;
            Ok(Some(Said::Lag(lag)))
        }
        _ => {
            let index = decimal(&first).and_then(|index| Percent::new(index).ok());
            let index = index.ok_or_else(|| refused("0 to 100, or none"))?;
            Ok(Some(Said::Index { index, source: reason(line) }))
        }
    }
}

/// A plain decimal number: no sign, no exponent, no `nan`.
fn decimal(word: &str) -> Option<f64> {
    let is_plain = word.bytes().all(|byte| byte.is_ascii_digit() || byte == b'.');
    is_plain.then(|| word.parse().ok()).flatten().filter(|number: &f64| number.is_finite())
}

#[cfg(test)]
mod tests {
    use std::os::unix::process::ExitStatusExt;
    use std::process::ExitStatus;

    use proptest::prelude::*;

    use super::super::words;
    use super::*;

    fn said(kind: HookKind, output: &str, code: i32) -> Result<Option<Said>, String> {
        let status = ExitStatus::from_raw(code << 8);
        words::understand(kind, &Finished { status, output: output.as_bytes().to_vec() })
    }

    #[test]
    fn an_index_has_its_number_first_and_its_source_behind_it() {
        let index = |index, source: &str| {
            Ok(Some(Said::Index { index: Percent::new(index).unwrap(), source: source.into() }))
        };
        assert_eq!(said(HookKind::Availability, "\n87 domino\nmore\n", 0), index(87.0, "domino"));
        assert_eq!(said(HookKind::Availability, "0", 0), index(0.0, ""));
        assert_eq!(
            said(HookKind::Availability, "100.0 # the mail server", 0),
            index(100.0, "the mail server")
        );
        assert_eq!(said(HookKind::Availability, "None", 0), Ok(Some(Said::NoValue)));
        assert_eq!(said(HookKind::Availability, "", 0), Ok(None));
    }

    #[test]
    fn a_lag_is_in_seconds() {
        let lag = |millis| Ok(Some(Said::Lag(Duration::from_millis(millis))));
        assert_eq!(said(HookKind::ReplicaLag, "12.5\n", 0), lag(12_500));
        assert_eq!(said(HookKind::ReplicaLag, "0", 0), lag(0));
        assert_eq!(said(HookKind::ReplicaLag, "none", 0), Ok(Some(Said::NoValue)));
    }

    #[test]
    fn a_value_that_cannot_be_one_is_refused_and_named() {
        for output in
            ["NaN", "inf", "-1", "+5", "101", "100.01", "1e1", "0x10", "87%", "87,5", "up", ".", "\u{fffd}"]
        {
            let error = said(HookKind::Availability, output, 0).unwrap_err();
            assert!(error.contains("must be 0 to 100"), "{output}: {error}");
        }
        for output in ["NaN", "-1", "1e400", "15m", &"9".repeat(60), "315360001"] {
            let error = said(HookKind::ReplicaLag, output, 0).unwrap_err();
            assert!(error.contains("must be seconds"), "{output}: {error}");
        }
    }

    proptest! {
        #[test]
        fn whatever_is_said_is_a_value_in_its_range_or_changes_nothing(output in "(none|[0-9.]{1,12}|-|[a-z%]|[ \n\t]|.){0,8}") {
            for kind in [HookKind::Availability, HookKind::ReplicaLag] {
                match said(kind, &output, 0) {
                    Ok(Some(Said::Index { index, .. })) => prop_assert!((0.0..=100.0).contains(&index.get())),
                    Ok(Some(Said::Lag(lag))) => prop_assert!(lag.as_secs_f64() <= MOST_LAG_SECONDS),
                    Ok(Some(other)) => prop_assert_eq!(other, Said::NoValue),
                    Ok(None) => prop_assert!(output.trim().is_empty()),
                    Err(why) => prop_assert!(why.len() < 512, "{}", why),
                }
            }
        }
    }

    #[test]
    fn the_number_of_a_program_that_failed_is_not_believed() {
        for kind in [HookKind::Availability, HookKind::ReplicaLag] {
            assert!(said(kind, "50", 1).unwrap_err().contains("exit status: 1"));
        }
    }
}
