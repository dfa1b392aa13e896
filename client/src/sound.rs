//! Can this be a coordinator's answer?
//!
//! Whatever answers on a coordinator's port is asked where users go. An answer that no coordinator of ours would give is
//! taken for silence, and whoever gave it is down.

use usher_proto::{read, v1};
use usher_types::{Endpoint, HostId};

/// What was asked, as far as an answer can contradict it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Asked<'a> {
    pub(crate) pool: &'a str,
    pub(crate) request_id: &'a str,
    /// Ids or names of hosts that must not be answered.
    pub(crate) never: &'a [String],
}

/// The endpoints of an answer that makes sense.
///
/// # Errors
/// What is wrong with it.
pub(crate) fn check(placement: &v1::Placement, asked: Asked<'_>) -> Result<Vec<Endpoint>, String> {
    HostId::new(&placement.host_id)
        .map_err(|fault| format!("it answered a host without an id: {}", fault.fault))?;
    if placement.pool != asked.pool {
        return Err(format!("it answered a host of pool {:?}", placement.pool));
    }
    let is_it = |host: &&String| {
        **host == placement.host_id
            || host.trim_end_matches('.').eq_ignore_ascii_case(placement.host_name.trim_end_matches('.'))
    };
    if let Some(host) = asked.never.iter().find(is_it) {
        return Err(format!("it answered {host:?}, which was excluded"));
    }
    if let Some(token) = &placement.reservation
        && token.request_id != asked.request_id
        && placement.reason() != v1::PlacementReason::Pending
    {
        return Err("it answered another login's place".to_owned());
    }
    let endpoints: Result<Vec<Endpoint>, _> =
        placement.endpoints.iter().cloned().map(read::endpoint).collect();
    match endpoints {
        Ok(endpoints) if endpoints.is_empty() => Err("it answered a host without an endpoint".to_owned()),
        Ok(endpoints) => Ok(endpoints),
        Err(fault) => Err(format!("it answered an endpoint that is none: {fault}")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn answer() -> v1::Placement {
        v1::Placement {
            host_id: "h1".into(),
            host_name: "app1".into(),
            pool: "desk".into(),
            endpoints: vec![v1::Endpoint { kind: "ssh".into(), address: "10.0.0.1".into(), port: 22 }],
            reservation: Some(v1::Token { gateway: "g".into(), request_id: "r".into() }),
            reason: v1::PlacementReason::LowestLoad.into(),
            ..v1::Placement::default()
        }
    }

    fn wrong(change: impl FnOnce(&mut v1::Placement), never: &[String]) -> bool {
        let mut placement = answer();
        change(&mut placement);
        check(&placement, Asked { pool: "desk", request_id: "r", never }).is_err()
    }

    #[test]
    fn an_answer_that_no_coordinator_would_give_is_found_out() {
        assert!(!wrong(|_| (), &[]));
        assert!(wrong(|_| (), &["APP1.".to_owned()]), "a host that was tried");
        assert!(wrong(|_| (), &["h1".to_owned()]));
        assert!(wrong(|answer| answer.host_id.clear(), &[]));
        assert!(wrong(|answer| answer.pool = "other".to_owned(), &[]));
        assert!(wrong(|answer| answer.endpoints.clear(), &[]));
        assert!(wrong(|answer| answer.endpoints[0].port = 99_999, &[]));
        assert!(wrong(|answer| answer.endpoints[0].address = "a\nb".to_owned(), &[]));
        let foreign = v1::Token { gateway: "g".into(), request_id: "other".into() };
        assert!(wrong(|answer| answer.reservation = Some(foreign.clone()), &[]));
        // The user's place of an earlier login.
        assert!(!wrong(
            |answer| {
                answer.reservation = Some(foreign.clone());
                answer.reason = v1::PlacementReason::Pending.into();
            },
            &[]
        ));
    }
}
