//! Everything that is known of one host, on one page.

use usher_proto::v1;

use super::{marks::marks, penalty, ramp};

use crate::output::table::{Facts, Grid, cell};
use crate::output::text::{
    bytes, clean, clean_or_dash, decimal, list, microseconds, milliseconds, or_dash, percent,
};
use crate::output::words;

/// The page. Parts about which nothing is known are left out.
pub(super) fn page(response: &v1::GetHostResponse) -> String {
    let Some(host) = &response.host else {
        return "the coordinator's answer holds no host".to_owned();
    };
    let parts = [
        Some(identity(host)),
        Some(load(host)),
        host.weighted_load.as_ref().map(terms),
        (!response.operations.is_empty()).then(|| operations(&response.operations)),
        (!response.pending.is_empty()).then(|| pending(&response.pending)),
        (!response.sessions.is_empty()).then(|| sessions(&response.sessions)),
        (!host.collectors.is_empty()).then(|| collectors(&host.collectors)),
    ];
    parts.into_iter().flatten().collect::<Vec<_>>().join("\n\n")
}

fn identity(host: &v1::HostInfo) -> String {
    let mut facts = Facts::new();
    facts.fact("host", clean(&host.host_name));
    facts.fact("id", clean(&host.host_id));
    facts.fact("pool", clean(&host.pool));
    facts.fact_if("zone", host.zone.as_deref().map(clean));
    facts.fact("endpoints", words::endpoints(&host.endpoints));
    let mut labels: Vec<String> = host.labels.iter().map(|(name, value)| format!("{name}={value}")).collect();
    labels.sort();
    facts.fact_if("labels", (!labels.is_empty()).then(|| list(&labels)));
    let state = words::word::<v1::HostState>(host.state);
    let because = if host.state_reason.is_empty() { "" } else { ": " };
    facts.fact("state", format!("{state}{because}{}", clean(&host.state_reason)));
    facts.fact_if("flags", (!host.flags.is_empty()).then(|| list(&host.flags)));
    facts.fact_if("held busy by", (!host.busy_reasons.is_empty()).then(|| list(&host.busy_reasons)));
    for held in &host.penalties {
        facts.fact("penalty", penalty(held));
    }
    facts.fact_if("ramp", host.ramp.map(ramp));
    let mark = host.drain.as_ref().filter(|_| host.drain != host.host_drain);
    facts.fact_if("drain", mark.map(drain));
    facts.fact_if("drain, kept by the host", host.host_drain.as_ref().map(drain));
    facts.fact_if("set by an admin", host.marks.as_ref().and_then(marks));
    if host.reporter {
        facts.fact("reporter", "yes: it cannot be asked, and lists no places");
    }
    if host.r#virtual {
        facts.fact("virtual", "yes: its values are modelled, not measured");
    }
    facts.fact("stream", if host.connected { "open" } else { "none" });
    facts.fact("agent", clean_or_dash(&host.agent_version));
    facts.fact("boot", clean_or_dash(&host.boot_id));
    facts.fact("up for", milliseconds(host.uptime_ms));
    facts.fact(
        "cpu",
        format!("{} x {}", or_dash(host.cores), clean_or_dash(host.cpu_model.as_deref().unwrap_or(""))),
    );
    facts.fact_if("clock", host.clock_skew_ms.map(|skew| format!("{skew:+} ms against the coordinator's")));
    facts.fact_if("refused values", (host.rejected_values > 0).then(|| host.rejected_values.to_string()));
    facts.render()
}

fn drain(drain: &v1::Drain) -> String {
    let mut text = words::word::<v1::DrainMode>(drain.mode);
    if !drain.author.is_empty() {
        text += &format!(" by {}", clean(&drain.author));
    }
    if drain.no_reconnect {
        text += ", no reconnects";
    }
    if !drain.reason.is_empty() {
        text += &format!(": {}", clean(&drain.reason));
    }
    text
}

