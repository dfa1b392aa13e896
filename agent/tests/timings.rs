//! What becomes of lines that programs send to a running agent's socket?

#![allow(clippy::unwrap_used, reason = "a test's tool fails as a test does")]

mod support;

use serde_json::Value;
use support::{Agent, Coordinator, config, soon};
use tokio::net::UnixDatagram;
use usher_agent::config::AgentConfig;
use usher_agent::latency::baseline_file::{BaselineFile, BaselineOrigin, BaselineOwner};
use usher_agent::latency::listener::MAX_DATAGRAM_BYTES;
use usher_agent::local::{Answer, Request, ask};
use usher_proto::v1;
use usher_proto::v1::attach_request::Message as FromAgent;
use usher_runtime::config::HumanDuration;

/// An agent of this machine that nobody hears, and a program of the machine that tells it of its calls.
struct Host {
    config: AgentConfig,
    agent: Agent,
    program: UnixDatagram,
    folder: tempfile::TempDir,
}

impl Host {
    async fn start(set: impl FnOnce(&mut AgentConfig)) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let mut config = AgentConfig { name: Some("h1".into()), ..config(folder.path(), &[]) };
        config.coordinators = vec!["127.0.0.1:1".into()];
        set(&mut config);
        let agent = Agent::start(config.clone(), None);
        let host = Self { config, agent, program: UnixDatagram::unbound().unwrap(), folder };
        host.listens().await;
        host
    }

    async fn listens(&self) {
        let sockets = [self.config.statsd_socket().unwrap(), self.config.local_socket()];
        soon("the sockets", async {
            while !sockets.iter().all(|socket| socket.exists()) {
                tokio::task::yield_now().await;
            }
        })
        .await;
    }

    async fn send(&self, datagram: &[u8]) {
        self.program.send_to(datagram, self.config.statsd_socket().unwrap()).await.unwrap();
    }

    async fn status(&self) -> Value {
        match ask(&self.config.local_socket(), &Request::Status {}).await.unwrap() {
            Answer::Status(status) => status,
            other => panic!("no status: {other:?}"),
        }
    }

    /// The first status for which `holds`.
    async fn shows(&self, what: &str, mut holds: impl FnMut(&Value) -> bool) -> Value {
        soon(what, async {
            loop {
                let status = self.status().await;
                if holds(&status) {
                    return status;
                }
            }
        })
        .await
    }

    /// As [`Host::shows`], when so many calls of `name` were counted as successful.
    async fn counts(&self, name: &str, calls: f64) -> Value {
        self.shows("the calls", |status| total(status, name)["ok"].as_f64().is_some_and(|ok| ok >= calls))
            .await
    }
}

fn operation<'a>(status: &'a Value, name: &str) -> &'a Value {
    let operations = status["operations"].as_array().unwrap();
    operations.iter().find(|one| one["name"] == name).unwrap_or(&Value::Null)
}

fn total<'a>(status: &'a Value, name: &str) -> &'a Value {
    &operation(status, name)["total"]
}

/// The availability index of one operation's window at a range of 6, as any coordinator computes it. Absent: no call, or no
/// baseline yet.
fn index(status: &Value, name: &str) -> Option<f64> {
    let operation = operation(status, name);
    let (mean_us, baseline_us) =
        (operation["window"]["mean_us"].as_f64()?, operation["baseline"]["baseline_us"].as_f64()?);
    Some(100.0 * (1.0 - (mean_us / baseline_us).max(1.0).log2() / 6.0))
}

fn numbers<const N: usize>(object: &Value, keys: [&str; N]) -> [f64; N] {
    keys.map(|key| object[key].as_f64().unwrap_or_else(|| panic!("no {key} in {object}")))
}

#[tokio::test]
async fn case_043_a_zero_is_counted_apart_and_makes_no_minimum() {
    let host = Host::start(|_| ()).await;
    host.send(format!("open_db:0|ms\n{}", "open_db:12|ms\n".repeat(99)).as_bytes()).await;
    let status = host.counts("open_db", 99.0).await;
    let told = numbers(total(&status, "open_db"), ["ok", "failed", "mean_us", "min_us"]);
    assert_eq!(told, [99.0, 0.0, 12_000.0, 12_000.0]);
    assert_eq!(status["timings"]["lines"]["below_resolution"], 1);
    // It does not look loaded either: all calls took as long as they ever did.
    let status = host.shows("a baseline", |status| index(status, "open_db").is_some()).await;
    assert_eq!(index(&status, "open_db"), Some(100.0));
    host.agent.stop().await;
}

#[tokio::test]
async fn case_046_the_cut_line_of_a_datagram_that_is_too_long_is_no_call() {
    let host = Host::start(|_| ()).await;
    let cuts = ["save_note:15", "save_note:1500|m", "save_note:1500|ms|@0."];
    let line = b"open_db:7|ms\n";
    let mut sent = 0;
    for cut in cuts {
        let lines = (MAX_DATAGRAM_BYTES + 1 - cut.len()) / line.len();
        let mut datagram = line.repeat(lines);
        // Blank lines fill it up to one byte more than is read.
        datagram.resize(MAX_DATAGRAM_BYTES + 1 - cut.len(), b'\n');
        datagram.extend_from_slice(cut.as_bytes());
        host.send(&datagram).await;
        sent += lines;
    }
    let status = host.counts("open_db", sent as f64).await;
    assert_eq!(total(&status, "open_db")["ok"], sent as f64);
    assert_eq!(operation(&status, "save_note"), &Value::Null, "no call of 15 ms");
    let lines = &status["timings"]["lines"];
    assert_eq!(lines["truncated_datagrams"], cuts.len(), "{lines}");
    assert!(lines["rejected"].as_object().unwrap().values().all(|count| count == 0), "{lines}");
    host.agent.stop().await;
}

