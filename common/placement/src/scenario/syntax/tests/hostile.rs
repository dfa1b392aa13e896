use proptest::prelude::*;

use super::super::{MAX_BYTES, MAX_ERRORS, Statement, parse, parse_bytes};
use super::EXAMPLES;

/// Whatever comes out is either lines or faults that point into the text.
fn check(text: &str) {
    match parse(text) {
        Ok(lines) => {
            for line in lines {
                assert!(!line.text.is_empty() && text.contains(&line.text));
                if let Statement::Repeat(repeat) = line.statement {
                    let _ = repeat.statement(repeat.count);
                    let _ = repeat.statement(u32::MAX);
                }
            }
        }
        Err(errors) => {
            assert!((1..=MAX_ERRORS).contains(&errors.len()));
            assert!(errors.is_sorted_by_key(|error| (error.line, error.column)), "{errors:?}");
            let lines: Vec<_> = text.split('\n').collect();
            for error in errors {
                let line = lines[error.line as usize - 1];
                assert!(error.column >= 1, "{error}");
                // A longer number may have been put into the line of a repetition.
                let slack = if line.contains("{n}") { line.len() * 7 } else { 1 };
                assert!(error.column as usize <= line.chars().count() + slack, "{error} in {line:?}");
                assert!(!error.to_string().contains(|c: char| c.is_control()), "{error:?}");
            }
        }
    }
}

/// What a change of a scenario may put in.
fn insertion() -> impl Strategy<Value = String> {
    let words = [
        "\"",
        "\\",
        "#",
        "=",
        ",",
        ":",
        "/",
        " / ",
        "|",
        "..",
        "+",
        "-",
        "{n}",
        " as ",
        " via c2 ",
        " repeat 2 ",
        "\n",
        "\r\n",
        "\t",
        "\0",
        "nan",
        "-1",
        "999999999999999999999999",
        "1e400",
        "ms",
        "\u{202e}",
        "ß",
        "☃",
    ];
    prop_oneof![
        proptest::sample::select(words.to_vec()).prop_map(str::to_owned),
        any::<char>().prop_map(String::from),
        proptest::sample::select(EXAMPLES.split_whitespace().collect::<Vec<_>>())
            .prop_map(|word| format!(" {word} ")),
    ]
}

proptest! {
    #[test]
    fn no_text_makes_the_reader_panic(text in any::<String>()) {
        check(&text);
    }

    #[test]
    fn no_bytes_make_the_reader_panic(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
        if let Err(errors) = parse_bytes(&bytes) {
            prop_assert!(!errors.is_empty());
        }
    }

    #[test]
    fn no_mixture_of_known_words_makes_the_reader_panic(
        words in proptest::collection::vec(
            proptest::sample::select(EXAMPLES.split_whitespace().collect::<Vec<_>>()), 0..12)
    ) {
        check(&words.join(" "));
    }

    #[test]
    fn no_change_of_a_scenario_makes_the_reader_panic(
        line in proptest::sample::select(EXAMPLES.lines().collect::<Vec<_>>()),
        changes in proptest::collection::vec((any::<prop::sample::Index>(), 0_usize..6, insertion()), 1..5),
    ) {
        let mut chars: Vec<char> = line.chars().collect();
        for (at, removed, inserted) in changes {
            let at = at.index(chars.len() + 1);
            let end = (at + removed).min(chars.len());
            chars.splice(at..end, inserted.chars());
        }
        check(&chars.into_iter().collect::<String>());
    }
}

#[test]
fn the_largest_texts_are_read_in_bounded_time_and_depth() {
    for unit in
        ["via a ", "repeat 2 ", "\"", "place ", "a=1 ", "/ ", "k\n", "+", ",", "=", "{n}", "show s1 / "]
    {
        for start in ["", "report s1 ", "repeat 1000000 place desk user=", "expect tally b ", "sessions s1 "]
        {
            let mut text = start.to_owned();
            text.push_str(&unit.repeat(300_000 / unit.len()));
            check(&text);
        }
    }
    check(&"x".repeat(MAX_BYTES));
    check(&format!("pool desk {}=1", "x".repeat(MAX_BYTES - 100)));
}