fn load(host: &v1::HostInfo) -> String {
    let mut facts = Facts::new();
    facts.fact(
        "measured",
        host.load_age_ms.map_or("never".into(), |ms| format!("{} ago", milliseconds(Some(ms)))),
    );
    facts.fact("cpu", percent(host.cpu_percent));
    let memory = match (host.memory_used_bytes, host.memory_total_bytes) {
        (Some(used), Some(total)) => format!(" ({} of {})", bytes(used), bytes(total)),
        _ => String::new(),
    };
    facts.fact("memory", percent(host.memory_percent) + &memory);
    let limit = host.max_users.map_or("no limit".to_owned(), |limit| format!("limit {limit}"));
    let limit = limit + &origin(host, "max_users");
    facts.fact("users", format!("{} ({} on their way, {limit})", or_dash(host.users), host.pending_users));
    facts.fact("logons", format!("{} in progress", host.pending_places));
    facts.fact(
        "sessions",
        format!(
            "{} active, {} disconnected, {} lingering",
            or_dash(host.sessions_active),
            or_dash(host.sessions_disconnected),
            or_dash(host.sessions_lingering)
        ),
    );
    facts.fact("processes", or_dash(host.processes));
    facts.fact("replicas", host.replicas.to_string());
    facts.fact_if("replica lag", host.replica_lag_ms.map(|lag| milliseconds(Some(lag))));
    facts.fact_if(
        "pressure",
        host.psi_full_percent.map(|share| format!("{share:.1}% of the time all waited")),
    );
    let mount = |mount: &v1::MountFullness| format!("{} {:.1}%", clean(&mount.path), mount.used_percent);
    let mounts: Vec<String> = host.mounts.iter().map(mount).collect();
    facts.fact_if("mounts", (!mounts.is_empty()).then(|| mounts.join(", ")));
    let source = match host.availability_source.as_str() {
        "" => String::new(),
        source => format!(" (its own, from {})", clean(source)),
    };
    facts.fact("availability", decimal(host.availability_index, 1) + &source);
    facts.fact("expansion", decimal(host.expansion_factor, 2));
    facts.fact("capacity", host.capacity.to_string() + &origin(host, "capacity"));
    // A coordinator of 0.1 says neither; no host has a range of 0.
    if host.range > 0.0 {
        let threshold = match host.threshold_percent {
            0.0 => "off".to_owned(),
            threshold => threshold.to_string(),
        };
        facts.fact("threshold", threshold + &origin(host, "threshold_percent"));
        facts.fact("range", host.range.to_string() + &origin(host, "range"));
    }
    facts.fact(
        "settings",
        host.settings_version.map_or("not said".into(), |version| {
            let hash = host.settings_hash.map(|hash| format!(" ({hash:016x})")).unwrap_or_default();
            let differ = if host.settings_differ { ", NOT those of this coordinator" } else { "" };
            format!("version {version}{hash}{differ}")
        }),
    );
    facts.render()
}

/// Who made a setting, if it is not the pool's.
fn origin(host: &v1::HostInfo, setting: &str) -> String {
    match host.setting_origins.get(setting).map(String::as_str) {
        Some("admin") => ", set by an admin".to_owned(),
        Some("agent") => ", the host's own".to_owned(),
        _ => String::new(),
    }
}

/// The terms as a sum.
fn terms(terms: &v1::LoadTerms) -> String {
    let mut text = format!(
        "weighted load {:.2} = cpu {:.3} + memory {:.3} + users {:.3} + processes {:.3}",
        terms.weighted_load, terms.cpu, terms.memory, terms.users, terms.processes
    );
    if !terms.filled_in.is_empty() {
        text += &format!("\n  the pool's median stands for: {}", list(&terms.filled_in));
    }
    text
}

fn operations(operations: &[v1::OperationInfo]) -> String {
    let header =
        ["OPERATION", "CALLS", "FAILED", "TOO LONG", "MEAN", "BASELINE", "XF", "IN FLIGHT", "OLDEST"];
    let mut grid = Grid::new(&header, &[1, 2, 3, 4, 5, 6, 7, 8]);
    for operation in operations {
        let Some(window) = &operation.window else { continue };
        let mean_us = (window.ok > 0.0).then(|| window.sum_us / window.ok);
        grid.row([
            cell(clean(&window.name)),
            cell(decimal(Some(window.ok), 0)),
            cell(decimal(Some(window.failed), 0)),
            cell(decimal(Some(window.too_long), 0)),
            cell(microseconds(mean_us)),
            cell(microseconds(window.baseline_us)),
            cell(decimal(operation.expansion_factor, 2)),
            cell(window.in_flight.to_string()),
            cell(milliseconds(window.oldest_in_flight_ms)),
        ]);
    }
    grid.render()
}

fn pending(places: &[v1::PendingPlace]) -> String {
    let mut grid =
        Grid::new(&["PENDING", "GATEWAY", "USER", "COUNTS", "LEFT", "CONNECTED", "CONSENT"], &[3, 4]);
    for place in places {
        let token = place.token.clone().unwrap_or_default();
        grid.row([
            cell(clean_or_dash(&token.request_id)),
            cell(clean_or_dash(&token.gateway)),
            cell(clean_or_dash(place.user.as_deref().unwrap_or(""))),
            cell(place.counted_users.to_string()),
            cell(milliseconds(Some(place.left_ms))),
            cell(yes(place.connected)),
            cell(yes(place.admitted)),
        ]);
    }
    grid.render()
}

fn sessions(sessions: &[v1::Session]) -> String {
    let mut grid = Grid::new(&["SESSION", "USER", "STATE", "AGE"], &[3]);
    for session in sessions {
        grid.row([
            cell(clean_or_dash(&session.id)),
            cell(clean_or_dash(&session.user)),
            cell(words::word::<v1::SessionState>(session.state)),
            cell(milliseconds(session.age_ms)),
        ]);
    }
    grid.render()
}

