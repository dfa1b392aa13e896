//! The client against real etcd: what its API says, and what happens when it goes away. `/usr/bin/etcd` must be there; its
//! absence is a failure, since nothing else shows that our idea of etcd is true.

use std::{
    net::{SocketAddr, TcpListener},
    path::Path,
    process::{Child, Command, Stdio},
    sync::Arc,
    time::Duration,
};

use tokio::time::{sleep, timeout};
use usher_runtime::clock::SystemClock;
use usher_types::{HostId, Policy, PoolName};

use super::*;
use crate::{
    metrics::Metrics,
    store::{
        Followed, LinkState, MemoryStore, PoolRecord, Presence, RowChange, SharingOptions, StoreError,
        StoreHandle, Watched, Write,
    },
};

/// One member of etcd, alone.
struct Server {
    folder: tempfile::TempDir,
    client: SocketAddr,
    peer: SocketAddr,
    child: Option<Child>,
}

impl Server {
    async fn start() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let mut server = Self { folder, client: free(), peer: free(), child: None };
        server.run(Path::new("data"));
        server.answers().await;
        server
    }

    fn run(&mut self, data: &Path) {
        let (client, peer) = (format!("http://{}", self.client), format!("http://{}", self.peer));
        let mut command = Command::new("/usr/bin/etcd");
        command.args(["--name", "only", "--data-dir"]).arg(self.folder.path().join(data));
        command.args(["--listen-client-urls", &client, "--advertise-client-urls", &client]);
        command.args(["--listen-peer-urls", &peer, "--initial-advertise-peer-urls", &peer]);
        command.args(["--initial-cluster", &format!("only={peer}")]);
        command.args(["--logger", "zap", "--log-level", "error"]).stderr(Stdio::null()).stdout(Stdio::null());
        self.child = Some(command.spawn().expect("/usr/bin/etcd must be installed: apt install etcd-server"));
    }

    fn kill(&mut self) {
        if let Some(mut child) = self.child.take() {
            child.kill().unwrap();
            child.wait().unwrap();
        }
    }

    async fn answers(&self) {
        let store = self.store();
        let answers = async {
            while store.newest("").await.is_err() {
                sleep(Duration::from_millis(50)).await;
            }
        };
        timeout(Duration::from_secs(30), answers).await.expect("etcd answers");
    }

    fn options(&self) -> EtcdOptions {
        EtcdOptions {
            endpoints: vec![self.client.to_string()],
            prefix: "/usher/test/".to_owned(),
            tls: None,
            login: None,
            connect_timeout: Duration::from_secs(2),
            call_timeout: Duration::from_secs(2),
        }
    }

    fn store(&self) -> EtcdStore {
        EtcdStore::new(self.options())
    }

    fn ctl(&self, arguments: &[&str]) {
        let endpoint = format!("--endpoints=http://{}", self.client);
        let mut command = Command::new("/usr/bin/etcdctl");
        command.env("ETCDCTL_API", "3").arg(endpoint).args(arguments).stdin(Stdio::null());
        let output = command.output().unwrap();
        assert!(output.status.success(), "{arguments:?}: {}", String::from_utf8_lossy(&output.stderr));
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.kill();
    }
}

fn free() -> SocketAddr {
    TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap()
}

fn put(key: &str, value: &str, at: u64) -> Transaction {
    Transaction {
        expected: [(key.to_owned(), at)].into_iter().collect(),
        changes: [(key.to_owned(), Some(value.as_bytes().to_vec()))].into_iter().collect(),
        ..Transaction::default()
    }
}

async fn next(watch: &mut Box<dyn Watch>) -> Watched {
    timeout(Duration::from_secs(10), watch.next()).await.expect("the watch tells").unwrap()
}

