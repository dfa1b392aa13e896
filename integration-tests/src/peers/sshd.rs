//! A real login on a pty: OpenSSH's server and client.

use std::io::Write;
use std::net::{Ipv4Addr, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use super::system_program;
use crate::process::{Process, free_tcp_port};
use crate::wait::{LONG, wait_for, wait_until};

/// Where sshd locks a part of itself in. systemd makes it, and a container has no systemd.
const PRIVILEGE_SEPARATION: &str = "/run/sshd";

/// A server that runs and lets root in with a key of its own.
#[derive(Debug)]
pub struct Sshd {
    folder: PathBuf,
    port: u16,
    _server: Process,
}

/// A session on a terminal, until it is logged out or dropped.
#[derive(Debug)]
pub struct Login(Child);

impl Sshd {
    /// Starts a server whose files and log are in `folder`.
    ///
    /// # Panics
    /// If it is not installed, this user is not root, or the server does not listen.
    pub async fn start(folder: &Path) -> Self {
        let is_root = rustix::process::geteuid().is_root();
        assert!(is_root, "only root may let somebody log in: run this test as root");
        std::fs::create_dir_all(PRIVILEGE_SEPARATION).unwrap();
        for key in ["host_key", "login_key"] {
            make_key(&folder.join(key));
        }
        let port = free_tcp_port();
        let config = folder.join("sshd_config");
        std::fs::write(&config, settings(folder, port)).unwrap();
        let mut command = Command::new(system_program("sshd"));
        command.args(["-D", "-e", "-f"]).arg(&config);
        let mut server = Process::start("sshd", &mut command, &folder.join("sshd.log"));
        wait_until("sshd to listen", LONG, async || {
            assert!(server.is_running(), "sshd ended:\n{}", server.log());
            TcpStream::connect((Ipv4Addr::LOCALHOST, port)).is_ok()
        })
        .await;
        Self { folder: folder.to_owned(), port, _server: server }
    }

    /// Where it listens.
    pub fn port(&self) -> u16 {
        self.port
    }

    /// Logs root in, with a shell on a terminal. Whether and when that succeeds is for the host to see.
    pub fn log_in(&self) -> Login {
        let mut command = Command::new(system_program("ssh"));
        command.args(["-tt", "-q", "-F", "none", "-p", &self.port.to_string()]);
        command.arg("-i").arg(self.folder.join("login_key"));
        command.args(["-o", "IdentitiesOnly=yes", "-o", "StrictHostKeyChecking=no"]);
        command.args(["-o", "UserKnownHostsFile=/dev/null", "root@127.0.0.1", "sh"]);
        Login(command.stdin(Stdio::piped()).stdout(Stdio::null()).spawn().unwrap())
    }
}

impl Login {
    /// Types `exit` and waits until the connection is closed.
    ///
    /// # Panics
    /// If the session does not end.
    pub async fn log_out(mut self) {
        self.0.stdin.as_mut().unwrap().write_all(b"exit\n").unwrap();
        wait_for("the session's end", LONG, async || self.0.try_wait().unwrap().ok_or("it is open")).await;
    }
}

impl Drop for Login {
    fn drop(&mut self) {
        // It may have ended; then there is nothing to kill.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn make_key(path: &Path) {
    let mut command = Command::new(system_program("ssh-keygen"));
    let made = command.args(["-q", "-t", "ed25519", "-N", "", "-f"]).arg(path).status().unwrap();
    assert!(made.success(), "ssh-keygen: {made}");
}

fn settings(folder: &Path, port: u16) -> String {
    let (host_key, login_key) = (folder.join("host_key"), folder.join("login_key.pub"));
    // StrictModes minds that the folder lies below one that everyone may write to. Without PAM sshd writes the session
    // down itself: a container has no logind that PAM could tell.
    format!(
        "ListenAddress 127.0.0.1\nPort {port}\nPidFile none\nHostKey {}\nAuthorizedKeysFile {}\nStrictModes no\n\
         PermitRootLogin prohibit-password\nPasswordAuthentication no\nUsePAM no\n",
        host_key.display(),
        login_key.display()
    )
}
