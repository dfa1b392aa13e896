//! What does a gateway, an operator or an admin get for an answer?
//!
//! Clients generated from the .proto files on a plain channel: what anybody could have written.

use std::net::SocketAddr;

use tonic::metadata::{Ascii, MetadataValue};
use tonic::service::Interceptor;
use tonic::service::interceptor::InterceptedService;
use tonic::transport::{Channel, Endpoint};
use tonic::{Code, Request, Status};
use usher_proto::error::{DOMAIN, error_info};
use usher_proto::v1;
use usher_proto::v1::admin_service_client::AdminServiceClient;
use usher_proto::v1::agent_service_client::AgentServiceClient;
use usher_proto::v1::directory_service_client::DirectoryServiceClient;
use usher_proto::v1::placement_service_client::PlacementServiceClient;

use crate::wait::LONG;

/// Puts the gateway's name into every call.
#[derive(Debug, Clone)]
pub struct GatewayName(Option<MetadataValue<Ascii>>);

impl Interceptor for GatewayName {
    fn call(&mut self, mut request: Request<()>) -> Result<Request<()>, Status> {
        if let Some(name) = &self.0 {
            request.metadata_mut().insert("usher-gateway", name.clone());
        }
        Ok(request)
    }
}

/// A channel whose calls carry a gateway's name.
pub type NamedChannel = InterceptedService<Channel, GatewayName>;

/// Everything that can be asked of one coordinator, as one gateway.
#[derive(Debug, Clone)]
pub struct Client {
    /// The channel without a name.
    pub channel: Channel,
    /// Place, Failover, ReportOutcome, Explain.
    pub placement: PlacementServiceClient<NamedChannel>,
    /// ListHosts, GetHost, ListReplicas.
    pub directory: DirectoryServiceClient<NamedChannel>,
    /// Pools and drains.
    pub admin: AdminServiceClient<NamedChannel>,
    /// Attach.
    pub agents: AgentServiceClient<NamedChannel>,
}

impl Client {
    /// A client that connects when it is first used. Without a name it is the gateway `local`.
    pub fn new(address: SocketAddr, gateway: Option<&str>) -> Self {
        let endpoint = Endpoint::from_shared(format!("http://{address}")).unwrap().timeout(LONG);
        Self::of(endpoint.connect_lazy(), gateway)
    }

    /// A client on a channel of the test's own.
    pub fn of(channel: Channel, gateway: Option<&str>) -> Self {
        let name = GatewayName(gateway.map(|name| name.parse().unwrap()));
        let named = InterceptedService::new(channel.clone(), name);
        let most = 64 * 1024 * 1024;
        Self {
            channel,
            placement: PlacementServiceClient::new(named.clone()).max_encoding_message_size(most),
            directory: DirectoryServiceClient::new(named.clone()),
            admin: AdminServiceClient::new(named.clone()),
            agents: AgentServiceClient::new(named).max_encoding_message_size(most),
        }
    }

    /// Place.
    ///
    /// # Errors
    /// The coordinator's.
    pub async fn place(&self, request: v1::PlaceRequest) -> Result<v1::Placement, Status> {
        let response = self.placement.clone().place(request).await?.into_inner();
        Ok(response.placement.unwrap())
    }

    /// Failover.
    ///
    /// # Errors
    /// The coordinator's.
    pub async fn failover(&self, request: v1::FailoverRequest) -> Result<v1::Placement, Status> {
        let response = self.placement.clone().failover(request).await?.into_inner();
        Ok(response.placement.unwrap())
    }

    /// Explain.
    ///
    /// # Errors
    /// The coordinator's.
    pub async fn explain(&self, decision_id: &str) -> Result<v1::Explanation, Status> {
        let request = v1::ExplainRequest { decision_id: decision_id.to_owned() };
        Ok(self.placement.clone().explain(request).await?.into_inner().explanation.unwrap())
    }

    /// ReportOutcome without a cause.
    ///
    /// # Errors
    /// The coordinator's.
    pub async fn outcome(&self, request_id: &str, outcome: v1::Outcome) -> Result<bool, Status> {
        self.outcome_with(request_id, outcome, None).await
    }

    /// ReportOutcome of a login that failed, with its cause.
    ///
    /// # Errors
    /// The coordinator's.
    pub async fn failed(&self, request_id: &str, cause: v1::FailoverCause) -> Result<bool, Status> {
        self.outcome_with(request_id, v1::Outcome::Failed, Some(cause)).await
    }

    async fn outcome_with(
        &self,
        request_id: &str,
        outcome: v1::Outcome,
        cause: Option<v1::FailoverCause>,
    ) -> Result<bool, Status> {
        let (request_id, cause) = (request_id.to_owned(), cause.map(Into::into));
        let request = v1::ReportOutcomeRequest { request_id, outcome: outcome.into(), cause };
        Ok(self.placement.clone().report_outcome(request).await?.into_inner().known)
    }

    /// Every host.
    ///
    /// # Errors
    /// The coordinator's.
    pub async fn hosts(&self) -> Result<Vec<v1::HostInfo>, Status> {
        Ok(self.directory.clone().list_hosts(v1::ListHostsRequest::default()).await?.into_inner().hosts)
    }

    /// One host, by name or id.
    ///
    /// # Errors
    /// The coordinator's.
    pub async fn host(&self, host: &str) -> Result<v1::HostInfo, Status> {
        Ok(self.host_details(host).await?.host.unwrap())
    }

