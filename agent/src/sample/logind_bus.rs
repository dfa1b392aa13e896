//! How is logind asked over D-Bus?
//!
//! Newer ones tell the class of every session in one answer, so that only those of people need a question each; older
//! ones are asked about all. Asking makes no session: it opens no PAM stack. Whether there is no bus, no logind on it,
//! or no answer: each is an error of this source, and the next look begins with a new connection.

use std::collections::HashMap;
use std::path::Path;
use std::time::Duration;

use futures::stream::{self, StreamExt, TryStreamExt};
use zbus::fdo::{self, PropertiesProxy};
use zbus::names::InterfaceName;
use zbus::proxy::CacheProperties;
use zbus::{Connection, OwnedObjectPath, OwnedVariant};
use zbus_systemd::login1::ManagerProxy;

use super::error::SampleError;
use super::logind::{LogindRow, can_count};

const SUBJECT: &str = "logind";
const SERVICE: &str = "org.freedesktop.login1";
const SESSION_INTERFACE: InterfaceName<'static> =
    InterfaceName::from_static_str_unchecked("org.freedesktop.login1.Session");

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

impl BusAddress {
    /// The bus of the system below `root`: a container finds that of its machine under the mount.
    #[must_use]
    pub fn below(root: &Path) -> Self {
        if root == Path::new("/") {
            return Self::System;
        }
        let socket = root.join("run/dbus/system_bus_socket");
        let mut address = "unix:path=".to_owned();
        for byte in socket.as_os_str().as_encoded_bytes() {
            // Other characters have a meaning of their own in an address.
            if byte.is_ascii_alphanumeric() || b"-_/.".contains(byte) {
                address.push(char::from(*byte));
            } else {
                address.push_str(&format!("%{byte:02x}"));
            }
        }
        Self::At(address)
    }
}

/// Asks logind. Keeps its connection between questions and makes a new one after any failure.
#[derive(Debug, Default)]
pub struct LogindClient {
    address: BusAddress,
    connection: Option<Connection>,
    /// It does not tell classes in its list.
    is_old: bool,
}

impl LogindClient {
    /// A client of the bus at `address`; connects with the first question.
    #[must_use]
    pub fn new(address: BusAddress) -> Self {
        Self { address, ..Self::default() }
    }

    #[cfg(test)]
    fn over(connection: Connection) -> Self {
        Self { connection: Some(connection), ..Self::default() }
    }

    /// All sessions that logind knows and that may count.
    ///
    /// # Errors
    /// At once when there is no bus or no logind on it; after `deadline` when it does not answer.
    pub async fn rows(&mut self, deadline: Duration) -> Result<Vec<LogindRow>, SampleError> {
        // Taken out, so that a failure or a cancelled question leaves no half-used connection behind.
        let (kept, is_old) = (self.connection.take(), self.is_old);
        let ask = async {
            let connection = match kept {
                Some(connection) => connection,
                None => connect(&self.address).await.map_err(bus("connect"))?,
            };
            let manager = ManagerProxy::builder(&connection)
                .cache_properties(CacheProperties::No)
                .build()
                .await
                .map_err(bus("list its sessions"))?;
            let listed = if is_old { None } else { listed_with_class(&manager).await? };
            let is_old = listed.is_none();
            let listed = match listed {
                Some(listed) => listed,
                None => listed_all(&manager).await?,
            };
            let rows = described(&connection, listed).await?;
            Ok((connection, is_old, rows))
        };
        let (connection, is_old, rows) = tokio::time::timeout(deadline, ask)
            .await
            .map_err(|_| SampleError::TimedOut { subject: SUBJECT, limit_ms: deadline.as_millis() })??;
        (self.connection, self.is_old) = (Some(connection), is_old);
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

/// What a list tells of one session.
struct Listed {
    id: String,
    uid: u32,
    user: String,
    path: OwnedObjectPath,
}

/// The sessions of classes that may count. Absent: this logind does not list classes.
async fn listed_with_class(manager: &ManagerProxy<'_>) -> Result<Option<Vec<Listed>>, SampleError> {
    match manager.list_sessions_ex().await {
        Ok(listed) => Ok(Some(
            listed
                .into_iter()
                .filter(|(_, _, _, _, _, class, ..)| can_count(class))
                .map(|(id, uid, user, _, _, _, _, _, _, path)| Listed { id, uid, user, path })
                .collect(),
        )),
        Err(error) if is_unknown_method(&error) => Ok(None),
        Err(error) => Err(bus("list its sessions")(error)),
    }
}

fn is_unknown_method(error: &zbus::Error) -> bool {
    match error {
        zbus::Error::FDO(error) => matches!(**error, fdo::Error::UnknownMethod(_)),
        zbus::Error::MethodError(name, ..) => *name == "org.freedesktop.DBus.Error.UnknownMethod",
        _ => false,
    }
}

async fn listed_all(manager: &ManagerProxy<'_>) -> Result<Vec<Listed>, SampleError> {
    let listed = manager.list_sessions().await.map_err(bus("list its sessions"))?;
    Ok(listed.into_iter().map(|(id, uid, user, _, path)| Listed { id, uid, user, path }).collect())
}

async fn described(connection: &Connection, listed: Vec<Listed>) -> Result<Vec<LogindRow>, SampleError> {
    let rows: Vec<Option<LogindRow>> = stream::iter(listed.into_iter().map(|listed| row(connection, listed)))
        .buffered(QUESTIONS_IN_FLIGHT)
        .try_collect()
        .await?;
    Ok(rows.into_iter().flatten().collect())
}

/// One session's properties; `None` when it ended since it was listed.
async fn row(connection: &Connection, listed: Listed) -> Result<Option<LogindRow>, SampleError> {
    let describe = bus("describe a session");
    let Listed { id, uid, user, path } = listed;
    let properties = PropertiesProxy::builder(connection)
        .destination(SERVICE)
        .path(path)
        .cache_properties(CacheProperties::No)
        .build()
        .await
        .map_err(&describe)?;
    match properties.get_all(SESSION_INTERFACE).await {
        Ok(values) => {
            row_of(LogindRow { id, uid: Some(uid), user, ..LogindRow::default() }, values).map(Some)
        }
        Err(fdo::Error::UnknownObject(_)) => Ok(None),
        Err(error) => Err(describe(error.into())),
    }
}

fn row_of(listed: LogindRow, mut values: HashMap<String, OwnedVariant>) -> Result<LogindRow, SampleError> {
    let mut text = |name: &str| values.remove(name).and_then(|value| String::try_from(value).ok());
    let (class, state, service, scope) = (text("Class"), text("State"), text("Service"), text("Scope"));
    let missing = |name| SampleError::malformed(SUBJECT, format!("session `{}` has no {name}", listed.id));
    let since_us = values.remove("TimestampMonotonic").and_then(|value| u64::try_from(value).ok());
    Ok(LogindRow {
        class: class.ok_or_else(|| missing("Class"))?,
        state: state.ok_or_else(|| missing("State"))?,
        service: service.unwrap_or_default(),
        scope: scope.unwrap_or_default(),
        remote: values.remove("Remote").is_some_and(|value| bool::try_from(value).unwrap_or(false)),
        // logind says 0 for "not known".
        since_monotonic: since_us.filter(|&since_us| since_us > 0).map(Duration::from_micros),
        ..listed
    })
}

#[cfg(test)]
#[path = "logind_bus_tests.rs"]
mod tests;
