//! The handle that a gateway holds.

use std::sync::Arc;
use std::time::Duration;

use tokio::time::Instant;
use tokio_util::sync::{CancellationToken, DropGuard};
use tonic::metadata::{Ascii, MetadataValue};
use usher_placement::decision;
use usher_proto::v1;
use usher_runtime::clock::{Clock, SystemClock};
use usher_runtime::net::check_target;
use usher_types::{FailureCause, Outcome};

use crate::call::{Answered, Asking, LEAST, Plan, Question, Tries, ask};
use crate::config::Config;
use crate::error::{Error, NoAnswer, NoLocal, SetupError};
use crate::in_order::gateway_value;
use crate::local::Local;
use crate::outcomes::{Outcomes, Report};
use crate::peers::Peers;
use crate::placement::{Placement, endpoints_of};
use crate::request::Request;
use crate::sound::Asked;
use crate::watching::Watching;

/// Asks the farm's coordinators where logins go. Cheap to clone: clones are one client.
#[derive(Clone, Debug)]
pub struct Client(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    config: Config,
    gateway: Option<MetadataValue<Ascii>>,
    peers: Arc<Peers>,
    local: Arc<Local>,
    outcomes: Arc<Outcomes>,
    /// Ends the tasks with the last client.
    _end: DropGuard,
}

/// A failover, as it is asked for.
#[derive(Clone, Debug)]
struct Instead {
    from_host: String,
    failed_request_id: Option<String>,
    /// Who gave the place that is given up. Absent: no coordinator did.
    given_by: Option<String>,
    tried: Vec<String>,
    cause: FailureCause,
}

/// A login on its way.
struct Login<'a> {
    request: &'a Request,
    request_id: &'a str,
    instead: Option<&'a Instead>,
    /// When the caller must have an answer.
    deadline: Instant,
}

impl Client {
    /// A client of these coordinators. It connects on its own; what cannot be reached yet is tried again.
    ///
    /// # Errors
    /// [`SetupError`]: what trying again would not mend.
    pub fn connect(config: Config) -> Result<Self, SetupError> {
        if config.coordinators.is_empty() {
            return Err(SetupError::NoCoordinator);
        }
        if config.deadline.is_zero() {
            return Err(SetupError::NoTime);
        }
        for address in &config.coordinators {
            check_target(address, config.tls.is_some())?;
        }
        if let Some(files) = &config.tls {
            files.client().map_err(usher_runtime::net::TargetError::from)?;
        }
        let gateway = config.gateway.as_deref().map(gateway_value).transpose()?;
        tokio::runtime::Handle::try_current().map_err(|_| SetupError::NoRuntime)?;
        let end = CancellationToken::new();
        let peers = Arc::new(Peers::start(&config.coordinators, config.tls.as_ref(), &end));
        let (local, outcomes) = (Arc::new(Local::default()), Arc::new(Outcomes::default()));
        tokio::spawn(outcomes.clone().send_all(peers.clone(), gateway.clone(), end.clone()));
        if config.local_decisions {
            let watching = Watching {
                peers: peers.clone(),
                local: local.clone(),
                tls: config.tls.clone(),
                gateway: gateway.clone(),
                farm: config.farm.clone(),
                pools: config.pools.clone(),
                cache: config.cache.clone(),
                max_age: config.cache_max_age,
            };
            tokio::spawn(watching.run(end.clone()));
        }
        Ok(Self(Arc::new(Inner { config, gateway, peers, local, outcomes, _end: end.drop_guard() })))
    }

    /// A place for a login.
    ///
    /// If the returned future is dropped, a place that was given meanwhile is taken back; so it is if it ends with anything but a
    /// coordinator's place.
    ///
    /// # Errors
    /// [`Error::Refused`] if a coordinator said no, [`Error::NoAnswer`] if none answered within the deadline and what is
    /// known of the farm gives no answer either.
    pub async fn place(&self, request: Request) -> Result<Placement, Error> {
        let deadline = Instant::now() + self.0.config.deadline;
        let mut earlier = 0;
        let request_id = match request.request_id.clone() {
            None => random_id(),
            Some(id) => {
                if !request.dry_run {
                    // What was said of the same login before must not end what is given now.
                    let said = self.0.outcomes.settled(&id);
                    let settled = tokio::time::timeout(self.0.config.deadline / 2, said).await;
                    earlier = settled.unwrap_or_default();
                }
                id
            }
        };
        self.find(request, (request_id, earlier), None, Vec::new(), deadline).await
    }

