use super::*;
use crate::sample::pids::Life;
use crate::sample::test_tree::tree;
use std::fs;

const DEADLINE: Duration = Duration::from_secs(2);
const U1: &[u8] = include_bytes!("fixtures/utmp-384.bin");

fn no_bus(root: &Path) -> BusAddress {
    BusAddress::At(format!("unix:path={}", root.join("no-bus").display()))
}

fn reader(root: &Path, source: SessionSource) -> SessionReader {
    SessionReader::new(SessionConfig { source, ..SessionConfig::default() }, root, no_bus(root))
}

fn tree_with_utmp(content: &[u8]) -> tempfile::TempDir {
    let root = tempfile::tempdir().expect("a folder");
    fs::create_dir(root.path().join("run")).expect("made");
    fs::write(root.path().join("run/utmp"), content).expect("written");
    root
}

#[tokio::test]
async fn case_034_no_source_at_all_is_unknown_and_names_each() {
    let root = tempfile::tempdir().expect("a folder");
    let error = reader(root.path(), SessionSource::Auto).read(DEADLINE).await.expect_err("unknown");
    let text = describe(&error);
    assert!(
        text.contains("logind") && text.contains("systemd/sessions") && text.contains("run/utmp"),
        "{text}"
    );
}

#[tokio::test]
async fn utmp_stands_in_for_a_missing_logind_and_says_so() {
    let root = tree_with_utmp(&U1[..384]);
    let reading = reader(root.path(), SessionSource::Auto).read(DEADLINE).await.expect("read");
    assert_eq!(reading.sample, SessionSample { source: "utmp", sessions: vec![], logons: None });
    assert!(reading.warning.expect("a warning").contains("logind"));
}

#[tokio::test]
async fn loginds_files_stand_in_for_its_bus_and_the_sources_are_not_added() {
    let session = "UID=1003\nUSER=carol\nCLASS=user\nSTATE=online\nMONOTONIC=40000000\n";
    let root = tree(&[("run/systemd/sessions/16", session), ("proc/uptime", "100.00 1\n")]);
    fs::write(root.path().join("run/utmp"), U1).unwrap();
    for pid in [2001, 2002] {
        fs::create_dir_all(root.path().join(format!("proc/{pid}"))).unwrap();
    }
    let reading = reader(root.path(), SessionSource::Auto).read(DEADLINE).await.unwrap();
    assert_eq!((reading.sample.source, reading.sample.logons.unwrap().in_progress.now), ("logind-files", 0));
    let carol = &reading.sample.sessions[..];
    assert_eq!((carol[0].user.as_str(), carol[0].age), ("carol", Some(Duration::from_secs(60))));
    assert_eq!(carol.len(), 1);
    assert!(reading.warning.unwrap().starts_with("logind's files are used: "));
    let utmp = reader(root.path(), SessionSource::Utmp).read(DEADLINE).await.unwrap();
    assert_eq!((utmp.sample.distinct_users(), utmp.sample.sessions.len()), (1, 2));
}

#[tokio::test]
async fn a_forced_source_is_the_only_one_asked() {
    let root = tree_with_utmp(&U1[..384]);
    let utmp = reader(root.path(), SessionSource::Utmp).read(DEADLINE).await.expect("read");
    assert_eq!(utmp.warning, None);
    reader(root.path(), SessionSource::Logind).read(DEADLINE).await.expect_err("no bus");
    reader(root.path(), SessionSource::Program).read(DEADLINE).await.expect_err("no program");
    let off = reader(root.path(), SessionSource::None).read(DEADLINE).await.expect_err("off");
    assert_eq!(off.to_string(), "sessions: switched off by configuration");
}

#[tokio::test]
async fn a_program_is_the_source_and_ignored_accounts_are_left_out() {
    let script =
        r#"echo '{"user":"alice","id":1}'; echo '{"user":"git","id":2}'; echo '{"user":"dana","id":3}'"#;
    let config = SessionConfig {
        source: SessionSource::Program,
        program: ["/bin/sh", "-c", script].map(str::to_owned).to_vec(),
        ignore_uids_below: 1000,
        ..SessionConfig::default()
    };
    let passwd = "git:x:998:998::/:/bin/sh\nalice:x:1001:1001::/:/bin/sh\n";
    let root = tree(&[("etc/passwd", passwd)]);
    let read = async |root: &Path| {
        let reading = SessionReader::new(config.clone(), root, no_bus(root)).read(DEADLINE).await.unwrap();
        let users: Vec<_> = reading.sample.sessions.iter().map(|session| session.user.clone()).collect();
        (users, reading.sample.source, reading.warning)
    };
    assert_eq!(read(root.path()).await, (vec!["alice".into(), "dana".into()], "program", None));
    let (users, _, warning) = read(tree(&[]).path()).await;
    assert_eq!(users, ["alice", "git", "dana"]);
    assert!(warning.unwrap().contains("etc/passwd"));
}

#[test]
fn case_024_028_ignored_accounts_do_not_count_and_panes_are_one_user() {
    let life = |pid| {
        if [2001, 2002, 4_194_303].contains(&pid) { Life::Alive { since_boot: None } } else { Life::Gone }
    };
    let found = utmp::parse(U1, None, life).expect("readable");
    let sample = |ignore_users: Vec<String>| {
        let seen = utmp_sessions(found.clone(), Some(Duration::from_secs(1_800_000_000)));
        let config = SessionConfig { ignore_users, ..SessionConfig::default() };
        let (sessions, warning) = counted(Path::new("/"), &config, seen);
        assert_eq!(warning, None);
        SessionSample { source: "utmp", sessions, logons: None }
    };
    let all = sample(vec![]);
    assert_eq!((all.sessions.len(), all.distinct_users()), (3, 2));
    assert!(all.sessions.iter().all(|session| session.age.is_some()));
    assert_eq!(sample(vec!["alice".into()]).distinct_users(), 1);
}

#[test]
fn who_has_logged_out_is_no_user() {
    let session = |id: &str, state| SessionSeen { id: id.into(), user: id.into(), state, age: None };
    let sessions = vec![session("a", SessionState::Lingering), session("b", SessionState::Disconnected)];
    assert_eq!(SessionSample { source: "program", sessions, logons: None }.distinct_users(), 1);
}

#[test]
fn a_session_from_the_future_has_no_age() {
    let found = || {
        let since_unix = Duration::from_secs(10);
        vec![UtmpSession { user: "dana".into(), line: "pts/0".into(), since_unix }]
    };
    assert_eq!(utmp_sessions(found(), Some(Duration::from_secs(9)))[0].age, None);
    assert_eq!(utmp_sessions(found(), None)[0].age, None);
}
