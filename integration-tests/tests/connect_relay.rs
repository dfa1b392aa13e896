//! Do bytes get through `usherctl connect` as they are, and where do they go when a host does not want them?

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::process::{Output, Stdio};
use std::time::{Duration, Instant};

use rand::{RngExt, SeedableRng};
use rand_pcg::Pcg64Mcg;
use rustix::process::{Pid, Signal, kill_process};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::process::{Child, Command};
use usher_integration_tests::{FakeAgent, Farm, LONG, binary, hello, load, wait_for};
use usher_proto::v1;

/// A host whose door is this port of loopback. The fewer users, the sooner it is chosen.
async fn host(farm: &Farm, name: &str, port: u16, users: u32) -> FakeAgent {
    let endpoint = v1::Endpoint { kind: "ssh".into(), address: "127.0.0.1".into(), port: port.into() };
    let hello = v1::Hello { endpoints: vec![endpoint], ..hello(name) };
    let mut agent = FakeAgent::attach(&farm.client(), hello).await.unwrap();
    agent.report(load(10.0, 10.0, users, 10)).await;
    agent
}

async fn door() -> (TcpListener, u16) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = listener.local_addr().unwrap().port();
    (listener, port)
}

/// A port of loopback where nobody listens.
async fn closed_door() -> u16 {
    door().await.1
}

async fn accepted(listener: &TcpListener) -> TcpStream {
    tokio::time::timeout(LONG, listener.accept()).await.expect("nobody connects").unwrap().0
}

fn start(farm: &Farm, arguments: &[&str]) -> Child {
    start_at(farm, &farm.coordinator.grpc.to_string(), arguments)
}

/// It asks these coordinators.
fn start_at(farm: &Farm, coordinators: &str, arguments: &[&str]) -> Child {
    let settings = farm.folder().join("client.toml");
    std::fs::write(&settings, "").unwrap();
    let mut command = Command::new(binary("usherctl"));
    command.env_remove("USHER_COORDINATORS").env_remove("USHER_CONFIG");
    command.env("XDG_CACHE_HOME", farm.folder());
    command.arg("--config").arg(settings).args(["--coordinator", coordinators]);
    command.args(["connect", "--pool", "desk"]).args(arguments);
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).kill_on_drop(true);
    command.spawn().unwrap()
}

/// Its end, without standard input. Everything that it said.
async fn ended(child: Child) -> Output {
    tokio::time::timeout(LONG, child.wait_with_output()).await.expect("it does not end").unwrap()
}

fn stderr(output: &Output) -> String {
    String::from_utf8(output.stderr.clone()).unwrap()
}

#[track_caller]
fn exited(output: &Output, code: i32) {
    assert_eq!(output.status.code(), Some(code), "{}: {}", output.status, stderr(output));
}

async fn shows_places(farm: &Farm, host: &str, places: u32) {
    wait_for(&format!("{places} places on {host}"), LONG, async || {
        let host = farm.client().host(host).await.map_err(|status| status.to_string())?;
        if host.pending_places == places { Ok(()) } else { Err(format!("{host:?}")) }
    })
    .await;
}

fn noise(bytes: usize, seed: u64) -> Vec<u8> {
    let mut noise = vec![0; bytes];
    Pcg64Mcg::seed_from_u64(seed).fill(&mut noise[..]);
    noise
}

