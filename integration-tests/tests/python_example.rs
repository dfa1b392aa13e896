//! Does the gateway in Python that we show to others keep its word when coordinators and hosts fail?

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::{Duration, Instant};

use tokio::io::AsyncWriteExt;
use tokio::net::TcpListener;
use tokio::process::Command;
use usher_integration_tests::{
    Client, Coordinator, CoordinatorStart, FakeAgent, Farm, LONG, hello, load, proto_dir, python,
};
use usher_proto::v1;
use usher_proto::v1::attach_response::Message as Heard;

const SCRIPT: &str = "../deploy/examples/python/gateway.py";

/// Two coordinators, and two hosts that both hear of: nobody listens at the better one's door.
struct Scene {
    farm: Farm,
    second: Coordinator,
    stubs: PathBuf,
    /// Of the first host and of the second, each with a stream to both coordinators.
    agents: Vec<[FakeAgent; 2]>,
    door: TcpListener,
}

async fn attach(coordinators: [&Coordinator; 2], name: &str, port: u16, users: u32) -> [FakeAgent; 2] {
    let endpoint = v1::Endpoint { kind: "ssh".into(), address: "127.0.0.1".into(), port: port.into() };
    let hello = v1::Hello { endpoints: vec![endpoint], ..hello(name) };
    let attach = async |coordinator: &Coordinator| {
        let client = Client::new(coordinator.grpc, None);
        let mut agent = FakeAgent::attach(&client, hello.clone()).await.unwrap();
        agent.report(v1::Load { streams_held: 2, ..load(10.0, 10.0, users, 10) }).await;
        agent
    };
    [attach(coordinators[0]).await, attach(coordinators[1]).await]
}

impl Scene {
    async fn set() -> Self {
        let farm = Farm::start().await;
        let second = CoordinatorStart::new(farm.folder(), "second").start().await;
        let (closed, door) = (
            TcpListener::bind("127.0.0.1:0").await.unwrap(),
            TcpListener::bind("127.0.0.1:0").await.unwrap(),
        );
        let port = |listener: &TcpListener| listener.local_addr().unwrap().port();
        let coordinators = [&farm.coordinator, &second];
        let agents = vec![
            attach(coordinators, "h1", port(&closed), 1).await,
            attach(coordinators, "h2", port(&door), 50).await,
        ];
        let stubs = farm.folder().join("stubs");
        make_stubs(&stubs).await;
        Self { farm, second, stubs, agents, door }
    }

    /// Runs the example; its exit code, what it printed, and what it said on standard error.
    async fn run(&self, arguments: &[&str]) -> (i32, String, String) {
        let mut command = Command::new(python());
        command.arg(Path::new(env!("CARGO_MANIFEST_DIR")).join(SCRIPT));
        let coordinators = format!("{},{}", self.farm.coordinator.grpc, self.second.grpc);
        command.args(["--coordinators", &coordinators, "--user", "alice"]).args(arguments);
        command.env("PYTHONPATH", &self.stubs);
        run(command).await
    }

    /// Lets one login in.
    async fn serve(&self) {
        let (mut stream, _) = tokio::time::timeout(LONG, self.door.accept()).await.unwrap().unwrap();
        stream.write_all(b"SSH-2.0-example\r\n").await.unwrap();
    }
}

/// As any user of grpcio-tools would.
async fn make_stubs(stubs: &Path) {
    std::fs::create_dir(stubs).unwrap();
    let mut command = Command::new(python());
    command.args(["-m", "grpc_tools.protoc", "-I"]).arg(proto_dir());
    for kind in ["--python_out", "--grpc_python_out"] {
        command.arg(format!("{kind}={}", stubs.display()));
    }
    for file in ["common", "agent", "placement"] {
        command.arg(proto_dir().join(format!("usher/v1/{file}.proto")));
    }
    let (code, _, said) = run(command).await;
    assert_eq!(code, 0, "{said}");
}

async fn run(mut command: Command) -> (i32, String, String) {
    // A proxy of the machine's is not for calls to itself.
    command.env("no_proxy", "*").env("PYTHONDONTWRITEBYTECODE", "1").stdin(Stdio::null()).kill_on_drop(true);
    let output = tokio::time::timeout(LONG * 2, command.output()).await.expect("python ends").unwrap();
    let text = |bytes| String::from_utf8(bytes).unwrap();
    (output.status.code().unwrap(), text(output.stdout), text(output.stderr))
}

/// The attempt under which the host was told of a place that it still holds, and what it heard of its outcome.
async fn told(agent: &FakeAgent, outcome: v1::Outcome) -> u32 {
    let attempt = agent
        .hears("of a place", |heard| match heard {
            Heard::ExpectSession(expect) => expect.place.as_ref().map(|place| place.attempt),
            _ => None,
        })
        .await;
    agent
        .hears(&format!("{outcome:?}"), |heard| match heard {
            Heard::OutcomeNotice(told) => (told.outcome() == outcome).then_some(()),
            _ => None,
        })
        .await;
    attempt
}

