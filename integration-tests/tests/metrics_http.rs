//! Can a monitoring system read what the HTTP port says?

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::collections::{BTreeMap, BTreeSet};

use tonic::Code;
use usher_integration_tests::{
    Client, FakeAgent, Farm, LONG, Process, binary, hello, http_get, load, place, wait_for, wait_until,
};
use usher_proto::v1;

/// One sample of an exposition: name, labels as written, value.
type Sample = (String, String, f64);

/// Reads the text form of Prometheus as strictly as its documentation has it: each family has HELP and TYPE once, before
/// its samples, which stand together; names and labels are well formed; counters end in `_total`; no sample comes twice.
fn parse(text: &str) -> Vec<Sample> {
    assert!(text.ends_with('\n'), "the last line must end");
    let (mut helps, mut types) = (BTreeSet::new(), BTreeMap::new());
    let (mut samples, mut seen, mut finished) = (Vec::new(), BTreeSet::new(), BTreeSet::new());
    let mut current = String::new();
    for line in text.lines() {
        if let Some(rest) = line.strip_prefix("# HELP ") {
            let (name, help) = rest.split_once(' ').unwrap_or_else(|| panic!("{line}"));
            assert!(!help.is_empty() && helps.insert(name.to_owned()), "{line}");
        } else if let Some(rest) = line.strip_prefix("# TYPE ") {
            let (name, kind) = rest.split_once(' ').unwrap_or_else(|| panic!("{line}"));
            assert!(["counter", "gauge", "histogram", "summary", "untyped"].contains(&kind), "{line}");
            assert!(types.insert(name.to_owned(), kind.to_owned()).is_none(), "{line}");
        } else if !line.starts_with('#') && !line.is_empty() {
            let (name, labels, value) = sample(line);
            let family = family_of(&name, &types);
            assert!(helps.contains(&family), "no HELP before {line}");
            if current != family {
                assert!(finished.insert(family.clone()), "samples of {family} stand apart");
                current.clone_from(&family);
            }
            assert!(types[&family] != "counter" || name.ends_with("_total"), "{line}");
            assert!(seen.insert((name.clone(), labels.clone())), "twice: {line}");
            samples.push((name, labels, value));
        }
    }
    samples
}

fn family_of(name: &str, types: &BTreeMap<String, String>) -> String {
    let is_family = |candidate: &&str| types.contains_key(*candidate);
    let parts = ["", "_bucket", "_sum", "_count"];
    let candidates = parts.iter().filter_map(|part| name.strip_suffix(part));
    candidates.into_iter().find(is_family).unwrap_or_else(|| panic!("no TYPE before {name}")).to_owned()
}

fn sample(line: &str) -> Sample {
    let (series, value) = line.rsplit_once(' ').unwrap_or_else(|| panic!("{line}"));
    let (name, labels) = match series.split_once('{') {
        Some((name, rest)) => (name, rest.strip_suffix('}').unwrap_or_else(|| panic!("{line}"))),
        None => (series, ""),
    };
    let is_name = |text: &str| {
        !text.is_empty()
            && !text.starts_with(|first: char| first.is_ascii_digit())
            && text.chars().all(|c| c.is_ascii_alphanumeric() || c == '_' || c == ':')
    };
    assert!(is_name(name), "{line}");
    let mut rest = labels;
    while !rest.is_empty() {
        let (label, quoted) = rest.split_once("=\"").unwrap_or_else(|| panic!("{line}"));
        assert!(is_name(label) && !label.contains(':'), "{line}");
        // No value of ours holds a quote or a backslash.
        let (value, after) = quoted.split_once('"').unwrap_or_else(|| panic!("{line}"));
        assert!(!value.contains('\\'), "{line}");
        rest = after.strip_prefix(',').unwrap_or(after);
    }
    let value = value.replace("+Inf", "inf").parse().unwrap_or_else(|_| panic!("{line}"));
    (name.to_owned(), labels.to_owned(), value)
}

#[tokio::test]
async fn the_metrics_are_strict_prometheus_text_and_count_what_happened() {
    let farm = Farm::start().await;
    let client = farm.client();
    let mut host = FakeAgent::attach(&client, hello("h1")).await.unwrap();
    host.report(load(10.0, 10.0, 1, 10)).await;
    host.report(v1::Load { cpu_percent: Some(f64::NAN), ..load(10.0, 10.0, 1, 10) }).await;
    client.place(place("desk", "R1")).await.unwrap();
    client.place(place("desk", "R2")).await.unwrap();
    assert_eq!(client.place(place("nowhere", "R3")).await.unwrap_err().code(), Code::NotFound);

    let answer = http_get(farm.coordinator.http, "/metrics").await;
    assert_eq!(answer.status, 200);
    assert!(
        answer.head.to_ascii_lowercase().contains("content-type: text/plain; version=0.0.4"),
        "{}",
        answer.head
    );
    let samples = parse(&answer.body);
    let value = |name: &str, labels: &[&str]| {
        let name = format!("usher_coordinator_{name}");
        let holds =
            |(found, of, _): &&Sample| *found == name && labels.iter().all(|label| of.contains(label));
        let found: Vec<f64> = samples.iter().filter(holds).map(|(_, _, value)| *value).collect();
        assert_eq!(found.len(), 1, "{name} {labels:?} in {samples:?}");
        found[0]
    };
    assert_eq!(value("placements_total", &["pool=\"desk\"", "reason=\"LOWEST_LOAD\""]), 2.0);
    assert_eq!(value("placements_total", &["reason=\"UNKNOWN_POOL\""]), 1.0);
    assert_eq!(value("hosts", &["pool=\"desk\"", "state=\"AVAILABLE\""]), 1.0);
    assert_eq!(value("reservations", &[]), 2.0);
    assert_eq!(value("streams_open", &[]), 1.0);
    assert_eq!(value("reports_total", &["kind=\"load\""]), 2.0);
    assert_eq!(value("report_values_rejected_total", &["field=\"cpu_percent\""]), 1.0);
    assert_eq!(value("place_duration_seconds_count", &[]), 3.0);
    assert_eq!(value("place_duration_seconds_bucket", &["le=\"+Inf\""]), 3.0);
    assert!(!answer.body.contains("nowhere"), "a caller's text is no label");
}

