//! Who gets in, and as whom, on a farm whose connections show certificates?

#![allow(clippy::unwrap_used, reason = "a test's tool fails as a test does")]

use std::net::SocketAddr;
use std::process::Stdio;
use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::process::Command;
use tonic::{Code, Status};
use usher_integration_tests::{
    Agent, Authority, CertFiles, Client, FakeAgent, Farm, LONG, Process, binary, hello, load, place, python,
    refusal, run_ctl, wait_for, wait_until,
};
use usher_proto::error::{error_info, reason};
use usher_proto::v1;
use usher_proto::v1::attach_request::Message as Said;

/// A farm named `default`, whose coordinator shows a certificate and demands one.
struct SecureFarm {
    farm: Farm,
    authority: Authority,
    own: CertFiles,
}

impl SecureFarm {
    async fn start() -> Self {
        let start = Farm::start();
        let authority = Authority::new(start.folder());
        let own = authority.issue("usher://default/coordinator/c1");
        let farm = start.settings(&own.table()).await;
        Self { farm, authority, own }
    }

    fn address(&self) -> SocketAddr {
        self.farm.coordinator.grpc
    }

    fn files(&self, role: &str, name: &str) -> CertFiles {
        self.authority.issue(&format!("usher://default/{role}/{name}"))
    }

    fn client(&self, role: &str) -> Client {
        self.files(role, &format!("{role}-1")).client(self.address())
    }

    /// A real agent that shows the certificate of `certificate`.
    async fn agent(&self, name: &str, certificate: &str) -> Agent {
        let table = self.files("agent", certificate).table();
        self.farm.agent(name).settings(&table).without_waiting().await
    }

    /// Runs `usherctl` with settings of its own.
    async fn ctl_as(&self, role: &str, arguments: &[&str]) -> usher_integration_tests::CtlOutput {
        std::fs::write(self.farm.folder().join("client.toml"), self.files(role, "me").table()).unwrap();
        self.farm.ctl(arguments).await
    }

    /// Whether the coordinator still serves those who may come in.
    async fn serves(&self) {
        self.client("operator").hosts().await.unwrap();
    }
}

async fn connected(client: &Client, name: &str) {
    wait_until(&format!("{name} to be attached"), LONG, async || {
        client.host(name).await.is_ok_and(|host| host.connected && host.load_age_ms.is_some())
    })
    .await;
}

/// An agent that attached under its certificate and was heard. It may look at nothing itself, so an operator does.
async fn heard(secure: &SecureFarm, files: &CertFiles, name: &str) -> FakeAgent {
    let fake = FakeAgent::attach(&files.client(secure.address()), hello(name)).await.unwrap();
    fake.say(Said::Load(v1::Load { incarnation_ms: 1000, ..load(10.0, 20.0, 3, 40) })).await;
    connected(&secure.client("operator"), name).await;
    fake
}

/// Fails unless the call died on its way: nobody of usher answered it.
#[track_caller]
fn no_way_in<T: std::fmt::Debug>(answer: Result<T, Status>) {
    let status = answer.expect_err("the connection was to be refused");
    // A status that came over the wire has no cause in this process.
    let died_here = std::error::Error::source(&status).is_some();
    assert!(died_here && error_info(&status).is_none(), "{status:?}");
}

#[tokio::test]
async fn agents_attach_and_an_operator_works_with_their_certificates() {
    let secure = SecureFarm::start().await;
    let _app1 = secure.agent("app1", "app1").await;
    let _app2 = secure.agent("app2", "app2").await;
    let operator = secure.client("operator");
    connected(&operator, "app1").await;
    connected(&operator, "app2").await;

    let hosts = secure.ctl_as("operator", &["hosts", "--json"]).await.exited(0).json();
    assert_eq!(hosts["hosts"].as_array().unwrap().len(), 2, "{hosts:#}");
    let placed = secure.ctl_as("operator", &["place", "desk", "--user", "alice", "--json"]).await;
    assert!(placed.exited(0).stdout.contains("app"));
    secure.ctl_as("operator", &["drain", "app1"]).await.exited(0);
    let refused = secure.ctl_as("operator", &["pool", "apply", "desk", "--set", "max_users=9"]).await;
    assert!(refused.exited(1).stderr.contains("NOT_AUTHORIZED"));
    secure.ctl_as("admin", &["pool", "apply", "desk", "--set", "max_users=9"]).await.exited(0);
    secure.ctl_as("admin", &["undrain", "app1"]).await.exited(0);
}

