//! What was decided lately: by user, by host, by time. What a decision came from is explained by its id.

use tonic::Status;
use usher_proto::{error, read, v1};

use crate::{
    grpc::placement::{redirect, timestamp},
    history::{KeptDecision, ListFilter, retention},
    placing::wire_reason,
    shared::Shared,
};

/// The decisions that a request asks for. One that names a host which is gone finds what was decided of it, so a name
/// that nobody bears is no error.
pub(super) async fn list(
    shared: &Shared,
    msg: v1::ListDecisionsRequest,
) -> Result<v1::ListDecisionsResponse, Status> {
    let wanted = read::list_decisions(msg).map_err(|faults| error::invalid_fields(&faults))?;
    let now = shared.now();
    let filter = ListFilter {
        user: wanted.user,
        host: wanted.host,
        pool: wanted.pool,
        not_before: wanted.since.map(|since| now.before(since)),
        refused_only: wanted.refused_only,
        limit: wanted.limit,
    };
    let listed = shared.history.list(filter).await;
    Ok(v1::ListDecisionsResponse {
        decisions: listed.decisions.iter().map(info).collect(),
        truncated: listed.truncated,
        retention: retention(),
    })
}

fn info(kept: &KeptDecision) -> v1::DecisionInfo {
    let headline = &kept.headline;
    let chosen = headline.answered.as_ref().ok();
    let reason = chosen.map_or(v1::PlacementReason::Unspecified, |chosen| wire_reason(chosen.reason));
    let flags = chosen.map(|chosen| chosen.flags.names().map(str::to_owned).collect());
    v1::DecisionInfo {
        decision_id: headline.id.to_string(),
        decided_at: Some(timestamp(headline.decided_unix_ms)),
        pool: headline.pool.to_string(),
        gateway: headline.token.gateway.to_string(),
        request_id: headline.token.request_id.to_string(),
        user: headline.user.map(|user| user.to_string()),
        resource: headline.resource.as_ref().map(ToString::to_string),
        host_id: chosen.map(|chosen| chosen.host_id.to_string()),
        host_name: chosen.map(|chosen| chosen.host_name.to_string()),
        reason: reason.into(),
        flags: flags.unwrap_or_default(),
        refused_reason: headline
            .answered
            .as_ref()
            .err()
            .map(|reason| (*reason).to_owned())
            .unwrap_or_default(),
        reduced: kept.is_reduced(),
        redirect: headline.redirect.as_ref().map(redirect),
        dry_run: headline.dry_run,
    }
}