#[tokio::test]
async fn a_transaction_happens_if_its_rows_are_as_expected_and_else_they_are_told() {
    let server = Server::start().await;
    let store = server.store();
    let Transacted::Done(first) = store.transact(&put("pools/a", "1", 0)).await.unwrap() else { panic!() };
    let Transacted::Conflict(rows) = store.transact(&put("pools/a", "2", 0)).await.unwrap() else { panic!() };
    let row = SharedRow { key: "pools/a".to_owned(), value: b"1".to_vec(), revision: first };
    assert_eq!(rows["pools/a"], Some(row.clone()));
    let Transacted::Conflict(rows) = store.transact(&put("pools/b", "1", 9)).await.unwrap() else { panic!() };
    assert_eq!(rows["pools/b"], None);
    let listing = store.list().await.unwrap();
    assert_eq!((listing.rows, listing.revision), (vec![row], first));
    assert!(listing.cluster != 0);
    // A row of another farm whose name goes on where this one's ends.
    server.ctl(&["put", "/usher/test2/pools/z", "x"]);
    assert_eq!(store.list().await.unwrap().rows.len(), 1);
}

#[tokio::test]
async fn more_changes_than_etcd_takes_side_by_side_happen_as_a_whole_unless_something_is_newer() {
    let server = Server::start().await;
    let store = server.store();
    let changes = (0..700).map(|number| (format!("bindings/{number:04}"), Some(b"\"h\"".to_vec())));
    let all = Transaction { changes: changes.collect(), unchanged_since: Some(0), ..Transaction::default() };
    let Transacted::Done(revision) = store.transact(&all).await.unwrap() else { panic!() };
    let listing = store.list().await.unwrap();
    assert_eq!(listing.rows.len(), 700, "over several pages");
    assert!(listing.rows.iter().all(|row| row.revision == revision));
    assert_eq!(store.newest("bindings/").await.unwrap().row_revision, revision);
    let late = Transaction { unchanged_since: Some(revision - 1), ..all.clone() };
    assert!(matches!(store.transact(&late).await.unwrap(), Transacted::Conflict(_)));
    let too_many = (0..4000).map(|number| (format!("bindings/{number:04}"), None));
    let too_many = Transaction { changes: too_many.collect(), ..Transaction::default() };
    assert!(matches!(store.transact(&too_many).await, Err(SharedError::Refused(_))));
}

#[tokio::test]
async fn a_watch_tells_what_came_after_a_revision_and_that_it_is_not_kept_any_more() {
    let server = Server::start().await;
    let store = server.store();
    let Transacted::Done(first) = store.transact(&put("drains/a", "1", 0)).await.unwrap() else { panic!() };
    let Transacted::Done(second) = store.transact(&put("drains/a", "2", first)).await.unwrap() else {
        panic!()
    };
    let mut watch = store.watch(first).await.unwrap();
    let change = |value: Option<&str>, revision| RowChange {
        key: "drains/a".to_owned(),
        value: value.map(|value| value.as_bytes().to_vec()),
        revision,
    };
    let told = |value, revision| Watched::Changes {
        changes: vec![change(value, revision)],
        complete_to: Some(revision),
    };
    assert_eq!(next(&mut watch).await, told(Some("2"), second));
    server.ctl(&["del", "/usher/test/drains/a"]);
    assert_eq!(next(&mut watch).await, told(None, second + 1));
    store.links.compact(signed(second + 1)).await.unwrap();
    let mut late = store.watch(first).await.unwrap();
    assert_eq!(next(&mut late).await, Watched::Compacted);
}

#[tokio::test]
async fn a_watch_says_when_etcd_goes_and_goes_on_where_it_ended_when_it_is_back() {
    let mut server = Server::start().await;
    let store = server.store();
    let Transacted::Done(first) = store.transact(&put("drains/a", "1", 0)).await.unwrap() else { panic!() };
    let mut watch = store.watch(first).await.unwrap();
    server.kill();
    let broken = timeout(Duration::from_secs(10), watch.next()).await.unwrap();
    assert!(matches!(broken, Err(SharedError::Away(_))), "{broken:?}");
    assert!(matches!(
        store.transact(&put("drains/a", "2", first)).await,
        Err(SharedError::Away(_) | SharedError::Unreached(_))
    ));
    assert!(matches!(store.newest("").await, Err(SharedError::Unreached(_))));
    server.run(Path::new("data"));
    server.answers().await;
    let Transacted::Done(second) = store.transact(&put("drains/a", "2", first)).await.unwrap() else {
        panic!()
    };
    let mut watch = store.watch(first).await.unwrap();
    let Watched::Changes { complete_to, .. } = next(&mut watch).await else { panic!() };
    assert_eq!(complete_to, Some(second));
}

