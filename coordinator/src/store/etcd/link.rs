//! One connection to one member, and what becomes of a call that fails.

use std::{future::Future, path::Path, pin::Pin, time::Duration};

use tokio::{
    sync::Mutex,
    time::{Instant, timeout},
};
use tonic::{
    Code, Request, Response, Status,
    metadata::{Ascii, MetadataValue},
    transport::{Certificate, Channel, ClientTlsConfig, Endpoint, Identity},
};
use usher_proto::etcd::{
    self, auth_client::AuthClient, kv_client::KvClient, lease_client::LeaseClient, watch_client::WatchClient,
};
use usher_runtime::{net::Timeouts, tls::TlsFiles};

use super::EtcdOptions;
use crate::store::shared_store::SharedError;

/// Largest answer that is taken: a page of the largest rows, which nobody has.
const MAX_ANSWER_BYTES: usize = 160 * 1024 * 1024;
/// Between two HTTP/2 pings. etcd cuts off who pings more often than each 5 s.
const KEEPALIVE_INTERVAL: Duration = Duration::from_secs(10);
const KEEPALIVE_TIMEOUT: Duration = Duration::from_secs(3);

/// A connection.
#[derive(Clone, Debug)]
pub(super) struct Link {
    channel: Channel,
    token: Option<MetadataValue<Ascii>>,
    number: u64,
}

impl Link {
    pub(super) fn watch(&self) -> WatchClient<Channel> {
        WatchClient::new(self.channel.clone()).max_decoding_message_size(MAX_ANSWER_BYTES)
    }

    fn kv(&self) -> KvClient<Channel> {
        KvClient::new(self.channel.clone()).max_decoding_message_size(MAX_ANSWER_BYTES)
    }

    fn lease(&self) -> LeaseClient<Channel> {
        LeaseClient::new(self.channel.clone())
    }

    /// A request under the name that was logged in.
    pub(super) fn request<T>(&self, message: T) -> Request<T> {
        let mut request = Request::new(message);
        if let Some(token) = &self.token {
            request.metadata_mut().insert("token", token.clone());
        }
        request
    }
}

/// Connections to the members, one at a time.
#[derive(Debug)]
pub(super) struct Links {
    options: EtcdOptions,
    current: Mutex<Current>,
}

#[derive(Debug, Default)]
struct Current {
    link: Option<Link>,
    /// Which member is next.
    next: usize,
    /// Connections made so far.
    made: u64,
}

type Answer<'a, T> = Pin<Box<dyn Future<Output = Result<Response<T>, Status>> + Send + 'a>>;

impl Links {
    pub(super) fn new(options: EtcdOptions) -> Self {
        Self { options, current: Mutex::default() }
    }

    pub(super) fn call_timeout(&self) -> Duration {
        self.options.call_timeout
    }

    pub(super) async fn range(&self, range: etcd::RangeRequest) -> Result<etcd::RangeResponse, SharedError> {
        self.call(|link| {
            let request = link.request(range.clone());
            Box::pin(async move { link.kv().range(request).await })
        })
        .await
    }

    pub(super) async fn txn(&self, txn: etcd::TxnRequest) -> Result<etcd::TxnResponse, SharedError> {
        self.call(|link| {
            let request = link.request(txn.clone());
            Box::pin(async move { link.kv().txn(request).await })
        })
        .await
    }

    #[cfg(test)]
    pub(super) async fn compact(&self, revision: i64) -> Result<etcd::CompactionResponse, SharedError> {
        self.call(|link| {
            let request = link.request(etcd::CompactionRequest { revision, physical: true });
            Box::pin(async move { link.kv().compact(request).await })
        })
        .await
    }

    pub(super) async fn grant(&self, ttl_s: i64) -> Result<etcd::LeaseGrantResponse, SharedError> {
        self.call(|link| {
            let request = link.request(etcd::LeaseGrantRequest { ttl: ttl_s, id: 0 });
            Box::pin(async move { link.lease().lease_grant(request).await })
        })
        .await
    }