#[tokio::test]
async fn a_login_in_python_gets_past_a_refusing_host_and_says_what_became_of_it() {
    let scene = Scene::set().await;
    let (run, ()) = tokio::join!(scene.run(&["--pool", "desk"]), scene.serve());
    assert_eq!(run, (0, "connected to h2: SSH-2.0-example\n".to_owned(), String::new()));
    told(&scene.agents[0][0], v1::Outcome::Failed).await;
    told(&scene.agents[1][0], v1::Outcome::Connected).await;
    told(&scene.agents[1][0], v1::Outcome::Ended).await;
}

#[tokio::test]
async fn a_login_in_python_goes_on_with_the_second_coordinator_when_the_first_is_dead_or_hangs() {
    let mut scene = Scene::set().await;
    scene.farm.coordinator.freeze();
    let (run, ()) = tokio::join!(scene.run(&["--pool", "desk", "--deadline", "3"]), scene.serve());
    assert_eq!(run, (0, "connected to h2: SSH-2.0-example\n".to_owned(), String::new()));
    // It is the same request, tried again; whoever answered was asked first from then on.
    let second_try = told(&scene.agents[0][1], v1::Outcome::Failed).await;
    let first_try = told(&scene.agents[1][1], v1::Outcome::Connected).await;
    assert!(second_try > first_try, "{second_try}, {first_try}");

    scene.farm.coordinator.kill();
    let (run, ()) = tokio::join!(scene.run(&["--pool", "desk"]), scene.serve());
    assert_eq!(run, (0, "connected to h2: SSH-2.0-example\n".to_owned(), String::new()));

    scene.second.kill();
    let started = Instant::now();
    let (code, said, error) = scene.run(&["--pool", "desk", "--deadline", "2"]).await;
    assert_eq!((code, said.as_str()), (1, ""));
    assert!(error.starts_with("no host: UNAVAILABLE: "), "{error}");
    assert!(started.elapsed().as_secs() < 15, "the deadline is for all attempts together");
}

#[tokio::test]
async fn a_no_is_an_answer_in_python_and_is_not_asked_again() {
    let scene = Scene::set().await;
    let started = Instant::now();
    let (code, said, error) = scene.run(&["--pool", "nowhere", "--deadline", "60"]).await;
    assert_eq!((code, said.as_str()), (1, ""));
    assert!(error.starts_with("no host: UNKNOWN_POOL: "), "{error}");
    assert!(started.elapsed() < LONG);
}

#[tokio::test]
async fn a_deadline_that_is_too_short_in_python_is_said_as_one() {
    let scene = Scene::set().await;
    scene.farm.coordinator.freeze();
    scene.second.freeze();
    let (code, said, error) = scene.run(&["--pool", "desk", "--deadline", "0.04"]).await;
    assert_eq!((code, said.as_str()), (1, ""));
    assert!(error.starts_with("no host: ") && error.lines().count() == 1, "{error}");
}

/// Waits until the host was told the same of so many logins.
async fn of_logins(agent: &FakeAgent, outcome: v1::Outcome, logins: usize) {
    let mut seen = BTreeSet::new();
    agent
        .hears(&format!("{outcome:?} of {logins} logins"), |heard| match heard {
            Heard::OutcomeNotice(told) if told.outcome() == outcome => {
                seen.insert(told.token.as_ref().map(|token| token.request_id.clone()));
                (seen.len() >= logins).then_some(())
            }
            _ => None,
        })
        .await;
}

#[tokio::test]
async fn a_server_that_speaks_late_or_breaks_off_in_python_is_waited_for_and_its_end_is_told() {
    let scene = Scene::set().await;
    let late = async {
        let (mut stream, _) = tokio::time::timeout(LONG, scene.door.accept()).await.unwrap().unwrap();
        // Longer than a connection may take.
        tokio::time::sleep(Duration::from_millis(3500)).await;
        stream.write_all(b"SSH-2.0-late\r\n").await.unwrap();
    };
    let (run, ()) = tokio::join!(scene.run(&["--pool", "desk"]), late);
    assert_eq!(run, (0, "connected to h2: SSH-2.0-late\n".to_owned(), String::new()));
    told(&scene.agents[1][0], v1::Outcome::Ended).await;

    let breaks_off = async {
        let (stream, _) = tokio::time::timeout(LONG, scene.door.accept()).await.unwrap().unwrap();
        of_logins(&scene.agents[1][0], v1::Outcome::Connected, 2).await;
        stream.set_zero_linger().unwrap();
    };
    let ((code, _, error), ()) = tokio::join!(scene.run(&["--pool", "desk"]), breaks_off);
    assert_eq!((code, error.lines().count()), (1, 1), "{error}");
    assert!(error.starts_with("the connection to h2 broke: "), "{error}");
    of_logins(&scene.agents[1][0], v1::Outcome::Ended, 2).await;
}

#[test]
fn the_example_in_python_stays_short() {
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join(SCRIPT);
    assert!(std::fs::read_to_string(script).unwrap().lines().count() <= 150);
}
