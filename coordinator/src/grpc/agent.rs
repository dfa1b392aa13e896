//! `AgentService`: one stream per host. It introduces itself, then tells and is told.

use std::{sync::Arc, time::Duration};

use tokio::{
    sync::{Semaphore, oneshot},
    time::timeout,
};
use tonic::{Code, Request, Response, Status, Streaming};
use usher_placement::farm::{AttachRefused, Attached, DrainMark, Ticks};
use usher_proto::{
    self as proto,
    error::{self, reason},
    read,
    v1::{self, agent_service_server::AgentService, attach_request, attach_response::Message},
    write,
};
use usher_runtime::{identity::Transport, shutdown::Shutdown};
use usher_types::{FieldFault, Hello, HostId, PendingLimit, UserLimit};

use super::{caller, host_stream::HostStream, order::Order, pace::Pace, pages::Pages, unavailable};
use crate::{
    drains,
    farm_command::{Admitted, FarmCommand},
    layers::shutting_down,
    links::{HostLink, HostOutput, OUTBOX},
    shared::Shared,
    store::{Change, Followed, StoreError, StoreHandle, Write},
};

/// How long a stream may be open before it says who it is.
const HELLO_WITHIN: Duration = Duration::from_secs(5);
/// How long a host may take to answer a ping before another machine may have its id.
const PING_WITHIN: Duration = Duration::from_secs(2);
/// Messages of one stream that may wait for the farm: a host that floods waits for itself and fills nobody's queue.
const TURNS: usize = 4;

/// The service.
pub(crate) struct Agents {
    pub shared: Arc<Shared>,
    pub store: StoreHandle,
    pub shutdown: Shutdown,
}

#[tonic::async_trait]
impl AgentService for Agents {
    type AttachStream = HostOutput;

    async fn attach(
        &self,
        request: Request<Streaming<v1::AttachRequest>>,
    ) -> Result<Response<Self::AttachStream>, Status> {
        if self.shutdown.has_begun() {
            return Err(shutting_down(self.shared.links.note_others()));
        }
        let caller = caller(&request)?;
        let certificate = (caller.transport == Transport::Tls).then(|| caller.name.clone());
        let mut incoming = request.into_inner();
        let Introduced { hello, keeps_drain, held } = first_hello(&mut incoming).await?;
        // Two names of one coordinator: the streams would end each other for ever.
        if held.contains(&self.shared.instance_id) && self.shared.links.get(&hello.host_id).is_some() {
            return Err(self.same_coordinator(&hello));
        }
        if hello.is_virtual {
            self.check_virtual(&hello, certificate.as_deref())?;
        }
        let (admitted, registered) =
            admit(self.shared.clone(), self.store.clone(), hello.clone(), certificate).await?;
        let (link, output) = HostLink::new(hello.stream_epoch, OUTBOX);
        link.set_keeps_drain(keeps_drain);
        // From here on every new place is told through the link; what was given before is told now.
        self.shared.links.open(hello.host_id.clone(), link.clone());
        self.welcome(&hello, admitted.settings, &link);
        registered.serves();
        if let Some(mark) = admitted.drain.filter(|_| keeps_drain) {
            let (shared, store, host_id) = (self.shared.clone(), self.store.clone(), hello.host_id.clone());
            tokio::spawn(drains::hand_over(shared, store, host_id, link.clone(), mark));
        }
        let stream = HostStream {
            shared: self.shared.clone(),
            link,
            interval: hello.report_interval,
            host_id: hello.host_id,
            ticks: Ticks::default(),
            told_spread_ms: 0,
            order: Order::of(hello.incarnation_ms),
            pace: Pace::default(),
            turns: Arc::new(Semaphore::new(TURNS)),
            replicas: Pages::default(),
            sessions: Pages::default(),
        };
        self.shutdown.spawn(stream.run(incoming, self.shutdown.token()));
        Ok(Response::new(output))
    }
}

/// A host that was let in. If its stream is not served after all, it is not connected either.
#[derive(Debug)]
struct Registered {
    shared: Arc<Shared>,
    hello: Option<Hello>,
}

impl Registered {
    fn serves(mut self) {
        self.hello = None;
    }
}

