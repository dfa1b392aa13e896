//! One call after another, with hosts that answer when the test says so.

use std::{pin::pin, sync::Arc, time::Duration};

use futures::{StreamExt, poll};
use tonic::Code;
use usher_placement::decision::{Failover, Request};
use usher_proto::v1::{Outcome, PlacementReason, attach_response::Message};
use usher_types::{FailureCause, HostId, PolicyChange, RefusalReason, Session, SessionState, UserLimit};

use super::{place, testing};
use crate::{
    history::ListFilter,
    layers::Deadline,
    links::{HostLink, HostOutput},
    shared::Shared,
};

fn limited(users: u32) -> PolicyChange {
    PolicyChange { max_users: Some(UserLimit::Users(users)), ..PolicyChange::default() }
}

fn of_user(request_id: &str, user: &str) -> Request {
    Request { user: Some(user.into()), ..testing::request(request_id) }
}

fn connect(shared: &Shared, host: &str) -> HostOutput {
    let (link, output) = HostLink::new(1, 64);
    shared.links.open(HostId::new(host).unwrap(), link);
    output
}

fn is_silent(shared: &Shared, host: &str) -> bool {
    let snapshot = shared.snapshot.load();
    let (pool, position) = snapshot.find_host(host).unwrap();
    pool.members.cells[position].load().is_silent()
}

#[tokio::test(start_paused = true)]
async fn a_dry_run_asks_nobody_whether_a_session_is_still_there() {
    let (mut farm, ledger) = testing::farm(&limited(1), &[("a", 1)]);
    let session =
        Session { id: "7".into(), user: "alice".into(), state: SessionState::Disconnected, age: None };
    farm.observe_sessions(&HostId::new("a").unwrap(), vec![session], testing::NOW);
    let (shared, _commands) = testing::shared(&mut farm, ledger);
    let mut to_host = connect(&shared, "a");

    let dry = Request { dry_run: true, ..of_user("r1", "alice") };
    let placement = place(&shared, dry, None).await.unwrap();
    assert_eq!(placement.reason(), PlacementReason::OwnSession);
    assert!(poll!(to_host.next()).is_pending(), "the host hears nothing of it");

    let placement = place(&shared, of_user("r2", "alice"), None).await.unwrap();
    assert_eq!(placement.reason(), PlacementReason::OwnSession, "silence: what it listed last decides");
    let asked = to_host.next().await.unwrap().unwrap().message;
    assert!(matches!(asked, Some(Message::SessionCheck(_))), "{asked:?}");
}

#[tokio::test(start_paused = true)]
async fn a_host_is_silent_only_if_it_had_all_the_time_that_it_may_take() {
    let (mut farm, ledger) = testing::farm(&limited(10), &[("a", 1)]);
    let (shared, _commands) = testing::shared_in_time(&mut farm, ledger);
    let _to_host = connect(&shared, "a");
    let hasty = Some(Deadline::after(Duration::from_millis(50)));
    let refused = place(&shared, testing::request("r1"), hasty).await.unwrap_err();
    assert_eq!(refused.code(), Code::DeadlineExceeded);
    assert!(!is_silent(&shared, "a"), "a hurried gateway must not spoil a host for the others");
    let refused = place(&shared, testing::request("r2"), None).await.unwrap_err();
    assert_eq!(refused.code(), Code::Unavailable);
    assert!(is_silent(&shared, "a"));
    assert_eq!(shared.ledger.live(), 0);
}

async fn asked(to_host: &mut HostOutput) {
    let message = to_host.next().await.unwrap().unwrap().message;
    assert!(matches!(&message, Some(Message::ExpectSession(expect)) if expect.ask), "{message:?}");
}

#[tokio::test(start_paused = true)]
async fn a_second_login_of_a_user_waits_for_the_place_that_is_being_asked_for() {
    for admitted in [true, false] {
        let (mut farm, ledger) = testing::farm(&limited(10), &[("a", 1)]);
        let (shared, _commands) = testing::shared(&mut farm, ledger);
        let mut to_host = connect(&shared, "a");
        let mut first = pin!(place(&shared, of_user("r1", "alice"), None));
        assert!(poll!(&mut first).is_pending());
        asked(&mut to_host).await;
        let mut second = pin!(place(&shared, of_user("r2", "alice"), None));
        assert!(poll!(&mut second).is_pending(), "nobody knows yet whether there is a place");
        let token = testing::request("r1").token;
        let answer = if admitted { Ok(()) } else { Err(RefusalReason::MaxUsers) };
        assert!(shared.links.consent(&HostId::new("a").unwrap(), &token, 1, answer));
        let first = first.await;
        if admitted {
            let (first, second) = (first.unwrap(), second.await.unwrap());
            assert_eq!(second.reason(), PlacementReason::Pending);
            assert_eq!(second.reservation, first.reservation);
        } else {
            assert_eq!(first.unwrap_err().code(), Code::ResourceExhausted);
            // It asks for itself.
            let second = second.await.unwrap_err();
            assert_eq!(second.code(), Code::Unavailable);
        }
    }
}

