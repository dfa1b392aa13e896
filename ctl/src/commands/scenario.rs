//! What does a farm do that is written in a text file?
//!
//! The file is run through the very code that decides in coordinators and keeps the limits on hosts, with a clock of
//! its own: nobody is asked, and no configuration is read. Every file is run, whatever the others hold, so that one
//! look shows all that is wrong; the exit code tells the worst of it.

use std::fs::File;
use std::io::{self, Read};
use std::path::{Path, PathBuf};

use clap::{Args, Subcommand};
use serde::Serialize;
use usher_placement::scenario::syntax::MAX_BYTES;
use usher_placement::scenario::{self, Event, Run, SyntaxError};

use crate::commands::Context;
use crate::failure::Failure;
use crate::output::text::clean;
use crate::output::{emit, json::emit_json_line, remark};

/// What stands for standard input.
const STDIN: &str = "-";

/// Arguments of `scenario`.
#[derive(Debug, Subcommand)]
#[command(after_help = "Examples:
  usherctl scenario run monday.txt          what happens, line by line
  usherctl scenario run --check monday.txt  exit code 4 if an expectation does not hold")]
pub(crate) enum ScenarioCommand {
    /// Run scenarios and print what happens
    Run(RunArguments),
}

/// Arguments of `scenario run`.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  usherctl scenario run monday.txt          what happens, line by line
  usherctl scenario run --check a.txt b.txt
                                            exit code 4, and a diff, if an expectation does not hold
  usherctl scenario run --json monday.txt   one JSON object a line
  usherctl scenario run -                   read it from standard input

No coordinator is asked. Expectations that do not hold are always printed; only --check makes them the exit code.
A file that cannot be read, or that says what is not understood, is exit code 2")]
pub(crate) struct RunArguments {
    /// Files, or - for standard input
    #[arg(required = true, value_name = "FILE")]
    files: Vec<PathBuf>,
    /// Exit with 4 if an expectation does not hold, and show what was found instead
    #[arg(long)]
    check: bool,
}

/// What went wrong with a file, besides expectations.
#[derive(Debug)]
enum Trouble {
    /// It cannot be read.
    Unreadable(io::Error),
    /// It says what is not understood.
    Syntax(Vec<SyntaxError>),
}

/// What became of all files.
#[derive(Debug, Default)]
struct Total {
    files: usize,
    not_run: usize,
    checked: usize,
    failed: Vec<String>,
}

/// Runs the scenarios.
pub(crate) fn run(context: &Context, command: &ScenarioCommand) -> Result<(), Failure> {
    let ScenarioCommand::Run(arguments) = command;
    let mut total = Total { files: arguments.files.len(), ..Total::default() };
    for path in &arguments.files {
        let name = name(path);
        let played = read(path)
            .map_err(Trouble::Unreadable)
            .and_then(|text| scenario::run_bytes(&text).map_err(Trouble::Syntax));
        match &played {
            Ok(played) => total.add(&name, played),
            Err(_) => total.not_run += 1,
        }
        if context.json() {
            for line in lines_for_scripts(&name, &played) {
                emit_json_line(&line)?;
            }
        } else {
            tell(&name, &played, arguments.files.len() > 1)?;
        }
    }
    total.verdict(arguments.check)
}

/// One byte more than a scenario may have: enough for the reader of scenarios to see that it is too long.
const MOST_BYTES: u64 = MAX_BYTES as u64 + 1;

fn read(path: &Path) -> io::Result<Vec<u8>> {
    let mut text = Vec::new();
    if path == Path::new(STDIN) {
        io::stdin().lock().take(MOST_BYTES).read_to_end(&mut text)?;
    } else {
        File::open(path)?.take(MOST_BYTES).read_to_end(&mut text)?;
    }
    Ok(text)
}

fn name(path: &Path) -> String {
    if path == Path::new(STDIN) { "stdin".to_owned() } else { clean(&path.display().to_string()) }
}

impl Total {
    fn add(&mut self, name: &str, played: &Run) {
        self.checked += played.checked;
        self.not_run += usize::from(played.stopped.is_some());
        self.failed.extend(played.failures().map(|failure| difference(name, failure)));
    }

    /// The worst of all files, as the exit code tells it.
    fn verdict(self, check: bool) -> Result<(), Failure> {
        if self.not_run > 0 {
            let which = if self.files == 1 {
                "the scenario".to_owned()
            } else {
                format!("{} of {} scenarios", self.not_run, self.files)
            };
            return Err(Failure::usage(format!("{which} cannot be run to the end")));
        }
        if check && !self.failed.is_empty() {
            let (failed, checked) = (self.failed.len(), self.checked);
            let differences = self.failed.join("\n");
            return Err(Failure::Check(format!(
                "{failed} of {checked} expectations do not hold\n{differences}"
            )));
        }
        Ok(())
    }
}

/// Where an expectation stands, and how it differs from what was found.
fn difference(name: &str, failure: &scenario::Failure) -> String {
    let scenario::Failure { line, subject, expected, found } = failure;
    let (subject, expected, found) = (clean(subject), clean(expected), clean(found));
    format!("{name}:{line}: {subject}\n  - {expected}\n  + {found}")
}

