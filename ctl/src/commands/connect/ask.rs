//! Which host does the farm give, and what does it hear of it?
//!
//! One login: its place, the hosts that did not work out, and the words about it. Words are sent beside the relay by a
//! task of their own, one after the other, so that no byte waits for them.

use std::cell::Cell;
use std::time::Duration;

use tokio::sync::mpsc;
use tokio::task::{JoinHandle, spawn_local};
use tonic::Status;
use usher_proto::v1;
use usher_proto::v1::directory_service_client::DirectoryServiceClient;
use usher_proto::v1::placement_service_client::PlacementServiceClient;
use uuid::Uuid;

use super::silent_farm::{SilentFarm, is_named, is_silence};
use crate::connect::Coordinators;
use crate::failure::Failure;
use crate::output::text::clean;

/// The kind of endpoint that is taken where none is named.
const SSH: &str = "ssh";

/// Hosts that one question may exclude.
const MOST_EXCLUDED: usize = 1024;

/// Who wants in where.
#[derive(Debug, Default)]
pub(super) struct Login {
    pub(super) pool: String,
    pub(super) user: Option<String>,
    pub(super) resource: Option<String>,
    pub(super) zone: Option<String>,
    pub(super) prefer: Option<String>,
    /// No other host than this one.
    pub(super) only: Option<String>,
}

/// The farm, as this login sees it.
#[derive(Debug)]
pub(super) struct Farm {
    coordinators: Coordinators,
    login: Login,
    /// The id of the request under way, or of the one that gave the place.
    request_id: String,
    placement: v1::Placement,
    /// Nobody gave the place: it was decided here, and nobody is told of it.
    is_local: bool,
    silent: SilentFarm,
    tried: Vec<String>,
    /// The login whose place is being replaced, and why.
    giving_up: Option<(String, v1::FailoverCause)>,
    words: Option<mpsc::UnboundedSender<v1::ReportOutcomeRequest>>,
    telling: JoinHandle<()>,
}

impl Farm {
    /// Called within a set of tasks of this thread.
    ///
    /// # Errors
    /// If the login name cannot be one.
    pub(super) fn new(coordinators: Coordinators, silent: SilentFarm, login: Login) -> Result<Self, Failure> {
        let user = coordinators.user_as_sent(login.user)?;
        let (words, heard) = mpsc::unbounded_channel();
        Ok(Self {
            telling: spawn_local(send_words(coordinators.clone(), heard)),
            coordinators,
            login: Login { user, ..login },
            request_id: Uuid::new_v4().to_string(),
            placement: v1::Placement::default(),
            is_local: false,
            silent,
            tried: Vec::new(),
            giving_up: None,
            words: Some(words),
        })
    }

    /// Asks for the first host. If nobody answers, it is the one that the farm as it was last known says.
    ///
    /// # Errors
    /// The farm's no, or its silence.
    pub(super) async fn place(&mut self) -> Result<(), Failure> {
        match self.ask_for_first().await {
            Err(silence) if is_silence(&silence) => self.decide(silence).await,
            asked => asked,
        }
    }

    async fn ask_for_first(&mut self) -> Result<(), Failure> {
        let login = &self.login;
        let request = v1::PlaceRequest {
            request_id: self.request_id.clone(),
            attempt: 1,
            pool: login.pool.clone(),
            resource: login.resource.clone(),
            user: login.user.clone(),
            client_zone: login.zone.clone(),
            exclude: self.others_than_the_only().await?,
            prefer_host: login.only.as_ref().or(login.prefer.as_ref()).cloned(),
            ..Default::default()
        };
        let may_be_left = Cell::new(false);
        let response = self
            .coordinators
            .call("placing", async |channel, call| {
                may_be_left.set(call.earlier > 0);
                let attempt = request.attempt.saturating_add(call.earlier);
                let request = v1::PlaceRequest { attempt, ..request.clone() };
                PlacementServiceClient::new(channel).place(call.request(request)).await
            })
            .await;
        self.heard(response.map(|response| response.placement), may_be_left.get())
    }

    /// Gives the host up and asks for another one.
    ///
    /// # Errors
    /// The farm's no, or its silence.
    pub(super) async fn failover(&mut self, cause: v1::FailoverCause) -> Result<(), Failure> {
        self.tried.push(self.placement.host_id.clone());
        if self.is_local {
            // They did not answer a moment ago either.
            return self.decide(Failure::NoAnswer(Vec::new())).await;
        }
        let failed = self.request_id.clone();
        self.giving_up = Some((failed.clone(), cause));
        match self.ask_for_other(&failed, cause).await {
            Err(silence) if is_silence(&silence) => {
                self.tell_what_is_given_up();
                self.decide(silence).await
            }
            asked => {
                // Whoever answers has ended it.
                self.giving_up = None;
                asked
            }
        }
    }

    /// The place is given up, whoever hears of it when.
    fn tell_what_is_given_up(&mut self) {
        if let Some((failed, cause)) = self.giving_up.take() {
            self.tell_of(failed, v1::Outcome::Failed, Some(cause));
        }
    }

    /// The login is over before it has a host: what was or may have been given is taken back.
    pub(super) fn cancel(&mut self) {
        self.tell_what_is_given_up();
        self.tell(v1::Outcome::Cancelled, None);
    }