    /// Another place for a login whose host does not work out. The old place is given up, whatever the answer; no host is answered that the
    /// login was sent to before, unless all that is wrong is that the host said it is [`Busy`](FailureCause::Busy), and none that its
    /// request excluded. For a dry run it is another dry run.
    ///
    /// # Errors
    /// As [`place`](Self::place).
    pub async fn failover(&self, failed: &Placement, cause: FailureCause) -> Result<Placement, Error> {
        let deadline = Instant::now() + self.0.config.deadline;
        let mut tried = failed.tried.clone();
        if !tried.iter().any(|host| host == failed.host_id()) {
            tried.push(failed.host_id().to_owned());
        }
        if failed.request.dry_run {
            // A failover would reserve.
            let may_return = |host: &&String| cause == FailureCause::Busy && *host == failed.host_id();
            let never = tried.iter().filter(|host| !may_return(host)).cloned();
            let request = failed.request.clone().exclude(never);
            return self.find(request, (random_id(), 0), None, tried, deadline).await;
        }
        if matches!(cause, FailureCause::Unreachable | FailureCause::Refused) {
            self.0.local.failed_on(failed.host_id(), SystemClock.now());
        }
        self.0.local.report(failed.request_id(), Outcome::Failed, SystemClock.now());
        let instead = Instead {
            from_host: failed.host_id().to_owned(),
            failed_request_id: (!failed.is_local()).then(|| failed.request_id.clone()),
            given_by: failed.coordinator.clone(),
            tried: failed.tried.clone(),
            cause,
        };
        self.find(failed.request.clone(), (random_id(), 0), Some(instead), tried, deadline).await
    }

    /// Says what became of a login. Never waits: it is sent in the background, later if nobody answers now.
    pub fn report(&self, placement: &Placement, outcome: Outcome) {
        self.report_cause(placement, outcome, None);
    }

    /// Says that a login failed, and why. Who asks for another host at once says so with [`failover`](Self::failover).
    pub fn report_failed(&self, placement: &Placement, cause: FailureCause) {
        self.report_cause(placement, Outcome::Failed, Some(cause));
    }

    fn report_cause(&self, placement: &Placement, outcome: Outcome, cause: Option<FailureCause>) {
        let now = SystemClock.now();
        if outcome == Outcome::Failed && cause.is_none_or(FailureCause::blames_host) {
            self.0.local.failed_on(placement.host_id(), now);
        }
        if placement.is_local() {
            // No coordinator knows of it.
            self.0.local.report(placement.request_id(), outcome, now);
            return;
        }
        let report = report_of(placement.request_id(), placement.coordinator.clone(), outcome, cause);
        // That nobody knows a place is no wonder if none was reserved, or if its session has lasted.
        let is_kept = placement.message.reservation.is_some() && outcome != Outcome::Ended;
        self.0.outcomes.add(if is_kept { report } else { report.said_once() });
    }

    /// Waits until every report was taken by a coordinator or dropped, at most for `within`. Whether it is so. For programs
    /// that end.
    pub async fn flush(&self, within: Duration) -> bool {
        tokio::time::timeout(within, self.0.outcomes.all_sent()).await.is_ok()
    }

    /// Reports that were dropped because too many waited, or for too long.
    pub fn dropped_reports(&self) -> u64 {
        self.0.outcomes.dropped()
    }

    /// How old what is known of the farm is. Absent: nothing is.
    pub fn farm_age(&self) -> Option<Duration> {
        Some(self.0.local.basis()?.age(SystemClock.now()))
    }

