//! Does ssh find its way through `usherctl connect`, and past a host that has died?
//!
//! Everything is real: four servers of OpenSSH on four machines of a network, an agent on each that counts the server's own
//! sessions, a hundred users of Unix (in an `/etc/passwd` that only those servers see), and ssh with the settings that we ship.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};

use tempfile::TempDir;
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader, Lines};
use tokio::net::TcpStream;
use tokio::process::{Child, ChildStdout};
use tokio::task::JoinSet;
use usher_integration_tests::{
    Agent, Client, LONG, Machine, Process, Site, binary, system_program, wait_for, wait_until,
};

const USERS: usize = 100;
const AT_ONCE: usize = 10;
const HOSTS: [&str; 4] = ["h1", "h2", "h3", "h4"];

fn example() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../deploy/examples/ssh_config")
}

/// Keys and users that all servers share. Other users may look into the folder, which sshd runs as them wants.
struct Realm {
    folder: TempDir,
}

impl Realm {
    fn new() -> Self {
        let folder = tempfile::Builder::new().prefix("usher-ssh-").tempdir().unwrap();
        let realm = Self { folder };
        std::fs::set_permissions(realm.path(""), std::fs::Permissions::from_mode(0o711)).unwrap();
        for key in ["host_key", "login_key"] {
            let mut command = Command::new(system_program("ssh-keygen"));
            let made = command.args(["-q", "-t", "ed25519", "-N", "", "-f"]).arg(realm.path(key)).status();
            assert!(made.unwrap().success());
        }
        let mut users = std::fs::read_to_string("/etc/passwd").unwrap();
        for number in 1..=USERS {
            writeln!(users, "{}:x:{}:65534::/:/bin/sh", user(number), 30_000 + number).unwrap();
        }
        std::fs::write(realm.path("passwd"), users).unwrap();
        // All hosts have one key, known under the name of the pool.
        let key = std::fs::read_to_string(realm.path("host_key.pub")).unwrap();
        std::fs::write(realm.path("known_hosts"), format!("desk {key}")).unwrap();
        realm
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// A server of OpenSSH on a machine, whose sessions write themselves down.
    fn serve(&self, host: &str, machine: &Machine) -> Process {
        let sessions = self.path(&format!("{host}.sessions"));
        std::fs::create_dir(&sessions).unwrap();
        // Anybody's session writes there.
        std::fs::set_permissions(&sessions, std::fs::Permissions::from_mode(0o1777)).unwrap();
        let session = self.path(&format!("{host}.sh"));
        let sessions = sessions.display();
        let script = format!(
            "#!/bin/sh\necho \"{{\\\"user\\\": \\\"$USER\\\", \\\"id\\\": \\\"$$\\\"}}\" > {sessions}/.$$\n\
             mv {sessions}/.$$ {sessions}/$$\necho \"{host} $(id -un) $SSH_ORIGINAL_COMMAND\"\ncat > /dev/null\n\
             rm {sessions}/$$\n"
        );
        write_script(&session, &script);
        write_script(
            &self.path(&format!("{host}.list")),
            &format!("#!/bin/sh\ncd {sessions}\ncat -- * 2> /dev/null\nexit 0\n"),
        );
        let config = self.path(&format!("{host}.conf"));
        let settings = format!(
            "ListenAddress {}\nPort 22\nPidFile none\nHostKey {}\nAuthorizedKeysFile {}\nStrictModes no\n\
             PasswordAuthentication no\nUsePAM no\nMaxStartups 100\nForceCommand {}\n",
            machine.ip(),
            self.path("host_key").display(),
            self.path("login_key.pub").display(),
            session.display()
        );
        std::fs::write(&config, settings).unwrap();
        std::fs::create_dir_all("/run/sshd").unwrap();
        // A mount of its own: this machine's users are not touched.
        let mut command = Command::new("unshare");
        command.args(["--mount", "sh", "-c", "mount --bind \"$0\" /etc/passwd && exec \"$@\""]);
        command.arg(self.path("passwd")).arg(system_program("sshd")).args(["-D", "-e", "-f"]).arg(&config);
        Process::start_on(Some(machine), host, &mut command, &self.path(&format!("{host}.log")))
    }
}

fn write_script(path: &Path, text: &str) {
    std::fs::write(path, text).unwrap();
    std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o755)).unwrap();
}

fn user(number: usize) -> String {
    format!("person{number}")
}

/// A login that stands. It ends when it is dropped.
struct Login {
    host: String,
    child: Child,
    _said: Lines<BufReader<ChildStdout>>,
}

/// ssh as a user types it, on the desk's machine.
async fn log_in(realm: &Realm, site: &Site, desk: &Machine, number: usize) -> Login {
    let mut command = Command::new(system_program("ssh"));
    command.arg("-F").arg(example()).arg("-i").arg(realm.path("login_key"));
    command.args(["-o", "IdentitiesOnly=yes", "-o", "StrictHostKeyChecking=yes"]);
    command.arg("-o").arg(format!("UserKnownHostsFile={}", realm.path("known_hosts").display()));
    command.arg(format!("{}@desk", user(number))).arg("hello");
    let path =
        format!("{}:{}", binary("usherctl").parent().unwrap().display(), std::env::var("PATH").unwrap());
    command.env("PATH", path).env("USHER_CONFIG", site.folder().join("client.toml"));
    command.env_remove("USHER_COORDINATORS").env("XDG_CACHE_HOME", site.folder());
    let mut command = tokio::process::Command::from(command);
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).kill_on_drop(true);
    let mut child = desk.within(|| command.spawn()).unwrap();
    let mut said = BufReader::new(child.stdout.take().unwrap()).lines();
    let first =
        tokio::time::timeout(LONG, said.next_line()).await.expect("no login within the time").unwrap();
    let Some(first) = first else {
        let output = child.wait_with_output().await.unwrap();
        panic!("{}: {}: {}", user(number), output.status, String::from_utf8_lossy(&output.stderr));
    };
    let (host, rest) = first.split_once(' ').unwrap();
    assert_eq!(rest, format!("{} hello", user(number)), "who was let in, and with which command");
    Login { host: host.to_owned(), child, _said: said }
}

