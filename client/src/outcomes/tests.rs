use super::*;

fn report(id: &str) -> Report {
    let message = v1::ReportOutcomeRequest { request_id: id.into(), ..v1::ReportOutcomeRequest::default() };
    Report { message, to: None, since: Instant::now(), unknown: 0 }
}

fn ids(reports: &[Report]) -> Vec<&str> {
    reports.iter().map(|report| report.message.request_id.as_str()).collect()
}

#[tokio::test(start_paused = true)]
async fn what_is_said_of_one_login_is_sent_in_its_order() {
    let outcomes = Outcomes::default();
    ["a", "b", "a", "c"].iter().for_each(|id| outcomes.add(report(id)));
    let first = outcomes.next();
    assert_eq!(ids(&first), ["a", "b"]);
    outcomes.give_back(2, vec![first[1].clone()]);
    assert_eq!(ids(&outcomes.next()), ["b", "a", "c"]);
}

#[tokio::test(start_paused = true)]
async fn the_queue_is_bounded_and_says_what_it_lost() {
    let outcomes = Outcomes::default();
    (0..MOST + 5).for_each(|number| outcomes.add(report(&number.to_string())));
    assert_eq!((outcomes.dropped(), outcomes.waiting().len()), (5, MOST));
    assert_eq!(ids(&outcomes.next())[0], "5", "the oldest are lost");
    tokio::time::advance(LASTS).await;
    assert!(outcomes.next().is_empty(), "too late to be of use");
    assert_eq!(outcomes.dropped(), (MOST + 5 - AT_ONCE) as u64);
}

#[tokio::test(start_paused = true)]
async fn whoever_waits_is_told_when_all_are_sent() {
    let outcomes = Outcomes::default();
    outcomes.all_sent().await;
    outcomes.add(report("a"));
    let waiting = timeout(Duration::from_secs(1), outcomes.all_sent());
    assert!(waiting.await.is_err());
    let taken = outcomes.next().len();
    assert!(timeout(Duration::from_secs(1), outcomes.all_sent()).await.is_err(), "under way is not sent");
    outcomes.give_back(taken, Vec::new());
    outcomes.all_sent().await;
}
