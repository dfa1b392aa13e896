//! How soon, how often and at what cost are the sessions of a host told?

use std::fs;
use std::path::Path;

use usher_placement::host::{CoreSettings, HostCore, HostRecord, MAX_LISTED_OF_USER, NameSettings};
use usher_proto::write;
use usher_types::{BootTime, HostOverrides, Load, PoolName};

use super::*;
use crate::sample::sessions::SessionReader;
use crate::sample::test_logind::{USER, many_sessions};
use crate::sample::test_tree::tree;
use crate::sample::{BusAddress, SessionConfig, SessionReading, SessionSource};

const LONG: Duration = Duration::from_secs(60);

fn session(user: &str, uid: u32) -> String {
    format!("UID={uid}\nUSER={user}\nCLASS=user\nSTATE=online\nSCOPE=session-1.scope\nMONOTONIC=40000000\n")
}

fn opening(user: &str) -> String {
    session(user, 1002).replace("online", "opening").replace("=40000000", "=99900000")
}

fn write_session(root: &Path, id: &str, user: &str) {
    fs::write(root.join("run/systemd/sessions").join(id), session(user, 1001)).unwrap();
}

/// The task, as it measures a copy of a machine; its settings, its events, and what wakes it.
struct Running {
    settings: watch::Sender<Arc<AgentConfig>>,
    events: mpsc::Receiver<SourceEvent>,
    news: Arc<SessionNews>,
    _task: JoinSet<()>,
}

fn run(root: &Path, report_interval: Duration) -> Running {
    let sessions = SessionConfig { source: SessionSource::Auto, ..SessionConfig::default() };
    let (settings, in_force) =
        watch::channel(Arc::new(AgentConfig { sessions: sessions.clone(), ..AgentConfig::default() }));
    let no_bus = BusAddress::At(format!("unix:path={}", root.join("no-bus").display()));
    let mut sampler = Sampler::new(root, sessions, no_bus);
    let news = sampler.sessions().news();
    let (told, events) = mpsc::channel(64);
    let measuring = Measuring {
        sampler,
        settings: in_force,
        report_interval,
        refresh: Arc::new(Notify::new()),
        others: OtherCollectors { latency: None, inventory: watch::channel(None).1 },
        events: told,
    };
    let mut task = JoinSet::new();
    task.spawn(measuring.run(CancellationToken::new()));
    Running { settings, events, news, _task: task }
}

impl Running {
    /// The ids that the next event lists.
    async fn ids(&mut self) -> Vec<String> {
        let occupancy = match self.events.recv().await.unwrap() {
            SourceEvent::Measured { occupancy, .. } | SourceEvent::Sessions { occupancy, .. } => occupancy,
            other => panic!("{other:?}"),
        };
        occupancy.sessions().expect("listed").iter().map(|session| session.id.clone()).collect()
    }
}

fn host() -> tempfile::TempDir {
    let root = tree(&[("proc/uptime", "100.00 1\n")]);
    fs::create_dir_all(root.path().join("run/systemd/sessions")).unwrap();
    write_session(root.path(), "1", "alice");
    root
}

#[tokio::test(start_paused = true)]
async fn a_session_that_logind_announces_is_told_at_once_and_one_that_it_does_not_within_a_second() {
    let root = host();
    let mut running = run(root.path(), LONG);
    assert_eq!(running.ids().await, ["1"]);
    assert_eq!(running.ids().await, ["1"], "the first look");
    let since = Instant::now();
    write_session(root.path(), "2", "bob");
    running.news.tell();
    assert_eq!(running.ids().await, ["1", "2"]);
    assert!(since.elapsed() <= SESSIONS_SOON * 2, "{:?}", since.elapsed());
    write_session(root.path(), "3", "carol");
    assert_eq!(running.ids().await, ["1", "2", "3"]);
    assert!(since.elapsed() <= SESSIONS_EVERY * 2, "{:?}", since.elapsed());
}

#[tokio::test(start_paused = true)]
async fn a_storm_of_announcements_is_looked_at_every_hundred_milliseconds() {
    let root = host();
    let mut running = run(root.path(), LONG);
    running.ids().await;
    let until = Instant::now() + Duration::from_secs(1);
    let mut looks = 0;
    while Instant::now() < until {
        running.news.tell();
        looks += usize::from(tokio::time::timeout(Duration::from_millis(1), running.ids()).await.is_ok());
    }
    assert!((5..=12).contains(&looks), "{looks}");
}

#[tokio::test(start_paused = true)]
async fn a_session_that_is_set_up_is_looked_at_again_soon_but_not_for_ever() {
    let root = host();
    let mut running = run(root.path(), LONG);
    for _ in 0..2 {
        running.ids().await;
    }
    let file = root.path().join("run/systemd/sessions/2");
    fs::write(&file, opening("bob")).unwrap();
    running.news.tell();
    assert_eq!(running.ids().await, ["1"], "it is nobody yet");
    let since = Instant::now();
    write_session(root.path(), "2", "bob");
    assert_eq!(running.ids().await, ["1", "2"]);
    assert!(since.elapsed() <= SESSIONS_SOON * 2, "{:?}", since.elapsed());

    fs::write(&file, opening("bob")).unwrap();
    running.news.tell();
    let until = Instant::now() + Duration::from_secs(20);
    let mut looks = 0;
    while tokio::time::timeout_at(until, running.ids()).await.is_ok() {
        looks += 1;
    }
    assert!((30..=55).contains(&looks), "{looks}");
}