/// Up to [`AT_ONCE`] at a time.
async fn log_all_in(
    realm: &Arc<Realm>,
    site: &Arc<Site>,
    desk: &Machine,
    numbers: std::ops::RangeInclusive<usize>,
) -> Vec<Login> {
    let (mut under_way, mut logins) = (JoinSet::new(), Vec::new());
    for number in numbers {
        if under_way.len() == AT_ONCE {
            logins.push(under_way.join_next().await.unwrap().unwrap());
        }
        let (realm, site, desk) = (Arc::clone(realm), Arc::clone(site), desk.clone());
        under_way.spawn(async move { log_in(&realm, &site, &desk, number).await });
    }
    logins.extend(under_way.join_all().await);
    logins
}

fn counted(logins: &[Login]) -> BTreeMap<&str, usize> {
    let mut counts = BTreeMap::new();
    for login in logins {
        *counts.entry(login.host.as_str()).or_insert(0) += 1;
    }
    counts
}

async fn agent(realm: &Realm, site: &Site, host: &str, machine: &Machine) -> Agent {
    let files = site.authority().issue(&format!("usher://default/agent/{host}"));
    let settings = format!(
        "endpoints = [{{ kind = \"ssh\", address = \"{}\", port = 22 }}]\n{}\n\
         [sessions]\nsource = \"program\"\nprogram = [{:?}]\n",
        machine.ip(),
        files.table(),
        realm.path(&format!("{host}.list")),
    );
    site.agent_on(host, machine).settings(&settings).await
}

async fn shows_users(operator: &Client, host: &str, users: usize) {
    wait_for(&format!("{users} users on {host} and nobody on the way"), LONG, async || {
        let host = operator.host(host).await.map_err(|status| status.to_string())?;
        let seen = (host.users, host.pending_users);
        if seen == (u32::try_from(users).ok(), 0) {
            Ok(())
        } else {
            Err(format!("{seen:?}: {:?}", host.collectors))
        }
    })
    .await;
}

#[test]
fn the_ssh_settings_that_we_ship_are_understood_by_ssh() {
    let understood = |target: &str| {
        let mut command = Command::new(system_program("ssh"));
        let output = command.arg("-F").arg(example()).args(["-G", target]).output().unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8(output.stdout).unwrap()
    };
    let desk = understood("alice@desk");
    assert!(desk.contains("\nproxycommand usherctl connect --pool desk --user %r --port %p\n"), "{desk}");
    assert!(desk.contains("\nhostkeyalias desk\n"), "{desk}");
    let one = understood("alice@app3.desk");
    assert!(one.contains("--host \"${2%%.desk}\""), "{one}");
    assert!(!understood("alice@elsewhere").contains("usherctl"));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_hundred_logins_of_a_hundred_users_succeed_while_one_of_four_hosts_dies() {
    let site = Arc::new(Site::start(1).on_network().await);
    let realm = Arc::new(Realm::new());
    let (mut machines, mut running) = (Vec::new(), Vec::new());
    for host in HOSTS {
        let machine = site.machine(host);
        running.push((realm.serve(host, &machine), agent(&realm, &site, host, &machine).await));
        machines.push(machine);
    }
    let desk = site.machine("bastion");
    for machine in &machines {
        wait_until("sshd to listen", LONG, async || {
            let socket = desk.within(tokio::net::TcpSocket::new_v4).unwrap();
            let stream: Result<TcpStream, _> = socket.connect(machine.at(22)).await;
            stream.is_ok()
        })
        .await;
    }
    let gateway = site.authority().issue("usher://default/gateway/bastion");
    let settings = format!("coordinators = [\"{}\"]\n{}", site.addresses()[0], gateway.table());
    std::fs::write(site.folder().join("client.toml"), settings).unwrap();
    let operator = site.clients("operator").remove(0);

    let started = Instant::now();
    let before = log_all_in(&realm, &site, &desk, 1..=USERS / 2).await;
    for (host, logins) in counted(&before) {
        shows_users(&operator, host, logins).await;
    }
    // The power of one fails. Nobody is told: its door is silent, and the farm hears nothing of it.
    machines[3].cut();
    let after = log_all_in(&realm, &site, &desk, USERS / 2 + 1..=USERS).await;
    let seconds = started.elapsed().as_secs_f64();
    println!("{USERS} logins in {seconds:.1} s: first {:?}, then {:?}", counted(&before), counted(&after));
    assert_eq!(before.len() + after.len(), USERS);
    assert!(!counted(&after).contains_key("h4"), "nobody gets into a dead host");
    let all: Vec<Login> = before.into_iter().chain(after).collect();
    let counts = counted(&all);
    for living in &HOSTS[..3] {
        let logins = counts[living];
        assert!((20..=40).contains(&logins), "{living} took {logins}: {counts:?}");
        shows_users(&operator, living, logins).await;
    }
    // Each living session hears the end of what its user types, and ends as a session does.
    for mut login in all.into_iter().filter(|login| login.host != "h4") {
        login.child.stdin.take().unwrap().shutdown().await.unwrap();
        let status = tokio::time::timeout(Duration::from_secs(20), login.child.wait()).await;
        assert!(status.expect("the session does not end").unwrap().success());
    }
    for living in &HOSTS[..3] {
        shows_users(&operator, living, 0).await;
    }
}