fn collectors(collectors: &[v1::CollectorState]) -> String {
    let mut grid = Grid::new(&["COLLECTOR", "SOURCE", "STATE"], &[]);
    for collector in collectors {
        let state = match (&collector.error, &collector.warning) {
            (Some(error), _) => format!("error: {}", clean(error)),
            (None, Some(warning)) => format!("warning: {}", clean(warning)),
            (None, None) => "ok".to_owned(),
        };
        grid.row([cell(clean(&collector.name)), cell(clean_or_dash(&collector.source)), cell(state)]);
    }
    grid.render()
}

const fn yes(value: bool) -> &'static str {
    if value { "yes" } else { "no" }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_host_that_was_never_measured_has_dashes_and_no_zeros() {
        let host = v1::HostInfo {
            host_name: "app1".into(),
            state: v1::HostState::Unknown.into(),
            state_reason: "not measured yet".into(),
            capacity: 1.0,
            ..Default::default()
        };
        let text = page(&v1::GetHostResponse { host: Some(host), ..Default::default() });
        let fact = |name: &str| {
            let line = text.lines().find(|line| line.starts_with(name)).unwrap();
            line[name.len()..].trim().to_owned()
        };
        assert_eq!(fact("state"), "UNKNOWN: not measured yet");
        assert_eq!(fact("measured"), "never");
        assert_eq!(fact("memory"), "-");
        assert_eq!(fact("users"), "- (0 on their way, no limit)");
        assert!(!text.contains("weighted load") && !text.contains("OPERATION"));
    }

    #[test]
    fn what_holds_a_host_back_is_on_its_page_with_who_set_it() {
        let host = v1::HostInfo {
            busy_reasons: vec!["memory".into(), "user_set".into()],
            host_drain: Some(v1::Drain { mode: v1::DrainMode::Persistent.into(), ..Default::default() }),
            marks: Some(v1::HostMarks { capacity: Some(2.0), busy: true, ..Default::default() }),
            capacity: 2.0,
            range: 8.0,
            max_users: Some(5),
            setting_origins: [("capacity", "admin"), ("max_users", "agent"), ("range", "pool")]
                .map(|(setting, origin)| (setting.to_owned(), origin.to_owned()))
                .into(),
            availability_source: "domino".into(),
            availability_index: Some(80.0),
            ramp: Some(0.5),
            ..Default::default()
        };
        let text = page(&v1::GetHostResponse { host: Some(host), ..Default::default() });
        for part in [
            "held busy by memory,user_set",
            "drain, kept by the host PERSISTENT",
            "set by an admin capacity 2, busy",
            "50% of its capacity counts",
            "2, set by an admin",
            "limit 5, the host's own",
            "threshold off",
            "80.0 (its own, from domino)",
        ] {
            // However wide the widest name makes the first column.
            let words = text.split_whitespace().collect::<Vec<_>>().join(" ");
            assert!(words.contains(part), "{part} not in {text}");
        }
        assert!(text.lines().any(|line| line.split_whitespace().eq(["range", "8"])), "{text}");
    }

    #[test]
    fn operations_show_their_expansion_and_collectors_their_errors() {
        let window = v1::OperationWindow {
            name: "open_db".into(),
            ok: 90.0,
            sum_us: 90.0 * 40_000.0,
            baseline_us: Some(10_000.0),
            ..Default::default()
        };
        let collector = v1::CollectorState {
            name: "users".into(),
            source: "utmp".into(),
            error: Some("no such file".into()),
            warning: None,
        };
        let host = v1::HostInfo {
            collectors: vec![collector],
            weighted_load: Some(v1::LoadTerms {
                cpu: 10.5,
                memory: 16.5,
                users: 17.857,
                processes: 11.798,
                weighted_load: 56.6549,
                filled_in: vec!["cpu".into()],
            }),
            ..Default::default()
        };
        let operations = vec![v1::OperationInfo { window: Some(window), expansion_factor: Some(4.0) }];
        let text = page(&v1::GetHostResponse { host: Some(host), operations, ..Default::default() });
        assert!(
            text.contains(
                "weighted load 56.65 = cpu 10.500 + memory 16.500 + users 17.857 + processes 11.798"
            )
        );
        assert!(text.contains("the pool's median stands for: cpu"), "{text}");
        let row: Vec<&str> =
            text.lines().find(|line| line.starts_with("open_db")).unwrap().split_whitespace().collect();
        assert_eq!(row, ["open_db", "90", "0", "0", "40.0ms", "10.0ms", "4.00", "0", "-"]);
        assert!(text.contains("error: no such file"));
    }
}