    pub(super) async fn revoke(&self, id: i64) -> Result<etcd::LeaseRevokeResponse, SharedError> {
        self.call(|link| {
            let request = link.request(etcd::LeaseRevokeRequest { id });
            Box::pin(async move { link.lease().lease_revoke(request).await })
        })
        .await
    }

    /// Renews a lease once. Seconds that it lives; 0: it is gone.
    pub(super) async fn keep_alive(&self, id: i64) -> Result<i64, SharedError> {
        let answer = self
            .call(|link| {
                let once = tokio_stream::once(etcd::LeaseKeepAliveRequest { id });
                let request = link.request(once);
                Box::pin(async move {
                    let mut answers = link.lease().lease_keep_alive(request).await?.into_inner();
                    let first = answers.message().await?;
                    first.map(Response::new).ok_or_else(|| Status::unavailable("no answer to a keep-alive"))
                })
            })
            .await?;
        Ok(answer.ttl)
    }

    /// One call, on the connection that there is or a new one. A login that has run out is made again, once.
    async fn call<T>(
        &self,
        call: impl for<'a> Fn(&'a Link) -> Answer<'a, T> + Send + Sync,
    ) -> Result<T, SharedError> {
        let mut again = true;
        loop {
            let link = self.link().await?;
            let answered = timeout(self.options.call_timeout, call(&link)).await;
            let status = match answered {
                Ok(Ok(answer)) => return Ok(answer.into_inner()),
                Ok(Err(status)) => status,
                Err(_elapsed) => {
                    let limit_s = self.options.call_timeout.as_secs_f64();
                    Status::deadline_exceeded(format!("no answer within {limit_s} s"))
                }
            };
            if is_logged_out(&status) && self.options.login.is_some() && std::mem::take(&mut again) {
                self.leave(&link).await;
                continue;
            }
            let error = judge(&status);
            if matches!(error, SharedError::Away(_)) {
                self.leave(&link).await;
            }
            return Err(error);
        }
    }

    /// The connection, made if there is none.
    pub(super) async fn link(&self) -> Result<Link, SharedError> {
        let mut current = self.current.lock().await;
        if let Some(link) = &current.link {
            return Ok(link.clone());
        }
        let mut faults = Vec::new();
        for _ in 0..self.options.endpoints.len() {
            let target = &self.options.endpoints[current.next % self.options.endpoints.len()];
            match self.connect(target).await {
                Ok(mut link) => {
                    current.made += 1;
                    link.number = current.made;
                    current.link = Some(link.clone());
                    tracing::debug!(member = target, "connected to etcd");
                    return Ok(link);
                }
                Err(SharedError::Refused(why)) => {
                    return Err(SharedError::Refused(format!("{target}: {why}")));
                }
                Err(why) => faults.push(format!("{target}: {why}")),
            }
            current.next = current.next.wrapping_add(1);
        }
        Err(SharedError::Unreached(faults.join("; ")))
    }

    /// Uses this connection no more; the next one goes to the next member.
    pub(super) async fn leave(&self, link: &Link) {
        let mut current = self.current.lock().await;
        if current.link.as_ref().is_some_and(|known| known.number == link.number) {
            current.link = None;
            current.next = current.next.wrapping_add(1);
        }
    }

    async fn connect(&self, target: &str) -> Result<Link, SharedError> {
        let until = Instant::now() + self.options.connect_timeout.saturating_mul(2);
        let endpoint = self.endpoint(target).map_err(SharedError::Refused)?;
        let channel = match tokio::time::timeout_at(until, endpoint.connect()).await {
            Ok(connected) => connected.map_err(|error| SharedError::Unreached(causes(&error)))?,
            Err(_elapsed) => return Err(SharedError::Unreached("no answer".to_owned())),
        };
        let mut link = Link { channel, token: None, number: 0 };
        if let Some((name, password)) = &self.options.login {
            link.token = Some(self.log_in(&link, name, password).await?);
        }
        Ok(link)
    }

    fn endpoint(&self, target: &str) -> Result<Endpoint, String> {
        let (scheme, address) =
            target.split_once("://").map_or((None, target), |(scheme, address)| (Some(scheme), address));
        let scheme = scheme.unwrap_or(if self.options.tls.is_some() { "https" } else { "http" });
        let endpoint =
            Endpoint::from_shared(format!("{scheme}://{address}")).map_err(|error| error.to_string())?;
        let timeouts = Timeouts {
            connect: self.options.connect_timeout,
            keepalive_interval: KEEPALIVE_INTERVAL,
            keepalive_timeout: KEEPALIVE_TIMEOUT,
            ..Timeouts::default()
        };
        let endpoint = timeouts.of(endpoint);
        match self.options.tls.as_ref().filter(|_| scheme == "https") {
            Some(files) => {
                let config = client_tls(files)?.timeout(self.options.connect_timeout);
                endpoint.tls_config(config).map_err(|error| causes(&error))
            }
            None => Ok(endpoint),
        }
    }

    async fn log_in(
        &self,
        link: &Link,
        name: &str,
        password: &Path,
    ) -> Result<MetadataValue<Ascii>, SharedError> {
        let text = std::fs::read_to_string(password)
            .map_err(|error| SharedError::Refused(format!("cannot read {}: {error}", password.display())))?;
        let password = text.lines().next().unwrap_or_default().to_owned();
        let request = etcd::AuthenticateRequest { name: name.to_owned(), password };
        let mut client = AuthClient::new(link.channel.clone());
        let answer = match timeout(self.options.call_timeout, client.authenticate(request)).await {
            Ok(Ok(answer)) => answer.into_inner(),
            Ok(Err(status)) => {
                // Nothing else has been sent on this connection.
                return Err(match judge(&status) {
                    SharedError::Refused(why) => {
                        SharedError::Refused(format!("cannot log in as {name}: {why}"))
                    }
                    SharedError::Away(why) | SharedError::Unreached(why) => SharedError::Unreached(why),
                });
            }
            Err(_elapsed) => return Err(SharedError::Unreached("no answer to the login".to_owned())),
        };
        let token = answer.token.parse::<MetadataValue<Ascii>>();
        let mut token = token.map_err(|_| SharedError::Refused("its token is no text".to_owned()))?;
        // Whoever has it needs no password: it is shown in no debug output, of a link or of a request.
        token.set_sensitive(true);
        Ok(token)
    }
}

