//! How do we behave towards peers that are slow, dead, or find us too busy? Over real sockets, with peers that speak just
//! enough HTTP/2 by hand to misbehave.

use std::time::{Duration, Instant};

use bytes::Bytes;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio_stream::wrappers::TcpListenerStream;
use tonic::transport::{Channel, Server};
use tonic_health::pb::HealthCheckRequest;
use tonic_health::pb::health_client::HealthClient;

use super::{Dial, NetworkDial, Timeouts};

const PING: u8 = 6;
const SETTINGS: u8 = 4;
const ACK: u8 = 1;

/// A frame by hand: its kind, flags, stream 0.
fn frame(kind: u8, flags: u8, payload: &[u8]) -> Vec<u8> {
    let mut frame = u32::try_from(payload.len()).unwrap().to_be_bytes()[1..].to_vec();
    frame.extend([kind, flags, 0, 0, 0, 0]);
    frame.extend(payload);
    frame
}

/// Waits for the first ping on a new connection, and ends it then as a server does that finds it one too many. How long
/// that took.
async fn complain_at_first_ping(stream: &mut TcpStream) -> Duration {
    let mut preface = [0; 24];
    stream.read_exact(&mut preface).await.unwrap();
    let begun = Instant::now();
    stream.write_all(&frame(SETTINGS, 0, &[])).await.unwrap();
    loop {
        let mut head = [0; 9];
        stream.read_exact(&mut head).await.unwrap();
        let mut payload = vec![0; u32::from_be_bytes([0, head[0], head[1], head[2]]) as usize];
        stream.read_exact(&mut payload).await.unwrap();
        match (head[3], head[4] & ACK) {
            (SETTINGS, 0) => stream.write_all(&frame(SETTINGS, ACK, &[])).await.unwrap(),
            (PING, 0) => break,
            _ => {}
        }
    }
    let took = begun.elapsed();
    // GOAWAY: the last stream was 1, ENHANCE_YOUR_CALM.
    let complaint = [&[0, 0, 0, 1, 0, 0, 0, 11][..], b"too_many_pings"].concat();
    stream.write_all(&frame(7, 0, &complaint)).await.unwrap();
    // It hangs up, after what it said has been read.
    let _ = stream.shutdown().await;
    let mut rest = Vec::new();
    let _ = tokio::time::timeout(Duration::from_secs(1), stream.read_to_end(&mut rest)).await;
    took
}

fn pinging(keepalive_interval: Duration) -> NetworkDial {
    let timeouts = Timeouts { keepalive_interval, ..Timeouts::default() };
    NetworkDial { tls: None, timeouts }
}

#[tokio::test]
async fn case_118_a_peer_that_finds_our_pings_too_many_is_pinged_half_as_often_each_time() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let target = listener.local_addr().unwrap().to_string();
    let peer = tokio::spawn(async move {
        let mut intervals = Vec::new();
        for _ in 0..3 {
            let (mut stream, _) = listener.accept().await.unwrap();
            intervals.push(complain_at_first_ping(&mut stream).await);
        }
        intervals
    });
    let dial = pinging(Duration::from_millis(200));
    for _ in 0..3 {
        let channel = dial.dial(&target).await.unwrap();
        let mut client = HealthClient::new(channel);
        client.watch(HealthCheckRequest::default()).await.unwrap_err();
    }
    let intervals = peer.await.unwrap();
    for (interval, least_ms) in intervals.iter().zip([190, 390, 790]) {
        assert!(*interval >= Duration::from_millis(least_ms), "{intervals:?}");
    }
}

#[tokio::test]
async fn case_118_our_server_bears_pings_far_more_often_than_each_ten_seconds() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let target = listener.local_addr().unwrap().to_string();
    let (reporter, health) = tonic_health::server::health_reporter();
    let serving = Server::builder().add_service(health).serve_with_incoming(TcpListenerStream::new(listener));
    let server = tokio::spawn(serving);
    reporter.set_service_status("x", tonic_health::ServingStatus::Serving).await;
    let channel = pinging(Duration::from_millis(20)).dial(&target).await.unwrap();
    let request = HealthCheckRequest { service: "x".into() };
    let mut watch = HealthClient::new(channel).watch(request).await.unwrap().into_inner();
    assert!(watch.message().await.unwrap().is_some());
    // Some hundred pings later the stream stands.
    let ended = tokio::time::timeout(Duration::from_secs(3), watch.message()).await;
    assert!(ended.is_err(), "{ended:?}");
    server.abort();
}

/// Answers each call with data for as long as the client takes it, but the calls after the first five at once. It minds no
/// window of its own: what is in force are the client's.
async fn pour(listener: TcpListener) {
    let (stream, _) = listener.accept().await.unwrap();
    let mut connection = h2::server::Builder::new().handshake::<_, Bytes>(stream).await.unwrap();
    let mut calls = 0;
    while let Some(Ok((_, mut respond))) = connection.accept().await {
        calls += 1;
        let head = http::Response::builder().header("content-type", "application/grpc").body(()).unwrap();
        let mut body = respond.send_response(head, false).unwrap();
        let endless = calls <= 5;
        tokio::spawn(async move {
            // A message without a field.
            let mut message = Bytes::from_static(&[0, 0, 0, 0, 0]);
            if endless {
                message = Bytes::from(vec![0; 16 * 1024]);
            }
            loop {
                body.reserve_capacity(message.len());
                while body.capacity() < message.len() {
                    let Some(Ok(_)) = std::future::poll_fn(|cx| body.poll_capacity(cx)).await else { return };
                }
                if body.send_data(message.clone(), false).is_err() {
                    return;
                }
                if !endless {
                    let trailers =
                        http::HeaderMap::from_iter([("grpc-status".parse().unwrap(), "0".parse().unwrap())]);
                    let _ = body.send_trailers(trailers);
                    return;
                }
            }
        });
    }
}

async fn stream(channel: &Channel) -> tonic::Streaming<tonic_health::pb::HealthCheckResponse> {
    HealthClient::new(channel.clone()).watch(HealthCheckRequest::default()).await.unwrap().into_inner()
}

#[tokio::test]
async fn case_122_five_streams_that_are_not_read_leave_room_for_a_call_on_the_same_connection() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let target = listener.local_addr().unwrap().to_string();
    let server = tokio::spawn(pour(listener));
    let channel = pinging(Duration::from_secs(10)).dial(&target).await.unwrap();
    let mut unread = Vec::new();
    for _ in 0..5 {
        unread.push(stream(&channel).await);
    }
    // Time for whatever fits to come.
    tokio::time::sleep(Duration::from_millis(500)).await;
    let begun = Instant::now();
    for _ in 0..100 {
        let call = HealthClient::new(channel.clone());
        let answer = tokio::time::timeout(Duration::from_secs(5), async move {
            let mut call = call;
            call.check(HealthCheckRequest::default()).await
        });
        answer.await.expect("the calls hang behind streams that nobody reads").unwrap();
    }
    let each = begun.elapsed() / 100;
    assert!(each < Duration::from_millis(200), "{each:?}");
    drop(unread);
    server.abort();
}

#[test]
fn many_streams_that_stand_still_leave_room_in_a_connection() {
    let streams = super::CONNECTION_WINDOW_BYTES / super::STREAM_WINDOW_BYTES;
    assert!(streams >= 16, "{streams}");
}
