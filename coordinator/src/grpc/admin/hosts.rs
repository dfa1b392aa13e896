//! Hosts: drained and given back, and what an admin sets of one.

use tonic::Status;
use usher_placement::farm::DrainMark;
use usher_proto::{DrainKept, error, fault, read, v1, write};
use usher_types::{Drain, HostId, HostMarks, HostMarksChange};

use super::{Admin, not_stored, to_its_end};
use crate::{
    drains,
    farm_command::{Drains, FarmCommand},
    grpc::{directory::not_one_host, invalid, unavailable},
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
        let kept = drained.ok_or_else(|| not_one_host(&msg.host, &[]))?;
        let users = host.pool.members.cells[host.position].load().users();
        let host_id = host.host_id.to_string();
        Ok(v1::DrainHostResponse { host_id, host_name: host.name, users, kept: kept.into() })
    }

    /// Drains a host: by its own word if it is there, else by a mark. Absent: there is none of this id.
    async fn drain(self, host_id: HostId, drain: Drain) -> Result<Option<v1::DrainKept>, Status> {
        let _one_at_a_time = self.draining.of(&host_id).lock().await;
        let ask = |answer| FarmCommand::DrainMark { host_id: host_id.clone(), drain: drain.clone(), answer };
        let Some((mark, before)) = self.ask(ask).await? else { return Ok(None) };
        match drains::ask(&self.shared, &host_id, Some(drain.clone())).await {
            Some(Err(why)) => return Err(not_kept(&host_id, &why)),
            Some(Ok(kept)) => {
                self.marked_by_host(&host_id, kept, before).await?;
                self.shared.metrics.marked("drain");
                tracing::info!(%host_id, author = drain.author, reason = drain.reason, "host drained");
                return Ok(Some(v1::DrainKept::Host));
            }
            None => {}
        }
        let record = stored::drain_to_store(&mark, self.shared.clock.wall_unix_ms());
        let stored = self.store.put_drain(host_id.clone(), record).await.map_err(not_stored)?;
        let revision = stored.revision;
        let set = |answer| FarmCommand::SetDrain { host_id: host_id.clone(), mark, revision, answer };
        self.ask(set).await?;
        self.shared.metrics.marked("drain");
        tracing::info!(%host_id, author = drain.author, reason = drain.reason, "host marked as drained");
        Ok(Some(v1::DrainKept::Coordinators))
    }

    /// A host has kept, or ended, a drain of its own: an older mark of it says nothing any more.
    async fn marked_by_host(
        &self,
        host_id: &HostId,
        kept: DrainKept,
        mark: Option<DrainMark>,
    ) -> Result<(), Status> {
        if let Some(mark) = &mark {
            match drains::end_stored(&self.store, host_id, mark).await {
                Ok(ended) => {
                    if let Some(newer) = ended.instead {
                        let author = newer.author;
                        tracing::info!(%host_id, author, "a mark that was set meanwhile stays, and is offered to the host");
                    }
                }
                Err(error) => {
                    // It holds what the host holds too, and is offered to it again.
                    tracing::warn!(%error, %host_id, "a host keeps its drain, but the store has an older one too");
                    return Ok(());
                }
            }
        }
        let (host_id, holds) = (host_id.clone(), kept.holds.map(Box::new));
        let command = FarmCommand::DrainKept { host_id, holds, instead_of: mark.map(Box::new) };
        self.shared.farm.send(command).await.map_err(unavailable)
    }

    pub(super) async fn undrain_named(
        &self,
        author: String,
        msg: v1::UndrainHostRequest,
    ) -> Result<v1::UndrainHostResponse, Status> {
        let host = self.find_host(&msg.host)?;
        let kept = to_its_end(self.clone().undrain(host.host_id.clone(), author)).await?;
        Ok(v1::UndrainHostResponse {
            host_id: host.host_id.to_string(),
            host_name: host.name,
            was_drained: kept.before.is_some(),
            ended: kept.before.as_ref().map(write::drain),
            holds: kept.holds.as_ref().map(write::drain),
        })
    }

    /// Ends a host's drain, whoever set it: the mark, and what the host keeps itself. The drain that ended, and what holds: a
    /// mark that another coordinator has set in the place of the one that was seen here is the last word, and stays.
    async fn undrain(self, host_id: HostId, author: String) -> Result<DrainKept, Status> {
        let _one_at_a_time = self.draining.of(&host_id).lock().await;
        let known = self.ask(|answer| FarmCommand::DrainsOf { host_id: host_id.clone(), answer }).await?;
        let Drains { mark, own, may_be_unheard } = known;
        // A store that is away need not answer for a mark that is not there.
        if let Some(mark) = &mark
            && let Some(newer) = self.end_mark(&host_id, mark).await?
        {
            tracing::warn!(
                %host_id, author, newer_author = newer.author, newer_reason = newer.reason,
                "a host was drained anew while its drain before was ended: that one stays"
            );
            return Ok(DrainKept { before: Some(mark.drain.clone()), holds: Some(newer) });
        }
        let keeps_drain = self.shared.links.get(&host_id).is_some_and(|link| link.keeps_drain());
        let mut ended = DrainKept { before: mark.map(|mark| mark.drain), holds: own.clone() };
        match drains::ask(&self.shared, &host_id, None).await {
            Some(Err(why)) => return Err(not_kept(&host_id, &why)),
            Some(Ok(kept)) => {
                ended = DrainKept { before: ended.before.or(kept.before.clone()), ..kept.clone() };
                self.marked_by_host(&host_id, kept, None).await?;
            }
            None if keeps_drain => {
                let seconds = drains::ANSWER_WITHIN.as_secs();
                let message =
                    format!("host {host_id} does not say within {seconds} s whether its drain has ended");
                return Err(Status::unavailable(message));
            }
            None if ended.before.is_none() && (own.is_some() || may_be_unheard) => {
                return Err(out_of_reach(&host_id, own.as_ref()));
            }
            None => {}
        }
        self.shared.metrics.marked("undrain");
        let was_drained = ended.before.is_some();
        tracing::info!(%host_id, author, was_drained, "host undrained");
        Ok(ended)
    }

    /// Ends the mark that was seen of a host. What was set in its place meanwhile.
    async fn end_mark(&self, host_id: &HostId, mark: &DrainMark) -> Result<Option<Drain>, Status> {
        let ended = drains::end_stored(&self.store, host_id, mark).await.map_err(not_stored)?;
        if ended.instead.is_some() {
            // It is in force as soon as it is followed; until then the one before it holds the host drained.
            return Ok(ended.instead);
        }
        let (host_id, mark, revision) = (host_id.clone(), Box::new(mark.clone()), ended.revision);
        let now = self.ask(|answer| FarmCommand::EndDrain { host_id, mark, revision, answer }).await?;
        Ok(now.map(|now| now.drain))
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
        let revision = self.store.write(vec![write]).await.map_err(not_stored)?.revision;
        let set = |answer| FarmCommand::SetMarks { host_id: host_id.clone(), marks, revision, answer };
        self.ask(set).await?;
        self.shared.metrics.marked("host");
        tracing::info!(%host_id, author, ?marks, "marks of a host set");
        Ok(Some(marks))
    }
}

/// The host's disk refused: nothing has changed, and somebody must look at that disk.
fn not_kept(host_id: &HostId, why: &str) -> Status {
    let message = format!("host {host_id} could not keep it, its drain is as it was: {why}");
    Status::failed_precondition(message)
}

/// A drain that lies on a host is ended there.
fn out_of_reach(host_id: &HostId, own: Option<&Drain>) -> Status {
    let what = match own {
        Some(own) if own.author.is_empty() => "was drained and keeps that itself".to_owned(),
        Some(own) => format!("was drained by {} and keeps that itself", own.author),
        None => "may have been drained through another coordinator".to_owned(),
    };
    Status::unavailable(format!(
        "host {host_id} {what}, but it cannot be asked through this coordinator: undrain it through one that it is connected \
         to, or on the host (usher-agent undrain)"
    ))
}
