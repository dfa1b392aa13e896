//! Is every wrong request answered with an error that names what is wrong, and harms nobody else?

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::fmt::Debug;

use tonic::{Code, Request, Status};
use usher_integration_tests::{
    Client, FakeAgent, Farm, LONG, hello, load, place, raw_exchange, refusal, wait_until,
};
use usher_proto::error::{error_info, field_violations};
use usher_proto::v1;

const NOT_NUMBERS: [f64; 3] = [f64::NAN, f64::INFINITY, f64::NEG_INFINITY];

struct Served {
    farm: Farm,
    client: Client,
    host: FakeAgent,
    calls: u32,
}

impl Served {
    async fn start() -> Self {
        let farm = Farm::start().await;
        let client = farm.client();
        let mut host = FakeAgent::attach(&client, hello("h1")).await.unwrap();
        host.report(load(10.0, 10.0, 1, 10)).await;
        Self { farm, client, host, calls: 0 }
    }

    /// A good call is answered, the stream is open and the process lives.
    async fn is_well(&mut self) {
        self.calls += 1;
        self.client.place(place("desk", &format!("good-{}", self.calls))).await.unwrap();
        let outcome = self.client.outcome(&format!("good-{}", self.calls), v1::Outcome::Cancelled).await;
        assert!(outcome.unwrap());
        self.host.report(load(10.0, 10.0, self.calls, 10)).await;
        assert!(self.farm.coordinator.is_running());
    }
}

/// The refusal names the field, in its message, its metadata and as a violation.
#[track_caller]
fn names<T: Debug>(answer: Result<T, Status>, field: &str) {
    let status = refusal(answer, Code::InvalidArgument, "INVALID_FIELD");
    assert_eq!(error_info(&status).unwrap().metadata["field"], field, "{status:?}");
    assert_eq!(field_violations(&status)[0].0, field, "{status:?}");
    assert!(status.message().contains(field), "{status:?}");
}

#[tokio::test]
async fn each_wrong_field_of_a_place_is_named() {
    let mut served = Served::start().await;
    type Change = fn(&mut v1::PlaceRequest);
    let wrong: [(&str, Change); 18] = [
        ("request_id", |request| request.request_id.clear()),
        ("request_id", |request| request.request_id = "x".repeat(129)),
        ("request_id", |request| request.request_id = "a\nb".into()),
        ("pool", |request| request.pool.clear()),
        ("pool", |request| request.pool = "a b".into()),
        ("pool", |request| request.pool = "../desk".into()),
        ("resource", |request| request.resource = Some(String::new())),
        ("resource", |request| request.resource = Some("r".repeat(1025))),
        ("user", |request| request.user = Some("u".repeat(257))),
        ("user", |request| request.user = Some("a\u{7}".into())),
        ("client_zone", |request| request.client_zone = Some(String::new())),
        ("cost", |request| request.cost = Some(0)),
        ("cost", |request| request.cost = Some(101)),
        ("cost", |request| request.cost = Some(u32::MAX)),
        ("exclude", |request| request.exclude = vec!["h1".into(); 1025]),
        ("exclude", |request| request.exclude = vec![String::new()]),
        ("prefer_host", |request| request.prefer_host = Some(String::new())),
        ("prefer_host", |request| request.prefer_host = Some("h".repeat(300))),
    ];
    for (field, change) in wrong {
        let mut request = place("desk", "R1");
        change(&mut request);
        names(served.client.place(request).await, field);
    }
    let unknown = served.client.place(place("nowhere", "R1")).await;
    let status = refusal(unknown, Code::NotFound, "UNKNOWN_POOL");
    assert!(status.message().contains("nowhere"), "{status:?}");
    // Several faults are told at once.
    let request = v1::PlaceRequest { cost: Some(0), ..place("", "") };
    let status = served.client.place(request).await.unwrap_err();
    let fields: Vec<String> = field_violations(&status).into_iter().map(|(field, _)| field).collect();
    assert_eq!(fields, ["request_id", "pool", "cost"]);
    assert_eq!(served.client.host("h1").await.unwrap().pending_places, 0, "nothing of it was granted");
    served.is_well().await;
}

