//! Do timings that a program sends with a StatsD library reach the farm?
//!
//! The library is `cadence`, as an application would use it, over UDP and over the unix socket. The baseline is learned
//! from calls of 10 ms; when the window holds none of them any more, calls of 40 ms are an expansion factor of exactly 4,
//! however many of them arrive.

#![allow(clippy::unwrap_used, reason = "a test's tool fails as a test does")]

use std::net::UdpSocket;
use std::os::unix::net::UnixDatagram;

use cadence::ext::{MetricValue, ToTimerValue};
use cadence::prelude::*;
use cadence::{MetricResult, StatsdClient, UdpMetricSink, UnixMetricSink};
use usher_integration_tests::{Client, Farm, LONG, free_udp_port, wait_for};
use usher_proto::v1;

const HOST: &str = "this-machine";
const OPERATION: &str = "desk.open_document";

/// Milliseconds with a fraction, which the library's own durations do not have.
struct Milliseconds(f64);

impl ToTimerValue for Milliseconds {
    fn try_to_value(self) -> MetricResult<MetricValue> {
        Ok(MetricValue::Float(self.0))
    }
}

/// Five calls: what a period needs to count.
fn send_calls(program: &StatsdClient, milliseconds: f64) {
    for _ in 0..5 {
        // A full queue of the socket loses a call; the next round sends again.
        let _ = program.time("open_document", Milliseconds(milliseconds));
    }
}

/// Sends calls until the operation is seen so.
async fn send_until(
    client: &Client,
    program: &StatsdClient,
    milliseconds: f64,
    what: &str,
    mut holds: impl FnMut(&v1::HostInfo, &v1::OperationInfo) -> bool,
) {
    wait_for(what, LONG, async || {
        send_calls(program, milliseconds);
        let (host, operation) = look(client).await?;
        if holds(&host, &operation) { Ok(()) } else { Err(format!("{operation:?}, {host:?}")) }
    })
    .await;
}

async fn look(client: &Client) -> Result<(v1::HostInfo, v1::OperationInfo), String> {
    let details = client.host_details(HOST).await.map_err(|status| status.to_string())?;
    let is_ours =
        |info: &v1::OperationInfo| info.window.as_ref().is_some_and(|window| window.name == OPERATION);
    let operation = details.operations.into_iter().find(is_ours).ok_or("the operation is not there")?;
    Ok((details.host.unwrap(), operation))
}

fn baseline_us(operation: &v1::OperationInfo) -> Option<f64> {
    operation.window.as_ref().unwrap().baseline_us
}

/// Waits until no call is in the window, which only its periods can empty.
async fn window_is_empty(client: &Client) {
    wait_for("an empty window", LONG, async || {
        let (host, operation) = look(client).await?;
        let window = operation.window.unwrap();
        if window.ok == 0.0 { Ok(()) } else { Err(format!("{window:?}, {host:?}")) }
    })
    .await;
}

/// From the first call to the index: learns 10 ms, then 40 ms are four times as long.
async fn slower_calls_are_seen(client: &Client, program: &StatsdClient) {
    send_until(client, program, 10.0, "a baseline", |_, operation| baseline_us(operation) == Some(10_000.0))
        .await;
    window_is_empty(client).await;
    send_until(client, program, 40.0, "an expansion factor", |host, operation| {
        let is_4 = |factor: Option<f64>| factor.is_some_and(|factor| (factor - 4.0).abs() < 1e-9);
        let index = host.availability_index;
        is_4(host.expansion_factor)
            && is_4(operation.expansion_factor)
            && index.is_some_and(|index| (index - 66.67).abs() < 0.01)
    })
    .await;
    let (_, operation) = look(client).await.unwrap();
    assert_eq!(baseline_us(&operation), Some(10_000.0), "slower calls do not move the baseline");
}

