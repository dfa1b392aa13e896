use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use super::*;

const LONG: Duration = Duration::from_secs(60);

struct Hooks {
    _folder: tempfile::TempDir,
    script: PathBuf,
    board: StandingBoard,
    settings: watch::Sender<Arc<AgentConfig>>,
    stop: CancellationToken,
    task: tokio::task::JoinHandle<()>,
}

fn write(script: &Path, body: &str) {
    // Never written in place: a script that runs must not change below its shell.
    let aside = script.with_extension("new");
    std::fs::write(&aside, format!("#!/bin/sh\n{body}\n")).unwrap();
    std::fs::set_permissions(&aside, std::fs::Permissions::from_mode(0o700)).unwrap();
    std::fs::rename(&aside, script).unwrap();
}

fn hook(script: &Path) -> Option<HookConfig> {
    Some(HookConfig {
        command: vec!["/bin/sh".into(), script.display().to_string()],
        interval: HumanDuration::from_millis(20),
        deadline: HumanDuration::from_millis(300),
    })
}

fn running(body: &str, set: impl FnOnce(&mut HooksConfig, Option<HookConfig>)) -> Hooks {
    let folder = tempfile::tempdir().unwrap();
    let script = folder.path().join("hook");
    write(&script, body);
    let mut config = AgentConfig::default();
    set(&mut config.hooks, hook(&script));
    let (settings, seen) = watch::channel(Arc::new(config));
    let (board, stop) = (StandingBoard::default(), CancellationToken::new());
    let task = tokio::spawn(run_hooks(seen, board.clone(), stop.clone()));
    Hooks { _folder: folder, script, board, settings, stop, task }
}

impl Hooks {
    async fn until(&self, what: &str, is_it: impl Fn(&Parts) -> bool) -> Parts {
        let waiting = async {
            while !is_it(&self.board.parts()) {
                tokio::task::yield_now().await;
            }
        };
        tokio::time::timeout(LONG, waiting)
            .await
            .unwrap_or_else(|_| panic!("{what}: {:?}", self.board.parts()));
        self.board.parts()
    }
}

#[tokio::test]
async fn the_readiness_hook_closes_drains_and_opens_the_host() {
    let hooks = running("echo down the database is gone", |all, hook| all.readiness = hook);
    let closed = hooks.until("closed", |parts| parts.hook_not_ready.is_some()).await;
    assert_eq!(closed.hook_not_ready.as_deref(), Some("the database is gone"));
    write(&hooks.script, "echo drain '# patches'");
    let drained = hooks.until("drained", |parts| parts.hook_drain.is_some()).await;
    assert_eq!(drained.hook_not_ready, None);
    let drain = drained.hook_drain.unwrap();
    assert_eq!((drain.reason.as_str(), drain.author.as_str()), ("patches", "readiness hook"));
    write(&hooks.script, "echo UP");
    hooks.until("open", |parts| parts.hook_drain.is_none()).await;
    hooks.stop.cancel();
    hooks.task.await.unwrap();
}

#[tokio::test]
async fn a_hook_that_hangs_or_says_nonsense_changes_nothing_and_is_counted() {
    let hooks = running("echo down", |all, hook| all.readiness = hook);
    hooks.until("closed", |parts| parts.hook_not_ready.is_some()).await;
    write(&hooks.script, "exec sleep 1000");
    let fault = |parts: &Parts| parts.collectors["hook readiness"].error.clone().unwrap_or_default();
    hooks.until("the deadline", |parts| fault(parts).contains("was killed")).await;
    write(&hooks.script, "echo fialed");
    let seen = hooks.until("the word", |parts| fault(parts).contains("fialed")).await;
    assert!(fault(&seen).contains("since the start"), "{seen:?}");
    assert!(seen.hook_not_ready.is_some(), "what it said before still holds");
    write(&hooks.script, "echo up");
    let seen = hooks.until("open", |parts| parts.hook_not_ready.is_none()).await;
    let seen = if fault(&seen).is_empty() {
        seen
    } else {
        hooks.until("well", |parts| fault(parts).is_empty()).await
    };
    let warning = seen.collectors["hook readiness"].warning.clone().unwrap();
    assert!(warning.ends_with("runs changed nothing since the start"), "{warning}");
}