#[tokio::test]
async fn bytes_go_both_ways_at_once_untouched_and_each_side_may_end_first() {
    const MUCH: usize = 64 << 20;
    let farm = Farm::start().await;
    let (listener, port) = door().await;
    let _host = host(&farm, "h1", port, 1).await;
    for server_ends_first in [true, false] {
        let mut child = start(&farm, &["--user", "alice"]);
        let (mut stdin, mut stdout) = (child.stdin.take().unwrap(), child.stdout.take().unwrap());
        let mut server = accepted(&listener).await;
        // The server speaks first, and a line without an end is not held back.
        server.write_all(b"SSH-2.0-x").await.unwrap();
        let mut banner = [0; 9];
        tokio::time::timeout(LONG, stdout.read_exact(&mut banner)).await.unwrap().unwrap();
        assert_eq!(&banner, b"SSH-2.0-x");
        let (mut from_client, mut to_client) = server.into_split();
        let (down, up) = (noise(MUCH, 1), noise(MUCH, 2));
        let send_down = async {
            to_client.write_all(&down).await.unwrap();
            if server_ends_first {
                to_client.shutdown().await.unwrap();
            }
        };
        let send_up = async { stdin.write_all(&up[..MUCH / 2]).await.unwrap() };
        let mut seen_down = vec![0; MUCH];
        let mut seen_up = vec![0; MUCH / 2];
        let started = Instant::now();
        let all = async {
            tokio::join!(
                send_down,
                send_up,
                async {
                    stdout.read_exact(&mut seen_down).await.unwrap();
                },
                async {
                    from_client.read_exact(&mut seen_up).await.unwrap();
                }
            )
        };
        tokio::time::timeout(LONG * 2, all).await.expect("the bytes do not come through");
        println!("{:.0} MB/s both ways together", 1.5 * MUCH as f64 / 1e6 / started.elapsed().as_secs_f64());
        assert!(seen_down == down && seen_up == up[..MUCH / 2]);
        // One side is at its end, and the other one still has much to say.
        if server_ends_first {
            assert_eq!(stdout.read(&mut [0]).await.unwrap(), 0, "the end came through");
        }
        let rest = async {
            stdin.write_all(&up[MUCH / 2..]).await.unwrap();
            drop(stdin);
        };
        let mut seen = Vec::new();
        tokio::join!(rest, async { from_client.read_to_end(&mut seen).await.unwrap() });
        assert!(seen == up[MUCH / 2..]);
        if !server_ends_first {
            to_client.write_all(b"the answer to all of it").await.unwrap();
            to_client.shutdown().await.unwrap();
            let mut answer = String::new();
            stdout.read_to_string(&mut answer).await.unwrap();
            assert_eq!(answer, "the answer to all of it");
        }
        let output = ended(child).await;
        exited(&output, 0);
        assert_eq!(stderr(&output), "");
    }
    // ENDED was told: nobody waits for a session of alice.
    shows_places(&farm, "h1", 0).await;
}

#[tokio::test]
async fn a_host_that_refuses_hangs_or_hangs_up_is_reported_and_the_next_one_tried() {
    let farm = Farm::start().await;
    let (hanging, hanging_port) = door().await;
    let (rude, rude_port) = door().await;
    let (good, good_port) = door().await;
    let mut hosts = Vec::new();
    for (name, port, users) in
        [("h1", closed_door().await, 1), ("h2", hanging_port, 2), ("h3", rude_port, 3), ("h4", good_port, 50)]
    {
        hosts.push(host(&farm, name, port, users).await);
    }
    let child = start(&farm, &["--user", "alice", "--banner-timeout", "300ms"]);
    let _held = accepted(&hanging).await;
    drop(accepted(&rude).await);
    let mut server = accepted(&good).await;
    server.write_all(b"welcome").await.unwrap();
    shows_places(&farm, "h4", 1).await;
    for host in ["h1", "h2", "h3"] {
        shows_places(&farm, host, 0).await;
    }
    server.shutdown().await.unwrap();
    let output = ended(child).await;
    exited(&output, 0);
    assert_eq!(String::from_utf8(output.stdout.clone()).unwrap(), "welcome");
    // Their failures were told to them with what they were.
    for (agent, cause) in hosts.iter().zip([
        v1::FailoverCause::Refused,
        v1::FailoverCause::Unreachable,
        v1::FailoverCause::Refused,
    ]) {
        agent
            .hears("of the failure", |heard| match heard {
                v1::attach_response::Message::OutcomeNotice(told) => {
                    (told.outcome() == v1::Outcome::Failed && told.cause() == cause).then_some(())
                }
                _ => None,
            })
            .await;
    }
}

#[tokio::test]
async fn when_no_host_is_left_one_line_says_why_and_nothing_stands_on_stdout() {
    let farm = Farm::start().await;
    let (first, second) = (closed_door().await, closed_door().await);
    let _hosts = [host(&farm, "h1", first, 1).await, host(&farm, "h2", second, 2).await];
    for arguments in [&["--user", "alice"][..], &["--json"]] {
        let mut child = start(&farm, arguments);
        drop(child.stdin.take());
        let output = ended(child).await;
        exited(&output, 255);
        assert_eq!(output.stdout, b"");
        let line = stderr(&output);
        assert!(
            line.starts_with("usherctl connect: pool desk: h1: 127.0.0.1:") && line.ends_with('\n'),
            "{line}"
        );
        assert!(line.contains("; h2: 127.0.0.1:") && line.matches("refused").count() >= 2, "{line}");
        assert_eq!(line.lines().count(), 1, "{line}");
    }
    shows_places(&farm, "h1", 0).await;
    shows_places(&farm, "h2", 0).await;

    let output = ended(start(&farm, &["--host", "h7"])).await;
    exited(&output, 255);
    assert_eq!(stderr(&output), "usherctl connect: pool desk: it has no host h7\n");
    let output = ended(start(&farm, &["--coordinator", "127.0.0.1:1"])).await;
    exited(&output, 255);
    assert!(stderr(&output).contains("no coordinator answered; 127.0.0.1:1: "), "{}", stderr(&output));
}

