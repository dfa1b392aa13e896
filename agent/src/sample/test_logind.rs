//! A logind of many sessions that counts what it is asked.
//!
//! It answers by hand, without an object for each session, and only what is asked: the list and the properties.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::{Arc, Mutex, MutexGuard};

use futures::StreamExt;
use zbus::connection::Builder;
use zbus::message::Type;
use zbus::{Connection, Message, MessageStream, ObjectPath, OwnedObjectPath, Variant};

/// The account that has all of them.
pub(crate) const USER: (u32, &str) = (1000, "svc");

#[derive(Default)]
struct State {
    /// States by id.
    sessions: BTreeMap<String, &'static str>,
    calls: usize,
    methods: BTreeSet<String>,
    silent_after: usize,
}

/// It.
#[derive(Clone)]
pub(crate) struct ManySessions(Arc<Mutex<State>>);

/// One with so many sessions of one user, named by their numbers from 1, and a connection to it.
pub(crate) async fn many_sessions(count: usize) -> (ManySessions, Connection) {
    let state = State {
        sessions: (1..=count).map(|n| (n.to_string(), "active")).collect(),
        silent_after: usize::MAX,
        ..State::default()
    };
    let logind = ManySessions(Arc::new(Mutex::new(state)));
    let (server, client) = std::os::unix::net::UnixStream::pair().expect("a pair");
    let server = Builder::unix_stream(server).server(zbus::Guid::generate()).p2p();
    let client = Builder::unix_stream(client).p2p();
    let (server, client) = tokio::try_join!(server.build(), client.build()).expect("connected");
    let (answering, mut calls) = (logind.clone(), MessageStream::from(&server));
    tokio::spawn(async move {
        while let Some(Ok(call)) = calls.next().await {
            if call.message_type() == Type::MethodCall {
                answering.answer(&server, &call).await;
            }
        }
    });
    (logind, client)
}

impl ManySessions {
    fn state(&self) -> MutexGuard<'_, State> {
        self.0.lock().expect("no test broke off here")
    }

    /// Calls so far.
    pub(crate) fn calls(&self) -> usize {
        self.state().calls
    }

    /// What was called so far.
    pub(crate) fn methods(&self) -> Vec<String> {
        self.state().methods.iter().cloned().collect()
    }

    /// Of the calls from now on only so many are answered.
    pub(crate) fn fall_silent_after(&self, calls: usize) {
        let mut state = self.state();
        state.silent_after = state.calls.saturating_add(calls);
    }

    pub(crate) fn add(&self, id: &str) {
        self.state().sessions.insert(id.to_owned(), "active");
    }

    pub(crate) fn remove(&self, id: &str) {
        self.state().sessions.remove(id);
    }

    pub(crate) fn set_state(&self, id: &str, state: &'static str) {
        self.state().sessions.insert(id.to_owned(), state);
    }

    /// Its user leaves, some process of it stays.
    pub(crate) fn leave(&self, id: &str) {
        self.set_state(id, "closing");
    }

    pub(crate) fn path(&self, id: &str) -> OwnedObjectPath {
        ObjectPath::try_from(format!("/org/freedesktop/login1/session/_{id}")).expect("a path").into()
    }

    async fn answer(&self, server: &Connection, call: &Message) {
        let header = call.header();
        let member = header.member().expect("of a call").as_str();
        let state = {
            let mut state = self.state();
            state.calls += 1;
            state.methods.insert(member.to_owned());
            if state.calls > state.silent_after {
                return;
            }
            let path = header.path().expect("of a call").as_str();
            let id = path.rsplit_once("/_").map(|(_, id)| id.to_owned()).unwrap_or_default();
            (state.sessions.get(&id).copied(), id)
        };
        let sent = match (member, state) {
            ("ListSessions", _) => {
                let list: Vec<_> = self
                    .state()
                    .sessions
                    .keys()
                    .map(|id| (id.clone(), USER.0, USER.1, "", self.path(id)))
                    .collect();
                server.reply(&header, &list).await
            }
            ("GetAll", (Some(state), id)) => {
                let values: HashMap<&str, Variant<'_>> = HashMap::from([
                    ("Class", Variant::from("user")),
                    ("State", Variant::from(state)),
                    ("Service", Variant::from("sshd")),
                    ("Scope", Variant::from(format!("session-{id}.scope"))),
                    ("Remote", Variant::from(true)),
                    ("TimestampMonotonic", Variant::from(1_000_000_u64)),
                ]);
                server.reply(&header, &values).await
            }
            ("Get", (Some(state), _)) => server.reply(&header, &Variant::from(state)).await,
            ("GetAll" | "Get", _) => {
                server.reply_error(&header, "org.freedesktop.DBus.Error.UnknownObject", &"gone").await
            }
            _ => server.reply_error(&header, "org.freedesktop.DBus.Error.UnknownMethod", &"no").await,
        };
        sent.expect("sent");
    }
}
