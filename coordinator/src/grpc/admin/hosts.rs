//! Hosts: drained and given back, and what an admin sets of one.

use tonic::Status;
use usher_proto::{error, fault, read, v1, write};
use usher_types::{Drain, HostId, HostMarks, HostMarksChange};

use super::{Admin, not_stored, to_its_end};
use crate::{
    farm_command::FarmCommand,
    grpc::{directory::not_one_host, invalid},
    store::{HostMarksRecord, Write},
    stored,
};

/// Longest reason of a drain, bytes.
const MAX_REASON_BYTES: usize = 1024;

impl Admin {
    pub(super) async fn drain_named(
        &self,
        author: String,
        msg: v1::DrainHostRequest,
    ) -> Result<v1::DrainHostResponse, Status> {
        let mode = read::drain_mode_or_default(msg.mode).map_err(invalid)?;
        let host = self.find_host(&msg.host)?;
        let reason = fault::cut(msg.reason, MAX_REASON_BYTES);
        let drain = Drain { mode, reason, author, no_reconnect: msg.no_reconnect };
        let drained = to_its_end(self.clone().drain(host.host_id.clone(), drain)).await?;
        drained.ok_or_else(|| not_one_host(&msg.host, &[]))?;
        let users = host.pool.members.cells[host.position].load().users();
        Ok(v1::DrainHostResponse { host_id: host.host_id.to_string(), host_name: host.name, users })
    }

    /// Drains a host. Absent: there is none of this id.
    async fn drain(self, host_id: HostId, drain: Drain) -> Result<Option<()>, Status> {
        let mark =
            self.ask(|answer| FarmCommand::DrainMark { host_id: host_id.clone(), drain, answer }).await?;
        let Some(mark) = mark else { return Ok(None) };
        let record = stored::drain_to_store(&mark, self.shared.clock.wall_unix_ms());
        self.store.put_drain(host_id.clone(), record).await.map_err(not_stored)?;
        let set =
            |answer| FarmCommand::SetDrain { host_id: host_id.clone(), mark: Some(mark.clone()), answer };
        self.ask(set).await?;
        self.shared.metrics.marked("drain");
        tracing::info!(%host_id, author = mark.drain.author, reason = mark.drain.reason, "host drained");
        Ok(Some(()))
    }

    pub(super) async fn undrain_named(
        &self,
        author: String,
        msg: v1::UndrainHostRequest,
    ) -> Result<v1::UndrainHostResponse, Status> {
        let host = self.find_host(&msg.host)?;
        let was_drained = to_its_end(self.clone().undrain(host.host_id.clone(), author)).await?;
        let host_id = host.host_id.to_string();
        Ok(v1::UndrainHostResponse { host_id, host_name: host.name, was_drained })
    }

    /// Ends a host's drain. Whether it was drained.
    async fn undrain(self, host_id: HostId, author: String) -> Result<bool, Status> {
        self.store.delete_drain(host_id.clone()).await.map_err(not_stored)?;
        let undrain = |answer| FarmCommand::SetDrain { host_id: host_id.clone(), mark: None, answer };
        let was_drained = self.ask(undrain).await?;
        self.shared.metrics.marked("undrain");
        tracing::info!(%host_id, author, was_drained, "host undrained");
        Ok(was_drained)
    }

    pub(super) async fn mark_named(
        &self,
        author: String,
        msg: v1::SetHostMarksRequest,
    ) -> Result<v1::SetHostMarksResponse, Status> {
        let dry_run = msg.dry_run;
        let (text, change) = read::host_marks_change(msg).map_err(|faults| error::invalid_fields(&faults))?;
        let host = self.find_host(&text)?;
        let marked = self.clone().mark(host.host_id.clone(), change, author, dry_run);
        let marks = to_its_end(marked).await?.ok_or_else(|| not_one_host(&text, &[]))?;
        Ok(v1::SetHostMarksResponse {
            host_id: host.host_id.to_string(),
            host_name: host.name,
            marks: Some(write::host_marks(&marks)),
        })
    }

    /// Changes what an admin has set of a host. What is set now. Absent: there is none of this id.
    async fn mark(
        self,
        host_id: HostId,
        change: HostMarksChange,
        author: String,
        dry_run: bool,
    ) -> Result<Option<HostMarks>, Status> {
        let _one_at_a_time = self.marking.lock().await;
        let ask = |answer| FarmCommand::MarksOf { host_id: host_id.clone(), answer };
        let Some(before) = self.ask(ask).await? else { return Ok(None) };
        let marks = change.apply_to(&before).map_err(|faults| error::invalid_fields(&faults))?;
        if dry_run || marks == before {
            return Ok(Some(marks));
        }
        let set_unix_ms = self.shared.clock.wall_unix_ms();
        let write = if marks.is_empty() {
            Write::DeleteHostMarks(host_id.clone())
        } else {
            let record = HostMarksRecord { marks, author: author.clone(), set_unix_ms };
            Write::PutHostMarks(host_id.clone(), record)
        };
        self.store.write(vec![write]).await.map_err(not_stored)?;
        self.ask(|answer| FarmCommand::SetMarks { host_id: host_id.clone(), marks, answer }).await?;
        self.shared.metrics.marked("host");
        tracing::info!(%host_id, author, ?marks, "marks of a host set");
        Ok(Some(marks))
    }
}
