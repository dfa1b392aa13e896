//! How does a client reach a coordinator?
//!
//! A target is `host:port`, or with `http://` or `https://` in front. With certificate files the
//! connection is mutual TLS; without them it is plain, and plain goes nowhere but to this machine: a
//! password-like token or a user's name must not cross a wire in clear because of one missing setting.
//!
//! Each attempt begins anew: files are read again, so a renewed certificate is used without a restart, and the name is
//! resolved again, so a coordinator that moved is found (see `open`). A dead peer is noticed by HTTP/2 pings, not by TCP,
//! which can take hours.

use std::fmt;
use std::future::Future;
use std::net::IpAddr;
use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use hyper_util::rt::TokioIo;
use tonic::transport::{Channel, Endpoint, Uri};

use super::calm::PingPace;
use super::is_loopback;
use super::open::{OpenError, Opened, open};
use crate::tls::{TlsError, TlsFiles};

/// The port of a coordinator if a target names none.
pub const DEFAULT_PORT: u16 = 7443;

/// What to say besides when a plain connection broke before its first answer: a server that demands TLS hangs up on
/// one, and says why in a form that only TLS can read.
pub const PLAIN_HINT: &str = "if it demands TLS, set tls.cert, tls.key and tls.ca";

/// What one stream may hold on its way that its reader has not taken, bytes, on both sides. Well below what a connection
/// may, so that a reader that stands still holds up only its own stream; enough for the pages of a list to flow.
pub const STREAM_WINDOW_BYTES: u32 = 256 * 1024;
/// What all streams of a connection may hold together, bytes: room for many that stand still. It bounds what a peer can
/// make us keep for one connection.
pub const CONNECTION_WINDOW_BYTES: u32 = 8 * 1024 * 1024;

/// How long a client waits for what.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Timeouts {
    /// For TCP and again for the TLS handshake; [`connect`] allows twice that in all.
    pub connect: Duration,
    /// Between two HTTP/2 pings, also while nothing is sent. A peer that says "too many pings" gets fewer: each time half
    /// as many, down to one in 5 min.
    pub keepalive_interval: Duration,
    /// For the answer to a ping; then the connection is dead.
    pub keepalive_timeout: Duration,
    /// For a whole call, absent for streams that stay open.
    pub call: Option<Duration>,
}

impl Default for Timeouts {
    /// A peer that lost its power is noticed after at most 15 s.
    fn default() -> Self {
        Self {
            connect: Duration::from_secs(5),
            keepalive_interval: Duration::from_secs(10),
            keepalive_timeout: Duration::from_secs(5),
            call: None,
        }
    }
}

impl Timeouts {
    /// The endpoint with these, for connections over whatever network.
    #[must_use]
    pub fn of(&self, endpoint: Endpoint) -> Endpoint {
        let endpoint = endpoint
            .connect_timeout(self.connect)
            .tcp_nodelay(true)
            .initial_stream_window_size(STREAM_WINDOW_BYTES)
            .initial_connection_window_size(CONNECTION_WINDOW_BYTES)
            .http2_keep_alive_interval(self.keepalive_interval)
            .keep_alive_timeout(self.keepalive_timeout)
            .keep_alive_while_idle(true);
        if let Some(limit) = self.call { endpoint.timeout(limit) } else { endpoint }
    }
}

/// Why a target cannot be used at all; trying again does not help until something is changed.
#[derive(Debug, thiserror::Error)]
pub enum TargetError {
    /// It is not `host:port`.
    #[error("{target:?} is not a coordinator address: {reason}")]
    Malformed {
        /// The target.
        target: String,
        /// Why.
        reason: String,
    },
    /// It is elsewhere, and we have no TLS.
    #[error(
        "cannot connect to {target} without TLS: only loopback may be plain; set tls.cert, tls.key and tls.ca"
    )]
    PlainRefused {
        /// The target.
        target: String,
    },
    /// It says https, and we have no certificate to show.
    #[error("cannot connect to {target}: https needs tls.cert, tls.key and tls.ca")]
    NoCertificate {
        /// The target.
        target: String,
    },
    /// Our certificate files cannot be used.
    #[error(transparent)]
    Tls(#[from] TlsError),
}