#[tokio::test]
async fn what_is_announced_goes_with_its_lease_and_survives_etcd() {
    let mut server = Server::start().await;
    let store = server.store();
    store.announce("coordinators/a", b"1", Duration::from_secs(2)).await.unwrap();
    let revision = store.list().await.unwrap().revision;
    store.announce("coordinators/a", b"1", Duration::from_secs(2)).await.unwrap();
    assert_eq!(store.list().await.unwrap().revision, revision, "kept alive without a change");
    server.kill();
    server.run(Path::new("data"));
    server.answers().await;
    let again = async {
        while store.announce("coordinators/a", b"2", Duration::from_secs(2)).await.is_err() {
            sleep(Duration::from_millis(50)).await;
        }
    };
    timeout(Duration::from_secs(10), again).await.unwrap();
    assert_eq!(store.list().await.unwrap().rows[0].value, b"2");
    let gone = async {
        while !store.list().await.unwrap().rows.is_empty() {
            sleep(Duration::from_millis(100)).await;
        }
    };
    timeout(Duration::from_secs(15), gone).await.expect("it goes by itself");
    store.announce("coordinators/a", b"2", Duration::from_secs(60)).await.unwrap();
    assert_eq!(store.list().await.unwrap().rows.len(), 1, "a lease that ran out is granted anew");
    store.withdraw().await;
    assert!(store.list().await.unwrap().rows.is_empty());
}

#[tokio::test]
async fn a_member_that_does_not_answer_is_passed_over() {
    let server = Server::start().await;
    // It accepts and says nothing.
    let silent = TcpListener::bind("127.0.0.1:0").unwrap();
    let mut options = server.options();
    options.call_timeout = Duration::from_millis(300);
    options.endpoints.insert(0, silent.local_addr().unwrap().to_string());
    options.endpoints.insert(0, free().to_string());
    let store = EtcdStore::new(options);
    let answered = async { while store.newest("").await.is_err() {} };
    timeout(Duration::from_secs(10), answered).await.expect("the third one is found");
}

#[tokio::test]
async fn with_users_a_login_is_needed_and_one_that_ran_out_is_made_again() {
    let server = Server::start().await;
    for arguments in [
        &["user", "add", "root:secret"][..],
        &["role", "add", "root"],
        &["user", "grant-role", "root", "root"],
        &["role", "add", "usher"],
        &["role", "grant-permission", "--prefix=true", "usher", "readwrite", "/usher/test/"],
        &["user", "add", "usher:pass word"],
        &["user", "grant-role", "usher", "usher"],
        &["auth", "enable"],
    ] {
        server.ctl(arguments);
    }
    assert!(matches!(server.store().newest("").await, Err(SharedError::Refused(_))));
    let password = server.folder.path().join("password");
    std::fs::write(&password, "pass word\n").unwrap();
    let login = Some(("usher".to_owned(), password.clone()));
    let store = EtcdStore::new(EtcdOptions { login: login.clone(), ..server.options() });
    let Transacted::Done(first) = store.transact(&put("drains/a", "1", 0)).await.unwrap() else { panic!() };
    store.watch(first).await.unwrap();
    let shown = format!("{:?}", store.links.link().await.unwrap());
    assert!(shown.contains("token: Some(Sensitive)"), "{shown}");
    store.announce("coordinators/a", b"1", Duration::from_secs(9)).await.unwrap();
    // Every token of before is void after a change of the users.
    server.ctl(&["--user", "root:secret", "user", "add", "third:x"]);
    server.ctl(&["--user", "root:secret", "user", "delete", "third"]);
    store.transact(&put("drains/a", "2", first)).await.unwrap();
    // A key elsewhere is not allowed.
    let elsewhere = EtcdOptions { login, prefix: "/other/".to_owned(), ..server.options() };
    assert!(matches!(EtcdStore::new(elsewhere).newest("").await, Err(SharedError::Refused(_))));
    std::fs::write(&password, "wrong\n").unwrap();
    let wrong = EtcdOptions { login: Some(("usher".to_owned(), password)), ..server.options() };
    let error = EtcdStore::new(wrong).newest("").await.unwrap_err();
    let told = error.to_string();
    assert!(matches!(error, SharedError::Refused(_)) && !told.contains("wrong"), "{told}");
}

