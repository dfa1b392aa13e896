//! How are the hosts?

use clap::{Args, Subcommand};
use usher_proto::v1;
use usher_proto::v1::directory_service_client::DirectoryServiceClient;

use crate::commands::Context;
use crate::failure::Failure;
use crate::output::table::{Grid, cell, state_cell};
use crate::output::text::{
    ABSENT, clean, clean_or_dash, decimal, list as words_list, milliseconds, or_dash, percent,
};
use crate::output::{emit, json::emit_json, words::word};

mod marks;
mod one_host;

/// Arguments of `hosts`.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  usherctl hosts                            every host of the farm
  usherctl hosts --pool desk                those of one pool
  usherctl hosts --json                     for scripts

AI: availability index, 100 is good. W: weighted load, 0 is good. PENDING: users on their way.
AGE: since the values were measured. NOTES: why it is in its state, and what counts against it.
A dash: not known")]
pub(crate) struct ListArguments {
    /// Only hosts of this pool
    #[arg(long)]
    pool: Option<String>,
}

/// Arguments of `host`.
#[derive(Debug, Subcommand)]
#[command(after_help = "Examples:
  usherctl host show app1                   everything that is known of a host
  usherctl host set app1 --max-users 40     what an admin says of it")]
pub(crate) enum HostCommand {
    /// Show everything that is known of a host
    #[command(after_help = "Examples:
  usherctl host show app1                   by name
  usherctl host show 3f0c4a52-7d5e-4c7a-9a58-0a1f6d2b9e11
  usherctl host show app1 --json            for scripts")]
    Show {
        /// Name or id of the host
        host: String,
    },
    /// Set what an admin says of a host: its size, its limits, or that it is busy
    Set(marks::SetArguments),
}

/// Lists the hosts.
pub(crate) async fn list(context: &Context, arguments: ListArguments) -> Result<(), Failure> {
    let request = v1::ListHostsRequest { pool: arguments.pool };
    let response = context
        .coordinators()?
        .call("listing the hosts", async |channel, call| {
            DirectoryServiceClient::new(channel).list_hosts(call.request(request.clone())).await
        })
        .await?;
    if context.json() { emit_json(&response) } else { emit(&table(&response)) }
}

/// Shows one host, or sets what is its own.
pub(crate) async fn host(context: &Context, command: HostCommand) -> Result<(), Failure> {
    match command {
        HostCommand::Show { host } => show(context, host).await,
        HostCommand::Set(arguments) => marks::set(context, arguments).await,
    }
}

async fn show(context: &Context, host: String) -> Result<(), Failure> {
    let operation = format!("looking up host {host}");
    let request = v1::GetHostRequest { host };
    let response = context
        .coordinators()?
        .call(&operation, async |channel, call| {
            DirectoryServiceClient::new(channel).get_host(call.request(request.clone())).await
        })
        .await?;
    if context.json() { emit_json(&response) } else { emit(&one_host::page(&response)) }
}

/// The hosts as a table, in the order of the answer.
pub(crate) fn table(response: &v1::ListHostsResponse) -> String {
    let header = [
        "NAME", "POOL", "STATE", "AI", "W", "CPU", "MEM", "USERS", "PENDING", "PROCS", "AGE", "FLAGS",
        "NOTES",
    ];
    let mut grid = Grid::new(&header, &[3, 4, 5, 6, 7, 8, 9, 10]);
    for host in &response.hosts {
        grid.row([
            cell(clean(&host.host_name)),
            cell(clean_or_dash(&host.pool)),
            state_cell(host.state),
            cell(decimal(host.availability_index, 0)),
            cell(decimal(host.weighted_load.as_ref().map(|terms| terms.weighted_load), 2)),
            cell(percent(host.cpu_percent)),
            cell(percent(host.memory_percent)),
            cell(or_dash(host.users)),
            cell(host.pending_users.to_string()),
            cell(or_dash(host.processes)),
            cell(milliseconds(host.load_age_ms)),
            cell(flags(host)),
            cell(notes(host).join("; ")),
        ]);
    }
    let mut text = grid.render();
    if response.hosts.is_empty() {
        text = "no hosts".to_owned();
    }
    if response.hosts_heard < response.hosts_registered {
        text += &format!("\n\n{} of {} hosts are heard", response.hosts_heard, response.hosts_registered);
    }
    text
}

/// The flags of a host, `virtual` among them: a modelled host must never be taken for a real one.
fn flags(host: &v1::HostInfo) -> String {
    let mut flags = host.flags.clone();
    if host.r#virtual && !flags.iter().any(|flag| flag == "virtual") {
        flags.push("virtual".to_owned());
    }
    let listed = words_list(&flags);
    if listed == ABSENT { String::new() } else { listed }
}

