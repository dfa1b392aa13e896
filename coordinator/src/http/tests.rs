//! Over real connections, as a scraper or a load balancer sees it.

use std::{net::SocketAddr, sync::Arc};

use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpStream,
};
use tokio_util::sync::CancellationToken;
use usher_runtime::net::{Incoming, Limits, bind};

use super::*;

struct Served {
    addr: SocketAddr,
    shutdown: CancellationToken,
    task: tokio::task::JoinHandle<()>,
}

async fn start(ready: impl Fn() -> Result<String, String> + Send + Sync + 'static) -> Served {
    let listener = bind("127.0.0.1:0".parse().unwrap()).await.unwrap();
    let addr = listener.local_addr().unwrap();
    let incoming = Incoming::start(listener, None, Limits::default());
    let state =
        HttpState { metrics: Metrics::new("1.0", "abc"), ready: Arc::new(ready), farm: "main".to_owned() };
    let shutdown = CancellationToken::new();
    let task = tokio::spawn(serve(incoming, state, shutdown.clone()));
    Served { addr, shutdown, task }
}

impl Served {
    async fn ask(&self, request: &str) -> String {
        let mut stream = TcpStream::connect(self.addr).await.unwrap();
        stream.write_all(request.as_bytes()).await.unwrap();
        let mut answer = Vec::new();
        // A server that refuses may close before everything is read.
        let _ = stream.read_to_end(&mut answer).await;
        String::from_utf8(answer).unwrap()
    }

    async fn get(&self, path: &str) -> String {
        self.ask(&format!("GET {path} HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n")).await
    }
}

#[tokio::test]
async fn a_scraper_gets_the_metrics_in_prometheus_form() {
    let answer = start(|| Ok(String::new())).await.get("/metrics").await;
    assert!(answer.starts_with("HTTP/1.1 200"), "{answer}");
    assert!(answer.contains("content-type: text/plain; version=0.0.4"), "{answer}");
    assert!(answer.contains("usher_coordinator_info{version=\"1.0\",commit=\"abc\"} 1"), "{answer}");
}

#[tokio::test]
async fn a_coordinator_whose_store_is_away_is_ready_and_says_so() {
    let server = start(|| Ok("etcd does not answer".to_owned())).await;
    let ready = server.get("/readyz").await;
    assert!(ready.starts_with("HTTP/1.1 200"), "{ready}");
    assert!(ready.ends_with("ready\netcd does not answer\n"), "{ready}");
}

#[tokio::test]
async fn a_coordinator_in_grace_is_healthy_and_not_ready_and_says_why() {
    let server = start(|| Err("in grace: heard 3 of 5 hosts".to_owned())).await;
    let health = server.get("/healthz").await;
    assert!(health.starts_with("HTTP/1.1 200") && health.ends_with("ok\n"), "{health}");
    let ready = server.get("/readyz").await;
    assert!(ready.starts_with("HTTP/1.1 503"), "{ready}");
    assert!(ready.ends_with("in grace: heard 3 of 5 hosts\n"), "{ready}");
}

#[tokio::test]
async fn what_is_not_there_is_404_and_a_wrong_method_405() {
    let server = start(|| Ok(String::new())).await;
    assert!(server.get("/").await.starts_with("HTTP/1.1 404"));
    let post =
        server.ask("POST /metrics HTTP/1.1\r\nhost: x\r\nconnection: close\r\ncontent-length: 0\r\n\r\n");
    assert!(post.await.starts_with("HTTP/1.1 405"));
}

#[tokio::test]
async fn heads_too_long_or_with_too_many_lines_are_refused_and_the_server_goes_on() {
    let server = start(|| Ok(String::new())).await;
    let long = server.get(&format!("/{}", "x".repeat(40_000))).await;
    assert!(long.is_empty() || long.starts_with("HTTP/1.1 4"), "{long}");
    let many = "a: b\r\n".repeat(100);
    let many = server.ask(&format!("GET /healthz HTTP/1.1\r\n{many}\r\n")).await;
    assert!(many.is_empty() || many.starts_with("HTTP/1.1 4"), "{many}");
    assert!(server.ask("nonsense\r\n\r\n").await.starts_with("HTTP/1.1 400"));
    assert!(server.get("/healthz").await.starts_with("HTTP/1.1 200"));
}

#[tokio::test]
async fn a_shutdown_ends_it_even_with_an_idle_connection_open() {
    let server = start(|| Ok(String::new())).await;
    let mut idle = TcpStream::connect(server.addr).await.unwrap();
    idle.write_all(b"GET /healthz HTTP/1.1\r\nhost: x\r\n\r\n").await.unwrap();
    let mut first = [0_u8; 12];
    idle.read_exact(&mut first).await.unwrap();
    assert_eq!(&first, b"HTTP/1.1 200");
    server.shutdown.cancel();
    server.task.await.unwrap();
    assert!(TcpStream::connect(server.addr).await.is_err(), "the port is closed");
}