#[tokio::test]
async fn once_the_server_has_spoken_a_break_is_the_end_and_no_other_host_is_tried() {
    let farm = Farm::start().await;
    let ((first, first_port), (second, second_port)) = (door().await, door().await);
    let _hosts = [host(&farm, "h1", first_port, 1).await, host(&farm, "h2", second_port, 50).await];
    let mut child = start(&farm, &[]);
    let mut server = accepted(&first).await;
    server.write_all(b"half a ban").await.unwrap();
    let mut seen = [0; 10];
    child.stdout.as_mut().unwrap().read_exact(&mut seen).await.unwrap();
    // A reset, as of a host that has lost its memory of the connection.
    server.set_zero_linger().unwrap();
    drop(server);
    let output = ended(child).await;
    exited(&output, 255);
    assert!(stderr(&output).contains("the connection to h1 broke"), "{}", stderr(&output));
    let nobody = tokio::time::timeout(Duration::from_millis(100), second.accept()).await;
    assert!(nobody.is_err());
}

#[tokio::test]
async fn a_client_that_goes_first_gives_its_place_back_and_one_that_goes_later_ends_it() {
    let farm = Farm::start().await;
    let (listener, port) = door().await;
    let _host = host(&farm, "h1", port, 1).await;
    let signal = |child: &Child, signal| {
        let pid = i32::try_from(child.id().unwrap()).unwrap();
        kill_process(Pid::from_raw(pid).unwrap(), signal).unwrap();
    };
    for how in ["hangup", "closed output"] {
        for connected in [false, true] {
            let mut child = start(&farm, &["--user", "alice"]);
            let mut server = accepted(&listener).await;
            shows_places(&farm, "h1", 1).await;
            let mut stdout = child.stdout.take().unwrap();
            if connected {
                server.write_all(b"welcome").await.unwrap();
                stdout.read_exact(&mut [0; 7]).await.unwrap();
            }
            // What the client says last is delivered although nobody reads any more.
            let mut stdin = child.stdin.take().unwrap();
            stdin.write_all(b"bye").await.unwrap();
            drop(stdin);
            if how == "hangup" {
                signal(&child, Signal::HUP)
            } else {
                drop(stdout)
            }
            let output = ended(child).await;
            exited(&output, 0);
            assert_eq!(stderr(&output), "", "{how}");
            let mut last = String::new();
            server.read_to_string(&mut last).await.unwrap();
            assert_eq!(last, if connected { "bye" } else { "" }, "{how}");
            shows_places(&farm, "h1", 0).await;
        }
    }
}

#[tokio::test]
async fn an_outcome_is_told_to_whoever_gave_the_place_though_another_one_is_asked_first() {
    let (other, farm) = (Farm::start().await, Farm::start().await);
    let (listener, port) = door().await;
    let _host = host(&farm, "h1", port, 1).await;
    let child = start_at(&farm, &format!("{},{}", other.coordinator.grpc, farm.coordinator.grpc), &[]);
    let _server = accepted(&listener).await;
    shows_places(&farm, "h1", 1).await;
    kill_process(Pid::from_raw(i32::try_from(child.id().unwrap()).unwrap()).unwrap(), Signal::HUP).unwrap();
    exited(&ended(child).await, 0);
    shows_places(&farm, "h1", 0).await;
}

#[tokio::test]
async fn a_forced_host_is_used_though_others_are_better_and_none_stands_in_for_it() {
    let farm = Farm::start().await;
    let ((first, first_port), (second, second_port)) = (door().await, door().await);
    let _hosts = [host(&farm, "h1", first_port, 1).await, host(&farm, "h2", second_port, 90).await];
    let mut child = start(&farm, &["--host", "H2", "--no-banner"]);
    drop(child.stdin.take());
    drop(accepted(&second).await);
    exited(&ended(child).await, 0);
    drop(second);
    let output = ended(start(&farm, &["--host", "h2"])).await;
    exited(&output, 255);
    assert!(
        stderr(&output).contains("h2: 127.0.0.1:") && !stderr(&output).contains("h1"),
        "{}",
        stderr(&output)
    );
    // The port on the command line wins over the endpoint's, the preferred host over the better one.
    let port = first_port.to_string();
    let mut child = start(&farm, &["--prefer", "h2", "--port", &port, "--no-banner"]);
    drop(child.stdin.take());
    drop(accepted(&first).await);
    exited(&ended(child).await, 0);
}