    /// One host with its operations, places and sessions.
    ///
    /// # Errors
    /// The coordinator's.
    pub async fn host_details(&self, host: &str) -> Result<v1::GetHostResponse, Status> {
        let request = v1::GetHostRequest { host: host.to_owned() };
        Ok(self.directory.clone().get_host(request).await?.into_inner())
    }

    /// Changes a pool's settings, from whatever version is in force.
    ///
    /// # Errors
    /// The coordinator's.
    pub async fn apply(&self, pool: &str, policy: v1::Policy) -> Result<v1::PoolInfo, Status> {
        self.apply_from(pool, None, policy).await
    }

    /// Changes a pool's settings, if this version is in force.
    ///
    /// # Errors
    /// The coordinator's.
    pub async fn apply_from(
        &self,
        pool: &str,
        expected_version: Option<u64>,
        policy: v1::Policy,
    ) -> Result<v1::PoolInfo, Status> {
        let (pool, policy) = (pool.to_owned(), Some(policy));
        let request = v1::ApplyPoolRequest { pool, expected_version, policy, ..Default::default() };
        Ok(self.admin.clone().apply_pool(request).await?.into_inner().pool.unwrap())
    }

    /// Every version of a pool's settings that is kept, newest first.
    ///
    /// # Errors
    /// The coordinator's.
    pub async fn versions(&self, pool: &str) -> Result<Vec<v1::PoolVersion>, Status> {
        let request = v1::GetPoolHistoryRequest { pool: pool.to_owned(), limit: None };
        Ok(self.admin.clone().get_pool_history(request).await?.into_inner().versions)
    }

    /// The fields in which two versions of a pool's settings differ.
    ///
    /// # Errors
    /// The coordinator's.
    pub async fn diff(
        &self,
        pool: &str,
        from: Option<u64>,
        to: Option<u64>,
    ) -> Result<v1::DiffPoolResponse, Status> {
        let request = v1::DiffPoolRequest { pool: pool.to_owned(), from, to };
        Ok(self.admin.clone().diff_pool(request).await?.into_inner())
    }

    /// Sets an admin's settings of a host; what is set now.
    ///
    /// # Errors
    /// The coordinator's.
    pub async fn mark_host(&self, host: &str, marks: v1::HostMarks) -> Result<v1::HostMarks, Status> {
        let request =
            v1::SetHostMarksRequest { host: host.to_owned(), marks: Some(marks), ..Default::default() };
        Ok(self.admin.clone().set_host_marks(request).await?.into_inner().marks.unwrap_or_default())
    }

    /// Marks a host's copy of a resource, or gives it back to service.
    ///
    /// # Errors
    /// The coordinator's.
    pub async fn mark_replica(
        &self,
        host: &str,
        resource: &str,
        mark: Option<v1::ReplicaMark>,
    ) -> Result<v1::MarkReplicaResponse, Status> {
        let (host, resource) = (host.to_owned(), resource.to_owned());
        let request = v1::MarkReplicaRequest { host, resource, mark: mark.map(Into::into) };
        Ok(self.admin.clone().mark_replica(request).await?.into_inner())
    }

    /// Decisions that are kept, newest first.
    ///
    /// # Errors
    /// The coordinator's.
    pub async fn decisions(&self, filter: v1::ListDecisionsRequest) -> Result<Vec<v1::DecisionInfo>, Status> {
        Ok(self.directory.clone().list_decisions(filter).await?.into_inner().decisions)
    }

    /// Sessions, as hosts listed them.
    ///
    /// # Errors
    /// The coordinator's.
    pub async fn sessions(&self, filter: v1::ListSessionsRequest) -> Result<Vec<v1::SessionInfo>, Status> {
        Ok(self.directory.clone().list_sessions(filter).await?.into_inner().sessions)
    }

    /// A pool's settings.
    ///
    /// # Errors
    /// The coordinator's.
    pub async fn pool(&self, pool: &str) -> Result<v1::PoolInfo, Status> {
        let request = v1::GetPoolRequest { pool: pool.to_owned() };
        Ok(self.admin.clone().get_pool(request).await?.into_inner().pool.unwrap())
    }
}

/// Settings that change the weights only, percent.
pub fn weights(cpu: f64, memory: f64, users: f64, processes: f64) -> v1::Policy {
    let weights = v1::Weights {
        cpu_percent: Some(cpu),
        memory_percent: Some(memory),
        users_percent: Some(users),
        processes_percent: Some(processes),
    };
    v1::Policy { weights: Some(weights), ..Default::default() }
}

/// A request for a place in a pool, and nothing else.
pub fn place(pool: &str, request_id: &str) -> v1::PlaceRequest {
    v1::PlaceRequest { pool: pool.to_owned(), request_id: request_id.to_owned(), ..Default::default() }
}

/// The typed reason of an error of usher.
///
/// # Panics
/// If it carries none, or one of another domain.
#[track_caller]
pub fn reason(status: &Status) -> String {
    let info = error_info(status);
    info.unwrap_or_else(|| panic!("no ErrorInfo of domain {DOMAIN}: {status:?}")).reason
}

/// The error of a call that must have been refused with this code and reason.
///
/// # Panics
/// If it was not refused so.
#[track_caller]
pub fn refusal<T: std::fmt::Debug>(result: Result<T, Status>, code: Code, expected: &str) -> Status {
    let status = result.expect_err("the call was to be refused");
    assert_eq!((status.code(), reason(&status).as_str()), (code, expected), "{status:?}");
    status
}