    async fn ask_for_other(&mut self, failed: &str, cause: v1::FailoverCause) -> Result<(), Failure> {
        self.request_id = Uuid::new_v4().to_string();
        let login = &self.login;
        let request = v1::FailoverRequest {
            request_id: self.request_id.clone(),
            attempt: 1,
            pool: login.pool.clone(),
            from_host: self.placement.host_id.clone(),
            failed_request_id: Some(failed.to_owned()),
            tried: self.tried.clone(),
            resource: login.resource.clone(),
            user: login.user.clone(),
            client_zone: login.zone.clone(),
            cost: None,
            cause: cause.into(),
        };
        let may_be_left = Cell::new(false);
        let response = self
            .coordinators
            .call("asking for another host", async |channel, call| {
                may_be_left.set(call.earlier > 0);
                let attempt = request.attempt.saturating_add(call.earlier);
                let request = v1::FailoverRequest { attempt, ..request.clone() };
                PlacementServiceClient::new(channel).failover(call.request(request)).await
            })
            .await;
        self.heard(response.map(|response| response.placement), may_be_left.get())
    }

    /// An answer. A no that came after another coordinator's silence may have left the place of the silent one behind.
    fn heard(
        &mut self,
        answer: Result<Option<v1::Placement>, Failure>,
        may_be_left: bool,
    ) -> Result<(), Failure> {
        match answer {
            Ok(placement) => self.take(placement),
            Err(failure) => {
                if may_be_left && !is_silence(&failure) {
                    self.tell(v1::Outcome::Cancelled, None);
                }
                Err(failure)
            }
        }
    }

    /// The pool's other hosts: with all of them excluded the farm's own rules say whether the only one may be had.
    async fn others_than_the_only(&self) -> Result<Vec<String>, Failure> {
        let Some(only) = &self.login.only else { return Ok(Vec::new()) };
        let request = v1::ListHostsRequest { pool: Some(self.login.pool.clone()) };
        let listed = self
            .coordinators
            .call("listing the hosts", async |channel, call| {
                DirectoryServiceClient::new(channel).list_hosts(call.request(request.clone())).await
            })
            .await?;
        let is_wanted = |host: &v1::HostInfo| is_named(only, &host.host_id, &host.host_name);
        let (wanted, others): (Vec<_>, Vec<_>) = listed.hosts.into_iter().partition(is_wanted);
        match wanted.len() {
            1 if others.len() > MOST_EXCLUDED => Err(Failure::Check(format!(
                "it has {} hosts, and one of them can be asked for among {} only; --prefer names the one to come first",
                others.len() + 1,
                MOST_EXCLUDED + 1
            ))),
            1 => Ok(others.into_iter().map(|host| host.host_id).collect()),
            0 => Err(Failure::Check(format!("it has no host {}", clean(only)))),
            _ => Err(Failure::Check(format!(
                "several of its hosts are called {}; an id names one",
                clean(only)
            ))),
        }
    }

    /// Without a coordinator. What one may have given without its answer coming through is taken back.
    async fn decide(&mut self, silence: Failure) -> Result<(), Failure> {
        if !self.is_local {
            self.tell(v1::Outcome::Cancelled, None);
        }
        self.placement = self.silent.place(&self.login, &self.tried, silence).await?;
        self.is_local = true;
        Ok(())
    }

    /// Leaves a copy of the farm for a login that nobody answers, in a task of this thread that may be stopped at any time.
    pub(super) fn keep_copy(&self) -> Option<JoinHandle<()>> {
        if self.is_local { None } else { self.silent.renew() }
    }

    fn take(&mut self, placement: Option<v1::Placement>) -> Result<(), Failure> {
        let named = placement.filter(|placement| !placement.host_id.is_empty());
        self.placement =
            named.ok_or_else(|| Failure::Check("the coordinator's answer holds no host".to_owned()))?;
        Ok(())
    }

    /// The host that was given last.
    pub(super) fn host_name(&self) -> String {
        self.placement.host_name.clone()
    }

    /// Its endpoint of this kind, or the one that suits ssh best.
    pub(super) fn endpoint(&self, kind: Option<&str>) -> Option<&v1::Endpoint> {
        let endpoints = &self.placement.endpoints;
        let of_kind = |kind: &str| endpoints.iter().find(|one| one.kind.eq_ignore_ascii_case(kind));
        match kind {
            Some(kind) => of_kind(kind),
            None => of_kind(SSH).or(endpoints.first()),
        }
    }

    /// Says what became of the login; does not wait.
    pub(super) fn tell(&mut self, outcome: v1::Outcome, cause: Option<v1::FailoverCause>) {
        if !self.is_local {
            self.tell_of(self.request_id.clone(), outcome, cause);
        }
    }

    fn tell_of(&self, request_id: String, outcome: v1::Outcome, cause: Option<v1::FailoverCause>) {
        let request =
            v1::ReportOutcomeRequest { request_id, outcome: outcome.into(), cause: cause.map(Into::into) };
        // Nobody listens after the last word.
        let _ = self.words.as_ref().map(|words| words.send(request));
    }

    /// Waits until everything was told, but not for long.
    pub(super) async fn last_words(&mut self, at_most: Duration) {
        self.words = None;
        // Best effort: a farm that is not there hears nothing.
        let _ = tokio::time::timeout(at_most, &mut self.telling).await;
    }
}

async fn send_words(
    coordinators: Coordinators,
    mut words: mpsc::UnboundedReceiver<v1::ReportOutcomeRequest>,
) {
    while let Some(request) = words.recv().await {
        // Best effort: the login went as it did, whoever hears of it.
        let _ = coordinators
            .call("telling an outcome", async |channel, call| {
                let request = call.request(request.clone());
                let answer = PlacementServiceClient::new(channel).report_outcome(request).await?;
                // Another one may have given it.
                if answer.get_ref().known { Ok(answer) } else { Err(Status::unavailable("no such login")) }
            })
            .await;
    }
}
