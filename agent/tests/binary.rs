//! What an operator and a service manager see of the program itself: signals, its watchdog, its commands.

#![allow(clippy::unwrap_used, reason = "a test's tool fails as a test does")]

mod support;

use std::path::{Path, PathBuf};
use std::process::Stdio;

use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;
use support::{Coordinator, soon};
use tokio::net::UnixDatagram;
use tokio::process::{Child, Command};

struct Running {
    folder: tempfile::TempDir,
    child: Child,
}

fn program() -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_usher-agent"));
    command.env_remove("USHER_CONFIG").env_remove("USHER_COORDINATORS").env_remove("USHER_LOG");
    command.kill_on_drop(true).stdin(Stdio::null());
    command
}

/// Writes the settings of the start with `more`.
fn write_settings(folder: &Path, more: &str) {
    let base = std::fs::read_to_string(folder.join("base.toml")).unwrap();
    std::fs::write(folder.join("agent.toml"), format!("{base}{more}\n[statsd]\nlisten = \"none\"\n"))
        .unwrap();
}

impl Running {
    fn start(coordinator: &str, with: impl FnOnce(&Path, &mut Command)) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let settings = format!(
            "coordinators = [{coordinator:?}]\nname = \"h1\"\nreport_interval = \"200ms\"\nstate_dir = {:?}\n\
             runtime_dir = {:?}\n",
            folder.path().join("state"),
            folder.path().join("run"),
        );
        std::fs::write(folder.path().join("base.toml"), settings).unwrap();
        let mut command = program();
        command.arg("--config").arg(folder.path().join("agent.toml"));
        command.stderr(std::fs::File::create(folder.path().join("log")).unwrap());
        with(folder.path(), &mut command);
        write_settings(folder.path(), "");
        Self { child: command.spawn().unwrap(), folder }
    }

    fn settings(&self, more: &str) {
        write_settings(self.folder.path(), more);
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    fn log(&self) -> String {
        std::fs::read_to_string(self.path("log")).unwrap()
    }

    fn signal(&self, signal: Signal) {
        let pid = Pid::from_raw(self.child.id().unwrap().cast_signed()).unwrap();
        kill_process(pid, signal).unwrap();
    }

    async fn logged(&self, words: &str) {
        let found = async {
            while !self.log().contains(words) {
                tokio::task::yield_now().await;
            }
        };
        tokio::time::timeout(support::LONG, found)
            .await
            .unwrap_or_else(|_| panic!("no {words:?} in {}", self.log()));
    }

    /// Exit code and output of a command of the program, which asks this agent.
    async fn command(&self, arguments: &[&str]) -> (Option<i32>, String) {
        let output = program()
            .args(arguments)
            .arg("--socket")
            .arg(self.path("run/agent.sock"))
            .output()
            .await
            .unwrap();
        let text = [output.stdout, output.stderr].concat();
        (output.status.code(), String::from_utf8_lossy(&text).into_owned())
    }

    async fn stop(self) {
        self.signal(Signal::TERM);
        self.ends_well().await;
    }

    async fn ends_well(mut self) {
        let status = soon("the end", self.child.wait()).await.unwrap();
        assert!(status.success(), "{}", self.log());
    }
}

#[tokio::test]
async fn a_hang_up_takes_settings_over_without_losing_the_stream_or_a_timing() {
    let mut coordinator = Coordinator::start().await;
    let running = Running::start(&coordinator.address, |_, _| {});
    let mut stream = coordinator.greeted().await;
    stream.load("a report", |_| true).await;
    let timings = UnixDatagram::unbound().unwrap();
    let mut sent = 0;
    let mut send = async || {
        for _ in 0..5 {
            timings.send_to(b"q:1|ms", running.path("run/statsd.sock")).await.unwrap();
            sent += 1;
        }
        sent
    };
    send().await;
    running.settings(
        "mounts = [\"/\"]\nprobes = [{ name = \"p\", kind = \"command\", command = [\"/bin/true\"] }]\n",
    );
    running.signal(Signal::HUP);
    running.logged("settings are taken over").await;
    send().await;
    let load = stream.load("the mount", |load| !load.mounts.is_empty()).await;
    assert_eq!(load.mounts[0].path, "/");
    stream.load("the probe", |load| load.collectors.iter().any(|one| one.name == "probe p")).await;

    running.settings("mounts = \"/\"\n");
    running.signal(Signal::HUP);
    running.logged("the settings are not taken over").await;
    running.settings("mounts = [\"/\"]\nzone = \"north\"\n[log]\nfilter = \"debug\"\n");
    running.signal(Signal::HUP);
    running.logged("hold only after a restart").await;
    running.logged("DEBUG").await;
    let sent = send().await;
    let counted = soon("every timing", async {
        loop {
            let (code, status) = running.command(&["status", "--json"]).await;
            assert_eq!(code, Some(0), "{status}");
            let status: Value = serde_json::from_str(&status).unwrap();
            let operations = status["operations"].as_array().unwrap();
            let q = operations.iter().find(|one| one["name"] == "q").map(|one| one["total"]["ok"].as_f64());
            if q == Some(Some(f64::from(sent))) {
                return q;
            }
        }
    })
    .await;
    assert_eq!(counted, Some(Some(15.0)));
    // The stream is the one of the start.
    stream.load("a report", |_| true).await;
    running.stop().await;
}