#[tokio::test]
async fn case_156_a_certificate_of_one_host_is_not_believed_for_another() {
    let secure = SecureFarm::start().await;
    let (app1, app2) = (secure.files("agent", "app1"), secure.files("agent", "app2"));
    let operator = secure.client("operator");
    let owner = heard(&secure, &app2, "app2").await;
    // What moves by itself is not part of the entry.
    let entry = async || {
        let host = operator.host("app2").await.unwrap();
        v1::HostInfo { load_age_ms: None, clock_skew_ms: None, ..host }
    };
    let before = entry().await;

    let theirs = app1.client(secure.address());
    let stolen_id = v1::Hello { stream_epoch: 9, ..owner.hello().clone() };
    let claims = [hello("app2"), stolen_id.clone(), v1::Hello { host_name: "app1".into(), ..stolen_id }];
    for claim in claims {
        let answer = FakeAgent::attach(&theirs, claim).await;
        let status = refusal(answer, Code::PermissionDenied, reason::IDENTITY_MISMATCH);
        assert!(status.message().contains("app1") && status.message().contains("app2"), "{status:?}");
    }
    let mut liar = secure.agent("app2", "app1").await;
    wait_until("the liar's refusal", LONG, async || {
        liar.log().contains("certificate app1 is not for a host called app2")
    })
    .await;
    assert!(liar.is_running());
    assert_eq!(entry().await, before);
    assert!(owner.ended().is_none());
    assert_eq!(operator.hosts().await.unwrap().len(), 1);
}

#[tokio::test]
async fn a_certificate_belongs_to_its_first_host_while_that_lives() {
    let secure = SecureFarm::start().await;
    let files = secure.files("agent", "app1");
    let first = heard(&secure, &files, "app1").await;
    let client = files.client(secure.address());
    let second = FakeAgent::attach(&client, hello("app1")).await;
    let status = refusal(second, Code::AlreadyExists, reason::HOST_ID_IN_USE);
    assert!(status.message().contains(first.id()), "{status:?}");
    // Another boot of the same id: a clone of the machine. The first one answers a ping and stays.
    let clone = v1::Hello { boot_id: "another".into(), ..first.hello().clone() };
    refusal(FakeAgent::attach(&client, clone).await, Code::AlreadyExists, reason::HOST_ID_IN_USE);
    assert!(first.ended().is_none());
}

#[tokio::test]
async fn each_role_may_do_what_is_its_own_and_nothing_else() {
    let secure = SecureFarm::start().await;
    let files = secure.files("agent", "app1");
    let host = heard(&secure, &files, "app1").await;
    let agent = files.client(secure.address());
    let (gateway, operator, admin) =
        (secure.client("gateway"), secure.client("operator"), secure.client("admin"));
    let denied = |status: Result<(), Status>| refusal(status, Code::PermissionDenied, reason::NOT_AUTHORIZED);
    let drain = v1::DrainHostRequest { host: "app1".into(), ..Default::default() };
    let limit = v1::Policy { range: Some(7.0), ..Default::default() };
    let attach = async |client: &Client| FakeAgent::attach(client, hello("app9")).await.map(drop);
    let place_one = async |client: &Client| client.place(place("desk", "r1")).await.map(drop);
    let drain_one = async |client: &Client| client.admin.clone().drain_host(drain.clone()).await.map(drop);
    let apply = async |client: &Client| client.apply("desk", limit.clone()).await.map(drop);

    place_one(&gateway).await.unwrap();
    gateway.hosts().await.unwrap();
    denied(attach(&gateway).await);
    denied(drain_one(&gateway).await);
    denied(apply(&gateway).await);

    denied(place_one(&agent).await);
    denied(agent.hosts().await.map(drop));
    denied(drain_one(&agent).await);

    denied(attach(&operator).await);
    denied(apply(&operator).await);
    drain_one(&operator).await.unwrap();

    denied(attach(&admin).await);
    drain_one(&admin).await.unwrap();
    apply(&admin).await.unwrap();
    assert_eq!(admin.pool("desk").await.unwrap().policy.unwrap().range, Some(7.0));
    assert!(host.ended().is_none());

    let name = secure.client("gateway").place(place("desk", "r2")).await;
    refusal(name, Code::Unavailable, reason::ALL_RESTRICTED);
}

