use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use usher_runtime::clock::SystemClock;
use usher_runtime::config::HumanDuration;

use super::super::{GlobEntry, ReplicaEntry};
use super::*;

const LONG: Duration = Duration::from_secs(60);

struct Looking {
    root: tempfile::TempDir,
    settings: watch::Sender<Arc<AgentConfig>>,
    list: watch::Receiver<Option<Arc<Listing<Replica>>>>,
    state: watch::Receiver<Option<CollectorState>>,
    board: StandingBoard,
    stop: CancellationToken,
    task: tokio::task::JoinHandle<()>,
}

fn looking(files: &[&str], make: impl FnOnce(&Path) -> InventoryConfig) -> Looking {
    let root = tempfile::tempdir().unwrap();
    for file in files {
        let path = root.path().join(file);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, "").unwrap();
    }
    let config = AgentConfig { inventory: make(root.path()), ..AgentConfig::default() };
    let (settings, settings_seen) = watch::channel(Arc::new(config));
    let ((list_in, list), (state_in, state)) = (watch::channel(None), watch::channel(None));
    let (board, stop) = (StandingBoard::default(), CancellationToken::new());
    let looks = InventoryLooks {
        settings: settings_seen,
        root: root.path().to_owned(),
        list: list_in,
        state: state_in,
        board: board.clone(),
        clock: Arc::new(SystemClock),
    };
    let task = tokio::spawn(looks.run(stop.clone()));
    Looking { root, settings, list, state, board, stop, task }
}

impl Looking {
    async fn listed(&mut self, expected: &[&str]) -> Arc<Listing<Replica>> {
        let is_it =
            |list: &Option<Arc<Listing<Replica>>>| list.as_ref().is_some_and(|list| ids(list) == expected);
        let found =
            tokio::time::timeout(LONG, self.list.wait_for(is_it)).await.map(|list| list.unwrap().clone());
        found.ok().flatten().unwrap_or_else(|| panic!("{expected:?} not listed: {:?}", self.list.borrow()))
    }

    async fn program_says(&self, what: &str, is_it: impl Fn(&CollectorState) -> bool) {
        let told = async {
            while !self.board.parts().collectors.get(PROGRAM).is_some_and(&is_it) {
                tokio::task::yield_now().await;
            }
        };
        let told = tokio::time::timeout(LONG, told).await;
        assert!(told.is_ok(), "{what}: {:?}", self.board.parts().collectors);
    }

    fn write(&self, file: &str) {
        fs::write(self.root.path().join(file), "").unwrap();
    }
}

fn ids(list: &Listing<Replica>) -> Vec<&str> {
    list.items.iter().map(|replica| replica.resource_id.as_str()).collect()
}

fn glob(pattern: &str) -> GlobEntry {
    GlobEntry { pattern: pattern.into(), id: "{path}".into(), title: None }
}

/// A program whose words can be changed while it is run again and again.
fn program(root: &Path, body: &str) -> Option<ProgramEntry> {
    say(root, body);
    Some(ProgramEntry {
        command: vec!["/bin/sh".into(), root.join("list.sh").display().to_string()],
        interval: HumanDuration::from_millis(20),
        deadline: HumanDuration::from_millis(500),
    })
}

fn say(root: &Path, body: &str) {
    // Never written in place: a script that runs must not change below its shell.
    let aside = root.join("list.new");
    fs::write(&aside, format!("#!/bin/sh\n{body}\n")).unwrap();
    fs::set_permissions(&aside, fs::Permissions::from_mode(0o700)).unwrap();
    fs::rename(&aside, root.join("list.sh")).unwrap();
}

#[tokio::test]
async fn resources_are_listed_anew_only_when_they_change() {
    let entry =
        |name: &str, path: &str| ReplicaEntry { resource: name.into(), path: Some(path.into()), title: None };
    let mut looking = looking(&["crm.db"], |_| InventoryConfig {
        replicas: vec![entry("crm", "/crm.db"), entry("hr", "/hr.db")],
        ..InventoryConfig::default()
    });
    let first = looking.listed(&["crm"]).await;
    assert_eq!(first.generation, 1);
    let told =
        tokio::time::timeout(LONG, looking.state.wait_for(Option::is_some)).await.unwrap().unwrap().clone();
    assert!(told.unwrap().error.unwrap().contains("hr"));
    looking.stop.cancel();
    looking.task.await.unwrap();
}

#[tokio::test]
async fn a_new_file_a_new_folder_and_a_lost_one_are_listed_without_waiting_for_the_minute() {
    let mut looking = looking(&["data/a.db"], |_| InventoryConfig {
        globs: vec![glob("/data/**/*.db")],
        ..InventoryConfig::default()
    });
    let since = Instant::now();
    looking.listed(&["a.db"]).await;
    looking.write("data/b.db");
    looking.listed(&["a.db", "b.db"]).await;
    fs::create_dir(looking.root.path().join("data/deep")).unwrap();
    looking.write("data/deep/c.db");
    looking.listed(&["a.db", "b.db", "deep/c.db"]).await;
    fs::rename(looking.root.path().join("data/deep"), looking.root.path().join("gone")).unwrap();
    looking.listed(&["a.db", "b.db"]).await;
    looking.write("data/a.tmp");
    assert!(since.elapsed() < EVERY, "no look of the minute was needed: {:?}", since.elapsed());
}