#[tokio::test]
async fn a_refused_decision_explains_no_choice() {
    use tonic::Request as Call;
    use usher_proto::v1::{ExplainRequest, placement_service_server::PlacementService};

    let (mut farm, ledger) = testing::farm(&limited(1), &[("a", 1)]);
    let (shared, _commands) = testing::shared(&mut farm, ledger);
    let refused = place(&shared, testing::request("r1"), None).await.unwrap_err();
    let metadata = usher_proto::error::error_info(&refused).unwrap().metadata;
    assert_eq!((&*metadata["hosts_heard"], &*metadata["hosts_registered"]), ("1", "1"));
    assert_eq!(metadata.get("kept_hosts"), None, "it is full for everybody");
    let service = crate::grpc::Placements(Arc::clone(&shared));
    let explain = ExplainRequest { decision_id: "c.1-1".to_owned() };
    let explained = service.explain(Call::new(explain)).await.unwrap().into_inner().explanation.unwrap();
    assert_eq!(explained.refused_reason, "MAX_USERS");
    assert_eq!((explained.reason(), explained.chosen_host_id), (PlacementReason::Unspecified, None));
    assert_eq!(explained.hosts[0].terms, None, "no term of a full host was used");
}

#[test]
fn room_that_others_may_give_is_said() {
    use usher_placement::decision::{Excluded, Refusal, RefusalKind};

    let hosts = vec![(0, Excluded::KeptForOthers), (1, Excluded::OutOfShare), (2, Excluded::CellFull)];
    let (kind, at_limit, retry_after) = (RefusalKind::MaxUsers, Vec::new(), None);
    let refusal = Refusal { kind, hosts, at_limit, kept_hosts: 2, retry_after };
    let status = super::answer::refused(&refusal, None, &testing::request("r1"));
    assert_eq!(usher_proto::error::error_info(&status).unwrap().metadata["kept_hosts"], "2");
}

#[tokio::test(start_paused = true)]
async fn a_caller_that_goes_away_takes_its_place_back_and_the_host_hears_it() {
    let (mut farm, ledger) = testing::farm(&limited(10), &[("a", 1)]);
    let (shared, _commands) = testing::shared_in_time(&mut farm, ledger);
    let mut to_host = connect(&shared, "a");
    let mut gone = Box::pin(place(&shared, testing::request("r1"), None));
    assert!(poll!(&mut gone).is_pending());
    asked(&mut to_host).await;
    drop(gone);
    let message = to_host.next().await.unwrap().unwrap().message;
    assert!(matches!(&message, Some(Message::EndPlace(_))), "{message:?}");
    assert_eq!(shared.ledger.live(), 0);
}

#[tokio::test]
async fn a_failed_login_is_told_to_its_host_and_the_redirect_counted() {
    let (mut farm, ledger) = testing::farm(&PolicyChange::default(), &[("a", 1), ("b", 50)]);
    let (shared, _commands) = testing::shared(&mut farm, ledger);
    let mut to_host = connect(&shared, "a");
    place(&shared, testing::request("r1"), None).await.unwrap();
    let failover = Failover {
        from_host: "a".to_owned(),
        failed_request: Some(testing::request("r1").token.request_id),
        tried: Vec::new(),
        cause: FailureCause::Unreachable,
    };
    let again = Request { failover: Some(failover), ..testing::request("r2") };
    let placement = place(&shared, again, None).await.unwrap();
    assert_eq!(placement.host_name, "b");
    let mut told = Vec::new();
    for _ in 0..3 {
        told.push(to_host.next().await.unwrap().unwrap().message.unwrap());
    }
    assert!(matches!(&told[0], Message::ExpectSession(_)));
    assert!(matches!(&told[1], Message::OutcomeNotice(notice) if notice.outcome() == Outcome::Failed));
    assert!(matches!(&told[2], Message::EndPlace(_)));
    let metrics = shared.metrics.encode();
    assert!(metrics.contains("usher_coordinator_redirects_total{reason=\"unreachable\"} 1"), "{metrics}");
}

#[tokio::test]
async fn decisions_are_found_by_user_and_host_and_names_are_not_kept() {
    let (mut farm, ledger) = testing::farm(&PolicyChange::default(), &[("a", 1), ("b", 50)]);
    let (shared, _commands) = testing::shared(&mut farm, ledger);
    place(&shared, of_user("r1", "CORP\\alice"), None).await.unwrap();
    let at_home = Request { prefer_host: Some("b".to_owned()), ..of_user("r2", "bob") };
    place(&shared, at_home, None).await.unwrap();
    let found = async |filter: ListFilter| {
        let listed = shared.history.list(ListFilter { limit: 10, ..filter }).await;
        let ids = listed.decisions.iter().map(|kept| kept.headline.token.request_id.to_string());
        ids.collect::<Vec<_>>()
    };
    let by_user = |user: &str| ListFilter { user: Some(user.to_owned()), ..ListFilter::default() };
    assert_eq!(found(by_user("Alice@example.org")).await, ["r1"]);
    assert!(found(by_user("carol")).await.is_empty());
    let by_host = |host: &str| ListFilter { host: Some(host.to_owned()), ..ListFilter::default() };
    assert_eq!(found(by_host("a")).await, ["r1"]);
    assert_eq!(found(by_host("B.")).await, ["r2"]);
    assert_eq!(found(ListFilter::default()).await, ["r2", "r1"]);
    assert!(found(ListFilter { refused_only: true, ..ListFilter::default() }).await.is_empty());
    let everything = format!("{:?}", shared.history.list(ListFilter { limit: 9, ..by_user("bob") }).await);
    assert!(!everything.contains("\"bob\""), "{everything}");
}