/// Why it is in its state, and what else a person must know to understand where logins go.
fn notes(host: &v1::HostInfo) -> Vec<String> {
    let mut notes = Vec::new();
    if !host.state_reason.is_empty() {
        notes.push(clean(&host.state_reason));
    } else if !host.busy_reasons.is_empty() {
        notes.push(format!("busy: {}", words_list(&host.busy_reasons)));
    }
    notes.extend(host.penalties.iter().map(penalty));
    notes.extend(host.ramp.map(ramp));
    notes.extend(host.marks.as_ref().and_then(marks::marks).map(|marks| format!("set: {marks}")));
    notes.extend(host.settings_differ.then(|| "has settings of another coordinator".to_owned()));
    notes.extend(host.reporter.then(|| "reporter".to_owned()));
    notes
}

/// `last for FAILED, 45.0s left`, with the gateway if it is one's alone.
fn penalty(penalty: &v1::Penalty) -> String {
    let cause = word::<v1::PenaltyCause>(penalty.cause);
    let mut text = match penalty.left_ms {
        0 => format!("one logon at a time for {cause}"),
        left => format!("last for {cause}, {} left", milliseconds(Some(left))),
    };
    if let Some(gateway) = &penalty.gateway {
        text += &format!(", to gateway {} only", clean(gateway));
    }
    text
}

fn ramp(share: f64) -> String {
    format!("ramping up: {:.0}% of its capacity counts", 100.0 * share)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn absent_values_are_dashes_and_rows_keep_their_order() {
        let busy = v1::HostInfo {
            host_name: "zeta".into(),
            pool: "desk".into(),
            state: v1::HostState::Busy.into(),
            availability_index: Some(44.63),
            weighted_load: Some(v1::LoadTerms { weighted_load: 56.6549, ..Default::default() }),
            cpu_percent: Some(35.0),
            memory_percent: Some(55.04),
            users: Some(10),
            pending_users: 2,
            processes: Some(70),
            load_age_ms: Some(1_250),
            flags: vec!["sparse".into()],
            r#virtual: true,
            ..Default::default()
        };
        let silent = v1::HostInfo {
            host_name: "alpha\u{1b}[2J".into(),
            pool: "desk".into(),
            state: v1::HostState::Unknown.into(),
            ..Default::default()
        };
        let response =
            v1::ListHostsResponse { hosts: vec![busy, silent], hosts_heard: 1, hosts_registered: 2 };
        let text = table(&response);
        let rows: Vec<Vec<&str>> = text.lines().map(|line| line.split_whitespace().collect()).collect();
        assert_eq!(
            rows[1],
            [
                "zeta",
                "desk",
                "BUSY",
                "45",
                "56.65",
                "35.0%",
                "55.0%",
                "10",
                "2",
                "70",
                "1.2s",
                "sparse,virtual"
            ]
        );
        assert_eq!(rows[2], ["alpha\\u{1b}[2J", "desk", "UNKNOWN", "-", "-", "-", "-", "-", "0", "-", "-"]);
        assert!(text.ends_with("1 of 2 hosts are heard"));
    }

    #[test]
    fn what_counts_against_a_host_is_noted_beside_it() {
        let penalty = |gateway: Option<&str>, left_ms| v1::Penalty {
            gateway: gateway.map(str::to_owned),
            cause: v1::PenaltyCause::Failed.into(),
            left_ms,
            times: 1,
        };
        let host = v1::HostInfo {
            state_reason: "availability index 25.0, threshold 30".into(),
            busy_reasons: vec!["availability".into()],
            penalties: vec![penalty(None, 45_000), penalty(Some("g1"), 0)],
            ramp: Some(0.35),
            marks: Some(v1::HostMarks { busy: true, ..Default::default() }),
            reporter: true,
            ..Default::default()
        };
        assert_eq!(
            notes(&host),
            [
                "availability index 25.0, threshold 30",
                "last for FAILED, 45.0s left",
                "one logon at a time for FAILED, to gateway g1 only",
                "ramping up: 35% of its capacity counts",
                "set: busy",
                "reporter"
            ]
        );
        let terse = v1::HostInfo { state_reason: String::new(), ..host };
        assert_eq!(notes(&terse)[0], "busy: availability");
        assert!(notes(&v1::HostInfo::default()).is_empty());
    }

    #[test]
    fn an_empty_farm_says_so() {
        assert_eq!(table(&v1::ListHostsResponse::default()), "no hosts");
    }
}
