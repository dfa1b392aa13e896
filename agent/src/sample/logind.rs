//! Who is logged in, as systemd-logind tells it?
//!
//! logind lists more than logins. Each user gets a session of class `manager` beside the real one, display managers
//! have `greeter` sessions, timers `background` ones, and a session that the user has left stays in the state
//! `closing` for as long as any of its processes lives, which can be for ever. Only the classes of people count
//! (`user`, `user-early`, `user-light`), and only while `active` or `online`.
//!
//! Some remote access programs set no terminal, so logind files their people as `background`. They do not count by
//! themselves (a cron job looks the same), but they are warned about, and the operator can name their services.
//!
//! Deciding is apart from asking: [`decide`] is pure, [`LogindClient`] only fetches rows. Asking makes no session: it
//! opens no PAM stack.

use std::collections::HashMap;
use std::time::Duration;

use futures::stream::{self, StreamExt, TryStreamExt};
use zbus::fdo::{self, PropertiesProxy};
use zbus::names::InterfaceName;
use zbus::proxy::CacheProperties;
use zbus::{Connection, OwnedObjectPath, OwnedVariant};
use zbus_systemd::login1::ManagerProxy;

use super::error::SampleError;
use super::sessions::{SessionConfig, SessionSeen, SessionState};

const SUBJECT: &str = "logind";
const SERVICE: &str = "org.freedesktop.login1";
const SESSION_INTERFACE: InterfaceName<'static> =
    InterfaceName::from_static_str_unchecked("org.freedesktop.login1.Session");

/// Classes of sessions that people sit in.
const USER_CLASSES: [&str; 3] = ["user", "user-early", "user-light"];

/// Questions in flight at once. The system bus allows 128 unanswered ones per connection.
const QUESTIONS_IN_FLIGHT: usize = 32;

/// Where logind is asked.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub enum BusAddress {
    /// The system bus of this host.
    #[default]
    System,
    /// A D-Bus address, such as `unix:path=/run/dbus/system_bus_socket`.
    At(String),
}

/// One session as logind describes it.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct LogindRow {
    /// logind's name of the session.
    pub id: String,
    /// Login name.
    pub user: String,
    /// `user`, `manager`, `background`, `greeter` and so on.
    pub class: String,
    /// `opening`, `online`, `active` or `closing`.
    pub state: String,
    /// The PAM service that made it.
    pub service: String,
    /// Came over the network.
    pub remote: bool,
    /// When it began, on the monotonic clock. Absent if logind does not say.
    pub since_monotonic: Option<Duration>,
}

/// Which rows are sessions of people.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct LogindDecision {
    /// Those that count, in logind's order.
    pub sessions: Vec<SessionSeen>,
    /// What an operator should look at.
    pub warning: Option<String>,
}

/// Picks the rows that count as sessions; `now_monotonic` is the monotonic clock at the reading.
#[must_use]
pub fn decide(rows: &[LogindRow], config: &SessionConfig, now_monotonic: Duration) -> LogindDecision {
    let mut decision = LogindDecision::default();
    let mut background = 0_usize;
    for row in rows {
        if !matches!(row.state.as_str(), "active" | "online") || config.ignores(&row.user) {
            continue;
        }
        let named = config.session_services_extra.contains(&row.service);
        let of_background = matches!(row.class.as_str(), "background" | "background-light");
        if USER_CLASSES.contains(&row.class.as_str()) || (of_background && named) {
            decision.sessions.push(SessionSeen {
                id: row.id.clone(),
                user: row.user.clone(),
                state: SessionState::Active,
                age: row.since_monotonic.and_then(|since| now_monotonic.checked_sub(since)),
            });
        } else if of_background && row.remote {
            background += 1;
        }
    }
    if background > 0 {
        decision.warning = Some(format!("remote background sessions present: {background}"));
    }
    decision
}

/// Asks logind. Keeps its connection between questions and makes a new one after any failure.
#[derive(Debug, Default)]
pub struct LogindClient {
    address: BusAddress,
    connection: Option<Connection>,
}

