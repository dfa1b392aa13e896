//! Does a login get through `usherctl connect` when coordinators do not answer, or cannot yet?

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::path::{Path, PathBuf};
use std::process::{Output, Stdio};
use std::time::{Duration, Instant};

use tokio::io::AsyncWriteExt;
use tokio::net::TcpListener;
use tokio::process::{Child, Command};
use tonic::Code;
use usher_integration_tests::{
    Agent, AgentStart, Client, Coordinator, CoordinatorStart, FakeAgent, LONG, binary, free_tcp_port, hello,
    load, place, refusal, wait_until,
};
use usher_proto::v1;

/// Coordinators, a real agent of one modelled host that reports to all of them, and a door that stands for the host's.
struct Site {
    coordinators: Vec<Coordinator>,
    _agent: Agent,
    door: TcpListener,
    folder: tempfile::TempDir,
}

const HOST: &str = "cpu=10,mem=10,users=1,procs=10";

impl Site {
    async fn start(number: usize) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let mut coordinators = Vec::new();
        for number in 0..number {
            let start = CoordinatorStart::new(folder.path(), &format!("c{number}")).on_fixed_ports();
            coordinators.push(start.start().await);
        }
        let addresses: Vec<_> = coordinators.iter().map(|coordinator| coordinator.grpc).collect();
        let agent = AgentStart::new(folder.path(), "hosts", &addresses).host("h1", HOST).await;
        let door = TcpListener::bind("127.0.0.1:0").await.unwrap();
        std::fs::write(folder.path().join("client.toml"), "").unwrap();
        Self { coordinators, _agent: agent, door, folder }
    }

    fn caches(&self) -> PathBuf {
        self.folder.path().join("caches")
    }

    /// The one file of the farm, if there is any.
    fn file(&self) -> Option<PathBuf> {
        let entries = std::fs::read_dir(self.caches()).into_iter().flatten().flatten();
        entries
            .map(|entry| entry.path())
            .find(|path| path.extension().is_some_and(|ending| ending == "cache"))
    }

    fn connect(&self, arguments: &[&str]) -> Child {
        let addresses: Vec<_> = self.coordinators.iter().map(|c| c.grpc.to_string()).collect();
        self.connect_to(&addresses.join(","), arguments)
    }

    /// To whatever host, at this test's door.
    fn connect_to(&self, coordinators: &str, arguments: &[&str]) -> Child {
        let port = self.door.local_addr().unwrap().port().to_string();
        let mut all = vec!["--port", &port];
        all.extend(arguments);
        self.spawn(coordinators, &all)
    }

    fn spawn(&self, coordinators: &str, arguments: &[&str]) -> Child {
        let mut command = Command::new(binary("usherctl"));
        command.env_remove("USHER_COORDINATORS").env_remove("USHER_CONFIG").env_remove("XDG_CACHE_HOME");
        command.env("HOME", self.folder.path());
        command.arg("--config").arg(self.folder.path().join("client.toml"));
        command.args(["--coordinator", coordinators, "connect", "--pool", "desk", "--user", "alice"]);
        command.args(arguments).stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        command.kill_on_drop(true).spawn().unwrap()
    }

    /// A login that gets through: what the program said on standard error. The session lasts until `done`.
    async fn login(&self, child: Child, done: impl AsyncFnOnce()) -> String {
        let serving = async {
            let (mut server, _) = self.door.accept().await.unwrap();
            server.write_all(b"welcome").await.unwrap();
            done().await;
            server.shutdown().await.unwrap();
            server
        };
        let both = async { tokio::join!(serving, child.wait_with_output()) };
        let (_server, output) =
            tokio::time::timeout(LONG, both).await.expect("the login does not get through");
        let output = output.unwrap();
        assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
        assert_eq!(output.stdout, b"welcome");
        stderr(&output)
    }

    async fn cached_connect(&self) -> String {
        let dir = self.caches();
        self.login(self.connect(&["--cache-dir", dir.to_str().unwrap()]), async || {}).await
    }

    /// One that does not: its line.
    async fn fails(&self, arguments: &[&str]) -> String {
        let child = self.connect(arguments);
        let output =
            tokio::time::timeout(LONG, child.wait_with_output()).await.expect("it does not end").unwrap();
        assert_eq!((output.status.code(), output.stdout.as_slice()), (Some(255), &b""[..]));
        let line = stderr(&output);
        assert_eq!(line.lines().count(), 1, "{line}");
        line
    }

    fn kill_all(&mut self) {
        self.coordinators.iter_mut().for_each(|coordinator| coordinator.kill());
    }

    async fn fill_cache(&self) -> PathBuf {
        let dir = self.caches();
        let child = self.connect(&["--cache-dir", dir.to_str().unwrap()]);
        let copied = async || wait_until("a copy of the farm", LONG, async || self.file().is_some()).await;
        assert_eq!(self.login(child, copied).await, "");
        self.file().unwrap()
    }
}