    async fn find(
        &self,
        request: Request,
        (request_id, earlier): (String, u32),
        instead: Option<Instead>,
        tried: Vec<String>,
        deadline: Instant,
    ) -> Result<Placement, Error> {
        let login = Login { request: &request, request_id: &request_id, instead: instead.as_ref(), deadline };
        let mut guard =
            TakeBack { inner: &self.0, login: &login, tries: Tries::after(earlier), armed: !request.dry_run };
        let asking = self.0.ask(&login, &guard.tries).await?;
        // Whatever else comes of it, a try whose answer was lost may have left a place behind.
        guard.armed &= !matches!(asking, Asking::Answered(_));
        let found = match asking {
            Asking::Answered(answered) => {
                let Answered { placement, endpoints, coordinator } = *answered;
                Ok((placement, endpoints, Some(coordinator), None))
            }
            Asking::Refused(refusal) => Err(Error::Refused(refusal)),
            Asking::NoAnswer(silences) => match self.0.decide(&login).await {
                Ok((placement, age)) => {
                    let endpoints = endpoints_of(&placement);
                    Ok((placement, endpoints, None, Some(age)))
                }
                Err(local) => Err(Error::NoAnswer(Box::new(NoAnswer { silences, local }))),
            },
        };
        let attempts = guard.tries.begun();
        drop(guard);
        let (message, endpoints, coordinator, farm_age) = found?;
        Ok(Placement { message, endpoints, request, request_id, tried, coordinator, attempts, farm_age })
    }
}

pub(crate) fn random_id() -> String {
    uuid::Uuid::new_v4().to_string()
}

/// Takes back what coordinators may have given to a call that does not return it, and gives up the place that the call was to
/// replace.
struct TakeBack<'a> {
    inner: &'a Inner,
    login: &'a Login<'a>,
    tries: Tries,
    armed: bool,
}

impl Drop for TakeBack<'_> {
    fn drop(&mut self) {
        if !self.armed {
            return;
        }
        if self.tries.may_hold_a_place() {
            let report = report_of(self.login.request_id, None, Outcome::Cancelled, None);
            self.inner.outcomes.add(report.after(self.tries.last()));
        }
        if let Some(instead) = self.login.instead
            && let Some(failed) = &instead.failed_request_id
        {
            // Coordinators do so when they answer; none may have.
            let cause = Some(instead.cause);
            self.inner.outcomes.add(report_of(failed, instead.given_by.clone(), Outcome::Failed, cause));
        }
    }
}

fn report_of(request_id: &str, to: Option<String>, outcome: Outcome, cause: Option<FailureCause>) -> Report {
    let message = v1::ReportOutcomeRequest {
        request_id: request_id.to_owned(),
        outcome: v1::Outcome::from(outcome).into(),
        cause: cause.map(|cause| v1::FailoverCause::from(cause).into()),
    };
    Report::new(message, to)
}

impl Inner {
    fn sent_user(&self, request: &Request) -> Result<Option<String>, Error> {
        let sent = |user: &String| self.config.naming.sent(user).ok_or(Error::Name);
        request.user.as_ref().map(sent).transpose()
    }

    async fn ask(&self, login: &Login<'_>, tries: &Tries) -> Result<Asking, Error> {
        let user = self.sent_user(login.request)?;
        let mut never = login.request.exclude.clone();
        never.extend(login.instead.into_iter().flat_map(Instead::never));
        let may_decide = self.may_decide();
        // Who has not answered for a whole deadline will not answer this one either.
        let is_silent = self.peers.down_for().is_some_and(|silent| silent > self.config.deadline);
        let basis = self.local.basis();
        let is_pool = basis.as_ref().is_some_and(|basis| basis.known.pools.contains_key(&login.request.pool));
        let fresh = basis.filter(|basis| is_pool && basis.age(SystemClock.now()) < FRESH);
        let reserve = if may_decide { (self.config.deadline / 4).min(RESERVE) } else { Duration::ZERO };
        let plan = Plan {
            peers: &self.peers,
            gateway: self.gateway.as_ref(),
            asked: Asked { pool: &login.request.pool, request_id: login.request_id, never: &never },
            deadline: login.deadline - reserve,
            is_hopeless: is_silent && may_decide,
            known: fresh.map(|basis| basis.known),
            is_pool,
        };
        let question = match login.instead {
            None => Question::Place(login.request.message(login.request_id, user)),
            Some(instead) => Question::Failover(instead.message(login, user)),
        };
        Ok(ask(&plan, &question, tries).await)
    }