/// What happened goes to stdout, what hindered it to stderr.
fn tell(name: &str, played: &Result<Run, Trouble>, with_name: bool) -> Result<(), Failure> {
    match played {
        Err(Trouble::Unreadable(error)) => remark(&format!("{name}: cannot be read: {error}")),
        Err(Trouble::Syntax(errors)) => {
            errors.iter().for_each(|error| remark(&format!("{name}:{}", clean(&error.to_string()))));
        }
        Ok(played) => {
            let mut text = String::new();
            if with_name {
                text += &format!("# {name}\n");
            }
            for event in &played.events {
                for line in event.to_string().lines() {
                    text += &clean(line);
                    text.push('\n');
                }
            }
            if !text.is_empty() {
                emit(&text)?;
            }
            if let Some(stopped) = &played.stopped {
                remark(&format!("{name}:{}", clean(&stopped.to_string())));
            }
        }
    }
    Ok(())
}

/// One object: an event, or what hindered it.
#[derive(Debug, Serialize)]
struct JsonLine<'a> {
    file: &'a str,
    #[serde(flatten)]
    what: What<'a>,
}

#[derive(Debug, Serialize)]
#[serde(untagged)]
enum What<'a> {
    Event(&'a Event),
    Trouble(TroubleLine<'a>),
}

/// The same fields as an event, as far as there are any.
#[derive(Debug, Serialize)]
struct TroubleLine<'a> {
    #[serde(skip_serializing_if = "Option::is_none")]
    line: Option<u32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    column: Option<u32>,
    event: &'static str,
    fault: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    allowed: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    suggestion: Option<&'a str>,
}

fn lines_for_scripts<'a>(file: &'a str, played: &'a Result<Run, Trouble>) -> Vec<JsonLine<'a>> {
    let trouble = |what| JsonLine { file, what: What::Trouble(what) };
    match played {
        Err(Trouble::Unreadable(error)) => vec![trouble(TroubleLine {
            line: None,
            column: None,
            event: "unreadable",
            fault: error.to_string(),
            allowed: None,
            suggestion: None,
        })],
        Err(Trouble::Syntax(errors)) => {
            let line = |error: &'a SyntaxError| TroubleLine {
                line: Some(error.line),
                column: Some(error.column),
                event: "syntax_error",
                fault: error.fault.clone(),
                allowed: error.allowed.as_deref(),
                suggestion: error.suggestion.as_deref(),
            };
            errors.iter().map(|error| trouble(line(error))).collect()
        }
        Ok(played) => {
            let events = played.events.iter().map(|event| JsonLine { file, what: What::Event(event) });
            let stopped = played.stopped.iter().map(|error| {
                trouble(TroubleLine {
                    line: Some(error.line),
                    column: Some(error.column),
                    event: "run_error",
                    fault: error.fault.clone(),
                    allowed: None,
                    suggestion: error.suggestion.as_deref(),
                })
            });
            events.chain(stopped).collect()
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const FARM: &str = "pool desk weights=30/30/25/15\nhost s1 pool=desk\nhost s2 pool=desk\n\
        report s1 cpu=35 mem=55 users=10 procs=70\nreport s2 cpu=25 mem=45 users=14 procs=89\n\
        place desk user=alice as p1\n";

    fn play(text: &str) -> Result<Run, Trouble> {
        scenario::run_bytes(text.as_bytes()).map_err(Trouble::Syntax)
    }

    fn verdict(text: &str, check: bool) -> Result<(), Failure> {
        let mut total = Total { files: 1, ..Total::default() };
        match play(text) {
            Ok(played) => total.add("farm.txt", &played),
            Err(_) => total.not_run += 1,
        }
        total.verdict(check)
    }

    #[test]
    fn case_067_expectations_that_hold_are_no_failure() {
        assert!(verdict(&format!("{FARM}expect p1 host=s1\nexpect s2 w=61.00\n"), true).is_ok());
    }

    #[test]
    fn an_expectation_that_does_not_hold_fails_a_check_and_shows_both_sides() {
        let text = format!("{FARM}expect p1 host=s2\n");
        let failure = verdict(&text, true).unwrap_err();
        assert_eq!(failure.exit_code(), 4);
        let told = failure.for_people();
        for part in ["1 of 1 expectations", "farm.txt:7: p1", "- host=s2", "+ host=s1"] {
            assert!(told.contains(part), "{part} not in {told}");
        }
        assert!(verdict(&text, false).is_ok(), "without --check it is only printed");
    }

    #[test]
    fn what_cannot_be_run_is_wrong_use_with_its_place_and_a_suggestion() {
        let slip = "pool desk\nhots s1 pool=desk\n";
        assert_eq!(verdict(slip, false).unwrap_err().exit_code(), 2);
        let played = play(slip);
        let lines = lines_for_scripts("farm.txt", &played);
        let line = serde_json::to_value(&lines[0]).unwrap();
        assert_eq!((&line["file"], &line["event"]), (&"farm.txt".into(), &"syntax_error".into()));
        assert_eq!((&line["line"], &line["column"]), (&2.into(), &1.into()));
        assert_eq!(line["suggestion"], "host");
        let stops = format!("{FARM}expect p2 host=s1\n");
        assert_eq!(verdict(&stops, false).unwrap_err().exit_code(), 2);
    }

    #[test]
    fn every_event_is_an_object_with_its_line_and_time() {
        let played = play(FARM);
        let lines = lines_for_scripts("farm.txt", &played);
        let placed = serde_json::to_value(lines.last().unwrap()).unwrap();
        assert_eq!((&placed["event"], &placed["host"]), (&"placed".into(), &"s1".into()));
        assert_eq!((&placed["line"], &placed["at_s"]), (&6.into(), &0.0.into()));
    }
}