#[tokio::test]
async fn case_047_052_what_is_a_plain_number_counts_and_only_that() {
    let host = Host::start(|_| ()).await;
    host.send(b"open_db:100|ms\r\n\n").await;
    host.send(b"q:12.5|ms\nq:0.35|ms\nq:12,5|ms\nq:0x10|ms\nq:1_000|ms\nq: 12|ms").await;
    let status = host.counts("q", 2.0).await;
    assert_eq!(numbers(total(&status, "open_db"), ["ok", "mean_us"]), [1.0, 100_000.0]);
    assert_eq!(numbers(total(&status, "q"), ["ok", "sum_us", "min_us"]), [2.0, 12_850.0, 350.0]);
    let lines = &status["timings"]["lines"];
    let rejected: u64 = lines["rejected"].as_object().unwrap().values().map(|n| n.as_u64().unwrap()).sum();
    assert_eq!((&lines["accepted"], &lines["rejected"]["value"], rejected), (&3.into(), &4.into(), 4));
    host.agent.stop().await;
}

/// The freak call stands among 2499 others of its period, and what was learned outlives the agent.
#[tokio::test]
async fn case_056_one_freak_fast_call_costs_no_point_before_and_after_a_restart() {
    let mut host = Host::start(|_| ()).await;
    let steady = "q:1|ms|@0.01\n".repeat(25);
    for fast in ["", "q:0.001|ms\n", "", ""] {
        let before = host.status().await;
        let sent = total(&before, "q")["ok"].as_f64().unwrap_or_default() + 2500.0;
        host.send(format!("{fast}{steady}").as_bytes()).await;
        host.counts("q", sent).await;
        host.shows("the end of the period", |status| status["operations"] != before["operations"]).await;
    }
    let is_healthy = |status: &Value| index(status, "q").is_some_and(|index| index >= 99.0);
    host.shows("a healthy index", is_healthy).await;
    host.agent.stop().await;
    // Both estimators, as they are on the disk.
    let state = host.folder.path().join("state");
    let host_id = std::fs::read_to_string(state.join("host_id")).unwrap().trim().to_owned();
    let file = BaselineFile::new(state.join("baselines"), BaselineOwner { host_id, cpu_model: None });
    let kept = file.load(0);
    assert_eq!(kept.origin, BaselineOrigin::File);
    let record = &kept.baselines["q"];
    for lowest_us in [record.minimum.lowest_us, record.robust.lowest_us] {
        assert!(lowest_us.is_some_and(|us| (990.0..=1000.0).contains(&us)), "{record:?}");
    }

    host.agent = Agent::start(host.config.clone(), None);
    host.listens().await;
    soon("an answer", async {
        while ask(&host.config.local_socket(), &Request::Status {}).await.is_err() {
            tokio::task::yield_now().await;
        }
    })
    .await;
    host.send(steady.as_bytes()).await;
    host.shows("a healthy index after the restart", is_healthy).await;
    host.agent.stop().await;
}

/// Calls with numbers for durations, while periods end and reports are made at any moment.
#[tokio::test]
async fn case_063_no_call_is_lost_or_counted_twice_at_the_ends_of_periods() {
    const CALLS: u32 = 1500;
    let mut coordinator = Coordinator::start().await;
    let address = coordinator.address.clone();
    let host = Host::start(|config| {
        config.coordinators = vec![address];
        config.latency.period = HumanDuration::from_millis(100);
        // As many periods as are needed for all calls to be in one window at the end.
        config.latency.periods = 20;
    })
    .await;
    let mut stream = coordinator.greeted().await;
    let mut asked = 0;
    for batch in (1..=CALLS).collect::<Vec<_>>().chunks(10) {
        let lines: String = batch.iter().map(|number| format!("q:{number}|ms\n")).collect();
        host.send(lines.as_bytes()).await;
        if batch[0] % 7 == 0 {
            // A look at the window in the middle of a period takes nothing out of it.
            host.status().await;
            asked += 1;
        }
    }
    assert!(asked > 10);
    let status = host.counts("q", f64::from(CALLS)).await;
    let sum_us = 1000.0 * f64::from(CALLS * (CALLS + 1) / 2);
    let told = numbers(total(&status, "q"), ["ok", "failed", "too_long", "sum_us", "min_us"]);
    assert_eq!(told, [f64::from(CALLS), 0.0, 0.0, sum_us, 1000.0]);
    let is_whole = |window: &v1::OperationWindow| window.name == "q" && window.ok >= f64::from(CALLS);
    let window = stream
        .wait_for("a window with all calls", |message| match message {
            FromAgent::Latency(latency) => latency.operations.into_iter().find(is_whole),
            _ => None,
        })
        .await;
    assert_eq!((window.ok, window.sum_us), (f64::from(CALLS), sum_us));
    host.agent.stop().await;
}