impl Drop for Registered {
    fn drop(&mut self) {
        if let Some(hello) = self.hello.take() {
            let (host_id, stream_epoch) = (hello.host_id, hello.stream_epoch);
            let farm = self.shared.farm.clone();
            let detach = FarmCommand::Detach { host_id, stream_epoch, goodbye: None };
            // The queue may be full at this moment, and a drop cannot wait.
            tokio::spawn(async move { farm.send(detach).await });
        }
    }
}

/// Lets a host in and stores what that has changed. To its end, though the host may give up meanwhile: a bond is in force
/// from the moment in which the farm lets the host in and is told of once, so nobody else would store it.
async fn admit(
    shared: Arc<Shared>,
    store: StoreHandle,
    hello: Hello,
    certificate: Option<String>,
) -> Result<(Admitted, Registered), Status> {
    let to_its_end = async move {
        let admitted = register(&shared, &hello, certificate).await?;
        let registered = Registered { shared: shared.clone(), hello: Some(hello.clone()) };
        keep_what_lasts(&shared, &store, &hello.host_id, &admitted.attached).await?;
        Ok((admitted, registered))
    };
    tokio::spawn(to_its_end).await.map_err(|_| Status::internal("the attach failed half way"))?
}

/// Who comes, and what its program can do.
struct Introduced {
    hello: Hello,
    keeps_drain: bool,
    /// Instances of coordinators that it has a stream to.
    held: Vec<String>,
}

async fn first_hello(incoming: &mut Streaming<v1::AttachRequest>) -> Result<Introduced, Status> {
    let first = timeout(HELLO_WITHIN, incoming.message())
        .await
        .map_err(|_| Status::deadline_exceeded("no Hello within 5 s"))??
        .and_then(|first| first.message);
    match first {
        Some(attach_request::Message::Hello(mut hello)) => {
            let (keeps_drain, held) = (hello.keeps_drain, std::mem::take(&mut hello.held_instance_ids));
            let hello = read::hello(hello).map_err(|faults| error::invalid_fields(&faults))?;
            Ok(Introduced { hello, keeps_drain, held })
        }
        _ => Err(error::invalid_fields(&[FieldFault::new("message", "another one", "Hello first")])),
    }
}

impl Agents {
    fn same_coordinator(&self, hello: &Hello) -> Status {
        let instance = self.shared.instance_id.clone();
        let message =
            format!("host {} has a stream to this coordinator already, instance {instance}", hello.host_name);
        let metadata = [("instance_id".to_owned(), instance)].into();
        error::status(Code::AlreadyExists, reason::SAME_COORDINATOR, message, metadata, None)
    }

    /// Whether a modelled host may come at all, and whether its certificate may bring another one.
    fn check_virtual(&self, hello: &Hello, certificate: Option<&str>) -> Result<(), Status> {
        let config = &self.shared.config;
        let name = &hello.host_name;
        if !config.allow_virtual {
            let message = format!("host {name} is virtual, and this coordinator has allow_virtual = false");
            let code = Code::PermissionDenied;
            return Err(error::status(code, reason::NOT_AUTHORIZED, message, Default::default(), None));
        }
        let most = config.limits.max_virtual_hosts;
        if self.shared.virtual_hosts.claim(certificate, &hello.host_id, most) {
            return Ok(());
        }
        let whose =
            certificate.map_or_else(|| "plain loopback".to_owned(), |name| format!("certificate {name}"));
        let message = format!(
            "host {name} is one virtual host too many of {whose}: it has brought {most} since this coordinator started, \
             as many as limits.max_virtual_hosts allows"
        );
        let code = Code::ResourceExhausted;
        Err(error::status(code, reason::MAX_VIRTUAL_HOSTS, message, Default::default(), None))
    }

    fn welcome(&self, hello: &Hello, settings: Option<v1::PoolSettings>, link: &HostLink) {
        link.send(Message::Welcome(v1::Welcome {
            coordinator_id: self.shared.coordinator_id.clone(),
            instance_id: self.shared.instance_id.clone(),
            reconnect_spread_ms: self.shared.reconnect_spread_ms(),
        }));
        if let Some(settings) = settings {
            link.send(Message::PoolSettings(settings));
        }
        let now = self.shared.now();
        for place in self.shared.ledger.to_tell(&hello.host_id, now) {
            let expect = proto::ExpectSession {
                place,
                ask: false,
                max_users: UserLimit::Unlimited,
                max_pending: PendingLimit::Unlimited,
            };
            link.send(Message::ExpectSession(write::expect_session(&expect)));
        }
    }
}

