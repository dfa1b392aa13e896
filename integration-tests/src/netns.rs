//! What if the network between the parts breaks, and this machine's own must not be touched?
//!
//! A [`Network`] is a switch and the machines on it: a network namespace for each, and one for the bridge that joins
//! them, so that nothing of it is seen by the machine that runs the test. Packets between machines pass the kernel's own
//! TCP; a cable is pulled by `ip link set down` at the bridge, and then nothing comes through either way and nobody is
//! told, as when the power of a machine fails.
//!
//! Addresses are 10.77.0.x, where only mutual TLS is spoken: see [`crate::Authority::issue_for`]. A namespace belongs to
//! a thread: [`Machine::within`] moves the calling thread there for the length of a closure. Whatever is made in it (a
//! socket, a process) stays there for good.
//!
//! Everything goes away when the network is dropped. What a killed test left behind is known by the process id in its
//! name, and the next network of anybody sweeps it up.

use std::fs::File;
use std::io::Write;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::os::fd::AsFd;
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use rustix::process::{Pid, Signal, kill_process};
use rustix::thread::{LinkNameSpaceType, move_into_link_name_space};

use crate::process::Process;

/// All names begin with it; then comes the process id of the test.
const PREFIX: &str = "usher-t";

/// Networks that this process has made.
static NETWORKS: AtomicU32 = AtomicU32::new(0);

/// A switch and the machines on it. They go away with it.
#[derive(Debug)]
pub struct Network {
    name: String,
    machines: Mutex<u8>,
    namespaces: Arc<Namespaces>,
}

/// One machine on a [`Network`]: a namespace with loopback and one address.
#[derive(Debug, Clone)]
pub struct Machine {
    namespace: String,
    hub: String,
    port: String,
    address: Ipv4Addr,
    // The namespaces live as long as somebody may go there.
    _namespaces: Arc<Namespaces>,
}

impl Network {
    /// A switch without machines.
    ///
    /// # Panics
    /// If this user may not make network namespaces; the message says what to do. It is no reason to skip a test.
    pub fn new() -> Self {
        sweep();
        let number = NETWORKS.fetch_add(1, Ordering::Relaxed);
        let name = format!("{PREFIX}{}-{number}", std::process::id());
        let namespaces = Arc::new(Namespaces { names: Mutex::default() });
        let hub = format!("{name}-hub");
        namespaces.add(&hub);
        ip(&format!("-n {hub}"), "link add name bridge type bridge\nlink set bridge up\nlink set lo up\n");
        Self { name, machines: Mutex::default(), namespaces }
    }

    /// A further machine, with its cable in.
    ///
    /// # Panics
    /// If there are 250 already.
    pub fn machine(&self, name: &str) -> Machine {
        let number = {
            let mut machines = self.machines.lock().unwrap_or_else(PoisonError::into_inner);
            *machines += 1;
            *machines
        };
        assert!(number <= 250, "no address is left");
        let namespace = format!("{}-{name}", self.name);
        let hub = format!("{}-hub", self.name);
        let (port, address) = (format!("port{number}"), Ipv4Addr::new(10, 77, 0, number));
        self.namespaces.add(&namespace);
        let cable = format!(
            "link add {port} type veth peer name eth0 netns {namespace}\n\
             link set {port} master bridge\nlink set {port} up\n"
        );
        ip(&format!("-n {hub}"), &cable);
        let inside = format!("link set lo up\naddr add {address}/16 dev eth0\nlink set eth0 up\n");
        ip(&format!("-n {namespace}"), &inside);
        Machine { namespace, hub, port, address, _namespaces: Arc::clone(&self.namespaces) }
    }
}

impl Default for Network {
    fn default() -> Self {
        Self::new()
    }
}

impl Machine {
    /// Its address on the network.
    pub fn ip(&self) -> IpAddr {
        self.address.into()
    }

    /// A port at its address.
    pub fn at(&self, port: u16) -> SocketAddr {
        SocketAddr::from((self.address, port))
    }

    /// Pulls its cable: nothing comes through either way, and nobody is told.
    pub fn cut(&self) {
        ip(&format!("-n {}", self.hub), &format!("link set {} down\n", self.port));
    }

    /// Puts its cable back.
    pub fn heal(&self) {
        ip(&format!("-n {}", self.hub), &format!("link set {} up\n", self.port));
    }

    /// From now on these two do not hear each other, and all others hear both: what one sends to the other goes to an
    /// Ethernet address that nobody has.
    pub fn part(&self, other: &Self) {
        for (here, there) in [(self, other), (other, self)] {
            let nobody =
                format!("neigh replace {} lladdr 02:00:00:00:00:01 nud permanent dev eth0\n", there.address);
            ip(&format!("-n {}", here.namespace), &nobody);
        }
    }

    /// Ends [`Machine::part`].
    pub fn join(&self, other: &Self) {
        for (here, there) in [(self, other), (other, self)] {
            ip(&format!("-n {}", here.namespace), &format!("neigh del {} dev eth0\n", there.address));
        }
    }

