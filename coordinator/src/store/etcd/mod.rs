//! The shared store in a cluster of etcd.
//!
//! Our own client of its API v3. All calls go through one connection to one member; a call that fails leaves it, and the next one
//! tries the members after it. Every call has an end. What the transport says of a broken call differs from case to case
//! (unavailable, cancelled, a deadline), so all of it means the same: nobody knows.
//!
//! Restarts: a broken watch says so, and its user begins another one where it ended. A lease that a member has forgotten, or
//! that ran out while nobody could be reached, is granted anew with what was announced.

mod lease;
mod link;
#[cfg(test)]
mod tests;
mod watch;

use std::{path::PathBuf, time::Duration};

use usher_proto::etcd::{self, compare, request_op, response_op};
use usher_runtime::tls::TlsFiles;

use self::{lease::Announced, link::Links, watch::EtcdWatch};
use super::shared_store::{
    Listing, Newest, SharedError, SharedRow, SharedStore, Transacted, Transaction, Watch,
};

/// Rows of one answer of a list. A few hundred kilobytes, as rows are.
const PAGE: i64 = 500;
/// Operations of one transaction, and of each of those inside it: etcd takes 128 in all on the way to the innermost.
const OPERATIONS: usize = 60;
/// Bytes of all values of one transaction: etcd takes 1.5 MiB by default.
const MAX_TRANSACTION_BYTES: usize = 1_400_000;

/// How etcd is reached.
#[derive(Clone, PartialEq, Debug)]
pub struct EtcdOptions {
    /// Its members, `host:port`, or with `http://` or `https://` in front.
    pub endpoints: Vec<String>,
    /// What all keys begin with; ends with a slash.
    pub prefix: String,
    /// Certificate files. Absent: plain, on loopback only.
    pub tls: Option<TlsFiles>,
    /// A user's name, and the file of the password.
    pub login: Option<(String, PathBuf)>,
    /// Longest time to connect to a member.
    pub connect_timeout: Duration,
    /// Longest time for one call.
    pub call_timeout: Duration,
}

/// A cluster of etcd.
#[derive(Debug)]
pub struct EtcdStore {
    links: Links,
    prefix: Vec<u8>,
    announced: tokio::sync::Mutex<Announced>,
}

impl EtcdStore {
    /// The store, which is first reached when it is first used.
    pub fn new(options: EtcdOptions) -> Self {
        let prefix = options.prefix.clone().into_bytes();
        Self { links: Links::new(options), prefix, announced: tokio::sync::Mutex::default() }
    }

    fn key(&self, key: &str) -> Vec<u8> {
        [&self.prefix, key.as_bytes()].concat()
    }

    /// A key as it is known here. Absent: it is none of ours.
    fn own_key(&self, key: &[u8]) -> Option<String> {
        let own = key.strip_prefix(self.prefix.as_slice())?;
        std::str::from_utf8(own).ok().map(str::to_owned)
    }

    fn row(&self, kv: etcd::KeyValue) -> Option<SharedRow> {
        let key = self.own_key(&kv.key)?;
        Some(SharedRow { key, value: kv.value, revision: unsigned(kv.mod_revision) })
    }

    fn request(&self, transaction: &Transaction) -> Result<etcd::TxnRequest, SharedError> {
        let mut compare: Vec<etcd::Compare> =
            transaction.expected.iter().map(|(key, at)| unchanged(self.key(key), Vec::new(), *at)).collect();
        if let Some(revision) = transaction.unchanged_since {
            let end = end_of(&self.prefix);
            compare.push(older_than(self.prefix.clone(), end, revision.saturating_add(1)));
        }
        let bytes: usize = transaction.changes.values().flatten().map(Vec::len).sum();
        if bytes > MAX_TRANSACTION_BYTES {
            let why =
                format!("{bytes} bytes at once are more than the {MAX_TRANSACTION_BYTES} that etcd takes");
            return Err(SharedError::Refused(why));
        }
        let changes: Vec<request_op::Request> = transaction
            .changes
            .iter()
            .map(|(key, value)| match value {
                Some(value) => {
                    let put = etcd::PutRequest { key: self.key(key), value: value.clone(), lease: 0 };
                    request_op::Request::RequestPut(put)
                }
                None => {
                    let delete = etcd::DeleteRangeRequest { key: self.key(key), range_end: Vec::new() };
                    request_op::Request::RequestDeleteRange(delete)
                }
            })
            .collect();
        let reads = transaction.expected.keys().map(|key| {
            let range = etcd::RangeRequest { key: self.key(key), ..etcd::RangeRequest::default() };
            request_op::Request::RequestRange(range)
        });
        Ok(etcd::TxnRequest { compare, success: nested(changes)?, failure: reads.map(operation).collect() })
    }
}

fn operation(request: request_op::Request) -> etcd::RequestOp {
    etcd::RequestOp { request: Some(request) }
}