#[tokio::test]
async fn each_wrong_field_of_a_failover_an_outcome_and_a_look_up_is_named() {
    let mut served = Served::start().await;
    let client = served.client.clone();
    type Change = fn(&mut v1::FailoverRequest);
    let wrong: [(&str, Change); 10] = [
        ("request_id", |request| request.request_id.clear()),
        ("request_id", |request| request.failed_request_id = Some("R1".into())),
        ("failed_request_id", |request| request.failed_request_id = Some(String::new())),
        ("pool", |request| request.pool.clear()),
        ("from_host", |request| request.from_host.clear()),
        ("tried", |request| request.tried = vec!["h".into(); 1025]),
        ("cause", |request| request.cause = 0),
        ("cause", |request| request.cause = 99),
        ("cause", |request| request.cause = -1),
        ("cost", |request| request.cost = Some(101)),
    ];
    for (field, change) in wrong {
        let mut request = v1::FailoverRequest {
            request_id: "R1".into(),
            pool: "desk".into(),
            from_host: "h1".into(),
            cause: v1::FailoverCause::Other.into(),
            ..Default::default()
        };
        change(&mut request);
        names(client.failover(request).await, field);
    }
    let outcome = async |request_id: &str, outcome: i32| {
        let request = v1::ReportOutcomeRequest { request_id: request_id.into(), outcome, cause: None };
        client.placement.clone().report_outcome(request).await
    };
    names(outcome("", 1).await, "request_id");
    names(outcome("R1", 0).await, "outcome");
    names(outcome("R1", 99).await, "outcome");
    names(client.explain("").await, "decision_id");
    refusal(client.explain("no-such-decision").await, Code::NotFound, "RETENTION");
    let list = v1::ListHostsRequest { pool: Some("a b".into()) };
    names(client.directory.clone().list_hosts(list).await, "pool");
    let list = v1::ListHostsRequest { pool: Some("nowhere".into()) };
    refusal(client.directory.clone().list_hosts(list).await, Code::NotFound, "UNKNOWN_POOL");
    assert_eq!(client.host("nobody").await.unwrap_err().code(), Code::NotFound);
    assert_eq!(client.host(&"x".repeat(5000)).await.unwrap_err().code(), Code::NotFound);
    served.is_well().await;
}

/// A number that is set in a policy.
type SetNumber = fn(&mut v1::Policy, f64);

#[tokio::test]
async fn each_wrong_setting_of_a_pool_is_named_and_changes_nothing() {
    let mut served = Served::start().await;
    let client = served.client.clone();
    let before = client.apply("desk", v1::Policy { range: Some(7.0), ..Default::default() }).await.unwrap();
    let numbers: [(&str, SetNumber, &[f64]); 8] = [
        ("range", |policy, value| policy.range = Some(value), &[0.0, 0.9, 30.5, 120.0]),
        ("threshold_percent", |policy, value| policy.threshold_percent = Some(value), &[-1.0, 100.1]),
        ("exit_margin_percent", |policy, value| policy.exit_margin_percent = Some(value), &[-1.0, 101.0]),
        ("users_full_scale", |policy, value| policy.users_full_scale = Some(value), &[-1.0, 1e9]),
        ("min_possible_us", |policy, value| policy.min_possible_us = Some(value), &[0.0, -1.0, 1e12]),
        ("max_possible_us", |policy, value| policy.max_possible_us = Some(value), &[0.0, -1.0, 1e12]),
        ("weights.cpu_percent", |policy, value| policy.weights = Some(weights(value, 0.0)), &[-1.0, 101.0]),
        ("weights.users_percent", |policy, value| policy.weights = Some(weights(0.0, value)), &[-1.0, 101.0]),
    ];
    for (field, set, wrong) in numbers {
        for value in wrong.iter().copied().chain(NOT_NUMBERS) {
            let mut policy = v1::Policy::default();
            set(&mut policy, value);
            names(client.apply("desk", policy).await, field);
        }
    }
    let limit = |limit| Some(v1::UserLimit { limit });
    let users = v1::user_limit::Limit::Users;
    let others = [
        ("weights", v1::Policy { weights: Some(weights(30.0, 60.0)), ..Default::default() }),
        ("max_users", v1::Policy { max_users: limit(Some(users(0))), ..Default::default() }),
        ("max_users", v1::Policy { max_users: limit(None), ..Default::default() }),
        ("reservation_ttl_ms", v1::Policy { reservation_ttl_ms: Some(999), ..Default::default() }),
        ("reservation_ttl_ms", v1::Policy { reservation_ttl_ms: Some(u64::MAX), ..Default::default() }),
        ("method", v1::Policy { method: Some(0), ..Default::default() }),
        ("method", v1::Policy { method: Some(99), ..Default::default() }),
        ("affinity", v1::Policy { affinity: Some(99), ..Default::default() }),
        ("user_match", v1::Policy { user_match: Some(-5), ..Default::default() }),
        ("baseline", v1::Policy { baseline: Some(77), ..Default::default() }),
    ];
    for (field, policy) in others {
        names(client.apply("desk", policy).await, field);
    }
    names(client.apply("a b", v1::Policy::default()).await, "pool");
    assert_eq!(client.pool("desk").await.unwrap(), v1::PoolInfo { hosts: 1, ..before });
    served.is_well().await;
}

fn weights(cpu: f64, users: f64) -> v1::Weights {
    v1::Weights { cpu_percent: Some(cpu), users_percent: Some(users), ..Default::default() }
}