/// A coordinator's store on this etcd.
struct Node {
    store: StoreHandle,
    told: tokio::sync::mpsc::Receiver<Followed>,
}

async fn node(server: &Server, id: &str) -> Node {
    let local = MemoryStore::new(id).opened_again();
    let own = StoreHandle::inline(Path::new("memory"), Metrics::new("0", "none"), local);
    let stored = own.load().await.unwrap();
    let options = SharingOptions {
        store: Arc::new(server.store()),
        clock: Arc::new(SystemClock),
        instance_id: format!("{id}.1"),
        seed: false,
        write_within: Duration::from_secs(4),
    };
    let (store, follower) = own.share(options, &stored);
    let _ = follower.catch_up(Duration::from_secs(3)).await;
    let (out, told) = tokio::sync::mpsc::channel(64);
    tokio::spawn(follower.run(out, tokio_util::sync::CancellationToken::new()));
    Node { store, told }
}

impl Node {
    async fn until(&self, link: LinkState) {
        let reached = async {
            while self.store.status().shared.unwrap().link != link {
                sleep(Duration::from_millis(20)).await;
            }
        };
        timeout(Duration::from_secs(30), reached)
            .await
            .unwrap_or_else(|_| panic!("{:?}", self.store.status()));
    }

    async fn has(&self, version: u64) {
        let reached = async {
            while self.store.load().await.unwrap().pools.get(&pool()).map(|of| of.version) != Some(version) {
                sleep(Duration::from_millis(5)).await;
            }
        };
        timeout(Duration::from_secs(20), reached).await.unwrap_or_else(|_| panic!("no version {version}"));
    }
}

fn pool() -> PoolName {
    PoolName::new("desk").unwrap()
}

fn settings(version: u64, author: &str) -> PoolRecord {
    PoolRecord { version, policy: Policy::default(), author: author.to_owned(), applied_unix_ms: version }
}

#[tokio::test]
async fn of_two_coordinators_that_write_one_version_or_bind_one_certificate_one_wins() {
    let server = Server::start().await;
    let (mut one, two) = (node(&server, "one").await, node(&server, "two").await);
    one.until(LinkState::Connected).await;
    two.until(LinkState::Connected).await;
    for version in 1..=20 {
        let (first, second) = tokio::join!(
            one.store.put_pool(pool(), settings(version, "ann")),
            two.store.put_pool(pool(), settings(version, "bob"))
        );
        let won = [first.is_ok(), second.is_ok()];
        assert_eq!(won.iter().filter(|won| **won).count(), 1, "{first:?} {second:?}");
        let lost = first.err().or(second.err()).unwrap();
        assert!(matches!(lost, StoreError::Version { current, .. } if current == version), "{lost}");
        one.has(version).await;
        two.has(version).await;
        while one.told.try_recv().is_ok() {}
    }
    let bind = |host: &str| Write::Bind {
        certificate: "app1".to_owned(),
        host: HostId::new(host).unwrap(),
        replaces: None,
    };
    let (first, second) = tokio::join!(one.store.write(vec![bind("a")]), two.store.write(vec![bind("b")]));
    assert!(first.is_ok() != second.is_ok(), "{first:?} {second:?}");
}

