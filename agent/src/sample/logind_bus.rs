//! How is logind asked over D-Bus?
//!
//! One question lists the sessions; what each of them is takes a question of its own, once, because it does not change.
//! Only the state does, and logind neither lists nor announces it. So the states of a few sessions are asked for in each
//! look, those that were not asked for longest: of all where there are few, of a thirtieth where there are thousands. A
//! session that is being set up, or of which logind said that it changed, is asked about in the next look. A host with
//! 8000 sessions costs one look of 8000 questions, and some hundred questions a second from then on.
//!
//! Newer ones tell the class of every session in their list, so that only those of people need a question; older ones are
//! asked about all. Asking makes no session: it opens no PAM stack. Whether there is no bus, no logind on it, or no
//! answer: each is an error of this source, and the next look begins with a new connection. What was answered within the
//! deadline is kept, so that the look after one that was too short for thousands of sessions goes on where it ended.

use std::collections::{HashMap, HashSet};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use futures::future::try_join_all;
use serde::Serialize;
use zbus::fdo;
use zbus::proxy::CacheProperties;
use zbus::{Connection, DynamicType, Message, OwnedObjectPath, OwnedVariant};
use zbus_systemd::login1::ManagerProxy;

use super::error::SampleError;
use super::logind::{LogindRow, can_count};
use super::logind_signals::SessionNews;

const SUBJECT: &str = "logind";
pub(super) const SERVICE: &str = "org.freedesktop.login1";
pub(super) const SESSION_INTERFACE: &str = "org.freedesktop.login1.Session";

/// Questions in flight at once. The system bus allows 128 unanswered ones per connection.
const QUESTIONS_IN_FLIGHT: usize = 32;
/// The states of so many known sessions are asked for in each look: each question costs this host, its bus and its logind
/// some tens of microseconds, and all that a late answer hides for some seconds is that somebody left and left something
/// running.
const STATES_A_LOOK: usize = 8;
/// Of more sessions each is asked about once in so many looks.
const LOOKS_OF_A_TURN: usize = 30;

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
    known: HashMap<String, Known>,
    looks: u64,
    news: Arc<SessionNews>,
}

/// A session that was asked about.
#[derive(Debug)]
struct Known {
    row: LogindRow,
    path: OwnedObjectPath,
    /// The look of the last question.
    asked: u64,
}

/// What a list tells of one session.
#[derive(Debug)]
struct Listed {
    id: String,
    uid: u32,
    user: String,
    /// Absent: this logind does not list it.
    class: Option<String>,
    path: OwnedObjectPath,
}

impl Listed {
    fn is(&self, known: &Known) -> bool {
        known.path == self.path && known.row.uid == Some(self.uid) && known.row.user == self.user
    }
}

impl LogindClient {
    /// A client of the bus at `address`; connects with the first question.
    #[must_use]
    pub fn new(address: BusAddress) -> Self {
        Self { address, ..Self::default() }
    }

    #[cfg(test)]
    pub(super) fn over(connection: Connection) -> Self {
        Self { connection: Some(connection), ..Self::default() }
    }

    /// Where logind is asked.
    #[must_use]
    pub fn address(&self) -> &BusAddress {
        &self.address
    }

    /// What logind says by itself; whoever listens to it tells it here.
    #[must_use]
    pub fn news(&self) -> &Arc<SessionNews> {
        &self.news
    }

    /// All sessions that logind knows and that may count.
    ///
    /// # Errors
    /// At once when there is no bus or no logind on it; after `deadline` when it does not answer.
    pub async fn rows(&mut self, deadline: Duration) -> Result<Vec<LogindRow>, SampleError> {
        // Taken out, so that a failure or a cancelled question leaves no half-used connection behind.
        let kept = self.connection.take();
        match tokio::time::timeout(deadline, self.ask(kept)).await {
            Ok(Ok((connection, rows))) => {
                self.connection = Some(connection);
                Ok(rows)
            }
            Ok(Err(error)) => {
                // Whoever answers next may be another logind.
                self.known.clear();
                Err(error)
            }
            Err(_) => Err(SampleError::TimedOut { subject: SUBJECT, limit_ms: deadline.as_millis() }),
        }
    }

    async fn ask(&mut self, kept: Option<Connection>) -> Result<(Connection, Vec<LogindRow>), SampleError> {
        let connection = match kept {
            Some(connection) => connection,
            None => connect(&self.address).await.map_err(bus("connect"))?,
        };
        let manager = ManagerProxy::builder(&connection)
            .cache_properties(CacheProperties::No)
            .build()
            .await
            .map_err(bus("list its sessions"))?;
        let listed = if self.is_old { None } else { listed_with_class(&manager).await? };
        self.is_old = listed.is_none();
        let listed = match listed {
            Some(listed) => listed,
            None => listed_all(&manager).await?,
        };
        self.looks += 1;
        let ids: HashSet<&str> = listed.iter().map(|listed| listed.id.as_str()).collect();
        self.known.retain(|id, _| ids.contains(id.as_str()));
        self.ask_about(&connection, &listed).await?;
        let row = |listed: Listed| {
            let mut row = self.known.get(&listed.id).filter(|known| listed.is(known))?.row.clone();
            row.class = listed.class.unwrap_or(row.class);
            Some(row)
        };
        let rows = listed.into_iter().filter_map(row).collect();
        Ok((connection, rows))
    }

    async fn ask_about(&mut self, connection: &Connection, listed: &[Listed]) -> Result<(), SampleError> {
        let asked = self.looks;
        for burst in self.questions(listed).chunks(QUESTIONS_IN_FLIGHT) {
            let answers = burst.iter().map(|question| question.ask(connection));
            for (question, answer) in burst.iter().zip(try_join_all(answers).await?) {
                self.learn(question.listed, answer, asked);
            }
        }
        Ok(())
    }

