//! A name server that says what a test tells it to. It stands for the farm's real one: a few lines that answer SRV
//! questions over UDP on loopback, and nothing else.

#![allow(dead_code, reason = "each test file uses its own part")]
#![allow(clippy::unwrap_used, reason = "a test's tool fails as a test does")]

use std::net::SocketAddr;
use std::sync::{Arc, Mutex};

use tokio::net::UdpSocket;
use tokio::task::JoinHandle;

/// A target of a service: its name and port.
pub(crate) type Target = (String, u16);

#[derive(Debug)]
struct Zone {
    targets: Vec<Target>,
    ttl_s: u32,
    /// 0: an answer; 2: SERVFAIL; 3: NXDOMAIN.
    code: u8,
    asked: usize,
}

/// A name server on loopback. Dropping it ends it: nobody answers then.
#[derive(Debug)]
pub(crate) struct Dns {
    pub(crate) address: SocketAddr,
    zone: Arc<Mutex<Zone>>,
    server: JoinHandle<()>,
}

impl Drop for Dns {
    fn drop(&mut self) {
        self.server.abort();
    }
}

impl Dns {
    pub(crate) async fn start(targets: &[Target], ttl_s: u32) -> Self {
        let socket = UdpSocket::bind("127.0.0.1:0").await.unwrap();
        let address = socket.local_addr().unwrap();
        let zone = Zone { targets: targets.to_vec(), ttl_s, code: 0, asked: 0 };
        let zone = Arc::new(Mutex::new(zone));
        let server = tokio::spawn(serve(socket, zone.clone()));
        Self { address, zone, server }
    }

    pub(crate) fn says(&self, targets: &[Target]) {
        let mut zone = self.zone.lock().unwrap();
        (zone.targets, zone.code) = (targets.to_vec(), 0);
    }

    pub(crate) fn fails_with(&self, code: u8) {
        self.zone.lock().unwrap().code = code;
    }

    pub(crate) fn asked(&self) -> usize {
        self.zone.lock().unwrap().asked
    }
}

async fn serve(socket: UdpSocket, zone: Arc<Mutex<Zone>>) {
    let mut question = [0; 2048];
    while let Ok((length, peer)) = socket.recv_from(&mut question).await {
        let answer = zone.lock().unwrap().answer(&question[..length]);
        if let Some(answer) = answer {
            socket.send_to(&answer, peer).await.unwrap();
        }
    }
}

impl Zone {
    fn answer(&mut self, question: &[u8]) -> Option<Vec<u8>> {
        let name = question.get(12..)?;
        let end = 12 + name.iter().position(|byte| *byte == 0)? + 5;
        self.asked += 1;
        let targets: &[Target] = if self.code == 0 { &self.targets } else { &[] };
        let mut answer = question.get(..2)?.to_vec();
        // A recursive answer; one question, so many answers, nothing else.
        answer.extend([0x81, 0x80 | self.code, 0, 1]);
        answer.extend(u16::try_from(targets.len()).unwrap().to_be_bytes());
        answer.extend([0, 0, 0, 0]);
        answer.extend(question.get(12..end)?);
        for (name, port) in targets {
            let mut data = vec![0, 0, 0, 0];
            data.extend(port.to_be_bytes());
            for label in name.split('.').filter(|label| !label.is_empty()) {
                data.push(u8::try_from(label.len()).unwrap());
                data.extend(label.bytes());
            }
            data.push(0);
            // The name of the question, SRV, IN.
            answer.extend([0xc0, 12, 0, 33, 0, 1]);
            answer.extend(self.ttl_s.to_be_bytes());
            answer.extend(u16::try_from(data.len()).unwrap().to_be_bytes());
            answer.extend(data);
        }
        Some(answer)
    }
}
