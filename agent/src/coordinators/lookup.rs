//! What does DNS say of a service?
//!
//! One look-up of SRV records, by the servers of `/etc/resolv.conf` or by those of the settings, without a cache of our
//! own: whoever asks knows how old its answer may become. All coordinators are equal and the agent reports to each, so
//! weights mean nothing here; priorities only order those of an answer that is too long.

use std::fmt;
use std::future::Future;
use std::net::SocketAddr;
use std::pin::Pin;
use std::time::Duration;

use hickory_resolver::TokioResolver;
use hickory_resolver::config::{ConnectionConfig, NameServerConfig, ResolverConfig, ResolverOpts};
use hickory_resolver::net::NetError;
use hickory_resolver::net::runtime::TokioRuntimeProvider;
use hickory_resolver::proto::rr::RData;

/// Longest wait for one server. There are [`ATTEMPTS`] at each.
const TIMEOUT: Duration = Duration::from_secs(3);
const ATTEMPTS: usize = 2;
/// Longest wait for an answer, whatever the servers do.
const LONGEST: Duration = Duration::from_secs(20);

/// An answer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Found {
    /// `host:port`, the preferred ones first. Never empty.
    pub targets: Vec<String>,
    /// How long the answer may be used, as its zone says.
    pub ttl: Duration,
}

/// There is no answer.
#[derive(Debug, thiserror::Error)]
pub enum LookupError {
    /// Whom to ask cannot be told.
    #[error("cannot tell the name servers: {0}")]
    NoServers(String),
    /// Nobody answered in time, or what they answered is not an answer.
    #[error("DNS gives no answer for {service}: {reason}")]
    NoAnswer {
        /// The service.
        service: String,
        /// Why.
        reason: String,
    },
    /// The answer is that there are none.
    #[error("DNS names no coordinator for {service}")]
    Nobody {
        /// The service.
        service: String,
    },
}

/// A look-up under way.
pub type LookingUp<'a> = Pin<Box<dyn Future<Output = Result<Found, LookupError>> + Send + 'a>>;

/// Something that knows who serves. Outside tests the DNS.
pub trait Lookup: Send + Sync + fmt::Debug {
    /// Whom DNS names for `service`. It ends by itself within some seconds.
    fn look_up<'a>(&'a self, service: &'a str) -> LookingUp<'a>;
}

/// The DNS.
#[derive(Debug, Clone, Default)]
pub struct DnsLookup {
    /// Whom to ask. Empty: those of `/etc/resolv.conf`, read anew each time.
    pub nameservers: Vec<SocketAddr>,
}

impl Lookup for DnsLookup {
    fn look_up<'a>(&'a self, service: &'a str) -> LookingUp<'a> {
        Box::pin(async move {
            let no_answer = |reason: String| LookupError::NoAnswer { service: service.to_owned(), reason };
            let resolver = self.resolver()?;
            let asking = tokio::time::timeout(LONGEST, self.ask(&resolver, service)).await;
            asking.map_err(|_| no_answer(format!("nobody answers within {} s", LONGEST.as_secs())))?
        })
    }
}

impl DnsLookup {
    fn resolver(&self) -> Result<TokioResolver, LookupError> {
        let no_servers = |error: NetError| LookupError::NoServers(error.to_string());
        let mut builder = if self.nameservers.is_empty() {
            TokioResolver::builder_tokio().map_err(no_servers)?
        } else {
            let servers = self.nameservers.iter().map(|server| {
                let on_port = |mut connection: ConnectionConfig| {
                    connection.port = server.port();
                    connection
                };
                let ways = [ConnectionConfig::udp(), ConnectionConfig::tcp()].map(on_port).to_vec();
                NameServerConfig::new(server.ip(), true, ways)
            });
            let config = ResolverConfig::from_name_servers(servers.collect());
            TokioResolver::builder_with_config(config, TokioRuntimeProvider::default())
        };
        let options: &mut ResolverOpts = builder.options_mut();
        (options.timeout, options.attempts, options.cache_size) = (TIMEOUT, ATTEMPTS, 0);
        builder.build().map_err(no_servers)
    }

    async fn ask(&self, resolver: &TokioResolver, service: &str) -> Result<Found, LookupError> {
        // With its final dot: search lists are for what people type.
        let answer = resolver.srv_lookup(format!("{}.", service.trim_end_matches('.'))).await;
        let answer = answer.map_err(|error| match error.is_no_records_found() {
            true => LookupError::Nobody { service: service.to_owned() },
            false => LookupError::NoAnswer { service: service.to_owned(), reason: error.to_string() },
        })?;
        let mut ttl_s = u32::MAX;
        let mut found = Vec::new();
        for record in answer.answers() {
            let RData::SRV(srv) = &record.data else { continue };
            ttl_s = ttl_s.min(record.ttl);
            // The root is how a zone says that nobody serves.
            if !srv.target.is_root() {
                let name = srv.target.to_ascii();
                found.push((srv.priority, format!("{}:{}", name.trim_end_matches('.'), srv.port)));
            }
        }
        if found.is_empty() {
            return Err(LookupError::Nobody { service: service.to_owned() });
        }
        found.sort();
        let targets = found.into_iter().map(|(_, target)| target.to_ascii_lowercase()).collect();
        Ok(Found { targets, ttl: Duration::from_secs(ttl_s.into()) })
    }
}
