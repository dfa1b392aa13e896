//! Changes as etcd tells them.

use tokio::{sync::mpsc, time::timeout};
use tokio_stream::wrappers::ReceiverStream;
use tonic::Streaming;
use usher_proto::etcd::{self, event::EventType, watch_request::RequestUnion};

use super::{
    end_of,
    link::{Link, Links, judge},
    signed, unsigned,
};
use crate::store::shared_store::{RowChange, SharedError, Watch, Watched};

/// A watch of all keys of a farm.
pub(super) struct EtcdWatch {
    prefix: Vec<u8>,
    answers: Streaming<etcd::WatchResponse>,
    /// The stream lives as long as its requests may.
    _requests: mpsc::Sender<etcd::WatchRequest>,
    _link: Link,
}

impl EtcdWatch {
    /// Every change after `revision`.
    pub(super) async fn begin(links: &Links, prefix: Vec<u8>, revision: u64) -> Result<Self, SharedError> {
        let link = links.link().await?;
        let create = etcd::WatchCreateRequest {
            range_end: end_of(&prefix),
            key: prefix.clone(),
            start_revision: signed(revision.saturating_add(1)),
            progress_notify: true,
            fragment: true,
            ..etcd::WatchCreateRequest::default()
        };
        let (requests, sent) = mpsc::channel(1);
        let create = etcd::WatchRequest { request_union: Some(RequestUnion::CreateRequest(create)) };
        let begin = async {
            // The receiver is held by the stream below.
            let _ = requests.send(create).await;
            let request = link.request(ReceiverStream::new(sent));
            let mut answers = link.watch().watch(request).await?.into_inner();
            let first = answers.message().await?;
            Ok::<_, tonic::Status>((first, answers))
        };
        let begun = match timeout(links.call_timeout(), begin).await {
            Ok(Ok(begun)) => Ok(begun),
            Ok(Err(status)) => Err(judge(&status)),
            Err(_elapsed) => Err(SharedError::Away("no answer to a watch".to_owned())),
        };
        let (first, answers) = match begun {
            Ok(begun) => begun,
            Err(error) => {
                links.leave(&link).await;
                return Err(error);
            }
        };
        match first {
            Some(first) if first.canceled => Err(cancelled(&first)),
            Some(first) if first.created => Ok(Self { prefix, answers, _requests: requests, _link: link }),
            _ => Err(SharedError::Away("the watch was not begun".to_owned())),
        }
    }

    fn change(&self, event: etcd::Event) -> Option<RowChange> {
        let is_gone = event.r#type() == EventType::Delete;
        let kv = event.kv?;
        let key = std::str::from_utf8(kv.key.strip_prefix(self.prefix.as_slice())?).ok()?.to_owned();
        Some(RowChange { key, value: (!is_gone).then_some(kv.value), revision: unsigned(kv.mod_revision) })
    }
}

fn cancelled(answer: &etcd::WatchResponse) -> SharedError {
    let why = answer.cancel_reason.clone();
    if why.contains("permission denied") {
        SharedError::Refused(why)
    } else {
        SharedError::Away(format!("the watch was cancelled: {why}"))
    }
}

#[tonic::async_trait]
impl Watch for EtcdWatch {
    async fn next(&mut self) -> Result<Watched, SharedError> {
        loop {
            let answer = match self.answers.message().await {
                Ok(Some(answer)) => answer,
                Ok(None) => return Err(SharedError::Away("the watch ended".to_owned())),
                Err(status) => return Err(judge(&status)),
            };
            if answer.compact_revision > 0 {
                return Ok(Watched::Compacted);
            }
            if answer.canceled {
                return Err(cancelled(&answer));
            }
            if answer.created {
                continue;
            }
            // The header of a message with events may be of a later state than they are; only of one without it is true that
            // all before was told.
            let last = match answer.events.last() {
                Some(event) => event.kv.as_ref().map(|kv| unsigned(kv.mod_revision)),
                None => answer.header.as_ref().map(|header| unsigned(header.revision)),
            };
            let complete_to = last.filter(|_| !answer.fragment);
            let changes = answer.events.into_iter().filter_map(|event| self.change(event)).collect();
            return Ok(Watched::Changes { changes, complete_to });
        }
    }
}
