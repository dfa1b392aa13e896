//! A row that lives as long as this coordinator.

use std::time::Duration;

use usher_proto::etcd::{self, request_op};

use super::{link::Links, operation};
use crate::store::shared_store::SharedError;

/// What was announced, and under which lease.
#[derive(Debug, Default)]
pub(super) struct Announced {
    lease: Option<i64>,
    value: Vec<u8>,
}

impl Announced {
    pub(super) async fn announce(
        &mut self,
        links: &Links,
        key: Vec<u8>,
        value: &[u8],
        lives_for: Duration,
    ) -> Result<(), SharedError> {
        if let Some(lease) = self.lease
            && (links.keep_alive(lease).await? <= 0)
        {
            self.lease = None;
        }
        if self.lease.is_some() && self.value == value {
            return Ok(());
        }
        let lease = match self.lease {
            Some(lease) => lease,
            None => {
                let ttl_s = i64::try_from(lives_for.as_secs()).unwrap_or(i64::MAX).max(1);
                links.grant(ttl_s).await?.id
            }
        };
        let put = etcd::PutRequest { key, value: value.to_vec(), lease };
        let success = vec![operation(request_op::Request::RequestPut(put))];
        links.txn(etcd::TxnRequest { success, ..etcd::TxnRequest::default() }).await?;
        (self.lease, self.value) = (Some(lease), value.to_vec());
        Ok(())
    }

    /// Ends the lease, and the row with it. If nobody answers, it ends by itself.
    pub(super) async fn withdraw(&mut self, links: &Links) {
        if let Some(lease) = self.lease.take() {
            let _ = links.revoke(lease).await;
        }
    }
}