#[tokio::test]
async fn wrong_marks_and_wrong_names_are_refused() {
    let mut served = Served::start().await;
    let admin = served.client.admin.clone();
    let drain = |host: &str, mode| v1::DrainHostRequest { host: host.into(), mode, ..Default::default() };
    assert_eq!(admin.clone().drain_host(drain("nobody", 1)).await.unwrap_err().code(), Code::NotFound);
    names(admin.clone().drain_host(drain("h1", 99)).await, "mode");
    let undrain = v1::UndrainHostRequest { host: "nobody".into() };
    assert_eq!(admin.clone().undrain_host(undrain).await.unwrap_err().code(), Code::NotFound);
    for name in ["a b", "x/y", &"g".repeat(200)] {
        names(served.farm.gateway(name).place(place("desk", "R1")).await, "usher-gateway");
    }
    let mut request = Request::new(place("desk", "R1"));
    request
        .metadata_mut()
        .insert("usher-gateway", tonic::metadata::MetadataValue::try_from(&b"\xff\xfe"[..]).unwrap());
    let plain = v1::placement_service_client::PlacementServiceClient::new(served.client.channel.clone());
    names(plain.clone().place(request).await, "usher-gateway");
    served.is_well().await;
}

#[tokio::test]
async fn a_request_of_five_megabytes_is_refused_and_the_connection_goes_on() {
    let mut served = Served::start().await;
    let text = "x".repeat(5 * 1024 * 1024);
    let request = v1::PlaceRequest { resource: Some(text), ..place("desk", "R1") };
    let status = served.client.place(request).await.unwrap_err();
    assert_eq!(status.code(), Code::OutOfRange, "{status:?}");
    served.is_well().await;
}

#[tokio::test]
async fn a_method_that_does_not_exist_is_unimplemented() {
    let mut served = Served::start().await;
    let mut grpc = tonic::client::Grpc::new(served.client.channel.clone());
    grpc.ready().await.unwrap();
    let path = "/usher.v1.PlacementService/Guess".parse().unwrap();
    let codec: tonic_prost::ProstCodec<v1::PlaceRequest, v1::PlaceResponse> =
        tonic_prost::ProstCodec::default();
    let status = grpc.unary(Request::new(place("desk", "R1")), path, codec).await.unwrap_err();
    assert!(matches!(status.code(), Code::Unimplemented | Code::PermissionDenied), "{status:?}");
    served.is_well().await;
}

#[tokio::test]
async fn garbage_and_other_protocols_on_a_port_harm_nobody() {
    let mut served = Served::start().await;
    let (grpc, http) = (served.farm.coordinator.grpc, served.farm.coordinator.http);
    let noise: Vec<u8> = (0..200_000_u32).map(|n| (n.wrapping_mul(2_654_435_761) >> 13) as u8).collect();
    let tls_hello = [&b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03"[..], &noise[..500]].concat();
    let long_line = [b"GET /".to_vec(), vec![b'a'; 200_000], b" HTTP/1.1\r\n\r\n".to_vec()].concat();
    let preface = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n".to_vec();
    for bytes in [
        noise.clone(),
        b"\x00\x00\x00\x00".repeat(100),
        tls_hello,
        b"GET /usher.v1.PlacementService/Place HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n".to_vec(),
        b"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 99999999\r\nConnection: close\r\n\r\nxx".to_vec(),
        long_line,
        [preface.clone(), noise.clone()].concat(),
        // A frame that claims to be 16 MB long.
        [preface, b"\xff\xff\xff\x00\x00\x00\x00\x00\x01".to_vec()].concat(),
    ] {
        let answer = raw_exchange(grpc, &bytes).await;
        let answer = String::from_utf8_lossy(&answer);
        assert!(!answer.contains("200 OK"), "{answer}");
        served.is_well().await;
    }
    for bytes in [noise, b"\x16\x03\x01\x02\x00".to_vec(), b"NONSENSE\r\n\r\n".to_vec()] {
        // Half a request may be waited for; an end of the writing side is enough here.
        let answer = half_closed(http, &bytes).await;
        assert!(!String::from_utf8_lossy(&answer).contains("200 OK"));
        served.is_well().await;
    }
    // Connections that say nothing take nobody's place.
    let mut idle = Vec::new();
    for _ in 0..100 {
        idle.push(tokio::net::TcpStream::connect(grpc).await.unwrap());
    }
    served.is_well().await;
    drop(idle);
    wait_until("the process to live on", LONG, async || served.farm.coordinator.is_running()).await;
    served.is_well().await;
}

async fn half_closed(address: std::net::SocketAddr, bytes: &[u8]) -> Vec<u8> {
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    let mut stream = tokio::net::TcpStream::connect(address).await.unwrap();
    let _ = stream.write_all(bytes).await;
    let _ = stream.shutdown().await;
    let mut answer = Vec::new();
    let read = tokio::time::timeout(LONG, stream.read_to_end(&mut answer)).await;
    let _ = read.unwrap_or_else(|_| panic!("{address} does not close"));
    answer
}

#[tokio::test]
async fn a_farm_without_any_host_says_that_the_pool_is_unknown() {
    let farm = Farm::start().await;
    refusal(farm.client().place(place("desk", "R1")).await, Code::NotFound, "UNKNOWN_POOL");
    farm.client().apply("desk", v1::Policy::default()).await.unwrap();
    let nobody = farm.client().place(place("desk", "R1")).await;
    refusal(nobody, Code::Unavailable, "ALL_OFFLINE");
}