#[tokio::test]
async fn strangers_get_no_connection() {
    let secure = SecureFarm::start().await;
    let address = secure.address();
    no_way_in(secure.own.client_without_certificate(address).hosts().await);
    let forged =
        Authority::new(secure.farm.folder()).issue("usher://default/admin/root").believing(&secure.own);
    no_way_in(forged.client(address).hosts().await);
    let expired = secure.authority.issue_expired("usher://default/admin/root");
    no_way_in(expired.client(address).hosts().await);
    no_way_in(secure.authority.issue_nameless().client(address).hosts().await);
    no_way_in(secure.authority.issue("usher://default/root/root").client(address).hosts().await);
    no_way_in(Client::new(address, None).hosts().await);
    secure.serves().await;
}

#[tokio::test]
async fn a_certificate_of_another_farm_is_nobody_here() {
    let secure = SecureFarm::start().await;
    let of_other =
        |role: &str| secure.authority.issue(&format!("usher://other/{role}/app1")).client(secure.address());
    let admin = of_other("admin").hosts().await;
    let status = refusal(admin, Code::PermissionDenied, reason::NOT_AUTHORIZED);
    assert!(status.message().contains("farm other"), "{status:?}");
    let agent = FakeAgent::attach(&of_other("agent"), hello("app1")).await;
    refusal(agent, Code::PermissionDenied, reason::NOT_AUTHORIZED);
    secure.serves().await;
}

#[tokio::test]
async fn a_client_without_tls_is_told_that_it_reached_nobody() {
    let secure = SecureFarm::start().await;
    let output = secure.farm.ctl(&["hosts"]).await.exited(3);
    assert!(output.stderr.contains(&secure.address().to_string()), "{output:?}");
    let cure = "if it demands TLS, set tls.cert, tls.key and tls.ca";
    assert!(output.stderr.contains(cure), "{output:?}");
    let mut agent = secure.farm.agent("app1").without_waiting().await;
    wait_until("the agent to say so", LONG, async || agent.log().contains(cure)).await;
    assert!(agent.is_running());
    secure.serves().await;
}

#[tokio::test]
async fn case_159_an_agent_says_which_certificate_expired_and_when() {
    let secure = SecureFarm::start().await;
    let expired = secure.authority.issue_expired("usher://default/agent/app1");
    let mut agent = secure.farm.agent("app1").settings(&expired.table()).without_waiting().await;
    let said = format!("certificate {} expired at 2024-01-01T00:00:00Z", expired.cert.display());
    wait_for("the reason", LONG, async || {
        let log = agent.log();
        if log.contains(&said) { Ok(()) } else { Err(log) }
    })
    .await;
    assert!(agent.is_running());
}

/// What OpenSSL gets from the HTTP port, as Python's standard library asks for it.
async fn https_get(secure: &SecureFarm, files: Option<&CertFiles>) -> Result<String, String> {
    const SCRIPT: &str = "
import ssl, sys, urllib.request
url, ca, *own = sys.argv[1:]
tls = ssl.create_default_context(cafile=ca)
if own:
    tls.load_cert_chain(*own)
print(urllib.request.urlopen(url, context=tls, timeout=20).read().decode(), end='')";
    let mut command = Command::new(python());
    let url = format!("https://localhost:{}/healthz", secure.farm.coordinator.http.port());
    command.args(["-c", SCRIPT, &url]).arg(&secure.own.ca).env("NO_PROXY", "*").kill_on_drop(true);
    if let Some(files) = files {
        command.arg(&files.cert).arg(&files.key);
    }
    let output = command.stdin(Stdio::null()).output().await.unwrap();
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    if output.status.success() { Ok(text(&output.stdout)) } else { Err(text(&output.stderr)) }
}

#[tokio::test]
async fn the_http_port_answers_those_who_show_a_certificate_of_the_farm() {
    let secure = SecureFarm::start().await;
    let operator = secure.files("operator", "prometheus");
    assert_eq!(https_get(&secure, Some(&operator)).await, Ok("ok\n".to_owned()));
    https_get(&secure, None).await.unwrap_err();
    let stranger = secure.authority.issue("usher://other/operator/prometheus");
    https_get(&secure, Some(&stranger)).await.unwrap_err();
    assert_eq!(https_get(&secure, Some(&operator)).await, Ok("ok\n".to_owned()));
}