impl LogindClient {
    /// A client of the bus at `address`; connects with the first question.
    #[must_use]
    pub fn new(address: BusAddress) -> Self {
        Self { address, connection: None }
    }

    #[cfg(test)]
    fn over(connection: Connection) -> Self {
        Self { address: BusAddress::System, connection: Some(connection) }
    }

    /// All sessions that logind knows, people or not.
    ///
    /// # Errors
    /// At once when there is no bus or no logind on it; after `deadline` when it does not answer.
    pub async fn rows(&mut self, deadline: Duration) -> Result<Vec<LogindRow>, SampleError> {
        // Taken out, so that a failure or a cancelled question leaves no half-used connection behind.
        let kept = self.connection.take();
        let ask = async {
            let connection = match kept {
                Some(connection) => connection,
                None => connect(&self.address).await.map_err(bus("connect"))?,
            };
            let rows = list(&connection).await?;
            Ok((connection, rows))
        };
        let (connection, rows) = tokio::time::timeout(deadline, ask)
            .await
            .map_err(|_| SampleError::TimedOut { subject: SUBJECT, limit_ms: deadline.as_millis() })??;
        self.connection = Some(connection);
        Ok(rows)
    }
}

fn bus(operation: &'static str) -> impl Fn(zbus::Error) -> SampleError {
    move |source| SampleError::Bus { operation, source: Box::new(source) }
}

async fn connect(address: &BusAddress) -> zbus::Result<Connection> {
    match address {
        BusAddress::System => Connection::system().await,
        BusAddress::At(address) => zbus::connection::Builder::address(address.as_str()).build().await,
    }
}

async fn list(connection: &Connection) -> Result<Vec<LogindRow>, SampleError> {
    let manager = ManagerProxy::builder(connection)
        .cache_properties(CacheProperties::No)
        .build()
        .await
        .map_err(bus("list its sessions"))?;
    let listed = manager.list_sessions().await.map_err(bus("list its sessions"))?;
    let rows: Vec<Option<LogindRow>> =
        stream::iter(listed.into_iter().map(|(id, _, user, _, path)| row(connection, id, user, path)))
            .buffered(QUESTIONS_IN_FLIGHT)
            .try_collect()
            .await?;
    Ok(rows.into_iter().flatten().collect())
}

/// One session's properties; `None` when it ended since it was listed.
async fn row(
    connection: &Connection,
    id: String,
    user: String,
    path: OwnedObjectPath,
) -> Result<Option<LogindRow>, SampleError> {
    let describe = bus("describe a session");
    let properties = PropertiesProxy::builder(connection)
        .destination(SERVICE)
        .path(path)
        .cache_properties(CacheProperties::No)
        .build()
        .await
        .map_err(&describe)?;
    match properties.get_all(SESSION_INTERFACE).await {
        Ok(values) => row_of(id, user, values).map(Some),
        Err(fdo::Error::UnknownObject(_)) => Ok(None),
        Err(error) => Err(describe(error.into())),
    }
}

fn row_of(
    id: String,
    user: String,
    mut values: HashMap<String, OwnedVariant>,
) -> Result<LogindRow, SampleError> {
    let mut text = |name: &str| values.remove(name).and_then(|value| String::try_from(value).ok());
    let (class, state, service) = (text("Class"), text("State"), text("Service"));
    let missing = |name| SampleError::malformed(SUBJECT, format!("session `{id}` has no {name}"));
    let since_us = values.remove("TimestampMonotonic").and_then(|value| u64::try_from(value).ok());
    Ok(LogindRow {
        class: class.ok_or_else(|| missing("Class"))?,
        state: state.ok_or_else(|| missing("State"))?,
        service: service.unwrap_or_default(),
        remote: values.remove("Remote").is_some_and(|value| bool::try_from(value).unwrap_or(false)),
        // logind says 0 for "not known".
        since_monotonic: since_us.filter(|&since_us| since_us > 0).map(Duration::from_micros),
        id,
        user,
    })
}

#[cfg(test)]
#[path = "logind_tests.rs"]
mod tests;