/// Lets the host in. If another machine holds its id, whoever answers a ping stays.
async fn register(shared: &Shared, hello: &Hello, certificate: Option<String>) -> Result<Admitted, Status> {
    match attach_once(shared, hello, certificate.clone(), false).await? {
        Err(AttachRefused::InUse { host_id, held_by, claimed_by, .. }) => {
            let alive = match shared.links.get(&host_id) {
                Some(link) => link.answers(PING_WITHIN).await,
                None => false,
            };
            if alive {
                tracing::error!(%host_id, held_by, claimed_by, "two machines have one host id, the second is refused");
                let in_use = AttachRefused::InUse { host_id, held_by, claimed_by, stream_epoch: 0 };
                return Err(refused(&in_use));
            }
            attach_once(shared, hello, certificate, true).await?.map_err(|why| refused(&why))
        }
        other => other.map_err(|why| refused(&why)),
    }
}

async fn attach_once(
    shared: &Shared,
    hello: &Hello,
    certificate_name: Option<String>,
    old_is_dead: bool,
) -> Result<Result<Admitted, AttachRefused>, Status> {
    let (answer, answered) = oneshot::channel();
    let hello = Box::new(hello.clone());
    let command = FarmCommand::Attach { hello, certificate_name, old_is_dead, answer };
    shared.farm.send(command).await.map_err(unavailable)?;
    answered.await.map_err(unavailable)
}

/// Stores what this attach has changed: all of it, or none.
async fn keep_what_lasts(
    shared: &Shared,
    store: &StoreHandle,
    host_id: &HostId,
    attached: &Attached,
) -> Result<(), Status> {
    let mut writes = Vec::new();
    if let Some(certificate) = &attached.bind {
        let (certificate, host, replaces) = (certificate.clone(), host_id.clone(), attached.retired.clone());
        writes.push(Write::Bind { certificate, host, replaces });
    }
    if let Some(retired) = &attached.retired {
        tracing::info!(%retired, %host_id, "a host was replaced by another one with its certificate name");
        writes.push(Write::MoveMarks(retired.clone(), host_id.clone()));
    }
    if let Some(mark) = &attached.drain_ended {
        writes.extend(end_of(store, mark, host_id, attached.retired.as_ref()).await);
    }
    if writes.is_empty() {
        return Ok(());
    }
    // A host is not turned away because a shared store is.
    let error = match store.write_or_owe(writes).await {
        Ok(_) => return Ok(()),
        Err(StoreError::Bound { certificate, host: bound_to }) => {
            let belongs = Change::Binding(certificate.clone(), Some(bound_to.clone()));
            let followed = Followed { changes: vec![belongs], revision: 0 };
            shared.farm.send(FarmCommand::Follow(followed)).await.map_err(unavailable)?;
            tracing::error!(certificate, %bound_to, claimed = %host_id, "a certificate is in use by two hosts");
            return Err(refused(&AttachRefused::OtherHost {
                certificate,
                bound_to,
                claimed: host_id.clone(),
            }));
        }
        Err(StoreError::Claimed { host, certificate: bound_to }) => {
            let certificate = attached.bind.clone().unwrap_or_default();
            return Err(claimed(shared, host, certificate, bound_to, attached.retired.clone()).await?);
        }
        Err(error) => error,
    };
    tracing::error!(%error, %host_id, "cannot store what an attach has changed");
    if let Some(certificate) = attached.bind.clone() {
        // In force only what is stored: the next attach binds it again, also of a stream that has come meanwhile.
        shared.farm.send(FarmCommand::Unbind { certificate }).await.map_err(unavailable)?;
        if let Some(link) = shared.links.get(host_id) {
            link.ended.cancel();
        }
    }
    Err(Status::unavailable("what this attach changes could not be stored"))
}

/// What ends in the store the mark that a boot has ended. Absent: it is not stored, or another one was set in its place.
async fn end_of(
    store: &StoreHandle,
    mark: &DrainMark,
    host_id: &HostId,
    retired: Option<&HostId>,
) -> Option<Write> {
    // One that is moved to the host by the same transaction still lies with the host before.
    for of in std::iter::once(host_id).chain(retired) {
        if let Some(set_unix_ms) = drains::stored_at(store, of, mark).await {
            return Some(Write::DeleteDrainSetAt(host_id.clone(), set_unix_ms));
        }
    }
    let author = &mark.drain.author;
    tracing::info!(%host_id, author, "a drain has ended with the boot of its host, and is not stored, or another one is");
    None
}