#[tokio::test]
async fn a_named_replica_that_appears_is_listed_at_once() {
    let entry = ReplicaEntry { resource: "crm".into(), path: Some("/data/crm.db".into()), title: None };
    let mut looking =
        looking(&["data/other"], |_| InventoryConfig { replicas: vec![entry], ..InventoryConfig::default() });
    looking.listed(&[]).await;
    looking.write("data/crm.db");
    let list = looking.listed(&["crm"]).await;
    assert_eq!(list.items[0].path.as_deref(), Some("/data/crm.db"));
}

#[test]
fn looks_that_find_nothing_new_come_ever_more_rarely_and_never_take_more_than_a_twentieth() {
    let mut rest = Rest::default();
    let mut lengths = Vec::new();
    for changed in [true, false, false, false, false, false, false, false, true] {
        rest.after_look(Duration::from_millis(1), changed);
        lengths.push(rest.length.as_secs());
    }
    assert_eq!(lengths, [1, 2, 4, 8, 16, 32, 60, 60, 1]);
    rest.after_look(Duration::from_millis(500), true);
    assert_eq!(rest.length, Duration::from_secs(10));
}

#[tokio::test]
async fn a_program_that_fails_keeps_its_last_list_and_the_lag_goes_void() {
    let mut looking = looking(&[], |root| InventoryConfig {
        program: program(
            root,
            r#"echo '{"resource":"crm","lag_s":900}'; echo '{"resource":"hr","lag_s":3}'"#,
        ),
        ..InventoryConfig::default()
    });
    looking.listed(&["crm", "hr"]).await;
    assert_eq!(looking.board.parts().whole().replica_lag, Some(Duration::from_secs(900)));
    say(looking.root.path(), "echo '{\"resource\":\"other\"}'; exit 1");
    looking
        .program_says("the failure", |state| {
            state.error.as_ref().is_some_and(|e| e.contains("exit status: 1"))
        })
        .await;
    let void = async {
        while looking.board.parts().inventory_lag.is_some() {
            tokio::task::yield_now().await;
        }
    };
    tokio::time::timeout(LONG, void).await.expect("a lag that nobody tells any more is void");
    let list = looking.listed(&["crm", "hr"]).await;
    assert_eq!(list.generation, 1, "nothing was taken away in between");

    say(looking.root.path(), "echo '{\"resource\":\"hr\"}'; echo nonsense");
    looking.listed(&["hr"]).await;
    looking
        .program_says("the bad line", |state| state.error.as_ref().is_some_and(|e| e.starts_with("line 2: ")))
        .await;
}

#[tokio::test]
async fn files_and_a_program_make_one_list_that_is_told_when_both_have_spoken() {
    let mut looking = looking(&["data/a.db"], |root| InventoryConfig {
        globs: vec![glob("/data/*.db")],
        program: program(root, "exit 1"),
        ..InventoryConfig::default()
    });
    let waits = |state: &CollectorState| {
        state.error.as_ref().is_some_and(|e| e.contains("no list is told before its first"))
    };
    looking.program_says("its failure", waits).await;
    tokio::time::timeout(LONG, looking.state.wait_for(Option::is_some)).await.unwrap().unwrap();
    assert_eq!(*looking.list.borrow(), None, "half a list would take away what is there");
    say(
        looking.root.path(),
        r#"echo '{"resource":"a.db","title":"of the program"}'; echo '{"resource":"wiki"}'"#,
    );
    let list = looking.listed(&["a.db", "wiki"]).await;
    assert_eq!(list.items[0].path.as_deref(), Some("/data/a.db"), "what was seen wins");
}

#[tokio::test]
async fn new_settings_replace_the_sources_and_the_list_stays_until_they_have_spoken() {
    let mut looking = looking(&["data/a.db"], |_| InventoryConfig {
        globs: vec![glob("/data/*.db")],
        ..InventoryConfig::default()
    });
    looking.listed(&["a.db"]).await;
    let inventory = InventoryConfig {
        program: program(looking.root.path(), r#"echo '{"resource":"wiki","lag_s":1}'"#),
        ..InventoryConfig::default()
    };
    looking.settings.send_replace(Arc::new(AgentConfig { inventory, ..AgentConfig::default() }));
    let list = looking.listed(&["wiki"]).await;
    assert_eq!(list.generation, 2);
    looking.settings.send_replace(Arc::new(AgentConfig::default()));
    looking.listed(&[]).await;
    let parts = looking.board.parts();
    assert_eq!((parts.inventory_lag, parts.collectors.len()), (None, 0));
}