/// Any authority's certificates serve: etcd need not be of the farm.
fn client_tls(files: &TlsFiles) -> Result<ClientTlsConfig, String> {
    let read =
        |path: &Path| std::fs::read(path).map_err(|error| format!("cannot read {}: {error}", path.display()));
    let identity = Identity::from_pem(read(&files.cert)?, read(&files.key)?);
    Ok(ClientTlsConfig::new().identity(identity).ca_certificate(Certificate::from_pem(read(&files.ca)?)))
}

/// The library's own text is only "transport error"; what helps is below it.
fn causes(error: &dyn std::error::Error) -> String {
    let chain = std::iter::successors(error.source(), |inner| inner.source());
    let mut texts: Vec<String> = chain.map(ToString::to_string).collect();
    texts.dedup();
    if texts.is_empty() { error.to_string() } else { texts.join(": ") }
}

/// The token has run out, or the users of the store have changed. etcd refuses before it does anything.
fn is_logged_out(status: &Status) -> bool {
    status.code() == Code::Unauthenticated
        || (status.code() == Code::InvalidArgument && status.message().contains("auth store"))
}

/// What a status means for the caller.
pub(super) fn judge(status: &Status) -> SharedError {
    let said = status.message();
    let text = if said.is_empty() { status.code().description().to_owned() } else { said.to_owned() };
    match status.code() {
        Code::PermissionDenied
        | Code::Unauthenticated
        | Code::InvalidArgument
        | Code::NotFound
        | Code::AlreadyExists
        | Code::FailedPrecondition
        | Code::Unimplemented => SharedError::Refused(text),
        // Its disk quota; the other meaning is that it is busy.
        Code::ResourceExhausted if said.contains("space exceeded") || said.contains("too large") => {
            SharedError::Refused(text)
        }
        _ => SharedError::Away(text),
    }
}
