//! Does a running agent count the processes and the memory of this machine as its own tools do, also when processes come
//! and go?

#![allow(clippy::unwrap_used, reason = "a test's tool fails as a test does")]

use std::net::SocketAddr;
use std::process::{Child, Command, Stdio};

use serde_json::Value;
use usher_integration_tests::{Agent, AgentStart, LONG, binary, wait_for};

/// Processes of one round.
const MANY: usize = 100;
/// Processes that other programs of the machine may begin or end between two looks.
const OTHERS: f64 = 3.0;

/// An agent that measures often, and that nobody hears.
async fn agent(folder: &std::path::Path) -> Agent {
    let nobody = SocketAddr::from(([127, 0, 0, 1], 1));
    AgentStart::new(folder, "this-machine", &[nobody]).without_waiting().await
}

/// What the running agent shows of its newest measurement.
fn load(agent: &Agent) -> Result<Value, String> {
    let socket = agent.runtime_dir().join("agent.sock");
    let mut command = Command::new(binary("usher-agent"));
    let output = command.args(["status", "--json", "--socket"]).arg(socket).output().unwrap();
    let status: Value = serde_json::from_slice(&output.stdout).map_err(|error| error.to_string())?;
    Ok(status["load"].clone())
}

fn printed(command: &[&str]) -> String {
    let output = Command::new(command[0]).args(&command[1..]).env("LC_ALL", "C").output().unwrap();
    assert!(output.status.success(), "{command:?}: {output:?}");
    String::from_utf8(output.stdout).unwrap()
}

/// States of all processes, as `ps` shows them: zombies and threads of the kernel included.
fn states() -> Vec<String> {
    let own = std::process::id().to_string();
    let list = printed(&["ps", "-e", "-o", "stat=,ppid="]);
    // Without `ps` itself, and without the command that asked the agent, which has ended.
    let lines = list.lines().filter(|line| !(line.ends_with(&format!(" {own}")) && line.starts_with('R')));
    lines.map(|line| line.split_whitespace().next().unwrap().to_owned()).collect()
}

/// Waits until the agent and `ps` agree, and the count is as it should be.
async fn agree(agent: &Agent, what: &str, is_right: impl Fn(f64) -> bool) -> f64 {
    wait_for(what, LONG, async || {
        let ours = load(agent)?["processes"].as_f64().ok_or("no count yet")?;
        let theirs = states().len() as f64;
        let is_so = (ours - theirs).abs() <= OTHERS && is_right(ours);
        if is_so { Ok(ours) } else { Err(format!("the agent counts {ours}, ps {theirs}")) }
    })
    .await
}

fn start(program: &str, argument: &str) -> Vec<Child> {
    let one = || Command::new(program).arg(argument).stdin(Stdio::null()).spawn().unwrap();
    (0..MANY).map(|_| one()).collect()
}

#[tokio::test]
async fn alone_case_016_the_dead_are_gone_and_zombies_count_as_ps_counts_them() {
    let folder = tempfile::tempdir().unwrap();
    let agent = agent(folder.path()).await;
    let base = agree(&agent, "a first count", |_| true).await;
    let many = MANY as f64;
    for round in 0..10 {
        let sleeping = start("sleep", "100");
        agree(&agent, "the new processes", |ours| ours >= base + many - 2.0 * OTHERS).await;
        for mut child in sleeping {
            child.kill().unwrap();
            child.wait().unwrap();
        }
        let what = format!("no more than before in round {round}");
        agree(&agent, &what, |ours| ours <= base + 2.0 * OTHERS).await;
    }
    // They have ended, and nobody has asked how.
    let dead = start("true", "");
    let is_zombie = |state: &String| state.starts_with('Z');
    wait_for("the zombies", LONG, async || {
        let zombies = states().iter().filter(|state| is_zombie(state)).count();
        if zombies >= MANY { Ok(()) } else { Err(format!("{zombies} zombies")) }
    })
    .await;
    agree(&agent, "the zombies to count", |ours| ours >= base + many - 2.0 * OTHERS).await;
    for mut child in dead {
        child.wait().unwrap();
    }
    agree(&agent, "the zombies to be gone", |ours| ours <= base + 2.0 * OTHERS).await;
}

#[tokio::test]
async fn alone_memory_of_a_running_agent_is_what_free_shows() {
    let folder = tempfile::tempdir().unwrap();
    let agent = agent(folder.path()).await;
    wait_for("the agent and free to agree", LONG, async || {
        let load = load(&agent)?;
        let free = printed(&["free", "-b"]);
        let row = free.lines().nth(1).unwrap().split_ascii_whitespace();
        let row: Vec<f64> = row.filter_map(|word| word.parse().ok()).collect();
        let (total, used) = (row[0], row[0] - row[5]);
        let ours = load["memory_used_bytes"].as_f64().ok_or("no memory yet")?;
        let is_so =
            load["memory_total_bytes"].as_f64() == Some(total) && (ours - used).abs() <= 0.005 * total;
        if is_so { Ok(()) } else { Err(format!("{ours} and {used} of {total}")) }
    })
    .await;
}
