//! From the numbers of several hosts to the weighted load of each.

use std::str::FromStr;

use clap::Args;
use serde::Serialize;
use usher_placement::load::{LoadTerms, Metrics, Scale};
use usher_types::{HostName, Policy, PolicyChange, Weights, WeightsChange};

use crate::commands::Context;
use crate::failure::Failure;
use crate::output::table::{Grid, cell};
use crate::output::text::{ABSENT, clean, decimal, list};
use crate::output::{emit, json::emit_json};

/// Loads that differ by less are equal: chance decides among such hosts.
const TIE: f64 = 1e-9;

/// Arguments of `calc load`.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  usherctl calc load --host a=35/55/10/70 --host b=25/45/14/89 --weights 30/30/25/15
                                            the example of the terminal-server manual: 56.65 and 61.00
  usherctl calc load --host a=35/55/10/70 --host b=-/45/14/89
                                            a dash: not known, the median of the others stands for it

W = cpu + memory + users + processes, each as a share with its weight; users and processes are shares of the largest
number among these hosts. The lowest W is preferred")]
pub(crate) struct Arguments {
    /// A host: percent of CPU, percent of memory, users, processes; a dash for what is not known
    #[arg(long, value_name = "NAME=CPU/MEM/USERS/PROCS", required = true)]
    host: Vec<TypedHost>,
    /// Weights in percent, together 100
    #[arg(long, value_name = "CPU/MEM/USERS/PROCS", default_value = "15/15/55/15", value_parser = parse_weights)]
    weights: Weights,
}

/// A host as typed in.
#[derive(Debug, Clone, PartialEq)]
struct TypedHost {
    name: HostName,
    metrics: Metrics,
}

impl FromStr for TypedHost {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let (name, numbers) =
            text.split_once('=').ok_or("write NAME=CPU/MEM/USERS/PROCS, like app1=35/55/10/70")?;
        let name = HostName::new(name).map_err(|error| error.to_string())?;
        let [cpu, memory, users, processes] = four(numbers)?;
        let metrics = Metrics {
            cpu: number("CPU", cpu, 100.0)?,
            memory: number("memory", memory, 100.0)?,
            expected_cpu: 0.0,
            expected_memory: 0.0,
            users: number("users", users, f64::from(u32::MAX))?,
            pending: 0.0,
            processes: number("processes", processes, f64::from(u32::MAX))?,
            capacity: 1.0,
            ramp: None,
        };
        Ok(Self { name, metrics })
    }
}

fn four(text: &str) -> Result<[&str; 4], String> {
    let parts: Vec<&str> = text.split('/').collect();
    parts
        .try_into()
        .map_err(|parts: Vec<&str>| format!("{} numbers, must be 4: CPU/MEM/USERS/PROCS", parts.len()))
}

/// A number from 0 to `max`, or absent for a dash.
fn number(what: &str, text: &str, max: f64) -> Result<Option<f64>, String> {
    if text == ABSENT {
        return Ok(None);
    }
    let value: Option<f64> = text.parse().ok();
    value
        .filter(|value| (0.0..=max).contains(value))
        .map(Some)
        .ok_or_else(|| format!("{what} = {text}: allowed are 0..={max}, or a dash for not known"))
}

/// The weights, judged as a pool's settings are.
fn parse_weights(text: &str) -> Result<Weights, String> {
    let [cpu, memory, users, processes] = four(text)?;
    let weight = |text: &str| text.parse::<f64>().map(Some).map_err(|_| format!("{text:?} is not a number"));
    let weights = WeightsChange {
        cpu_percent: weight(cpu)?,
        memory_percent: weight(memory)?,
        users_percent: weight(users)?,
        processes_percent: weight(processes)?,
    };
    let change = PolicyChange { weights: Some(weights), ..PolicyChange::default() };
    change.apply_to(&Policy::default()).map(|policy| policy.weights).map_err(|faults| {
        let faults: Vec<String> = faults.iter().map(ToString::to_string).collect();
        faults.join("; ")
    })
}

/// The whole result.
#[derive(Debug, Serialize)]
struct Computed {
    weights: Weights,
    top_users: f64,
    top_processes: f64,
    hosts: Vec<Host>,
}

/// A host with its terms.
#[derive(Debug, Serialize)]
struct Host {
    name: String,
    /// Absent if nothing is left to compare it by.
    #[serde(skip_serializing_if = "Option::is_none")]
    terms: Option<Terms>,
    preferred: bool,
}

/// The terms and their sum, points.
#[derive(Debug, Clone, Serialize)]
struct Terms {
    cpu: f64,
    memory: f64,
    users: f64,
    processes: f64,
    weighted_load: f64,
    filled_in: Vec<&'static str>,
}

impl From<LoadTerms> for Terms {
    fn from(terms: LoadTerms) -> Self {
        Self {
            cpu: terms.cpu,
            memory: terms.memory,
            users: terms.users,
            processes: terms.processes,
            weighted_load: terms.weighted_load(),
            filled_in: terms.filled.names().collect(),
        }
    }
}