#[tokio::test]
async fn a_host_with_a_warm_up_hook_is_warming_until_it_is_ready() {
    let hooks = running("exec sleep 1000", |all, hook| all.warm_up = hook);
    hooks.until("warming before the first word", |parts| parts.is_warming_up).await;
    write(&hooks.script, "echo ready");
    hooks.until("warm", |parts| !parts.is_warming_up).await;
    write(&hooks.script, "echo down caches were emptied");
    hooks.until("warming again", |parts| parts.is_warming_up).await;
    hooks.settings.send_replace(Arc::new(AgentConfig::default()));
    hooks.until("no hook, no warm-up", |parts| !parts.is_warming_up).await;
    assert!(hooks.board.parts().collectors.is_empty());
}

#[tokio::test]
async fn the_busy_hook_makes_the_host_busy_and_takes_that_back() {
    let hooks = running("echo busy", |all, hook| all.busy = hook);
    hooks.until("busy", |parts| parts.is_busy).await;
    write(&hooks.script, "echo ready");
    hooks.until("not busy", |parts| !parts.is_busy).await;
}

#[tokio::test]
async fn an_index_that_a_hook_delivers_is_kept_over_a_bad_word_and_taken_back_by_none() {
    let hooks = running("echo 87 domino", |all, hook| all.availability = hook);
    let own =
        hooks.until("the index", |parts| parts.own_availability.is_some()).await.own_availability.unwrap();
    assert_eq!((own.index.get(), own.source.as_str()), (87.0, "domino"));
    write(&hooks.script, "echo 870");
    let fault = |parts: &Parts| parts.collectors["hook availability"].error.clone().unwrap_or_default();
    let seen = hooks.until("the bad word", |parts| fault(parts).contains("870")).await;
    assert_eq!(seen.own_availability, Some(own), "one bad word changes nothing");
    write(&hooks.script, "echo 12");
    let unnamed =
        hooks.until("12", |parts| parts.own_availability.as_ref().is_some_and(|own| own.index.get() == 12.0));
    assert_eq!(unnamed.await.own_availability.unwrap().source, "sh", "the program is named");
    write(&hooks.script, "echo none");
    hooks.until("no index", |parts| parts.own_availability.is_none()).await;
}

#[tokio::test]
async fn a_lag_that_is_not_delivered_anew_is_void_after_three_intervals_even_while_its_hook_hangs() {
    let hooks = running("echo 900", |all, hook| all.replica_lag = hook);
    let seen = hooks.until("the lag", |parts| parts.hook_lag.is_some()).await;
    assert_eq!(seen.whole().replica_lag, Some(Duration::from_secs(900)));
    let since = Instant::now();
    write(&hooks.script, "exec sleep 1000");
    hooks.until("void", |parts| parts.hook_lag.is_none()).await;
    // Its deadline of 300 ms is longer than its interval of 20 ms.
    assert!(since.elapsed() >= Duration::from_millis(100), "{:?}", since.elapsed());
    assert!(since.elapsed() < Duration::from_secs(10), "{:?}", since.elapsed());
}

#[test]
fn every_fault_of_a_hook_is_named() {
    let toml = "[readiness]\ncommand = []\ninterval = \"10ms\"\n[busy]\ncommand = [\"x\"]\ndeadline = \"2h\"\n\
         [availability]\ncommand = [\"\"]\n[replica_lag]\ncommand = [\"x\"]\ninterval = \"2h\"\n";
    let hooks: HooksConfig = toml::from_str(toml).unwrap();
    let mut faults = Faults::default();
    hooks.validate(&mut faults);
    let keys: Vec<_> = faults.iter().map(|fault| fault.key.as_str()).collect();
    assert_eq!(
        keys,
        [
            "readiness.command",
            "readiness.interval",
            "busy.deadline",
            "availability.command",
            "replica_lag.interval",
        ]
    );
}