#[tokio::test]
async fn of_two_certificates_that_two_coordinators_bind_to_one_host_at_once_one_wins() {
    let server = Server::start().await;
    let (one, two) = (node(&server, "one").await, node(&server, "two").await);
    one.until(LinkState::Connected).await;
    two.until(LinkState::Connected).await;
    let id = |round: usize| HostId::new(format!("h{round}")).unwrap();
    let bind = |by: &str, round: usize| {
        let certificate = format!("{by}{round}");
        vec![Write::Bind { certificate, host: id(round), replaces: None }]
    };
    for round in 0..20 {
        let (first, second) =
            tokio::join!(one.store.write(bind("ann", round)), two.store.write(bind("bob", round)));
        let (won, refused) = match (first, second) {
            (Ok(_), Err(refused)) => (format!("ann{round}"), refused),
            (Err(refused), Ok(_)) => (format!("bob{round}"), refused),
            both => panic!("one must win: {both:?}"),
        };
        let StoreError::Claimed { host, certificate } = refused else { panic!("{refused}") };
        assert_eq!((host, certificate), (id(round), won));
    }
    let agree = async {
        loop {
            let [one, two] = [one.store.load().await.unwrap(), two.store.load().await.unwrap()];
            if one.bindings.len() == 20 && one.bindings == two.bindings {
                break one.bindings;
            }
            sleep(Duration::from_millis(5)).await;
        }
    };
    let bound = timeout(Duration::from_secs(10), agree).await.expect("both have the same bonds");
    assert!((0..20).all(|round| bound.values().filter(|host| **host == id(round)).count() == 1));
}

#[tokio::test]
async fn etcd_is_restarted_compacted_and_emptied_and_the_coordinators_follow() {
    let mut server = Server::start().await;
    let (one, mut two) = (node(&server, "one").await, node(&server, "two").await);
    one.until(LinkState::Connected).await;
    two.until(LinkState::Connected).await;
    one.store.put_pool(pool(), settings(1, "ann")).await.unwrap();
    let begun = std::time::Instant::now();
    timeout(Duration::from_secs(1), two.told.recv()).await.expect("in force within a second").unwrap();
    println!("in force at the other one after {:?}", begun.elapsed());
    server.kill();
    two.until(LinkState::Away).await;
    let error = two.store.put_pool(pool(), settings(2, "bob")).await.unwrap_err();
    assert!(matches!(error, StoreError::Away { .. }), "{error}");
    server.run(Path::new("data"));
    server.answers().await;
    two.until(LinkState::Connected).await;
    two.store.put_pool(pool(), settings(2, "bob")).await.unwrap();
    one.has(2).await;
    // What was in etcd before is not there any more: another cluster at the same address.
    server.kill();
    server.run(Path::new("other"));
    server.answers().await;
    one.until(LinkState::Unusable).await;
    assert_eq!(one.store.load().await.unwrap().pools[&pool()].version, 2, "it serves from its copy");
    let rows = one.store.load().await.unwrap().shared();
    one.store.replace_shared(&rows, rows.clone()).await.unwrap();
    two.until(LinkState::Connected).await;
    two.store.put_pool(pool(), settings(3, "bob")).await.unwrap();
    one.has(3).await;
}

#[tokio::test]
async fn a_coordinator_that_starts_while_etcd_is_away_follows_it_later_and_is_listed() {
    let mut server = Server::start().await;
    server.kill();
    let begun = std::time::Instant::now();
    let late = node(&server, "late").await;
    assert!(begun.elapsed() < Duration::from_secs(5));
    late.until(LinkState::Away).await;
    late.store.announce(Presence {
        coordinator_id: "late".to_owned(),
        instance_id: "i".to_owned(),
        address: "127.0.0.1:7443".to_owned(),
        version: "1".to_owned(),
        started_unix_ms: 1,
    });
    server.run(Path::new("data"));
    late.until(LinkState::Connected).await;
    late.store.put_pool(pool(), settings(1, "ann")).await.unwrap();
    let listed = async {
        while late.store.coordinators().is_empty() {
            sleep(Duration::from_millis(50)).await;
        }
    };
    timeout(Duration::from_secs(10), listed).await.unwrap();
    late.store.close().await;
    let rows = server.store().list().await.unwrap().rows;
    assert!(!rows.iter().any(|row| row.key.starts_with("coordinators/")), "a goodbye is heard at once");
}
