//! A login that needs a host.

use usher_placement::decision;
use usher_proto::{read, v1};
use usher_types::{GatewayId, PoolName, RequestId, ResourceId, Token, Zone};

use crate::error::NoLocal;

/// A login that needs a host. What is not said restricts nothing.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Request {
    pub(crate) pool: String,
    pub(crate) request_id: Option<String>,
    pub(crate) resource: Option<String>,
    pub(crate) user: Option<String>,
    pub(crate) client_zone: Option<String>,
    pub(crate) cost: Option<u32>,
    pub(crate) exclude: Vec<String>,
    pub(crate) prefer_host: Option<String>,
    pub(crate) dry_run: bool,
}

impl Request {
    /// A login to this pool.
    pub fn new(pool: impl Into<String>) -> Self {
        Self { pool: pool.into(), ..Self::default() }
    }

    /// The gateway's own id of the login, 1 to 128 bytes: who asks again with it, even after a restart, gets the same place.
    /// Default: a random one.
    #[must_use]
    pub fn id(mut self, request_id: impl Into<String>) -> Self {
        self.request_id = Some(request_id.into());
        self
    }

    /// Who logs in: brings them back to their session.
    #[must_use]
    pub fn user(mut self, name: impl Into<String>) -> Self {
        self.user = Some(name.into());
        self
    }

    /// What they open: only hosts that hold it are candidates.
    #[must_use]
    pub fn resource(mut self, id: impl Into<String>) -> Self {
        self.resource = Some(id.into());
        self
    }

    /// Where the client is: hosts of its zone come first among equals.
    #[must_use]
    pub fn client_zone(mut self, zone: impl Into<String>) -> Self {
        self.client_zone = Some(zone.into());
        self
    }

    /// How many users the login counts as, 1..=100. Default: 1.
    #[must_use]
    pub fn cost(mut self, users: u32) -> Self {
        self.cost = Some(users);
        self
    }

    /// Hosts that are no candidates, by name or id; at most 1024.
    #[must_use]
    pub fn exclude<H: Into<String>>(mut self, hosts: impl IntoIterator<Item = H>) -> Self {
        self.exclude.extend(hosts.into_iter().map(Into::into));
        self
    }

    /// The home server, by name or id: chosen if none is in a better state.
    #[must_use]
    pub fn prefer_host(mut self, host: impl Into<String>) -> Self {
        self.prefer_host = Some(host.into());
        self
    }

    /// Only look: nothing is reserved.
    #[must_use]
    pub fn dry_run(mut self) -> Self {
        self.dry_run = true;
        self
    }

    /// The request as decisions take it.
    ///
    /// # Errors
    /// [`NoLocal::Invalid`] with what is wrong with it.
    pub(crate) fn decision(
        &self,
        gateway: &str,
        request_id: &str,
        failover: Option<decision::Failover>,
    ) -> Result<decision::Request, NoLocal> {
        let invalid = |what: &str| NoLocal::Invalid(format!("{what} is none"));
        let resource = self.resource.as_deref().map(ResourceId::new).transpose();
        let zone = self.client_zone.as_deref().map(Zone::new).transpose();
        Ok(decision::Request {
            token: token(gateway, request_id).ok_or_else(|| invalid("request_id"))?,
            attempt: 1,
            pool: PoolName::new(&self.pool).map_err(|_| invalid("pool"))?,
            resource: resource.map_err(|_| invalid("resource"))?,
            user: read::user_or_none(self.user.clone()).map_err(|_| invalid("user"))?,
            client_zone: zone.map_err(|_| invalid("client_zone"))?,
            cost: read::cost_or_one(self.cost).map_err(|_| invalid("cost"))?,
            exclude: self.exclude.clone(),
            prefer_host: self.prefer_host.clone(),
            dry_run: self.dry_run,
            failover,
        })
    }

    pub(crate) fn message(&self, request_id: &str, user: Option<String>) -> v1::PlaceRequest {
        v1::PlaceRequest {
            request_id: request_id.to_owned(),
            attempt: 1,
            pool: self.pool.clone(),
            resource: self.resource.clone(),
            user,
            client_zone: self.client_zone.clone(),
            cost: self.cost,
            exclude: self.exclude.clone(),
            prefer_host: self.prefer_host.clone(),
            dry_run: self.dry_run,
        }
    }
}

/// Names a login here.
fn token(gateway: &str, request_id: &str) -> Option<Token> {
    let gateway = GatewayId::new(gateway).ok()?;
    Some(Token { gateway, request_id: RequestId::new(request_id).ok()? })
}
