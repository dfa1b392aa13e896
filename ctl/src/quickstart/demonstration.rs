//! What is shown of the farm: its hosts, one placement, and why.

use std::net::SocketAddr;
use std::path::Path;
use std::time::Duration;

use anyhow::Context as _;
use serde::Serialize;
use tokio::time::Instant;
use usher_proto::v1;
use usher_proto::v1::placement_service_client::PlacementServiceClient;
use uuid::Uuid;

use super::POOL;
use super::farm::{Listening, coordinator};
use crate::commands::{explain, hosts, place};
use crate::failure::Failure;
use crate::output::text::clean;

/// Who is placed.
const USER: &str = "alice";

/// The hosts, the placement and its explanation.
#[derive(Debug)]
pub(super) struct Demonstration {
    hosts: v1::ListHostsResponse,
    request_id: String,
    placement: v1::Placement,
    explanation: v1::Explanation,
}

/// The same for scripts.
#[derive(Debug, Serialize)]
pub(super) struct Document<'a> {
    hosts: &'a [v1::HostInfo],
    placement: &'a v1::Placement,
    explanation: &'a v1::Explanation,
}

impl Demonstration {
    /// Places a user and asks why.
    ///
    /// # Errors
    /// If the coordinator says no, or nothing.
    pub(super) async fn make(
        address: SocketAddr,
        hosts: v1::ListHostsResponse,
        deadline: Instant,
    ) -> Result<Self, Failure> {
        let request = v1::PlaceRequest {
            request_id: Uuid::new_v4().to_string(),
            attempt: 1,
            pool: POOL.to_owned(),
            user: Some(USER.to_owned()),
            ..Default::default()
        };
        let placement = place_until(address, &request, deadline).await?;
        let decision_id = placement.decision_id.clone();
        let response = coordinator(address)
            .call("explaining the placement", async |channel, call| {
                let request = v1::ExplainRequest { decision_id: decision_id.clone() };
                PlacementServiceClient::new(channel).explain(call.request(request)).await
            })
            .await?;
        let explanation = response.explanation.context("the coordinator's answer holds no explanation")?;
        Ok(Self { hosts, request_id: request.request_id, placement, explanation })
    }

    /// For scripts.
    pub(super) fn document(&self) -> Document<'_> {
        Document { hosts: &self.hosts.hosts, placement: &self.placement, explanation: &self.explanation }
    }

    /// For people.
    pub(super) fn page(&self) -> String {
        format!(
            "THE FARM\n\n{}\n\nA PLACE FOR {USER}\n\n{}\n\nWHY THERE\n\n{}\n",
            hosts::table(&self.hosts),
            place::page(&self.request_id, Some(&self.placement)),
            explain::page(&self.explanation)
        )
    }
}

/// A coordinator that has just started may ask to come again: so a login is repeated, with the same id.
async fn place_until(
    address: SocketAddr,
    request: &v1::PlaceRequest,
    deadline: Instant,
) -> Result<v1::Placement, Failure> {
    let coordinator = coordinator(address);
    loop {
        let answer = coordinator
            .call("placing a user", async |channel, call| {
                PlacementServiceClient::new(channel).place(call.request(request.clone())).await
            })
            .await;
        match answer {
            Ok(response) => {
                return Ok(response.placement.context("the coordinator's answer holds no host")?);
            }
            Err(Failure::Refused(refusal)) if Instant::now() < deadline && refusal.retry_after.is_some() => {
                let after = refusal.retry_after.unwrap_or_default();
                tokio::time::sleep(after.min(Duration::from_secs(1))).await;
            }
            Err(failure) => return Err(failure),
        }
    }
}

/// What to type next.
pub(super) fn how_to_go_on(listening: &Listening, demonstration: &Demonstration, folder: &Path) -> String {
    let program = program();
    let ask = format!("{program} --coordinator {}", listening.grpc);
    let decision = clean(&demonstration.placement.decision_id);
    let host = clean(&demonstration.placement.host_name);
    let mut lines = vec![
        "HOW TO GO ON".to_owned(),
        String::new(),
        "The farm serves until Ctrl-C. In another terminal:".to_owned(),
        format!("  {ask} hosts"),
        format!("  {ask} host show {host}"),
        format!("  {ask} place {POOL} --user bob"),
        format!("  {ask} explain {decision}"),
        format!("  {ask} drain {host}"),
        format!("  {ask} pool apply {POOL} --set max_users=50"),
    ];
    if let Some(http) = listening.http {
        lines.push(format!("  curl http://{http}/metrics"));
    }
    lines.push(format!("Data and logs are in {}", folder.display()));
    lines.join("\n")
}

/// This program as it can be typed here.
fn program() -> String {
    let typed = std::env::args().next().unwrap_or_default();
    if !typed.is_empty() && !typed.contains('/') {
        return typed;
    }
    let here = std::env::current_dir().unwrap_or_default();
    match std::env::current_exe() {
        Ok(path) => path.strip_prefix(&here).unwrap_or(&path).display().to_string(),
        Err(_) => "usherctl".to_owned(),
    }
}