/// More operations than etcd takes side by side are put into transactions inside the transaction.
fn nested(changes: Vec<request_op::Request>) -> Result<Vec<etcd::RequestOp>, SharedError> {
    if changes.len() <= OPERATIONS {
        return Ok(changes.into_iter().map(operation).collect());
    }
    if changes.len() > OPERATIONS * OPERATIONS {
        let why = format!("{} changes at once are more than etcd takes", changes.len());
        return Err(SharedError::Refused(why));
    }
    let part = |changes: &[request_op::Request]| {
        let success = changes.iter().cloned().map(operation).collect();
        let inner = etcd::TxnRequest { success, ..etcd::TxnRequest::default() };
        operation(request_op::Request::RequestTxn(inner))
    };
    Ok(changes.chunks(OPERATIONS).map(part).collect())
}

fn unchanged(key: Vec<u8>, range_end: Vec<u8>, revision: u64) -> etcd::Compare {
    compare_revision(key, range_end, compare::CompareResult::Equal, revision)
}

fn older_than(key: Vec<u8>, range_end: Vec<u8>, revision: u64) -> etcd::Compare {
    compare_revision(key, range_end, compare::CompareResult::Less, revision)
}

fn compare_revision(
    key: Vec<u8>,
    range_end: Vec<u8>,
    result: compare::CompareResult,
    revision: u64,
) -> etcd::Compare {
    etcd::Compare {
        result: result.into(),
        target: compare::CompareTarget::Mod.into(),
        key,
        range_end,
        target_union: Some(compare::TargetUnion::ModRevision(signed(revision))),
    }
}

/// The first key after all that begin with `prefix`.
fn end_of(prefix: &[u8]) -> Vec<u8> {
    let mut end = prefix.to_vec();
    while let Some(last) = end.pop() {
        if let Some(next) = last.checked_add(1) {
            end.push(next);
            return end;
        }
    }
    // Everything.
    vec![0]
}

fn unsigned(value: i64) -> u64 {
    u64::try_from(value).unwrap_or(0)
}

fn signed(value: u64) -> i64 {
    i64::try_from(value).unwrap_or(i64::MAX)
}

fn cluster_and_revision(header: Option<&etcd::ResponseHeader>) -> Result<(u64, u64), SharedError> {
    let header = header.ok_or_else(|| SharedError::Away("an answer without a header".to_owned()))?;
    Ok((header.cluster_id, unsigned(header.revision)))
}

#[tonic::async_trait]
impl SharedStore for EtcdStore {
    async fn list(&self) -> Result<Listing, SharedError> {
        let mut listing = Listing::default();
        let (mut next, end) = (self.prefix.clone(), end_of(&self.prefix));
        loop {
            let range = etcd::RangeRequest {
                key: next,
                range_end: end.clone(),
                limit: PAGE,
                // All pages of one state.
                revision: signed(listing.revision),
                ..etcd::RangeRequest::default()
            };
            let page = self.links.range(range).await?;
            if listing.revision == 0 {
                (listing.cluster, listing.revision) = cluster_and_revision(page.header.as_ref())?;
            }
            let last = page.kvs.last().map(|kv| kv.key.clone());
            listing.rows.extend(page.kvs.into_iter().filter_map(|kv| self.row(kv)));
            match last.filter(|_| page.more) {
                // The key right after it.
                Some(last) => next = [last.as_slice(), &[0]].concat(),
                None => return Ok(listing),
            }
        }
    }

    async fn transact(&self, transaction: &Transaction) -> Result<Transacted, SharedError> {
        let answer = self.links.txn(self.request(transaction)?).await?;
        if answer.succeeded {
            return cluster_and_revision(answer.header.as_ref())
                .map(|(_, revision)| Transacted::Done(revision));
        }
        let read = answer.responses.into_iter().map(|response| match response.response {
            Some(response_op::Response::ResponseRange(range)) => {
                range.kvs.into_iter().next().and_then(|kv| self.row(kv))
            }
            _ => None,
        });
        Ok(Transacted::Conflict(transaction.expected.keys().cloned().zip(read).collect()))
    }

    async fn watch(&self, revision: u64) -> Result<Box<dyn Watch>, SharedError> {
        let watch = EtcdWatch::begin(&self.links, self.prefix.clone(), revision).await?;
        Ok(Box::new(watch))
    }

    async fn newest(&self, below: &str) -> Result<Newest, SharedError> {
        let key = self.key(below);
        let range_end = end_of(&key);
        let range = etcd::RangeRequest { key, range_end, keys_only: true, ..etcd::RangeRequest::default() };
        let answer = self.links.range(range).await?;
        let (cluster, revision) = cluster_and_revision(answer.header.as_ref())?;
        let row_revision = answer.kvs.iter().map(|kv| unsigned(kv.mod_revision)).max().unwrap_or(0);
        Ok(Newest { cluster, revision, row_revision })
    }

    async fn announce(&self, key: &str, value: &[u8], lives_for: Duration) -> Result<(), SharedError> {
        let mut announced = self.announced.lock().await;
        announced.announce(&self.links, self.key(key), value, lives_for).await
    }

    async fn withdraw(&self) {
        self.announced.lock().await.withdraw(&self.links).await;
    }

    fn kind(&self) -> &'static str {
        "etcd"
    }
}