/// The host id belongs to another certificate, as the store says: the bond that the farm has made is over, and that one holds.
async fn claimed(
    shared: &Shared,
    host: HostId,
    certificate: String,
    bound_to: String,
    retired: Option<HostId>,
) -> Result<Status, Status> {
    tracing::error!(%host, certificate, belongs_to = bound_to, "a host id is in use by two certificates");
    let unbind = FarmCommand::Unbind { certificate: certificate.clone() };
    shared.farm.send(unbind).await.map_err(unavailable)?;
    let before = retired.map(|retired| Change::Binding(certificate.clone(), Some(retired)));
    let belongs = Change::Binding(bound_to.clone(), Some(host.clone()));
    let changes = before.into_iter().chain([belongs]).collect();
    let followed = FarmCommand::Follow(Followed { changes, revision: 0 });
    shared.farm.send(followed).await.map_err(unavailable)?;
    Ok(refused(&AttachRefused::OtherCertificate { claimed: host, bound_to, certificate }))
}

fn refused(why: &AttachRefused) -> Status {
    let (code, reason) = match why {
        // Two machines claim one identity, and both live.
        AttachRefused::InUse { .. } | AttachRefused::OtherHost { .. } => {
            (Code::AlreadyExists, reason::HOST_ID_IN_USE)
        }
        AttachRefused::OlderStream(_) => (Code::Aborted, reason::HOST_ID_IN_USE),
        AttachRefused::OtherCertificate { .. } | AttachRefused::OtherName { .. } => {
            (Code::PermissionDenied, reason::IDENTITY_MISMATCH)
        }
    };
    error::status(code, reason, why.to_string(), Default::default(), None)
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use prost::Message as _;
    use usher_types::{
        Drain, DrainMode, Endpoint, GatewayId, PendingPlace, Policy, PolicyChange, PoolName, RequestId, Token,
    };

    use super::*;
    use crate::{
        metrics::Metrics,
        placing::testing,
        store::{DrainRecord, MemoryShared, MemoryStore},
    };

    #[tokio::test(start_paused = true)]
    async fn what_an_attach_changes_is_stored_though_the_host_gives_up_meanwhile() {
        let store =
            StoreHandle::inline(Path::new("memory"), Metrics::new("0", "none"), MemoryStore::new("c"));
        let (mut farm, ledger) = testing::farm(&PolicyChange::default(), &[]);
        let (shared, mut commands) = testing::shared(&mut farm, ledger);
        let certificate = Some("app1".to_owned());
        let asking = tokio::spawn(admit(shared, store.clone(), testing::hello("app1"), certificate));
        let Some(FarmCommand::Attach { hello, certificate_name, old_is_dead, answer }) =
            commands.recv().await
        else {
            panic!("it asks the farm first")
        };
        asking.abort();
        assert!(asking.await.is_err());
        let attached = farm.attach(&hello, certificate_name.as_deref(), old_is_dead).unwrap();
        assert_eq!(attached.bind.as_deref(), Some("app1"), "in force from here on");
        let _ = answer.send(Ok(Admitted { attached, drain: None, settings: None }));
        // It is no stream that anybody serves.
        let next = timeout(Duration::from_secs(10), commands.recv()).await;
        assert!(matches!(next, Ok(Some(FarmCommand::Detach { stream_epoch: 1, .. }))), "{next:?}");
        let bindings = store.load().await.unwrap().bindings;
        assert_eq!(bindings.get("app1"), Some(&hello.host_id));
    }

    #[tokio::test(start_paused = true)]
    async fn a_boot_ends_the_drain_that_was_set_before_it_and_none_that_was_set_anew() {
        let drain = |reason: &str| Drain {
            mode: DrainMode::UntilRestart,
            reason: reason.to_owned(),
            author: "ann".to_owned(),
            no_reconnect: false,
        };
        let (mut farm, ledger) = testing::farm(&PolicyChange::default(), &[]);
        let (shared, _commands) = testing::shared(&mut farm, ledger);
        let ended = Arc::new(DrainMark { drain: drain("kernel"), boot_id: None });
        for (of, stored, stays) in [
            ("new", "kernel", false),
            ("old", "kernel", false),
            ("new", "disks", true),
            ("old", "disks", true),
        ] {
            let (store, ..) = testing::sharing("one", &MemoryShared::default()).await;
            let record = DrainRecord { drain: drain(stored), boot_id: None, set_unix_ms: 5 };
            store.put_drain(HostId::new(of).unwrap(), record).await.unwrap();
            let (host_id, old) = (HostId::new("new").unwrap(), HostId::new("old").unwrap());
            let retired = (of == "old").then_some(old);
            let drain_ended = Some(ended.clone());
            let attached = Attached { bind: None, retired, drain_ended, replaced_stream: None };
            keep_what_lasts(&shared, &store, &host_id, &attached).await.unwrap();
            let left = store.drain_of(&host_id).await.unwrap().map(|left| left.drain.reason);
            assert_eq!(left.as_deref(), stays.then_some(stored), "of {of}, stored {stored}");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_host_whose_id_another_certificate_has_got_meanwhile_is_refused_and_its_bond_is_over() {
        let link = MemoryShared::default();
        let ((store, ..), (other, ..)) =
            (testing::sharing("one", &link).await, testing::sharing("two", &link.for_another()).await);
        let (mut farm, ledger) = testing::farm(&PolicyChange::default(), &[]);
        let (shared, mut commands) = testing::shared(&mut farm, ledger);
        let hello = testing::hello("app2");
        let attached = farm.attach(&hello, Some("app2"), false).unwrap();
        let (certificate, host) = ("app1".to_owned(), hello.host_id.clone());
        other.write(vec![Write::Bind { certificate, host, replaces: None }]).await.unwrap();
        let refused = keep_what_lasts(&shared, &store, &hello.host_id, &attached).await.unwrap_err();
        assert_eq!(refused.code(), Code::PermissionDenied, "{refused:?}");
        assert!(refused.message().contains("belongs to certificate app1"), "{refused:?}");
        let Some(FarmCommand::Unbind { certificate }) = commands.recv().await else { panic!() };
        farm.unbind(&certificate);
        let Some(FarmCommand::Follow(followed)) = commands.recv().await else { panic!() };
        assert_eq!(followed.changes, [Change::Binding("app1".to_owned(), Some(hello.host_id.clone()))]);
        farm.follow_binding("app1", Some(hello.host_id.clone()));
        let again = Hello { stream_epoch: 2, ..hello };
        assert!(farm.attach(&again, Some("app2"), false).is_err());
        let rightful = Hello { host_name: usher_types::HostName::new("app1").unwrap(), ..again };
        assert_eq!(farm.attach(&rightful, Some("app1"), false).unwrap().bind, None);
    }

    /// Each place is a message of its own, and so is everything else that is told at an Attach.
    #[test]
    fn no_message_to_an_agent_comes_near_to_what_it_takes() {
        let text = |bytes| "x".repeat(bytes);
        let policy = Policy { shared_accounts: vec![text(256); 256], ..Policy::default() };
        let drain = v1::Drain { reason: text(1024), author: text(256), ..v1::Drain::default() };
        let settings = v1::PoolSettings {
            pool: text(128),
            version: u64::MAX,
            policy: Some(write::policy(&policy)),
            drain: Some(drain),
            settings_hash: Some(u64::MAX),
            ..v1::PoolSettings::default()
        };
        let gateway = GatewayId::new(text(128)).unwrap();
        let place = PendingPlace {
            token: Token { gateway, request_id: RequestId::new(text(128)).unwrap() },
            attempt: u32::MAX,
            content_hash: u64::MAX,
            pool: PoolName::new(text(128)).unwrap(),
            endpoint: Endpoint { kind: text(256), address: text(253), port: u16::MAX },
            user: Some(text(256)),
            cost: 100,
            counted_users: 100,
            left: Duration::from_secs(u64::MAX / 1000),
            connected: true,
            admitted: true,
        };
        let (max_users, max_pending) = (UserLimit::Users(u32::MAX), PendingLimit::Unlimited);
        let expect =
            write::expect_session(&proto::ExpectSession { place, ask: true, max_users, max_pending });
        assert!(settings.encoded_len() < 128 * 1024, "{}", settings.encoded_len());
        assert!(expect.encoded_len() < 4096, "{}", expect.encoded_len());
    }
}