fn stderr(output: &Output) -> String {
    String::from_utf8(output.stderr.clone()).unwrap()
}

fn asides(folder: &Path) -> usize {
    let entries = std::fs::read_dir(folder).unwrap().flatten();
    entries.filter(|entry| entry.file_name().to_string_lossy().contains(".cache.aside-")).count()
}

#[tokio::test]
async fn with_every_coordinator_killed_a_login_goes_where_the_farm_as_last_known_says() {
    let mut site = Site::start(2).await;
    let file = site.fill_cache().await;
    let whole = std::fs::read(&file).unwrap();
    site.kill_all();

    let began = Instant::now();
    let said = site.cached_connect().await;
    println!("a login that nobody answers took {:?}", began.elapsed());
    let expected = "usherctl connect: pool desk: no coordinator answered; decided here by the farm as of ";
    assert!(said.starts_with(expected) && said.ends_with(" ago\n") && said.lines().count() == 1, "{said}");
    let dir = site.caches();
    let dir = dir.to_str().unwrap();
    let forced = site.login(site.connect(&["--cache-dir", dir, "--host", "H1."]), async || {}).await;
    assert!(forced.starts_with(expected), "{forced}");
    assert_eq!(std::fs::read(&file).unwrap(), whole, "nobody could tell anything newer");

    // The old failure, with the reason why nothing else helps.
    let fails = async |arguments: &[&str], reason: &str| {
        let line = site.fails(arguments).await;
        assert!(line.starts_with("usherctl connect: pool desk: no coordinator answered; "), "{line}");
        assert!(line.contains(reason), "{reason} is not in: {line}");
        line
    };
    fails(&["--cache-dir", dir, "--host", "h7"], "no decision without one: the pool had no host h7").await;
    let off = fails(&["--no-cache"], "Connection refused").await;
    assert!(!off.contains("no decision"), "{off}");
    fails(&[], "there is no folder to keep the farm in").await;
    std::fs::write(site.folder.path().join("client.toml"), "[cache]\nmax_age = \"1ms\"").unwrap();
    fails(&["--cache-dir", dir], "what is known of the farm is 0 s old, allowed are 0 s").await;
    std::fs::write(site.folder.path().join("client.toml"), "").unwrap();
    std::fs::write(&file, &whole[..whole.len() - 9]).unwrap();
    fails(&["--cache-dir", dir], "the farm on disk is not used: ").await;
    assert_eq!(asides(&site.caches()), 1, "kept for people");
    fails(&["--cache-dir", dir], "no decision without one: nothing is known of the farm").await;
}

#[tokio::test]
async fn a_host_that_refuses_is_passed_over_without_a_coordinator_too() {
    let mut site = Site::start(1).await;
    // Nobody listens where h1 says. h2 is used more.
    let port = site.door.local_addr().unwrap().port();
    let endpoint = v1::Endpoint { kind: "ssh".into(), address: "127.0.0.1".into(), port: port.into() };
    let hello = v1::Hello { endpoints: vec![endpoint], ..hello("h2") };
    let client = Client::new(site.coordinators[0].grpc, None);
    let mut other = FakeAgent::attach(&client, hello).await.unwrap();
    other.report(load(60.0, 60.0, 90, 90)).await;
    site.fill_cache().await;
    site.kill_all();
    let (dir, coordinator) = (site.caches(), site.coordinators[0].grpc.to_string());
    let dir = dir.to_str().unwrap();
    let child = site.spawn(&coordinator, &["--cache-dir", dir]);
    let said = site.login(child, async || {}).await;
    assert!(said.lines().count() == 1 && said.contains("decided here"), "{said}");

    let closed = free_tcp_port().to_string();
    let child = site.spawn(&coordinator, &["--cache-dir", dir, "--port", &closed]);
    let output = tokio::time::timeout(LONG, child.wait_with_output()).await.unwrap().unwrap();
    assert_eq!(output.status.code(), Some(255));
    let said = stderr(&output);
    let lines: Vec<&str> = said.lines().collect();
    assert!(lines.len() == 2 && lines[0].contains("decided here"), "{said}");
    let tried = format!("pool desk: h1: 127.0.0.1:{closed}: Connection refused");
    assert!(lines[1].contains(&tried) && lines[1].contains(&format!("h2: 127.0.0.1:{closed}: ")), "{said}");
    assert!(lines[1].contains("; no coordinator answered; no decision without one: "), "{said}");
}

