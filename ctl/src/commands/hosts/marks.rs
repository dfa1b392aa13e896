//! What does an admin set of one host?

use clap::{Args, ValueEnum};
use usher_proto::v1::admin_service_client::AdminServiceClient;
use usher_proto::{v1, write};
use usher_types::{Change, HostMarksChange, UserLimit};

use crate::commands::Context;
use crate::failure::Failure;
use crate::output::text::clean;
use crate::output::{emit, json::emit_json};

/// Arguments of `host set`.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  usherctl host set app1 --capacity 2       twice the size of a normal host
  usherctl host set app1 --max-users 40 --threshold 30
  usherctl host set app1 --max-users unlimited
  usherctl host set app1 --busy yes         only if nobody better is left
  usherctl host set app1 --clear capacity,max_users
  usherctl host set app1 --range 8 --dry-run

What is set here wins over the host's own settings, and those win over the pool's")]
pub(crate) struct SetArguments {
    /// Name or id of the host
    host: String,
    /// Size relative to a normal host, above 0, at most 1000
    #[arg(long, value_name = "SIZE", allow_negative_numbers = true)]
    capacity: Option<f64>,
    /// Most users: a number from 1, or unlimited
    #[arg(long, value_name = "N", value_parser = parse_limit)]
    max_users: Option<UserLimit>,
    /// BUSY at or below this availability index, 0 to 100; 0 is never, 100 always
    #[arg(long, value_name = "PERCENT", allow_negative_numbers = true)]
    threshold: Option<f64>,
    /// Exponent of the availability index, 1 to 30
    #[arg(long, allow_negative_numbers = true)]
    range: Option<f64>,
    /// BUSY until this is taken back
    #[arg(long)]
    busy: Option<YesNo>,
    /// Take a setting back, so that the host's own or the pool's holds again
    #[arg(long, value_name = "SETTING", value_delimiter = ',')]
    clear: Vec<Mark>,
    /// Check only, and say what would be set
    #[arg(long)]
    dry_run: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum YesNo {
    Yes,
    No,
}

/// A setting that can be taken back.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Mark {
    Capacity,
    #[value(name = "max_users", alias = "max-users")]
    MaxUsers,
    #[value(alias = "threshold_percent")]
    Threshold,
    Range,
}

/// Whether there may be so many users is the coordinator's to say.
fn parse_limit(text: &str) -> Result<UserLimit, String> {
    match text {
        "unlimited" => Ok(UserLimit::Unlimited),
        number => number
            .parse()
            .map(UserLimit::Users)
            .map_err(|_| "must be a number of users from 1, or unlimited".to_owned()),
    }
}

impl SetArguments {
    fn change(&self) -> Result<HostMarksChange, Failure> {
        let change = HostMarksChange {
            capacity: self.one("--capacity", Mark::Capacity, self.capacity)?,
            max_users: self.one("--max-users", Mark::MaxUsers, self.max_users)?,
            threshold: self.one("--threshold", Mark::Threshold, self.threshold)?,
            range: self.one("--range", Mark::Range, self.range)?,
            busy: self.busy.map(|busy| busy == YesNo::Yes),
        };
        if change == HostMarksChange::default() {
            let options = "--capacity, --max-users, --threshold, --range, --busy or --clear";
            return Err(Failure::usage(format!("nothing to set: name one of {options}")));
        }
        Ok(change)
    }

    fn one<T>(&self, option: &str, mark: Mark, value: Option<T>) -> Result<Change<T>, Failure> {
        match (value, self.clear.contains(&mark)) {
            (Some(_), true) => {
                Err(Failure::usage(format!("{option} sets what --clear takes back: only one of them can be")))
            }
            (Some(value), false) => Ok(Change::Set(value)),
            (None, true) => Ok(Change::Clear),
            (None, false) => Ok(Change::Keep),
        }
    }
}

/// Sets it.
pub(super) async fn set(context: &Context, arguments: SetArguments) -> Result<(), Failure> {
    let operation = format!("setting host {}", arguments.host);
    let change = arguments.change()?;
    let request = v1::SetHostMarksRequest {
        dry_run: arguments.dry_run,
        ..write::host_marks_change(&arguments.host, &change)
    };
    let response = context
        .coordinators()?
        .call(&operation, async |channel, call| {
            AdminServiceClient::new(channel).set_host_marks(call.request(request.clone())).await
        })
        .await?;
    if context.json() {
        return emit_json(&response);
    }
    let would = if arguments.dry_run { "would be set" } else { "is set" };
    emit(&match marks(&response.marks.unwrap_or_default()) {
        Some(marks) => format!("of {} {would}: {marks}", clean(&response.host_name)),
        None => format!("of {} nothing {would}", clean(&response.host_name)),
    })
}

/// What is set: `capacity 2, max_users unlimited, busy`. Absent: nothing.
pub(super) fn marks(marks: &v1::HostMarks) -> Option<String> {
    let limit = marks.max_users.and_then(|limit| limit.limit).map(|limit| match limit {
        v1::user_limit::Limit::Unlimited(_) => "max_users unlimited".to_owned(),
        v1::user_limit::Limit::Users(users) => format!("max_users {users}"),
    });
    let set = [
        marks.capacity.map(|capacity| format!("capacity {capacity}")),
        limit,
        marks.threshold_percent.map(|threshold| format!("threshold {threshold}")),
        marks.range.map(|range| format!("range {range}")),
        marks.busy.then(|| "busy".to_owned()),
    ];
    let set: Vec<String> = set.into_iter().flatten().collect();
    (!set.is_empty()).then(|| set.join(", "))
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;
    use crate::cli::{Cli, Command};
    use crate::commands::hosts::HostCommand;

    fn change(line: &str) -> Result<HostMarksChange, String> {
        let words = "usherctl host set app1".split(' ').chain(line.split_whitespace());
        let cli = Cli::try_parse_from(words).map_err(|error| error.to_string())?;
        let Command::Host(HostCommand::Set(arguments)) = cli.command else { panic!("{line}") };
        arguments.change().map_err(|failure| failure.for_people())
    }

    #[test]
    fn what_is_not_named_is_kept_and_what_is_cleared_is_taken_back() {
        let change = change("--capacity 2 --max-users unlimited --clear threshold,range --busy no").unwrap();
        assert_eq!(
            change,
            HostMarksChange {
                capacity: Change::Set(2.0),
                max_users: Change::Set(UserLimit::Unlimited),
                threshold: Change::Clear,
                range: Change::Clear,
                busy: Some(false),
            }
        );
    }

    #[test]
    fn a_setting_cannot_be_set_and_cleared_and_something_must_be() {
        assert!(change("--max-users 5 --clear max_users").unwrap_err().contains("--max-users"));
        assert!(change("").unwrap_err().contains("nothing to set"));
        for wrong in ["--max-users many", "--max-users -1", "--busy perhaps", "--clear busy"] {
            assert!(change(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn values_out_of_range_are_the_coordinators_to_refuse() {
        let change = change("--capacity 0 --threshold -1 --range 120 --max-users 0").unwrap();
        assert_eq!(change.apply_to(&usher_types::HostMarks::default()).unwrap_err().len(), 4);
    }

    #[test]
    fn marks_are_shown_as_they_are_set() {
        let set = v1::HostMarks {
            capacity: Some(2.0),
            max_users: Some(write::user_limit(UserLimit::Users(5))),
            busy: true,
            ..Default::default()
        };
        assert_eq!(marks(&set).unwrap(), "capacity 2, max_users 5, busy");
        assert_eq!(marks(&v1::HostMarks::default()), None);
    }
}
