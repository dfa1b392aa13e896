//! How does each kind of door show that somebody is behind it?
//!
//! By the first thing that its protocol makes it say: an SSH server its banner, an RDP server the confirmation of an
//! X.224 connection, an HTTP server a status line. Nothing is sent that would begin a login, and little is read: what
//! answers may be anything.

use std::fmt;
use std::io;
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::time::timeout;
use usher_types::DoorKind;

use super::tls;

/// Most bytes that are read before an answer counts as none. An SSH server may send some lines before its banner, an
/// HTTP server's status line is short.
const MOST_BYTES: usize = 8192;

/// An X.224 connection request in a TPKT: 19 bytes, with a request for RDP over TLS or CredSSP.
const X224_REQUEST: [u8; 19] = [3, 0, 0, 19, 14, 0xe0, 0, 0, 0, 0, 0, 1, 0, 8, 0, 3, 0, 0, 0];
/// Code of a connection confirm, in the upper half of the sixth byte.
const X224_CONFIRM: u8 = 0xd0;

/// A host and a port.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Place {
    /// Name or address, without brackets.
    pub host: String,
    /// TCP port, >= 1.
    pub port: u16,
}

impl Place {
    /// Reads `host:port`, an IPv6 address in brackets.
    ///
    /// # Errors
    /// What is allowed.
    pub fn parse(text: &str) -> Result<Self, String> {
        let wrong = || format!("= {text:?} is not allowed, must be host:port, as in \"nas.example:2049\"");
        let (host, port) = text.rsplit_once(':').ok_or_else(wrong)?;
        let port = port.parse().ok().filter(|port| *port > 0).ok_or_else(wrong)?;
        let host = match host.strip_prefix('[') {
            Some(rest) => rest.strip_suffix(']').ok_or_else(wrong)?,
            None if host.contains(':') => return Err(wrong()),
            None => host,
        };
        let is_name = |c: char| c.is_ascii_graphic() && !matches!(c, '/' | '@' | '[' | ']');
        if host.is_empty() || host.len() > 253 || !host.chars().all(is_name) {
            return Err(wrong());
        }
        Ok(Self { host: host.to_owned(), port })
    }
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { host, port } = self;
        if host.contains(':') { write!(f, "[{host}]:{port}") } else { write!(f, "{host}:{port}") }
    }
}

/// A page.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct HttpUrl {
    /// Over TLS.
    pub is_secure: bool,
    /// Where.
    pub place: Place,
    /// What, beginning with `/`.
    pub path: String,
}

impl HttpUrl {
    /// Reads `http://host[:port][/path]` or `https://...`.
    ///
    /// # Errors
    /// What is allowed.
    pub(super) fn parse(text: &str) -> Result<Self, String> {
        let wrong =
            || format!("= {text:?} is not allowed, must be a URL as in \"http://intranet.example/health\"");
        let (is_secure, rest) = match text.split_once("://") {
            Some(("http", rest)) => (false, rest),
            Some(("https", rest)) => (true, rest),
            _ => return Err(wrong()),
        };
        let (authority, path) = rest.split_at(rest.find('/').unwrap_or(rest.len()));
        let path = if path.is_empty() { "/" } else { path };
        if !path.bytes().all(|byte| byte.is_ascii_graphic()) {
            return Err(wrong());
        }
        let has_port = authority.rsplit(']').next().is_some_and(|rest| rest.contains(':'));
        let place = if has_port {
            Place::parse(authority)
        } else {
            Place::parse(&format!("{authority}:{}", if is_secure { 443 } else { 80 }))
        };
        Ok(Self { is_secure, place: place.map_err(|_| wrong())?, path: path.to_owned() })
    }
}