#[tokio::test]
async fn it_is_healthy_while_it_lives_and_ready_once_it_may_place() {
    let mut farm = Farm::start().on_fixed_ports().await;
    let http = farm.coordinator.http;
    for path in ["/healthz", "/readyz"] {
        let answer = http_get(http, path).await;
        assert_eq!(answer.status, 200, "{path}: {answer:?}");
    }
    assert_eq!(http_get(http, "/nothing").await.status, 404);
    let mut agent = farm.agent("hosts").host("h1", "cpu=10,users=1").await;

    // It stores what it knew at its end; a new one waits for that.
    farm.coordinator.terminate();
    assert_eq!(farm.coordinator.ended(LONG).await.code(), Some(0));
    agent.kill();
    farm.coordinator.restart().await;
    let waiting = http_get(http, "/readyz").await;
    assert_eq!(waiting.status, 503, "{waiting:?}");
    assert!(waiting.body.contains("grace") && waiting.body.contains("desk"), "{waiting:?}");
    assert_eq!(http_get(http, "/healthz").await.status, 200);
    agent.restart();
    wait_for("it to be ready", LONG, async || {
        let answer = http_get(http, "/readyz").await;
        if answer.status == 200 { Ok(()) } else { Err(answer.body) }
    })
    .await;
    let placed = farm.client().place(place("desk", "R1")).await;
    // After ten seconds it would be ready without the host too; with it, it can place.
    wait_until("a place", LONG, async || {
        placed.is_ok() || farm.client().place(place("desk", "R1")).await.is_ok()
    })
    .await;
}

/// TCP ports that a process listens on.
fn listening_ports(pid: u32) -> BTreeSet<u16> {
    let files = std::fs::read_dir(format!("/proc/{pid}/fd")).unwrap();
    let links = files.filter_map(|file| std::fs::read_link(file.unwrap().path()).ok());
    let sockets: BTreeSet<String> = links
        .filter_map(|link| Some(link.to_str()?.strip_prefix("socket:[")?.strip_suffix(']')?.to_owned()))
        .collect();
    let tables = ["tcp", "tcp6"].map(|name| std::fs::read_to_string(format!("/proc/{pid}/net/{name}")));
    let tables = tables.map(Result::unwrap_or_default).concat();
    let ports = tables.lines().filter_map(|line| {
        let words: Vec<&str> = line.split_whitespace().collect();
        // The local address, the state (0A: it listens), the inode.
        let (local, state, inode) = (words.get(1)?, words.get(3)?, words.get(9)?);
        let ours = *state == "0A" && sockets.contains(*inode);
        ours.then(|| u16::from_str_radix(local.rsplit(':').next()?, 16).ok())?
    });
    ports.collect()
}

#[tokio::test]
async fn without_http_it_serves_grpc_and_listens_nowhere_else() {
    let farm = Farm::start().await;
    let both = BTreeSet::from([farm.coordinator.grpc.port(), farm.coordinator.http.port()]);
    assert_eq!(listening_ports(farm.coordinator.pid()), both);

    let folder = tempfile::tempdir().unwrap();
    let settings = folder.path().join("coordinator.toml");
    std::fs::write(&settings, "").unwrap();
    let mut command = std::process::Command::new(binary("usher-coordinator"));
    command.arg("--config").arg(&settings).arg("--data-dir").arg(folder.path());
    command.args(["--listen", "127.0.0.1:0", "--http-listen", "none"]);
    let without = Process::start("coordinator", &mut command, &folder.path().join("log"));
    let said = wait_for("the coordinator to listen", LONG, async || {
        let text = std::fs::read(folder.path().join("listening.json")).map_err(|error| error.to_string())?;
        serde_json::from_slice::<serde_json::Value>(&text).map_err(|error| error.to_string())
    })
    .await;
    assert!(said["http"].is_null(), "{said}");
    let grpc: std::net::SocketAddr = said["grpc"].as_str().unwrap().parse().unwrap();
    assert!(Client::new(grpc, None).hosts().await.unwrap().is_empty());
    assert_eq!(listening_ports(without.pid()), BTreeSet::from([grpc.port()]));
}