#[tokio::test(start_paused = true)]
async fn case_024_settings_of_sessions_hold_without_a_restart_and_no_look_is_lost() {
    let root = host();
    write_session(root.path(), "2", "probe");
    let mut running = run(root.path(), LONG);
    for _ in 0..2 {
        assert_eq!(running.ids().await, ["1", "2"]);
    }
    running.settings.send_modify(|settings| {
        let sessions = SessionConfig { ignore_users: vec!["probe".into()], ..settings.sessions.clone() };
        *settings = Arc::new(AgentConfig { sessions, ..(**settings).clone() });
    });
    for _ in 0..3 {
        assert_eq!(running.ids().await, ["1"]);
    }
}

#[test]
fn looking_takes_a_twentieth_of_the_time_at_most() {
    let ms = Duration::from_millis;
    assert_eq!(rest_after_look(ms(1), SESSIONS_SOON), ms(100));
    assert_eq!(rest_after_look(ms(40), SESSIONS_SOON), ms(800));
    assert_eq!(rest_after_look(ms(200), SESSIONS_EVERY), ms(4000));
}

fn core() -> HostCore {
    let settings = CoreSettings {
        pool: PoolName::new("desk").unwrap(),
        overrides: HostOverrides::default(),
        incarnation_ms: 0,
        latency_period: Duration::from_secs(15),
        periods: 5,
        max_names: 16,
        names: NameSettings::default(),
        coordinators: vec!["c1".into()],
        report_interval: Duration::from_secs(5),
    };
    HostCore::new(settings, HostRecord::default())
}

/// What a host reports of these sessions, in one Load and its list.
fn reported(core: &mut HostCore, reading: &SessionReading, now: u64) -> (Load, usize, u32, usize) {
    let now = BootTime::from_millis(1_000_000 + now);
    core.measure(Measurement::default(), occupancy(&reading.sample), now);
    let (load, list) = (core.load(now, 0).unwrap(), core.session_list());
    let bytes: usize =
        list.sessions.iter().map(|session| format!("{:?}", write::session(session)).len()).sum();
    (load, list.sessions.len(), list.unlisted, bytes)
}

fn assert_capped(report: &(Load, usize, u32, usize)) {
    let (load, listed, unlisted, bytes) = report;
    assert_eq!((load.users, load.sessions.unwrap().active), (Some(1), 8000));
    assert_eq!((*listed, *unlisted), (MAX_LISTED_OF_USER, 8000 - 16));
    assert!(*bytes < 16 * 1024, "{bytes}");
}

fn cpu_of_this_thread() -> Duration {
    let used = rustix::time::clock_gettime(rustix::time::ClockId::ThreadCPUTime);
    Duration::new(used.tv_sec.unsigned_abs(), u32::try_from(used.tv_nsec).unwrap())
}

#[tokio::test]
async fn case_023_8000_sessions_of_one_user_cost_less_than_a_second_and_are_a_short_report() {
    let (logind, bus) = many_sessions(8000).await;
    let root = tree(&[]);
    let config = SessionConfig { source: SessionSource::Logind, ..SessionConfig::default() };
    let mut reader = SessionReader::over(config, root.path(), bus);
    let mut core = core();
    let first = reader.read(LONG).await.unwrap();
    assert_eq!(first.sample.sessions[0].user, USER.1);
    assert_capped(&reported(&mut core, &first, 0));

    // From then on; this thread is also the logind's.
    let (calls, used) = (logind.calls(), cpu_of_this_thread());
    let second = reader.read(LONG).await.unwrap();
    assert_capped(&reported(&mut core, &second, 1000));
    assert!(logind.calls() - calls <= 300, "{} questions", logind.calls() - calls);
    let used = cpu_of_this_thread() - used;
    assert!(used < Duration::from_secs(1), "{used:?}");
    println!("a look at 8000 known sessions and its report: {used:?} of CPU, logind's part included");
}

#[tokio::test]
async fn case_023_8000_sessions_in_loginds_files_cost_less_than_a_second_too() {
    let root = host();
    for n in 1..=8000 {
        write_session(root.path(), &n.to_string(), "svc");
    }
    let used = cpu_of_this_thread();
    let rows = crate::sample::logind_files::read(root.path()).unwrap();
    let used = cpu_of_this_thread() - used;
    assert_eq!(rows.len(), 8000);
    assert!(used < Duration::from_secs(1), "{used:?}");
    println!("reading 8000 of logind's files: {used:?} of CPU");
    let no_bus = BusAddress::At("unix:path=/nonexistent/bus".into());
    let mut reader = SessionReader::new(SessionConfig::default(), root.path(), no_bus);
    assert_capped(&reported(&mut core(), &reader.read(LONG).await.unwrap(), 0));
}