    fn may_decide(&self) -> bool {
        let fresh = |age| age <= self.config.cache_max_age;
        self.config.local_decisions
            && self.local.basis().is_some_and(|basis| fresh(basis.age(SystemClock.now())))
    }

    async fn decide(&self, login: &Login<'_>) -> Result<(v1::Placement, Duration), NoLocal> {
        if !self.config.local_decisions {
            return Err(NoLocal::Off);
        }
        let failover = login.instead.map(Instead::failover);
        let gateway = self.config.gateway.as_deref().unwrap_or(NOBODY);
        let request = login.request.decision(gateway, login.request_id, failover)?;
        let deciding =
            self.local.decide(request, self.config.cache_max_age, SystemClock.now(), login.deadline - LEAST);
        tokio::time::timeout_at(login.deadline, deciding).await.unwrap_or(Err(NoLocal::TooLate))
    }
}

/// What is younger knows every host of the farm.
const FRESH: Duration = Duration::from_secs(5);
/// Time that is kept for a decision without coordinators, at most a quarter of all: hosts may have to be knocked at, which
/// they are given a second for.
const RESERVE: Duration = Duration::from_secs(1);

/// The gateway whose name nobody has told.
pub(crate) const NOBODY: &str = "local";

impl Instead {
    /// It as decisions take it.
    fn failover(&self) -> decision::Failover {
        decision::Failover {
            from_host: self.from_host.clone(),
            failed_request: None,
            tried: self.tried.clone(),
            cause: self.cause,
        }
    }

    /// Hosts that make no sense as its answer. One that is merely busy may still be the best there is, however often it was
    /// tried.
    fn never(&self) -> impl Iterator<Item = String> {
        let may_return = |host: &String| self.cause == FailureCause::Busy && *host == self.from_host;
        self.tried.iter().filter(move |host| !may_return(host)).cloned()
    }

    fn message(&self, login: &Login<'_>, user: Option<String>) -> v1::FailoverRequest {
        v1::FailoverRequest {
            request_id: login.request_id.to_owned(),
            attempt: 1,
            pool: login.request.pool.clone(),
            from_host: self.from_host.clone(),
            failed_request_id: self.failed_request_id.clone(),
            // What it excluded is no candidate now either.
            tried: self.tried.iter().chain(&login.request.exclude).cloned().collect(),
            resource: login.request.resource.clone(),
            user,
            client_zone: login.request.client_zone.clone(),
            cost: login.request.cost,
            cause: v1::FailoverCause::from(self.cause).into(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn is_send<T: Send>(_: &T) {}

    #[tokio::test]
    async fn calls_can_be_made_from_any_task() {
        let client = Client::connect(Config::new(["127.0.0.1:1"])).unwrap();
        is_send(&client.place(Request::new("desk")));
        is_send(&client);
    }

    #[tokio::test]
    async fn what_trying_again_would_not_mend_is_said_at_once() {
        assert!(matches!(Client::connect(Config::new(Vec::<String>::new())), Err(SetupError::NoCoordinator)));
        assert!(matches!(Client::connect(Config::new(["c1.example"])), Err(SetupError::Target(_))));
        let wrong = Config::new(["127.0.0.1:1"]).gateway("a b");
        assert!(matches!(Client::connect(wrong), Err(SetupError::Gateway(_))));
        let hasty = Config::new(["127.0.0.1:1"]).deadline(Duration::ZERO);
        assert!(matches!(Client::connect(hasty), Err(SetupError::NoTime)));
    }

    #[test]
    fn outside_a_runtime_there_is_no_client_and_no_panic() {
        assert!(matches!(Client::connect(Config::new(["127.0.0.1:1"])), Err(SetupError::NoRuntime)));
    }

    #[tokio::test]
    async fn with_nobody_and_nothing_known_each_is_named() {
        let config = Config::new(["127.0.0.1:1", "127.0.0.1:2"]).deadline(Duration::from_millis(300));
        let client = Client::connect(config).unwrap();
        let Error::NoAnswer(none) = client.place(Request::new("desk")).await.unwrap_err() else { panic!() };
        assert_eq!((none.silences.len(), &none.local), (2, &NoLocal::NothingKnown));
        assert!(none.silences.iter().all(|silence| silence.cause.contains("refused")), "{none}");
    }
}