    fn learn(&mut self, listed: &Listed, answer: Option<Answer>, asked: u64) {
        match answer {
            Some(Answer::Row(row)) => {
                self.known.insert(listed.id.clone(), Known { row, path: listed.path.clone(), asked });
            }
            Some(Answer::State(state)) => {
                if let Some(known) = self.known.get_mut(&listed.id) {
                    (known.row.state, known.asked) = (state, asked);
                }
            }
            // It ended since it was listed.
            None => {
                self.known.remove(&listed.id);
            }
        }
    }

    /// Whom to ask about now.
    fn questions<'a>(&self, listed: &'a [Listed]) -> Vec<Question<'a>> {
        let changed = self.news.take_changed();
        let (mut questions, mut in_turn) = (Vec::new(), Vec::new());
        for listed in listed {
            match self.known.get(&listed.id).filter(|known| listed.is(known)) {
                None => questions.push(Question { listed, is_known: false }),
                Some(known) if known.row.state == "opening" || changed.contains(&listed.path) => {
                    questions.push(Question { listed, is_known: true });
                }
                Some(known) if can_count(listed.class.as_ref().unwrap_or(&known.row.class)) => {
                    in_turn.push((known.asked, listed));
                }
                Some(_) => {}
            }
        }
        let most = STATES_A_LOOK.max(in_turn.len().div_ceil(LOOKS_OF_A_TURN));
        if in_turn.len() > most {
            in_turn.select_nth_unstable_by_key(most, |(asked, _)| *asked);
            in_turn.truncate(most);
        }
        questions.extend(in_turn.into_iter().map(|(_, listed)| Question { listed, is_known: true }));
        questions
    }
}

struct Question<'a> {
    listed: &'a Listed,
    /// Only its state is not known.
    is_known: bool,
}

enum Answer {
    Row(LogindRow),
    State(String),
}

impl Question<'_> {
    async fn ask(&self, connection: &Connection) -> Result<Option<Answer>, SampleError> {
        if self.is_known {
            Ok(state(connection, self.listed).await?.map(Answer::State))
        } else {
            Ok(described(connection, self.listed).await?.map(Answer::Row))
        }
    }
}

fn bus(operation: &'static str) -> impl Fn(zbus::Error) -> SampleError {
    move |source| SampleError::Bus { operation, source: Box::new(source) }
}

pub(super) async fn connect(address: &BusAddress) -> zbus::Result<Connection> {
    match address {
        BusAddress::System => Connection::system().await,
        BusAddress::At(address) => zbus::connection::Builder::address(address.as_str()).build().await,
    }
}

/// The sessions of classes that may count. Absent: this logind does not list classes.
async fn listed_with_class(manager: &ManagerProxy<'_>) -> Result<Option<Vec<Listed>>, SampleError> {
    match manager.list_sessions_ex().await {
        Ok(listed) => Ok(Some(
            listed
                .into_iter()
                .filter(|(_, _, _, _, _, class, ..)| can_count(class))
                .map(|(id, uid, user, _, _, class, _, _, _, path)| Listed {
                    id,
                    uid,
                    user,
                    class: Some(class),
                    path,
                })
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

/// It ended since it was listed.
fn is_unknown_session(error: &zbus::Error) -> bool {
    match error {
        zbus::Error::FDO(error) => matches!(**error, fdo::Error::UnknownObject(_)),
        zbus::Error::MethodError(name, ..) => *name == "org.freedesktop.login1.NoSuchSession",
        _ => false,
    }
}

async fn listed_all(manager: &ManagerProxy<'_>) -> Result<Vec<Listed>, SampleError> {
    let listed = manager.list_sessions().await.map_err(bus("list its sessions"))?;
    Ok(listed
        .into_iter()
        .map(|(id, uid, user, _, path)| Listed { id, uid, user, class: None, path })
        .collect())
}

/// One session's properties. Absent: it ended.
async fn described(connection: &Connection, listed: &Listed) -> Result<Option<LogindRow>, SampleError> {
    let answer = ask(connection, listed, "GetAll", &(SESSION_INTERFACE,)).await?;
    let Some(answer) = answer else { return Ok(None) };
    let values = answer.body().deserialize().map_err(bus("describe a session"))?;
    let Listed { id, uid, user, .. } = listed;
    let row = LogindRow { id: id.clone(), uid: Some(*uid), user: user.clone(), ..LogindRow::default() };
    row_of(row, values).map(Some)
}

/// One session's state. Absent: it ended.
async fn state(connection: &Connection, listed: &Listed) -> Result<Option<String>, SampleError> {
    let answer = ask(connection, listed, "Get", &(SESSION_INTERFACE, "State")).await?;
    let Some(answer) = answer else { return Ok(None) };
    let value: OwnedVariant = answer.body().deserialize().map_err(bus("describe a session"))?;
    let state = String::try_from(value);
    state.map(Some).map_err(|_| {
        SampleError::malformed(SUBJECT, format!("session `{}` has a State that is no text", listed.id))
    })
}

async fn ask<B>(
    connection: &Connection,
    listed: &Listed,
    method: &'static str,
    body: &B,
) -> Result<Option<Message>, SampleError>
where
    B: Serialize + DynamicType,
{
    let properties = Some("org.freedesktop.DBus.Properties");
    match connection.call_method(Some(SERVICE), &listed.path, properties, method, body).await {
        Ok(answer) => Ok(Some(answer)),
        Err(error) if is_unknown_session(&error) => Ok(None),
        Err(error) => Err(bus("describe a session")(error)),
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