/// Why there is no connection.
#[derive(Debug, thiserror::Error)]
pub enum ConnectError {
    /// The target cannot be used.
    #[error(transparent)]
    Target(#[from] TargetError),
    /// Nobody answered in time.
    #[error("cannot connect to {target}: no answer within {} s", limit.as_secs_f64())]
    Silent {
        /// The target.
        target: String,
        /// How long it was waited for.
        limit: Duration,
    },
    /// Nobody accepts there, or whoever does is not a coordinator of our farm.
    #[error("cannot connect to {target}: {source}")]
    Refused {
        /// The target.
        target: String,
        /// Why.
        source: OpenError,
    },
    /// The connection failed.
    #[error("cannot connect to {target}: {reason}")]
    Failed {
        /// The target.
        target: String,
        /// The innermost causes.
        reason: String,
        /// The library's error.
        source: tonic::transport::Error,
    },
}

/// One attempt to connect, under way.
pub type Dialing<'a> = Pin<Box<dyn Future<Output = Result<Channel, ConnectError>> + Send + 'a>>;

/// Something that opens connections to coordinators. Outside tests the network; a simulated one takes its place here.
pub trait Dial: Send + Sync + fmt::Debug {
    /// One attempt to reach `target`. It ends by itself within seconds, whatever the peer does.
    fn dial<'a>(&'a self, target: &'a str) -> Dialing<'a>;

    /// Whether connections are made without TLS: what a server that demands it says is not understood then.
    fn is_plain(&self) -> bool;
}

/// The network.
#[derive(Clone, Debug, Default)]
pub struct NetworkDial {
    /// Our certificate. Absent: plain, which only goes to this machine.
    pub tls: Option<TlsFiles>,
    /// How long is waited for what.
    pub timeouts: Timeouts,
}

impl Dial for NetworkDial {
    fn dial<'a>(&'a self, target: &'a str) -> Dialing<'a> {
        Box::pin(connect(target, self.tls.as_ref(), &self.timeouts))
    }

    fn is_plain(&self) -> bool {
        self.tls.is_none()
    }
}

/// What is wrong with `target`, as far as it can be told without a file or a look-up; `has_tls` says whether certificate
/// files are named. Otherwise the address as `host:port`, the same for each way to write it.
///
/// # Errors
/// When the target has another form, or is not on this machine and we have no TLS.
pub fn check_target(target: &str, has_tls: bool) -> Result<String, TargetError> {
    let (parsed, _) = judge(target, has_tls)?;
    Ok(format!("{}:{}", parsed.host.to_ascii_lowercase(), parsed.port))
}

/// The target, and whether it is reached by TLS.
fn judge(target: &str, has_tls: bool) -> Result<(Target, bool), TargetError> {
    let parsed = parse(target)?;
    let secure = parsed.secure.unwrap_or(has_tls);
    if !secure && !parsed.is_here() {
        return Err(TargetError::PlainRefused { target: target.to_owned() });
    }
    if secure && !has_tls {
        return Err(TargetError::NoCertificate { target: target.to_owned() });
    }
    Ok((parsed, secure))
}

/// One attempt to connect, name look-up and handshake included, in at most twice `timeouts.connect`. A channel that loses
/// its connection opens another one when it is next used, by the same rules.
///
/// # Errors
/// When the target is unusable, silent, refuses, or is not a coordinator of our farm.
pub async fn connect(
    target: &str,
    tls: Option<&TlsFiles>,
    timeouts: &Timeouts,
) -> Result<Channel, ConnectError> {
    let limit = timeouts.connect.saturating_mul(2);
    match tokio::time::timeout(limit, connect_unbounded(target, tls, timeouts)).await {
        Ok(connected) => connected,
        Err(_elapsed) => Err(ConnectError::Silent { target: target.to_owned(), limit }),
    }
}

async fn connect_unbounded(
    target: &str,
    tls: Option<&TlsFiles>,
    timeouts: &Timeouts,
) -> Result<Channel, ConnectError> {
    let way = Way::to(target, tls, timeouts)?;
    let keepalive_interval = way.pace.interval(target, timeouts.keepalive_interval);
    let endpoint = Timeouts { keepalive_interval, ..*timeouts }.of(way.endpoint()?);
    let first = way.open().await?;
    let first = Arc::new(Mutex::new(Some(first)));
    let connector = tower::service_fn(move |_: Uri| {
        let (way, first) = (way.clone(), Arc::clone(&first));
        async move {
            let ready = first.lock().unwrap_or_else(PoisonError::into_inner).take();
            let opened = match ready {
                Some(ready) => ready,
                None => way.open().await?,
            };
            Ok::<_, ConnectError>(TokioIo::new(opened))
        }
    });
    endpoint.connect_with_connector(connector).await.map_err(|source| ConnectError::Failed {
        target: target.to_owned(),
        reason: causes(&source),
        source,
    })
}

/// How a target is reached, each time that it is.
#[derive(Clone, Debug)]
struct Way {
    target: String,
    parsed: Target,
    /// Absent: plain.
    tls: Option<TlsFiles>,
    timeouts: Timeouts,
    pace: PingPace,
}

impl Way {
    fn to(target: &str, tls: Option<&TlsFiles>, timeouts: &Timeouts) -> Result<Self, TargetError> {
        let (parsed, secure) = judge(target, tls.is_some())?;
        let (tls, timeouts, pace) = (tls.filter(|_| secure).cloned(), *timeouts, PingPace::of_process());
        Ok(Self { target: target.to_owned(), parsed, tls, timeouts, pace })
    }

