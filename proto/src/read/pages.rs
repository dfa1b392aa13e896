//! What does a host serve, who is on it, and does it leave?

use std::time::Duration;

use usher_types::{FieldFault, Goodbye, Replica, Session};

use crate::{
    enums,
    fault::{Faults, MAX_TEXT_BYTES, cut, id, name, user},
    messages::{InventoryPage, SessionCheck, SessionsPage},
    v1,
};

/// A page of what a host serves, and what of it was refused. Texts that are too long are cut.
pub fn inventory_page(msg: v1::InventoryPage) -> (InventoryPage, Vec<FieldFault>) {
    let mut faults = Faults::default();
    let page = InventoryPage {
        generation: msg.generation,
        page: msg.page,
        last: msg.last,
        replicas: faults.entries("replicas", msg.replicas, |replica| {
            Ok(Replica {
                resource_id: id("resource_id", &replica.resource_id)?,
                path: replica.path.map(|path| cut(path, MAX_TEXT_BYTES)),
                title: replica.title.map(|title| cut(title, MAX_TEXT_BYTES)),
            })
        }),
    };
    (page, faults.into_vec())
}

/// A page of a host's sessions, and what of it was refused.
pub fn sessions_page(msg: v1::SessionsPage) -> (SessionsPage, Vec<FieldFault>) {
    let mut faults = Faults::default();
    let page = SessionsPage {
        generation: msg.generation,
        page: msg.page,
        last: msg.last,
        sessions: faults.entries("sessions", msg.sessions, session),
        unlisted_sessions: msg.unlisted_sessions,
    };
    (page, faults.into_vec())
}

fn session(msg: v1::Session) -> Result<Session, FieldFault> {
    Ok(Session {
        id: name("id", msg.id)?,
        user: user("user", msg.user)?,
        state: enums::session_state("state", msg.state)?,
        age: msg.age_ms.map(Duration::from_millis),
    })
}

/// Which session a coordinator asks for.
///
/// # Errors
/// The first field that is refused.
pub fn session_check(msg: v1::SessionCheck) -> Result<SessionCheck, FieldFault> {
    Ok(SessionCheck {
        check_id: msg.check_id,
        session_id: name("session_id", msg.session_id)?,
        user: user("user", msg.user)?,
    })
}

/// Why a stream ends.
///
/// # Errors
/// The fault, if the reason is unspecified or unknown.
pub fn goodbye(msg: v1::Goodbye) -> Result<Goodbye, FieldFault> {
    enums::goodbye_reason("reason", msg.reason)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn case_161_a_path_and_a_user_are_kept_as_they_are() {
        let path = r#"a"><script>1</script>.db"#;
        let replica =
            v1::Replica { resource_id: "mail".to_owned(), path: Some(path.to_owned()), ..Default::default() };
        let (page, faults) =
            inventory_page(v1::InventoryPage { replicas: vec![replica], ..Default::default() });
        assert_eq!((page.replicas[0].path.as_deref(), faults), (Some(path), Vec::new()));
        let session =
            v1::Session { id: "c1".to_owned(), user: "'; DROP".to_owned(), state: 1, ..Default::default() };
        let (page, _) = sessions_page(v1::SessionsPage { sessions: vec![session], ..Default::default() });
        assert_eq!(page.sessions[0].user, "'; DROP");
    }

    #[test]
    fn entries_that_name_nothing_are_left_out() {
        let replicas = vec![
            v1::Replica::default(),
            v1::Replica { resource_id: "mail".to_owned(), ..Default::default() },
        ];
        let (page, faults) = inventory_page(v1::InventoryPage { replicas, ..Default::default() });
        assert_eq!((page.replicas.len(), faults[0].field.as_str()), (1, "replicas[0].resource_id"));
        let nobody = v1::Session { id: "c1".to_owned(), state: 1, ..Default::default() };
        let stateless = v1::Session { id: "c2".to_owned(), user: "eve".to_owned(), ..Default::default() };
        let (page, faults) =
            sessions_page(v1::SessionsPage { sessions: vec![nobody, stateless], ..Default::default() });
        assert!(page.sessions.is_empty());
        let fields: Vec<_> = faults.iter().map(|fault| fault.field.as_str()).collect();
        assert_eq!(fields, ["sessions[0].user", "sessions[1].state"]);
    }
}
