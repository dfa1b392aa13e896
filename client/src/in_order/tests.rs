use usher_proto::error::status;

use super::*;

fn in_order(coordinators: &[&str]) -> InOrder {
    let coordinators = coordinators.iter().map(ToString::to_string).collect();
    InOrder::new(coordinators, Duration::from_secs(5), None, None).unwrap()
}

/// An address at which a connection is made and nothing more: enough for a call that answers by itself.
async fn listening() -> (tokio::net::TcpListener, String) {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap().to_string();
    (listener, address)
}

async fn closed() -> String {
    let (listener, address) = listening().await;
    drop(listener);
    address
}

#[tokio::test]
async fn silent_coordinators_are_passed_over_until_one_answers() {
    let (closed, (_listener, open)) = (closed().await, listening().await);
    let answer = in_order(&[&closed, &open])
        .call(async |_channel, this: Try| Ok(Response::new(this.earlier)))
        .await
        .unwrap();
    assert_eq!(answer, 0, "no call was made at the first");
}

#[tokio::test]
async fn a_no_is_an_answer_and_nobody_else_is_asked() {
    let ((_a, first), (_b, second)) = (listening().await, listening().await);
    let failure = in_order(&[&first, &second])
        .call::<()>(async |_channel, this: Try| Err(Status::not_found(this.earlier.to_string())))
        .await
        .unwrap_err();
    assert!(matches!(&failure, CallFailure::Refused(status) if status.message() == "0"), "{failure:?}");
}

fn says(code: Code, reason: &str, hosts: usize) -> Status {
    let hosts = (0..hosts).map(|host| (format!("host:{host}"), "x".to_owned())).collect();
    status(code, reason, "m", hosts, None)
}

#[tokio::test]
async fn one_that_cannot_tell_now_or_sees_too_little_is_passed_over_for_one_that_is_well() {
    let ((_a, first), (_b, second)) = (listening().await, listening().await);
    for (code, reason) in [
        (Code::Unavailable, reason::OVERLOADED),
        (Code::Unavailable, reason::STALE),
        (Code::Unavailable, reason::ALL_OFFLINE),
        (Code::Unavailable, reason::NO_CONSENT),
        (Code::NotFound, reason::UNKNOWN_POOL),
    ] {
        let answer = in_order(&[&first, &second])
            .call(async |_channel, this: Try| match this.earlier {
                0 => Err(says(code, reason, 0)),
                earlier => Ok(Response::new(earlier)),
            })
            .await;
        assert_eq!(answer.ok(), Some(1), "{reason}");
    }
}

#[tokio::test]
async fn a_no_that_nobody_knows_better_than_counts() {
    let ((_a, first), (_b, second), closed) = (listening().await, listening().await, closed().await);
    let failure = in_order(&[&first, &second, &closed])
        .call::<()>(async |_channel, this: Try| match this.earlier {
            0 => Err(says(Code::Unavailable, reason::ALL_OFFLINE, 2)),
            _ => Err(says(Code::Unavailable, reason::ALL_OFFLINE, 1)),
        })
        .await
        .unwrap_err();
    let CallFailure::Refused(status) = failure else { panic!("{failure:?}") };
    assert_eq!(usher_proto::error::error_info(&status).unwrap().metadata.len(), 2, "the one that says more");
}

#[tokio::test]
async fn when_nobody_answers_each_is_named_with_its_cause() {
    let (closed, (_listener, open)) = (closed().await, listening().await);
    let failure = in_order(&[&closed, &open])
        .call::<()>(async |_channel, _try: Try| Err(Status::unavailable("gone")))
        .await
        .unwrap_err();
    let CallFailure::NoAnswer(silences) = &failure else { panic!("{failure:?}") };
    assert_eq!([&silences[0].coordinator, &silences[1].coordinator], [&closed, &open]);
    assert!(silences[0].cause.contains("refused"), "{silences:?}");
    assert_eq!(silences[1].cause, "gone");
}

#[tokio::test]
async fn an_address_that_cannot_be_one_is_said_to_be_none() {
    for wrong in ["nonsense:x", "10.0.0.1:7443"] {
        let failure = in_order(&[wrong])
            .call::<()>(async |_channel, _try: Try| Err(Status::unavailable("gone")))
            .await
            .unwrap_err();
        assert!(matches!(failure, CallFailure::Target(_)), "{wrong}: {failure:?}");
    }
}

#[test]
fn every_request_carries_its_deadline_and_the_gateway() {
    let this =
        Try { earlier: 0, timeout: Duration::from_secs(2), gateway: Some(gateway_value("g-1").unwrap()) };
    let request = this.request(());
    let value = |key| request.metadata().get(key).and_then(|value| value.to_str().ok());
    assert_eq!(value(GATEWAY_KEY), Some("g-1"));
    assert_eq!(value("grpc-timeout"), Some("2000000u"));
    let nameless = Try { gateway: None, ..this }.request(());
    assert!(nameless.metadata().get(GATEWAY_KEY).is_none());
}

#[test]
fn a_gateway_name_that_cannot_travel_is_refused() {
    assert!(gateway_value("bastion-1").is_ok());
    for wrong in ["", "a b", "a\nb", "tür"] {
        assert!(gateway_value(wrong).is_err(), "{wrong:?}");
    }
}