    /// TLS is ours and not the library's, which would not look at whom it has reached; so to it the way is plain, and
    /// only the requests say otherwise.
    fn endpoint(&self) -> Result<Endpoint, TargetError> {
        let malformed = |reason: String| TargetError::Malformed { target: self.target.clone(), reason };
        let authority = format!("{}:{}", self.parsed.host, self.parsed.port);
        let endpoint = Endpoint::from_shared(format!("http://{authority}"))
            .map_err(|error| malformed(error.to_string()))?;
        if self.tls.is_none() {
            return Ok(endpoint);
        }
        let origin: Uri =
            format!("https://{authority}").parse().map_err(|_| malformed("write host:port".into()))?;
        Ok(endpoint.origin(origin))
    }

    async fn open(&self) -> Result<Opened, ConnectError> {
        let tls = self.tls.as_ref().map(TlsFiles::client).transpose().map_err(TargetError::from)?;
        let io = open(&self.parsed.host, self.parsed.port, tls.as_ref(), self.timeouts.connect)
            .await
            .map_err(|source| ConnectError::Refused { target: self.target.clone(), source })?;
        Ok(Opened::new(io, self.pace.listen(&self.target, self.timeouts.keepalive_interval)))
    }
}

/// The library's own text is only "transport error"; what helps is below it.
fn causes(error: &dyn std::error::Error) -> String {
    let chain = std::iter::successors(error.source(), |inner| inner.source());
    let mut texts: Vec<String> = chain.map(ToString::to_string).collect();
    texts.dedup();
    if texts.is_empty() { error.to_string() } else { texts.join(": ") }
}

#[derive(Clone, Debug, PartialEq, Eq)]
struct Target {
    /// Absent: as the certificate files say.
    secure: Option<bool>,
    /// With brackets if it is IPv6.
    host: String,
    port: u16,
}

impl Target {
    /// Whether it is this machine: `localhost`, or a loopback address. Other names may resolve anywhere.
    fn is_here(&self) -> bool {
        let bare = self.host.trim_start_matches('[').trim_end_matches(']');
        self.host.eq_ignore_ascii_case("localhost") || bare.parse::<IpAddr>().is_ok_and(is_loopback)
    }
}

fn parse(target: &str) -> Result<Target, TargetError> {
    let malformed =
        |reason: &str| TargetError::Malformed { target: target.to_owned(), reason: reason.to_owned() };
    let (secure, rest) = match target.trim().split_once("://") {
        None => (None, target.trim()),
        Some(("http", rest)) => (Some(false), rest),
        Some(("https", rest)) => (Some(true), rest),
        Some(_) => return Err(malformed("only http:// and https:// are known")),
    };
    let authority = rest.strip_suffix('/').unwrap_or(rest);
    if authority.is_empty() || authority.contains(['/', '@', '?', '#']) {
        return Err(malformed("write host:port"));
    }
    if authority.contains('%') {
        return Err(malformed("an address with a zone cannot be dialled, use a global address or a name"));
    }
    if !authority.starts_with('[') && authority.matches(':').count() > 1 {
        return Err(malformed("ambiguous, write an IPv6 address in brackets: [::1]:7443"));
    }
    let uri: Uri = format!("http://{authority}").parse().map_err(|_invalid| malformed("write host:port"))?;
    let host = uri.host().filter(|host| !host.is_empty()).ok_or_else(|| malformed("no host"))?;
    let port = match authority.strip_prefix(host).and_then(|rest| rest.strip_prefix(':')) {
        None => DEFAULT_PORT,
        Some(text) => match text.parse() {
            Ok(port) if port > 0 => port,
            _ => return Err(malformed("the port must be in 1..=65535")),
        },
    };
    if let Some(inner) = host.strip_prefix('[')
        && inner.trim_end_matches(']').parse::<std::net::Ipv6Addr>().is_err()
    {
        return Err(malformed("not an IPv6 address in brackets"));
    }
    Ok(Target { secure, host: host.to_owned(), port })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn files() -> TlsFiles {
        TlsFiles { cert: "/none/c".into(), key: "/none/k".into(), ca: "/none/a".into() }
    }

    fn uri(target: &str) -> Result<String, TargetError> {
        Way::to(target, None, &Timeouts::default())?.endpoint().map(|endpoint| endpoint.uri().to_string())
    }

    #[test]
    fn plain_targets_on_this_machine_are_taken() {
        for (target, expected) in [
            ("127.0.0.1:7443", "http://127.0.0.1:7443/"),
            ("127.0.0.1", "http://127.0.0.1:7443/"),
            (" localhost:1 ", "http://localhost:1/"),
            ("http://[::1]:8/", "http://[::1]:8/"),
            ("[::1]", "http://[::1]:7443/"),
        ] {
            assert_eq!(uri(target).unwrap(), expected);
        }
    }

    #[test]
    fn an_address_is_one_however_it_is_written_and_is_judged_without_files() {
        for target in ["LOCALHOST", "localhost:7443", " http://localhost:7443/ "] {
            assert_eq!(check_target(target, false).unwrap(), "localhost:7443", "{target}");
        }
        assert_eq!(check_target("c1.example", true).unwrap(), "c1.example:7443");
        assert!(matches!(check_target("c1.example", false), Err(TargetError::PlainRefused { .. })));
        assert!(matches!(check_target("http://c1.example", true), Err(TargetError::PlainRefused { .. })));
        assert!(matches!(check_target("https://localhost", false), Err(TargetError::NoCertificate { .. })));
    }

    #[test]
    fn plain_to_anywhere_else_is_refused() {
        for target in ["10.0.0.1:7443", "http://c1.example:7443", "c1", "[2001:db8::1]:7443"] {
            let error = uri(target).unwrap_err();
            assert!(matches!(error, TargetError::PlainRefused { .. }), "{target}: {error}");
        }
        let plain_in_spite_of_files = Way::to("http://c1:1", Some(&files()), &Timeouts::default());
        assert!(matches!(plain_in_spite_of_files, Err(TargetError::PlainRefused { .. })));
    }

    #[test]
    fn a_target_of_another_form_is_refused_without_a_panic() {
        for target in [
            "",
            ":",
            ":7443",
            "http://",
            "ftp://localhost:1",
            "localhost:0",
            "localhost:65536",
            "localhost:",
            "localhost:x",
            "user@localhost:1",
            "localhost:1/path",
            "fe80::1:7443",
            "::1",
            "[fe80::1%eth0]:7443",
            "[::1:7443",
            "[nonsense]:7443",
            "local host:1",
            "\u{0}",
        ] {
            let error = uri(target).unwrap_err();
            assert!(matches!(error, TargetError::Malformed { .. }), "{target:?}: {error}");
        }
    }

    #[tokio::test]
    async fn https_needs_files_and_bad_files_are_named() {
        assert!(matches!(uri("https://c1:1"), Err(TargetError::NoCertificate { .. })));
        let error = connect("c1:1", Some(&files()), &Timeouts::default()).await.unwrap_err();
        assert!(error.to_string().contains("cannot read /none/c"), "{error}");
    }

    #[tokio::test]
    async fn a_refused_connection_says_so() {
        let listener = super::super::bind("127.0.0.1:0".parse().unwrap()).await.unwrap();
        let addr = listener.local_addr().unwrap();
        drop(listener);
        let error = connect(&addr.to_string(), None, &Timeouts::default()).await.unwrap_err().to_string();
        assert!(error.contains(&addr.to_string()) && error.contains("refused"), "{error}");
    }
}