    /// Runs `work` with the calling thread on this machine. Sockets and processes that are made in it stay here; files are
    /// those of everybody.
    ///
    /// # Panics
    /// If the thread cannot move.
    pub fn within<T>(&self, work: impl FnOnce() -> T) -> T {
        let _back = Back(File::open("/proc/thread-self/ns/net").unwrap());
        enter(&File::open(namespace_file(&self.namespace)).unwrap());
        work()
    }
}

/// Brings the thread back, after a panic too.
struct Back(File);

impl Drop for Back {
    fn drop(&mut self) {
        enter(&self.0);
    }
}

fn enter(namespace: &File) {
    let network = Some(LinkNameSpaceType::Network);
    move_into_link_name_space(namespace.as_fd(), network)
        .unwrap_or_else(|error| panic!("cannot enter a network namespace: {error}; {RIGHTS}"));
}

const RIGHTS: &str = "the tests that cut networks want root (CAP_SYS_ADMIN and CAP_NET_ADMIN) and Debian's package iproute2: \
                      run `cargo xtask test` as root";

fn namespace_file(name: &str) -> std::path::PathBuf {
    Path::new("/run/netns").join(name)
}

/// Namespaces that go away with this.
#[derive(Debug)]
struct Namespaces {
    names: Mutex<Vec<String>>,
}

impl Namespaces {
    fn add(&self, name: &str) {
        self.names.lock().unwrap_or_else(PoisonError::into_inner).push(name.to_owned());
        ip("", &format!("netns add {name}\n"));
    }
}

impl Drop for Namespaces {
    fn drop(&mut self) {
        for name in self.names.lock().unwrap_or_else(PoisonError::into_inner).iter() {
            remove(name);
        }
    }
}

/// It may be gone already: whoever removes it first has done the work.
fn remove(name: &str) {
    let mut command = Command::new("ip");
    let _ = command.args(["netns", "del", name]).stdin(Stdio::null()).stderr(Stdio::null()).status();
}

/// Removes the namespaces of tests that no longer run, and ends what still runs in them.
fn sweep() {
    for name in std::fs::read_dir("/run/netns").into_iter().flatten().flatten() {
        let name = name.file_name().to_string_lossy().into_owned();
        let Some(rest) = name.strip_prefix(PREFIX) else { continue };
        let owner: Option<u32> = rest.split('-').next().and_then(|pid| pid.parse().ok());
        if owner.is_none_or(Process::exists) {
            continue;
        }
        let inside = Command::new("ip").args(["netns", "pids", &name]).output();
        let inside = inside.map(|output| String::from_utf8_lossy(&output.stdout).into_owned());
        for pid in inside.unwrap_or_default().split_whitespace() {
            let pid = pid.parse().ok().and_then(Pid::from_raw);
            // It may have ended meanwhile.
            let _ = pid.map(|pid| kill_process(pid, Signal::KILL));
        }
        remove(&name);
    }
}

/// Runs commands of `ip`, one a line; `options` come first.
fn ip(options: &str, commands: &str) {
    let mut command = Command::new("ip");
    command.args(options.split_whitespace()).args(["-batch", "-"]);
    let spawned = command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn();
    let mut child = spawned.unwrap_or_else(|error| panic!("cannot run `ip`: {error}; {RIGHTS}"));
    // An `ip` that fails says more on stderr than the broken pipe does.
    let _ = child.stdin.take().unwrap().write_all(commands.as_bytes());
    let output = child.wait_with_output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "ip {options}: {commands}: {said}; {RIGHTS}");
}

#[cfg(test)]
mod tests {
    use std::io::ErrorKind;
    use std::net::{TcpListener, TcpStream};
    use std::time::Duration;

    use super::*;

    fn connect(from: &Machine, to: SocketAddr) -> Result<TcpStream, ErrorKind> {
        from.within(|| TcpStream::connect_timeout(&to, Duration::from_millis(700)))
            .map_err(|error| error.kind())
    }

    #[test]
    fn machines_reach_each_other_until_a_cable_is_pulled_and_leave_nothing_behind() {
        let network = Network::new();
        let (a, b, c) = (network.machine("a"), network.machine("b"), network.machine("c"));
        let listener = b.within(|| TcpListener::bind(b.at(7443))).unwrap();
        connect(&a, b.at(7443)).unwrap();
        listener.accept().unwrap();
        // This machine itself has no part in it.
        assert_eq!(TcpListener::bind(b.at(0)).unwrap_err().kind(), ErrorKind::AddrNotAvailable);
        b.cut();
        assert!(connect(&a, b.at(7443)).is_err());
        b.heal();
        connect(&a, b.at(7443)).unwrap();
        b.part(&a);
        assert!(connect(&a, b.at(7443)).is_err());
        connect(&c, b.at(7443)).unwrap();
        b.join(&a);
        connect(&a, b.at(7443)).unwrap();

        let names = network.namespaces.names.lock().unwrap().clone();
        assert!(names.iter().all(|name| namespace_file(name).exists()));
        drop((network, a, b, c));
        assert!(names.iter().all(|name| !namespace_file(name).exists()));
    }

    #[test]
    fn what_a_killed_test_left_is_swept_up_by_the_next() {
        // No process has such an id: it is above the kernel's largest.
        let left = format!("{PREFIX}99999999-0-a");
        ip("", &format!("netns add {left}\n"));
        let _network = Network::new();
        assert!(!namespace_file(&left).exists());
    }
}