/// Why a try failed.
#[derive(Debug, thiserror::Error)]
pub enum TryError {
    /// It took too long.
    #[error("{place} did not answer within {} ms", limit.as_millis())]
    TimedOut {
        /// Whom was asked.
        place: String,
        /// The deadline.
        limit: Duration,
    },
    /// No connection.
    #[error("cannot connect to {place}: {source}")]
    Connect {
        /// Whom.
        place: Place,
        /// What the system said.
        source: io::Error,
    },
    /// The connection broke.
    #[error("{place} hung up: {source}")]
    Broke {
        /// Who.
        place: Place,
        /// What the system said.
        source: io::Error,
    },
    /// It answered something else.
    #[error("{place} {what}")]
    Answer {
        /// Who.
        place: Place,
        /// What it did, reads on after its name.
        what: String,
    },
    /// The handshake failed.
    #[error("{place}: {source}")]
    Tls {
        /// With whom.
        place: Place,
        /// Why.
        source: tls::TlsError,
    },
    /// The program did not run, or not in time.
    #[error(transparent)]
    Program(#[from] crate::program::ProgramError),
    /// The program says no.
    #[error("{program} ended with {status}")]
    Exit {
        /// The program.
        program: String,
        /// How it ended.
        status: std::process::ExitStatus,
    },
}

/// Bounds a try.
pub(super) async fn within<T>(
    limit: Duration,
    place: impl fmt::Display,
    attempt: impl Future<Output = Result<T, TryError>>,
) -> Result<T, TryError> {
    timeout(limit, attempt)
        .await
        .unwrap_or_else(|_| Err(TryError::TimedOut { place: place.to_string(), limit }))
}

/// How a door is asked over HTTP.
#[derive(Debug, Clone, Copy)]
pub(super) struct HttpDoor<'a> {
    /// What for.
    pub(super) path: &'a str,
    /// Over TLS, by this name. Absent: plain.
    pub(super) tls: Option<(&'a tls::TlsClient, &'a str)>,
}

/// Tries a door of this kind.
pub(super) async fn door(
    kind: DoorKind,
    place: &Place,
    http: HttpDoor<'_>,
    limit: Duration,
) -> Result<(), TryError> {
    let attempt = async {
        match kind {
            DoorKind::None => Ok(()),
            DoorKind::Tcp => connect(place).await.map(drop),
            DoorKind::Ssh => ssh_banner(place, &mut connect(place).await?).await,
            DoorKind::Rdp => x224_confirm(place, &mut connect(place).await?).await,
            // Whoever asks for a login, or does not have the page, is there.
            DoorKind::Http => http_door(place, http).await,
        }
    };
    within(limit, place, attempt).await
}

async fn http_door(place: &Place, HttpDoor { path, tls }: HttpDoor<'_>) -> Result<(), TryError> {
    let mut stream = connect(place).await?;
    let get = Get { place, called: place, path, highest: 499 };
    match tls {
        None => get.from(&mut stream).await,
        Some((client, name)) => {
            let called = Place { host: name.to_owned(), port: place.port };
            let mut stream = handshake(place, name, client, stream).await?;
            Get { called: &called, ..get }.from(&mut stream).await
        }
    }
}

/// Asks for a page; a status of 400 and more is a failure.
pub(super) async fn page(
    url: &HttpUrl,
    client: Option<&tls::TlsClient>,
    limit: Duration,
) -> Result<(), TryError> {
    let HttpUrl { place, path, .. } = url;
    let attempt = async {
        let mut stream = connect(place).await?;
        let get = Get { place, called: place, path, highest: 399 };
        match client {
            Some(client) => get.from(&mut handshake(place, &place.host, client, stream).await?).await,
            None => get.from(&mut stream).await,
        }
    };
    within(limit, place, attempt).await
}

pub(super) async fn connect(place: &Place) -> Result<TcpStream, TryError> {
    let connected = TcpStream::connect((place.host.as_str(), place.port)).await;
    connected.map_err(|source| TryError::Connect { place: place.clone(), source })
}

pub(super) async fn handshake(
    place: &Place,
    name: &str,
    client: &tls::TlsClient,
    stream: TcpStream,
) -> Result<impl AsyncRead + AsyncWrite + Unpin + use<>, TryError> {
    let shaken = client.handshake(name, stream).await;
    shaken.map_err(|source| TryError::Tls { place: place.clone(), source })
}