/// Computes and prints.
pub(super) fn run(context: &Context, arguments: &Arguments) -> Result<(), Failure> {
    let mut names: Vec<&str> = arguments.host.iter().map(|host| host.name.key()).collect();
    names.sort_unstable();
    if let Some(twice) = names.windows(2).find(|pair| pair[0] == pair[1]) {
        return Err(Failure::usage(format!("--host {} is given twice", twice[0])));
    }
    let computed = compute(arguments);
    if context.json() { emit_json(&computed) } else { emit(&page(&computed)) }
}

fn compute(arguments: &Arguments) -> Computed {
    let metrics = arguments.host.iter().map(|host| host.metrics);
    let scale = Scale::of(arguments.weights, 0.0, metrics, false);
    let terms: Vec<Option<Terms>> =
        arguments.host.iter().map(|host| scale.terms(&host.metrics).map(Terms::from)).collect();
    let lowest = terms.iter().flatten().map(|terms| terms.weighted_load).fold(f64::INFINITY, f64::min);
    let hosts = arguments.host.iter().zip(terms).map(|(host, terms)| Host {
        name: host.name.to_string(),
        preferred: terms.as_ref().is_some_and(|terms| terms.weighted_load <= lowest + TIE),
        terms,
    });
    Computed {
        weights: arguments.weights,
        top_users: scale.top_users,
        top_processes: scale.top_processes,
        hosts: hosts.collect(),
    }
}

fn page(computed: &Computed) -> String {
    let mut grid = Grid::new(&["HOST", "CPU", "+ MEM", "+ USERS", "+ PROCS", "= W", ""], &[1, 2, 3, 4, 5]);
    for host in &computed.hosts {
        let term = |pick: fn(&Terms) -> f64, decimals| cell(decimal(host.terms.as_ref().map(pick), decimals));
        grid.row([
            cell(clean(&host.name)),
            term(|terms| terms.cpu, 3),
            term(|terms| terms.memory, 3),
            term(|terms| terms.users, 3),
            term(|terms| terms.processes, 3),
            term(|terms| terms.weighted_load, 2),
            cell(remark(host)),
        ]);
    }
    let mut text = grid.render();
    if computed.hosts.iter().filter(|host| host.preferred).count() > 1 {
        text += "\n\nthe preferred hosts are equally good: chance decides";
    }
    text
}

fn remark(host: &Host) -> String {
    let filled_in = host.terms.as_ref().map_or(&[][..], |terms| &terms.filled_in);
    let median = (!filled_in.is_empty()).then(|| format!("median for {}", list(filled_in)));
    let preferred = host.preferred.then(|| "preferred".to_owned());
    [preferred, median].into_iter().flatten().collect::<Vec<_>>().join(", ")
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;
    use crate::cli::{Cli, Command};
    use crate::commands::calc::CalcCommand;

    fn arguments(line: &str) -> Result<Arguments, clap::Error> {
        let cli = Cli::try_parse_from(format!("usherctl calc load {line}").split_whitespace())?;
        let Command::Calc(CalcCommand::Load(arguments)) = cli.command else { panic!("another command") };
        Ok(arguments)
    }

    fn rows(line: &str) -> Vec<Vec<String>> {
        let text = page(&compute(&arguments(line).unwrap()));
        text.lines().map(|line| line.split_whitespace().map(str::to_owned).collect()).collect()
    }

    #[test]
    fn case_067_the_worked_example() {
        let rows = rows("--host a=35/55/10/70 --host b=25/45/14/89 --weights 30/30/25/15");
        assert_eq!(rows[1], ["a", "10.500", "16.500", "17.857", "11.798", "56.65", "preferred"]);
        assert_eq!(rows[2], ["b", "7.500", "13.500", "25.000", "15.000", "61.00"]);
    }

    #[test]
    fn case_068_hosts_that_are_equal_are_all_preferred() {
        let rows = rows("--host a=0/0/0/0 --host b=0/0/0/0");
        assert!(rows[1].ends_with(&["0.00".into(), "preferred".into()]));
        assert!(rows[2].ends_with(&["0.00".into(), "preferred".into()]));
        assert_eq!(rows.last().unwrap().join(" "), "the preferred hosts are equally good: chance decides");
    }

    #[test]
    fn what_is_not_known_takes_the_median_and_says_so() {
        let rows = rows("--host a=10/50/2/8 --host b=30/50/2/8 --host c=-/50/2/8");
        assert_eq!(rows[3][1], "3.000", "15 percent of the 20 between 10 and 30");
        assert!(rows[3].ends_with(&["median".into(), "for".into(), "cpu".into()]), "{rows:?}");
    }

    #[test]
    fn case_145_what_cannot_be_is_refused_with_what_can() {
        let refusal = |line| arguments(line).unwrap_err().to_string();
        assert!(refusal("--host a=354/1/1/1").contains("CPU = 354: allowed are 0..=100"));
        assert!(refusal("--host a=NaN/1/1/1").contains("CPU = NaN"));
        assert!(refusal("--host a=1/1/-1/1").contains("users = -1"));
        assert!(refusal("--host a=1/1/1").contains("3 numbers, must be 4"));
        assert!(refusal("--host 1/1/1/1").contains("NAME=CPU/MEM/USERS/PROCS"));
        assert!(refusal("--host a=1/1/1/1 --weights 30/30/25/10").contains("add up to 95"));
        assert!(refusal("").contains("required"));
    }
}
