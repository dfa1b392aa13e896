//! What a host says to the coordinator and hears from it: the wire alone, as anybody could write it.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use tokio::sync::mpsc;
use tokio_stream::wrappers::ReceiverStream;
use usher_integration_tests::{Client, hello};
use usher_proto::v1;
use usher_proto::v1::attach_request::Message as Said;
use usher_proto::v1::attach_response::Message as Heard;

use crate::scale::{CORES, REPORT_S, here};

/// Ended places are listed for so long.
const KEPT: Duration = Duration::from_secs(60);

/// The stream of one host, and the book of places that it keeps.
#[derive(Debug)]
pub(crate) struct Stream {
    said: mpsc::Sender<v1::AttachRequest>,
    heard: mpsc::Receiver<Heard>,
    incarnation_ms: u64,
    sequence: u64,
    tick: Option<u64>,
    pending: Vec<(v1::PendingPlace, Instant)>,
    ended: VecDeque<(v1::EndedPlace, Instant)>,
}

impl Stream {
    pub(crate) async fn open(client: &Client, name: &str) -> Self {
        let interval_ms = u32::try_from(here(REPORT_S).as_millis()).unwrap();
        let hello = v1::Hello { cores: Some(CORES), report_interval_ms: interval_ms, ..hello(name) };
        let incarnation_ms = hello.incarnation_ms;
        let (said, queue) = mpsc::channel(256);
        said.send(v1::AttachRequest { message: Some(Said::Hello(hello)) }).await.unwrap();
        let mut responses =
            client.agents.clone().attach(ReceiverStream::new(queue)).await.unwrap().into_inner();
        let (to_host, heard) = mpsc::channel(1024);
        tokio::spawn(async move {
            while let Ok(Some(response)) = responses.message().await {
                if let Some(message) = response.message
                    && to_host.send(message).await.is_err()
                {
                    return;
                }
            }
        });
        let (pending, ended) = (Vec::new(), VecDeque::new());
        Self { said, heard, incarnation_ms, sequence: 0, tick: None, pending, ended }
    }

    /// Takes in what was heard. Whether the book has changed.
    pub(crate) fn listen(&mut self) -> bool {
        let mut changed = false;
        while let Ok(heard) = self.heard.try_recv() {
            match heard {
                Heard::Tick(tick) => self.tick = Some(tick.tick),
                Heard::Ping(ping) => self.say(Said::Pong(v1::Pong { nonce: ping.nonce })),
                Heard::ExpectSession(v1::ExpectSession { place: Some(place), .. }) => {
                    self.pending.retain(|(known, _)| known.token != place.token);
                    self.pending.push((place, Instant::now()));
                    changed = true;
                }
                Heard::EndPlace(end) => changed |= self.end(|place| place.token == end.token, end.reason()),
                _ => {}
            }
        }
        changed
    }

    /// The session of a user has begun: it ends that user's place.
    pub(crate) fn arrived(&mut self, user: &str) {
        self.end(|place| place.user.as_deref() == Some(user), v1::EndReason::Session);
    }

    fn end(&mut self, is_meant: impl Fn(&v1::PendingPlace) -> bool, reason: v1::EndReason) -> bool {
        let Some(at) = self.pending.iter().position(|(place, _)| is_meant(place)) else { return false };
        let v1::PendingPlace { token, attempt, content_hash, pool, endpoint, .. } = self.pending.remove(at).0;
        let reason = reason.into();
        let ended = v1::EndedPlace { token, attempt, reason, ended_ago_ms: 0, content_hash, pool, endpoint };
        self.ended.push_back((ended, Instant::now()));
        true
    }

    /// Sends a report: what was measured, and the book.
    pub(crate) fn report(&mut self, measured: v1::Load) {
        while self.ended.front().is_some_and(|(_, at)| at.elapsed() > KEPT) {
            self.ended.pop_front();
        }
        let ms = |at: &Instant| u64::try_from(at.elapsed().as_millis()).unwrap();
        let pending = self.pending.iter().map(|(place, came)| v1::PendingPlace {
            left_ms: place.left_ms.saturating_sub(ms(came)),
            admitted: true,
            ..place.clone()
        });
        let ended =
            self.ended.iter().map(|(ended, at)| v1::EndedPlace { ended_ago_ms: ms(at), ..ended.clone() });
        self.sequence += 1;
        let load = v1::Load {
            sequence: self.sequence,
            incarnation_ms: self.incarnation_ms,
            tick_echo: self.tick,
            pending: pending.collect(),
            ended: ended.collect(),
            streams_held: 1,
            uptime_ms: Some(3_600_000),
            ..measured
        };
        self.say(Said::Load(load));
    }

    fn say(&self, message: Said) {
        // A stream that takes nothing gets the next report instead.
        let _ = self.said.try_send(v1::AttachRequest { message: Some(message) });
    }
}