#[tokio::test]
async fn the_service_manager_hears_ready_alive_and_stopping() {
    let mut notified = None;
    let running = Running::start("127.0.0.1:1", |folder, command| {
        let path = folder.join("notify.sock");
        notified = Some(UnixDatagram::bind(&path).unwrap());
        command.env("NOTIFY_SOCKET", &path).env("WATCHDOG_USEC", "400000");
    });
    let notified = notified.unwrap();
    let hears = async |words: &str| {
        let mut buffer = [0; 500];
        soon(words, async {
            loop {
                let length = notified.recv(&mut buffer).await.unwrap();
                if String::from_utf8_lossy(&buffer[..length]).contains(words) {
                    return;
                }
            }
        })
        .await;
    };
    hears("READY=1").await;
    hears("WATCHDOG=1").await;
    hears("WATCHDOG=1").await;
    running.signal(Signal::HUP);
    hears("RELOADING=1").await;
    hears("READY=1").await;
    running.signal(Signal::TERM);
    hears("STOPPING=1").await;
    running.ends_well().await;
}

#[tokio::test]
async fn an_operator_drains_looks_and_times_without_any_coordinator() {
    let running = Running::start("127.0.0.1:1", |_, _| {});
    running.logged("the agent runs").await;
    let (code, said) = running.command(&["drain", "--persistent", "--reason", "new disks"]).await;
    assert_eq!(code, Some(0), "{said}");
    assert!(said.contains("until it is undrained: new disks"), "{said}");
    let (code, shown) = running.command(&["status"]).await;
    assert_eq!(code, Some(0));
    assert!(shown.contains("reason=new disks") && shown.contains("coordinator=127.0.0.1:1"), "{shown}");

    let socket = running.path("run/statsd.sock");
    let mut time = program();
    time.args(["time", "copy", "--socket"]).arg(&socket).args(["--", "/bin/sh", "-c", "echo done; exit 7"]);
    let output = time.output().await.unwrap();
    assert_eq!((output.status.code(), output.stdout.as_slice()), (Some(7), &b"done\n"[..]));
    soon("the failed call", async {
        loop {
            let (_, status) = running.command(&["status", "--json"]).await;
            let status: Value = serde_json::from_str(&status).unwrap();
            let operations = status["operations"].as_array().unwrap();
            if operations.iter().any(|one| one["name"] == "copy" && one["total"]["failed"] == 1.0) {
                return;
            }
        }
    })
    .await;
    let (code, said) = running.command(&["undrain"]).await;
    assert_eq!((code, said.trim()), (Some(0), "not drained on this host"));
    let (code, said) = running.command(&["drain", "--reason", "a\nb"]).await;
    assert_eq!(code, Some(1), "{said}");
    let (code, _) = running.command(&["drain", "--persistent", "--until-restart"]).await;
    assert_eq!(code, Some(2));
    running.stop().await;
}

fn resident_kib(child: &Child) -> u64 {
    let status = std::fs::read_to_string(format!("/proc/{}/status", child.id().unwrap())).unwrap();
    let line = status.lines().find(|line| line.starts_with("VmRSS:")).unwrap();
    line.split_whitespace().nth(1).unwrap().parse().unwrap()
}

#[tokio::test]
async fn case_049_a_flood_of_names_is_counted_and_costs_no_memory() {
    let running = Running::start("127.0.0.1:1", |_, _| {});
    running.logged("the agent runs").await;
    let timings = UnixDatagram::unbound().unwrap();
    let path = running.path("run/statsd.sock");
    let send = async |datagram: String| {
        timings.send_to(datagram.as_bytes(), &path).await.unwrap();
    };
    let status = async || {
        let (_, status) = running.command(&["status", "--json"]).await;
        serde_json::from_str::<Value>(&status).unwrap()
    };
    send("open_db:9|ms".to_owned()).await;
    let before = soon("the known name", async {
        while status().await["operations"].as_array().unwrap().is_empty() {}
        resident_kib(&running.child)
    })
    .await;
    for hundred in 0..1000 {
        let lines: Vec<_> = (0..100).map(|one| format!("t{}:5|ms", hundred * 100 + one)).collect();
        send(lines.join("\n")).await;
    }
    send("open_db:9|ms".to_owned()).await;
    let after = soon("all lines", async {
        loop {
            let status = status().await;
            let is_idle = status["queues"]["timing_datagrams"] == 0 && status["queues"]["events"] == 0;
            if status["timings"]["lines"]["accepted"] == 100_002 && is_idle {
                return status;
            }
        }
    })
    .await;
    let operations = after["operations"].as_array().unwrap();
    let count =
        |name: &str| operations.iter().find(|one| one["name"] == name).unwrap()["total"]["ok"].as_f64();
    assert_eq!((operations.len(), count("open_db")), (256, Some(2.0)));
    let counted = after["timings"]["overflow_calls"].as_u64().unwrap()
        + after["timings"]["lines"]["dropped"].as_u64().unwrap();
    assert_eq!(counted, 100_000 - 255, "{after}");
    let grown = resident_kib(&running.child).saturating_sub(before);
    assert!(grown < 10 * 1024, "{grown} KiB more");
    running.stop().await;
}

#[tokio::test]
async fn nobody_who_answers_is_an_exit_code_of_its_own() {
    let folder = tempfile::tempdir().unwrap();
    let output =
        program().args(["status", "--socket"]).arg(folder.path().join("none")).output().await.unwrap();
    assert_eq!(output.status.code(), Some(3));
    assert!(String::from_utf8_lossy(&output.stderr).contains("is usher-agent running?"));
}
