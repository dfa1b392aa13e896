//! What does a port say to somebody who speaks another language?

use std::net::SocketAddr;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use crate::wait::LONG;

/// An HTTP answer.
#[derive(Debug, Clone)]
pub struct HttpAnswer {
    /// 200, 503, ...
    pub status: u16,
    /// All header lines, as they came.
    pub head: String,
    /// The body.
    pub body: String,
}

/// `GET path` over HTTP/1.1.
///
/// # Panics
/// If nobody answers, or not with HTTP.
pub async fn http_get(address: SocketAddr, path: &str) -> HttpAnswer {
    let request = format!("GET {path} HTTP/1.1\r\nHost: {address}\r\nConnection: close\r\n\r\n");
    let answer = String::from_utf8(raw_exchange(address, request.as_bytes()).await).unwrap();
    let (head, body) = answer.split_once("\r\n\r\n").unwrap_or_else(|| panic!("no HTTP answer: {answer:?}"));
    let status = head.split(' ').nth(1).and_then(|status| status.parse().ok());
    let chunked = head.to_ascii_lowercase().contains("transfer-encoding: chunked");
    let body = if chunked { unchunked(body) } else { body.to_owned() };
    HttpAnswer { status: status.unwrap_or_else(|| panic!("no status: {head}")), head: head.to_owned(), body }
}

fn unchunked(mut rest: &str) -> String {
    let mut body = String::new();
    while let Some((size, after)) = rest.split_once("\r\n") {
        let size = usize::from_str_radix(size.trim(), 16).unwrap();
        if size == 0 {
            break;
        }
        body.push_str(&after[..size]);
        rest = after[size..].trim_start_matches("\r\n");
    }
    body
}

/// Sends bytes and reads until the other side closes.
///
/// # Panics
/// If nobody listens, or the other side neither closes nor ends its answer in time.
pub async fn raw_exchange(address: SocketAddr, bytes: &[u8]) -> Vec<u8> {
    let exchange = async {
        let mut stream = TcpStream::connect(address).await.unwrap();
        // The other side may close before it has read everything.
        let _ = stream.write_all(bytes).await;
        let mut answer = Vec::new();
        let _ = stream.read_to_end(&mut answer).await;
        answer
    };
    tokio::time::timeout(LONG, exchange).await.unwrap_or_else(|_| panic!("{address} does not close"))
}

/// The sum of a series over all its labels, in a page of `/metrics`; or one of them, as in `name{kind="load"}`. Absent:
/// there is none of that name.
///
/// # Panics
/// If a value is no number.
pub fn metric(page: &str, name: &str) -> Option<f64> {
    let of_it = |line: &&str| line.strip_prefix(name).is_some_and(|rest| rest.starts_with(['{', ' ']));
    let value = |line: &str| -> f64 { line.rsplit(' ').next().unwrap().parse().unwrap() };
    page.lines().filter(of_it).map(value).reduce(|a, b| a + b)
}