#[tokio::test]
async fn timings_over_udp_reach_the_index_and_bad_lines_are_only_counted() {
    let farm = Farm::start().await;
    let port = free_udp_port();
    let _agent = farm.agent(HOST).latency_period("300ms").statsd(port).await;
    let client = farm.client();
    let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
    let bad: [&[u8]; 5] =
        [b"desk.open_document:NaN|ms", b"desk.open_document:1|c", b"\xff\x00", b"open document:1|ms", b"x"];
    for line in bad {
        socket.send_to(line, ("127.0.0.1", port)).unwrap();
    }
    let sink = UdpMetricSink::from(("127.0.0.1", port), socket).unwrap();
    let program = StatsdClient::from_sink("desk", sink);
    slower_calls_are_seen(&client, &program).await;

    wait_for("five bad lines to be told", LONG, async || {
        let host = client.host(HOST).await.map_err(|status| status.to_string())?;
        let latency = host.collectors.iter().find(|collector| collector.name == "latency").cloned();
        let told = latency.as_ref().and_then(|latency| latency.warning.clone()).unwrap_or_default();
        if told.starts_with("5 lines rejected and 0 timings dropped") {
            Ok(())
        } else {
            Err(format!("{latency:?}"))
        }
    })
    .await;
}

#[tokio::test]
async fn timings_over_the_unix_socket_reach_the_index() {
    let farm = Farm::start().await;
    let agent = farm.agent(HOST).latency_period("300ms").await;
    let socket = UnixDatagram::unbound().unwrap();
    socket.set_nonblocking(true).unwrap();
    let program = StatsdClient::from_sink(
        "desk",
        UnixMetricSink::from(agent.runtime_dir().join("statsd.sock"), socket),
    );
    slower_calls_are_seen(&farm.client(), &program).await;
}

#[tokio::test]
async fn case_065_a_server_that_fails_fast_is_busy_and_does_not_look_fast() {
    let farm = Farm::start().await;
    let port = free_udp_port();
    let _agent = farm.agent(HOST).latency_period("300ms").statsd(port).await;
    let client = farm.client();
    let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
    let send = |lines: &str| socket.send_to(lines.as_bytes(), ("127.0.0.1", port)).unwrap();
    wait_for("a baseline of 10 ms", LONG, async || {
        send(&format!("{OPERATION}:10|ms|@0.1"));
        let (_, operation) = look(&client).await?;
        if baseline_us(&operation) == Some(10_000.0) { Ok(()) } else { Err(format!("{operation:?}")) }
    })
    .await;
    window_is_empty(&client).await;
    // 100 good calls of 20 ms, and 900 that failed within 1 ms.
    let failed = format!("{OPERATION}:1|ms|@0.01|#outcome:failed\n").repeat(9);
    let (host, operation) = wait_for("the errors to be seen", LONG, async || {
        send(&format!("{OPERATION}:20|ms|@0.01\n{failed}"));
        let (host, operation) = look(&client).await?;
        if host.state() == v1::HostState::Busy { Ok((host, operation)) } else { Err(format!("{host:?}")) }
    })
    .await;
    assert_eq!(host.busy_reasons, ["errors"], "{host:?}");
    assert!((host.expansion_factor.unwrap() - 2.0).abs() < 1e-9, "{host:?}");
    assert!((host.availability_index.unwrap() - 83.33).abs() < 0.01, "{host:?}");
    let window = operation.window.unwrap();
    assert_eq!((window.baseline_us, window.min_us), (Some(10_000.0), Some(20_000.0)));
    assert!((window.failed / window.ok - 9.0).abs() < 1e-9, "{window:?}");
}

#[tokio::test]
async fn calls_shorter_than_a_millisecond_keep_their_length() {
    let farm = Farm::start().await;
    let port = free_udp_port();
    let _agent = farm.agent(HOST).latency_period("300ms").statsd(port).await;
    let sink = UdpMetricSink::from(("127.0.0.1", port), UdpSocket::bind("127.0.0.1:0").unwrap()).unwrap();
    let program = StatsdClient::from_sink("desk", sink);
    send_until(&farm.client(), &program, 0.35, "a baseline of 350 us", |_, operation| {
        baseline_us(operation).is_some_and(|baseline_us| (baseline_us - 350.0).abs() < 1e-6)
    })
    .await;
}
