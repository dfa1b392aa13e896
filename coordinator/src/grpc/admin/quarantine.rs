//! Rows of the store that could not be read: looked at, and forgotten.

use tonic::Status;
use usher_proto::{fault, v1};

use super::{Admin, not_stored};
use crate::{grpc::placement::timestamp, store::Aside};

/// Of a row's value, bytes: enough to see what it is.
const MAX_VALUE_BYTES: usize = 4096;
/// All values of an answer together, bytes: below the 4 MiB that a client takes. Rows after that come without one.
const MAX_VALUES_BYTES: usize = 2 * 1024 * 1024;

impl Admin {
    pub(super) async fn quarantined(&self) -> Result<v1::ListQuarantineResponse, Status> {
        let mut rows = self.store.quarantine().await.map_err(unreadable)?;
        rows.sort_by(|a, b| (&a.table, &a.key).cmp(&(&b.table, &b.key)));
        let mut left = MAX_VALUES_BYTES;
        Ok(v1::ListQuarantineResponse { rows: rows.into_iter().map(|row| shown(row, &mut left)).collect() })
    }

    pub(super) async fn drop_named(
        &self,
        author: &str,
        msg: v1::DropQuarantinedRequest,
    ) -> Result<v1::DropQuarantinedResponse, Status> {
        let v1::DropQuarantinedRequest { table, key } = msg;
        let was_there = self.store.drop_quarantined(&table, &key).await.map_err(not_stored)?;
        if was_there {
            tracing::warn!(author, table, key, "a row in quarantine was forgotten");
        }
        Ok(v1::DropQuarantinedResponse { was_there })
    }
}

fn unreadable(error: crate::store::StoreError) -> Status {
    tracing::error!(%error, "cannot read the quarantine");
    Status::unavailable(format!("the quarantine cannot be read: {error}"))
}

fn shown(row: Aside, left: &mut usize) -> v1::QuarantinedRow {
    let value = fault::cut(String::from_utf8_lossy(&row.value).into_owned(), MAX_VALUE_BYTES.min(*left));
    *left -= value.len();
    v1::QuarantinedRow {
        table: row.table,
        key: row.key,
        why: row.why,
        since: row.since_unix_ms.map(timestamp),
        is_shared: row.revision.is_some(),
        value,
    }
}
