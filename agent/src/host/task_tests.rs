use std::time::Duration;

use usher_placement::host::{CoreSettings, Measurement, NameHasher, NameSettings};
use usher_runtime::clock::SystemClock;
use usher_types::{
    BootId, Endpoint, Hello, HostId, HostMarks, HostName, HostOverrides, LogonsInProgress, Policy, PoolName,
    SessionState, UserKey, UserNames,
};

use super::*;
use crate::host::{BaselineSource, HostHandle, HostSetup, OpenHost, open};
use crate::latency::listener::OwnedTiming;

const LONG: Duration = Duration::from_secs(60);

#[derive(Debug)]
struct OneHash;

impl NameHasher for OneHash {
    fn hash(&self, _: &UserKey) -> UserKey {
        UserKey::hashed("ab12", "c0ffee")
    }
}

fn hello(host_id: HostId) -> Hello {
    Hello {
        agent_version: "test".into(),
        host_id,
        boot_id: BootId::new("b1").unwrap(),
        stream_epoch: 0,
        incarnation_ms: 1,
        host_name: HostName::new("h1").unwrap(),
        endpoints: vec![Endpoint { kind: "ssh".into(), address: "192.0.2.1".into(), port: 22 }],
        labels: Default::default(),
        pool: PoolName::new("desk").unwrap(),
        zone: None,
        cores: None,
        memory_bytes: None,
        cpu_model: None,
        report_interval: Duration::from_secs(5),
        latency_period: Duration::from_secs(15),
        is_virtual: false,
        is_reporter: false,
    }
}

fn opened(folder: &std::path::Path, names: NameSettings) -> OpenHost {
    let setup = HostSetup {
        occupancy_log: None,
        state_folder: folder.join("state"),
        runtime_folder: folder.join("run"),
        boot_id: BootId::new("b1").unwrap(),
        baselines: BaselineSource::Kept,
        placed: None,
        refreshable: false,
        board: crate::standing::StandingBoard::default(),
    };
    let core = CoreSettings {
        pool: PoolName::new("desk").unwrap(),
        overrides: HostOverrides::default(),
        incarnation_ms: 1,
        latency_period: Duration::from_secs(15),
        periods: 5,
        max_names: 16,
        names,
        coordinators: vec!["c1:7420".into()],
        report_interval: Duration::from_secs(5),
    };
    open(setup, core, Arc::new(SystemClock), hello).unwrap()
}

async fn names_told(handle: &mut HostHandle, is_right: impl Fn(&Listing<Session>) -> bool) {
    let told = handle.sessions.wait_for(|list| list.as_ref().is_some_and(|list| is_right(list)));
    tokio::time::timeout(LONG, told).await.expect("the list in time").unwrap();
}

fn settings(version: u64, user_names: UserNames) -> HostCommand {
    let policy = Policy { user_names, ..Policy::default() };
    let settings = VersionedSettings { version, policy, hash: None, marks: HostMarks::default() };
    HostCommand::Settings { from: 0, pool: PoolName::new("desk").unwrap(), settings: Box::new(settings) }
}

// rule: user-names
#[tokio::test]
async fn sessions_are_told_anew_when_the_pool_lets_names_travel_in_another_form() {
    let folder = tempfile::tempdir().unwrap();
    let names = NameSettings { secured: true, hasher: Some(Arc::new(OneHash)) };
    let OpenHost { task, mut handle, events, .. } = opened(folder.path(), names);
    let stop = CancellationToken::new();
    let running = tokio::spawn(task.run(stop.clone()));
    let session = Session {
        id: "1".into(),
        user: "alice".into(),
        state: SessionState::Active,
        age: Some(Duration::ZERO),
    };
    let occupancy = Occupancy::Listed(vec![session]);
    events.send(SourceEvent::Measured { values: Box::new(Measurement::default()), occupancy }).await.unwrap();
    names_told(&mut handle, |list| list.items[0].user == "alice").await;
    handle.commands.send(settings(1, UserNames::Hashed)).await.unwrap();
    names_told(&mut handle, |list| list.items.first().is_some_and(|s| s.user == "hmac:ab12:c0ffee")).await;
    handle.commands.send(settings(2, UserNames::None)).await.unwrap();
    names_told(&mut handle, |list| list.items.is_empty() && list.unlisted == 1).await;
    stop.cancel();
    running.await.unwrap();
}

#[tokio::test]
async fn a_session_between_two_measurements_brings_a_load_with_the_logons_of_the_look() {
    let folder = tempfile::tempdir().unwrap();
    let OpenHost { task, mut handle, events, .. } = opened(folder.path(), NameSettings::default());
    let stop = CancellationToken::new();
    let running = tokio::spawn(task.run(stop.clone()));
    let said = LogonsInProgress { now: 2, mean: 1.5 };
    let values = Measurement { logons_in_progress: Some(said), ..Measurement::default() };
    let nobody = Occupancy::Listed(Vec::new());
    events.send(SourceEvent::Measured { values: Box::new(values), occupancy: nobody }).await.unwrap();
    let session = Session { id: "1".into(), user: "alice".into(), state: SessionState::Active, age: None };
    let occupancy = Occupancy::Listed(vec![session]);
    // The new session is one of the three.
    events.send(SourceEvent::Sessions { occupancy, logons: Some(3) }).await.unwrap();
    let users =
        |report: &Option<Arc<Report>>| report.as_ref().is_some_and(|report| report.load().users == Some(1));
    let told =
        tokio::time::timeout(LONG, handle.load.wait_for(users)).await.expect("in time").unwrap().clone();
    let logons = told.unwrap().load().logons_in_progress;
    assert_eq!(logons, Some(LogonsInProgress { now: 3, mean: 1.5 }));
    stop.cancel();
    running.await.unwrap();
}

// rule: baseline-keeps
#[tokio::test]
async fn forgotten_baselines_are_forgotten_on_the_disk_too() {
    let folder = tempfile::tempdir().unwrap();
    let OpenHost { task, handle, events, .. } = opened(folder.path(), NameSettings::default());
    let stop = CancellationToken::new();
    let running = tokio::spawn(task.run(stop.clone()));
    let call = OwnedTiming { name: "logon".into(), duration_us: 20_000.0, weight: 30.0 };
    events.send(SourceEvent::Calls(vec![call.into()])).await.unwrap();
    events.send(SourceEvent::PeriodEnded).await.unwrap();
    let path = folder.path().join("state/baselines");
    let on_disk = |word: &'static str, expected: bool| {
        let path = path.clone();
        async move {
            let read = || std::fs::read_to_string(&path).is_ok_and(|text| text.contains(word) == expected);
            while !read() {
                tokio::task::yield_now().await;
            }
        }
    };
    tokio::time::timeout(LONG, on_disk("logon", true)).await.expect("kept");
    handle.commands.send(HostCommand::ResetBaselines { operation: None }).await.unwrap();
    tokio::time::timeout(LONG, on_disk("logon", false)).await.expect("forgotten");
    stop.cancel();
    running.await.unwrap();
}