#[tokio::test]
async fn plain_connections_off_this_machine_are_refused_before_they_are_made() {
    let folder = tempfile::tempdir().unwrap();
    let run = async |program: &str, arguments: &[&str]| {
        let data = ["--config", "/dev/null"];
        let mut command = Command::new(binary(program));
        command.args(data).args(arguments).current_dir(folder.path()).kill_on_drop(true);
        let output =
            tokio::time::timeout(LONG, command.stdin(Stdio::null()).output()).await.unwrap().unwrap();
        (output.status.code(), String::from_utf8_lossy(&output.stderr).into_owned())
    };
    let rule = "only loopback may be plain";
    for listen in ["--listen", "--http-listen"] {
        for address in ["0.0.0.0:0", "10.0.0.1:7443", "[::]:0"] {
            let (code, said) = run("usher-coordinator", &["--data-dir", "data", listen, address]).await;
            assert_eq!(code, Some(2), "{said}");
            assert!(said.contains(rule) && said.contains(address), "{said}");
        }
    }
    assert!(!folder.path().join("data").exists(), "nothing was opened");

    for target in ["http://10.0.0.1:7443", "10.0.0.1:7443", "https://10.0.0.1:7443"] {
        let (code, said) = run("usher-agent", &["--coordinators", target, "--state-dir", "s"]).await;
        assert_eq!(code, Some(2), "{said}");
        assert!(said.contains(target) && said.contains("tls.cert, tls.key and tls.ca"), "{said}");
        let output =
            run_ctl(folder.path(), &["--config", "/dev/null", "--coordinator", target, "hosts"]).await;
        let said = output.exited(2).stderr;
        assert!(said.contains(target) && said.contains("tls.cert, tls.key and tls.ca"), "{said}");
    }
}

#[tokio::test]
async fn with_certificates_a_coordinator_listens_on_every_address() {
    let folder = tempfile::tempdir().unwrap();
    let authority = Authority::new(folder.path());
    let settings = folder.path().join("coordinator.toml");
    std::fs::write(&settings, authority.issue("usher://default/coordinator/c1").table()).unwrap();
    let mut command = std::process::Command::new(binary("usher-coordinator"));
    command.arg("--config").arg(&settings).arg("--data-dir").arg(folder.path());
    command.args(["--listen", "0.0.0.0:0", "--http-listen", "none"]);
    let _coordinator = Process::start("coordinator", &mut command, &folder.path().join("log"));
    let address: SocketAddr = wait_for("the coordinator to listen", LONG, async || {
        let text =
            std::fs::read_to_string(folder.path().join("listening.json")).map_err(|e| e.to_string())?;
        let said: serde_json::Value = serde_json::from_str(&text).map_err(|error| error.to_string())?;
        said["grpc"].as_str().and_then(|address| address.parse().ok()).ok_or(text)
    })
    .await;
    assert!(address.ip().is_unspecified());
    let operator = authority.issue("usher://default/operator/me");
    operator.client(address).hosts().await.unwrap();
    no_way_in(Client::new(SocketAddr::from(([127, 0, 0, 1], address.port())), None).hosts().await);
}

#[tokio::test]
async fn case_157_silent_connections_do_not_keep_an_agent_out() {
    let secure = SecureFarm::start().await;
    let folder = format!("/proc/{}/fd", secure.farm.coordinator.pid());
    let open_files = || std::fs::read_dir(&folder).unwrap().count();
    let open_before = open_files();
    let mut silent = Vec::new();
    for number in 0..100 {
        let mut connection = TcpStream::connect(secure.address()).await.unwrap();
        if number % 2 == 1 {
            connection.write_all(b"GET / HTTP/1.1\r\n\r\n").await.unwrap();
        }
        silent.push(connection);
    }
    let client = secure.files("agent", "app1").client(secure.address());
    let attached = FakeAgent::attach(&client, hello("app1"));
    let attached = tokio::time::timeout(Duration::from_secs(5), attached).await.expect("attached in time");

    let closed = async {
        for connection in &mut silent {
            // An alert may come before the end, and the end may be a reset.
            let _ = connection.read_to_end(&mut Vec::new()).await;
        }
    };
    tokio::time::timeout(Duration::from_secs(15), closed).await.expect("silent connections are closed");
    assert!(attached.unwrap().ended().is_none());
    drop(client);
    wait_until("every connection's file to be closed", LONG, async || open_files() <= open_before).await;
}