/// Reads until `is_enough` says so, at most [`MOST_BYTES`].
async fn read_until(
    place: &Place,
    stream: &mut (impl AsyncRead + Unpin),
    is_enough: impl Fn(&[u8]) -> bool,
) -> Result<Vec<u8>, TryError> {
    let mut seen = Vec::new();
    let mut buffer = [0; 1024];
    while seen.len() < MOST_BYTES && !is_enough(&seen) {
        match stream.read(&mut buffer).await {
            Ok(0) => break,
            Ok(read) => seen.extend_from_slice(buffer.get(..read).unwrap_or_default()),
            // Whoever answered and then hung up hard has answered.
            Err(_) if !seen.is_empty() => break,
            Err(source) => return Err(TryError::Broke { place: place.clone(), source }),
        }
    }
    Ok(seen)
}

async fn send(place: &Place, stream: &mut (impl AsyncWrite + Unpin), bytes: &[u8]) -> Result<(), TryError> {
    let sent = async { stream.write_all(bytes).await.and(stream.flush().await) };
    sent.await.map_err(|source| TryError::Broke { place: place.clone(), source })
}

/// Whole lines only: half of a banner is none.
fn has_banner(seen: &[u8]) -> bool {
    seen.split_inclusive(|byte| *byte == b'\n').any(|line| line.starts_with(b"SSH-") && line.ends_with(b"\n"))
}

pub(crate) async fn ssh_banner(place: &Place, stream: &mut (impl AsyncRead + Unpin)) -> Result<(), TryError> {
    let seen = read_until(place, stream, has_banner).await?;
    if has_banner(&seen) { Ok(()) } else { Err(answer(place, "sent no SSH banner".to_owned())) }
}

pub(crate) async fn x224_confirm(
    place: &Place,
    stream: &mut (impl AsyncRead + AsyncWrite + Unpin),
) -> Result<(), TryError> {
    send(place, stream, &X224_REQUEST).await?;
    let seen = read_until(place, stream, |seen| seen.len() >= 6).await?;
    match seen.as_slice() {
        [3, _, _, _, _, code, ..] if code & 0xf0 == X224_CONFIRM => Ok(()),
        [] => Err(answer(place, "hung up on an RDP connection".to_owned())),
        _ => Err(answer(place, "did not confirm an RDP connection".to_owned())),
    }
}

/// A question over HTTP.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Get<'a> {
    /// Who is asked.
    pub(crate) place: &'a Place,
    /// As what it is asked.
    pub(crate) called: &'a Place,
    /// What for.
    pub(crate) path: &'a str,
    /// Highest status of an answer that is a good one.
    pub(crate) highest: u16,
}

impl Get<'_> {
    pub(crate) async fn from(
        self,
        stream: &mut (impl AsyncRead + AsyncWrite + Unpin),
    ) -> Result<(), TryError> {
        let Self { place, called, path, highest } = self;
        let request = format!(
            "GET {path} HTTP/1.1\r\nHost: {called}\r\nUser-Agent: usher-agent\r\nConnection: close\r\n\r\n"
        );
        send(place, stream, request.as_bytes()).await?;
        let seen = read_until(place, stream, |seen| seen.contains(&b'\n')).await?;
        let status = status_of(&seen).ok_or_else(|| answer(place, "did not answer in HTTP".to_owned()))?;
        if (100..=highest).contains(&status) {
            Ok(())
        } else {
            Err(answer(place, format!("answered with HTTP status {status}")))
        }
    }
}

fn status_of(seen: &[u8]) -> Option<u16> {
    let line = seen.split(|byte| *byte == b'\n').next()?;
    let line = std::str::from_utf8(line).ok()?;
    let (version, rest) = line.split_once(' ')?;
    let status = rest.split_whitespace().next().filter(|status| status.len() == 3)?;
    version.starts_with("HTTP/1.").then(|| status.parse().ok()).flatten()
}

fn answer(place: &Place, what: String) -> TryError {
    TryError::Answer { place: place.clone(), what }
}

#[cfg(test)]
#[path = "tries_tests.rs"]
mod tests;