#[tokio::test]
async fn coordinators_that_stand_still_are_waited_for_and_not_for_long() {
    let site = Site::start(2).await;
    site.fill_cache().await;
    site.coordinators.iter().for_each(|coordinator| coordinator.freeze());
    let (dir, began) = (site.caches(), Instant::now());
    let arguments = ["--cache-dir", dir.to_str().unwrap(), "--timeout", "300ms"];
    let said = site.login(site.connect(&arguments), async || {}).await;
    println!("with two that stand still it took {:?}", began.elapsed());
    assert!(said.contains("no coordinator answered; decided here"), "{said}");
    site.coordinators.iter().for_each(|coordinator| coordinator.thaw());
}

#[tokio::test]
async fn a_copy_that_is_new_enough_is_not_taken_again_and_no_session_waits_for_one() {
    let site = Site::start(1).await;
    let file = site.fill_cache().await;
    let first = std::fs::metadata(&file).unwrap().modified().unwrap();
    for _ in 0..3 {
        assert_eq!(site.cached_connect().await, "");
    }
    assert_eq!(std::fs::metadata(&file).unwrap().modified().unwrap(), first, "it is new enough");
    // A coordinator that stands still tells nothing: the session is over all the same.
    std::fs::remove_file(&file).unwrap();
    let lock = file.with_extension("cache.lock");
    std::fs::remove_file(&lock).unwrap();
    let dir = site.caches();
    let child = site.connect(&["--cache-dir", dir.to_str().unwrap()]);
    let serving = async {
        let (mut server, _) = site.door.accept().await.unwrap();
        site.coordinators[0].freeze();
        server.write_all(b"welcome").await.unwrap();
        wait_until("a copy to be begun", LONG, async || lock.exists()).await;
        server.shutdown().await.unwrap();
        (server, Instant::now())
    };
    let both = async { tokio::join!(serving, child.wait_with_output()) };
    let ((_server, ended), output) = tokio::time::timeout(LONG, both).await.expect("it does not end");
    assert_eq!(output.unwrap().status.code(), Some(0));
    // Half a second is for its last word.
    assert!(ended.elapsed() < Duration::from_secs(2), "{:?}", ended.elapsed());
    site.coordinators[0].thaw();
}

#[tokio::test]
async fn a_coordinator_that_has_just_begun_and_heard_nobody_holds_up_no_login() {
    let site = Site::start(1).await;
    // It knows of a host that it has not heard since its start, and waits for it.
    let start = CoordinatorStart::new(site.folder.path(), "stale").on_fixed_ports();
    let mut stale = start.start().await;
    let mut lost = AgentStart::new(site.folder.path(), "lost", &[stale.grpc]).host("h2", HOST).await;
    stale.hosts_stored().await;
    stale.kill();
    lost.kill();
    stale.restart().await;
    let client = Client::new(stale.grpc, None);
    refusal(client.place(place("desk", "R1")).await, Code::Unavailable, "STALE");
    for order in [[&stale, &site.coordinators[0]], [&site.coordinators[0], &stale]] {
        let addresses = order.map(|coordinator| coordinator.grpc.to_string()).join(",");
        let began = Instant::now();
        let said = site.login(site.connect_to(&addresses, &["--no-cache"]), async || {}).await;
        println!("with one that is stale it took {:?}", began.elapsed());
        assert_eq!(said, "");
        assert!(began.elapsed() < Duration::from_secs(3), "{:?}", began.elapsed());
    }
    refusal(client.place(place("desk", "R2")).await, Code::Unavailable, "STALE");
}
