//! A real login on a pty: OpenSSH's server and client.

use std::net::{Ipv4Addr, TcpListener};
use std::path::Path;
use std::process::Stdio;
use std::time::Duration;

use anyhow::{Context, bail, ensure};
use tempfile::TempDir;
use tokio::io::AsyncWriteExt;
use tokio::net::TcpStream;
use tokio::process::{Child, ChildStdin, Command};
use tokio::time::{Instant, sleep, timeout};

use super::program;

/// Where sshd locks a part of itself in; systemd makes it, and a container has no systemd.
const PRIVILEGE_SEPARATION: &str = "/run/sshd";
/// For its start and for the end of a session.
const WITHIN: Duration = Duration::from_secs(20);
/// A port that was free may be taken before sshd has it.
const TRIES: usize = 5;

/// A server that runs and lets root in with a key of its own.
#[derive(Debug)]
pub struct Sshd {
    folder: TempDir,
    port: u16,
    _server: Child,
}

/// A session on a pty, for as long as nobody logs it out.
#[derive(Debug)]
pub struct Login {
    client: Child,
    terminal: ChildStdin,
}

impl Sshd {
    /// Starts a server on a free port of the loopback.
    ///
    /// # Errors
    /// When it is not installed, this user is not root, or the server does not listen.
    pub async fn start() -> anyhow::Result<Self> {
        ensure!(rustix::process::geteuid().is_root(), "only root may let somebody log in: run this as root");
        std::fs::create_dir_all(PRIVILEGE_SEPARATION)?;
        let folder = tempfile::tempdir()?;
        for key in ["host_key", "login_key"] {
            make_key(&folder.path().join(key)).await?;
        }
        for _ in 0..TRIES {
            let port = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?.local_addr()?.port();
            if let Some(server) = start_server(folder.path(), port).await? {
                return Ok(Self { folder, port, _server: server });
            }
        }
        bail!("sshd found no free port in {TRIES} tries")
    }

    /// Logs root in with a shell on a terminal.
    ///
    /// # Errors
    /// When the client cannot be started. Whether the login succeeds is for the host to see.
    pub fn log_in(&self) -> anyhow::Result<Login> {
        let mut client = Command::new(program("ssh")?)
            .args(["-tt", "-q", "-F", "none", "-p", &self.port.to_string(), "-i"])
            .arg(self.folder.path().join("login_key"))
            .args(["-o", "IdentitiesOnly=yes", "-o", "StrictHostKeyChecking=no"])
            .args(["-o", "UserKnownHostsFile=/dev/null", "root@127.0.0.1", "sh"])
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .kill_on_drop(true)
            .spawn()
            .context("starting ssh")?;
        let terminal = client.stdin.take().context("the terminal of ssh")?;
        Ok(Login { client, terminal })
    }
}

impl Login {
    /// Types `exit` and waits until the connection is closed.
    ///
    /// # Errors
    /// When the session does not end.
    pub async fn log_out(mut self) -> anyhow::Result<()> {
        self.terminal.write_all(b"exit\n").await.context("typing exit")?;
        timeout(WITHIN, self.client.wait()).await.context("the session did not end")??;
        Ok(())
    }
}

async fn make_key(path: &Path) -> anyhow::Result<()> {
    let made = Command::new(program("ssh-keygen")?)
        .args(["-q", "-t", "ed25519", "-N", "", "-f"])
        .arg(path)
        .status()
        .await
        .context("starting ssh-keygen")?;
    ensure!(made.success(), "ssh-keygen failed: {made}");
    Ok(())
}

/// A server that listens. Absent: the port is taken.
async fn start_server(folder: &Path, port: u16) -> anyhow::Result<Option<Child>> {
    let file = |name: &str| folder.join(name).display().to_string();
    let config = file("sshd_config");
    let lines = [
        format!("ListenAddress 127.0.0.1\nPort {port}"),
        format!("HostKey {}", file("host_key")),
        format!("AuthorizedKeysFile {}", file("login_key.pub")),
        // The key's folder is below /tmp, which everyone may write to.
        "StrictModes no".to_owned(),
        "PermitRootLogin prohibit-password\nPasswordAuthentication no".to_owned(),
        // The session is written down by sshd itself: a container has no logind for PAM to tell.
        "UsePAM no\nPidFile none\n".to_owned(),
    ];
    std::fs::write(&config, lines.join("\n"))?;
    let log = std::fs::File::create(file("log"))?;
    let mut server = Command::new(program("sshd")?)
        .args(["-D", "-e", "-f", &config])
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(log)
        .kill_on_drop(true)
        .spawn()
        .context("starting sshd")?;
    let deadline = Instant::now() + WITHIN;
    loop {
        if server.try_wait()?.is_some() {
            let log = std::fs::read_to_string(file("log"))?;
            ensure!(log.contains("already in use"), "sshd ended: {log}");
            return Ok(None);
        }
        if TcpStream::connect((Ipv4Addr::LOCALHOST, port)).await.is_ok() {
            return Ok(Some(server));
        }
        ensure!(Instant::now() < deadline, "sshd does not listen");
        sleep(Duration::from_millis(20)).await;
    }
}
