use super::*;

fn report(id: &str) -> Report {
    let message = v1::ReportOutcomeRequest { request_id: id.into(), ..v1::ReportOutcomeRequest::default() };
    Report::new(message, None)
}

fn ids(reports: &[Report]) -> Vec<&str> {
    reports.iter().map(|report| report.message.request_id.as_str()).collect()
}

#[tokio::test(start_paused = true)]
async fn what_is_said_of_one_login_is_sent_in_its_order() {
    let outcomes = Outcomes::default();
    ["a", "b", "a", "c"].iter().for_each(|id| outcomes.add(report(id)));
    let (first, _) = outcomes.next();
    assert_eq!(ids(&first), ["a", "b", "c"], "the second of a waits for the first");
    outcomes.give_back("c", None);
    outcomes.give_back("b", Some(first[1].clone()));
    outcomes.give_back("a", None);
    assert_eq!(ids(&outcomes.next().0), ["b", "a"]);
}

#[tokio::test(start_paused = true)]
async fn the_queue_is_bounded_and_says_what_it_lost() {
    let outcomes = Outcomes::default();
    (0..MOST + 5).for_each(|number| outcomes.add(report(&number.to_string())));
    assert_eq!((outcomes.dropped(), outcomes.waiting().queue.len()), (5, MOST));
    assert_eq!(ids(&outcomes.next().0)[0], "5", "the oldest are lost");
    tokio::time::advance(LASTS).await;
    assert!(outcomes.next().0.is_empty(), "too late to be of use");
    assert_eq!(outcomes.dropped(), (MOST + 5 - AT_ONCE) as u64);
}

#[tokio::test(start_paused = true)]
async fn whoever_waits_is_told_when_all_are_sent() {
    let outcomes = Outcomes::default();
    outcomes.all_sent().await;
    outcomes.add(report("a"));
    let waiting = timeout(Duration::from_secs(1), outcomes.all_sent());
    assert!(waiting.await.is_err());
    assert_eq!(outcomes.next().0.len(), 1);
    assert!(timeout(Duration::from_secs(1), outcomes.all_sent()).await.is_err(), "under way is not sent");
    outcomes.give_back("a", None);
    outcomes.all_sent().await;
}

fn ends_with(id: &str, outcome: v1::Outcome) -> Report {
    let message = v1::ReportOutcomeRequest { outcome: outcome.into(), ..report(id).message };
    Report::new(message, None)
}

#[tokio::test(start_paused = true)]
async fn a_login_that_is_asked_for_again_is_given_up_no_more_and_waits_for_what_else_was_said() {
    let outcomes = Outcomes::default();
    outcomes.add(ends_with("a", v1::Outcome::Cancelled));
    outcomes.add(ends_with("b", v1::Outcome::Cancelled));
    outcomes.settled("a").await;
    assert_eq!(ids(&outcomes.next().0), ["b"], "that a is given up is said no more");
    let settled = timeout(Duration::from_secs(1), outcomes.settled("b"));
    assert!(settled.await.is_err(), "what is under way cannot be taken back");
    outcomes.give_back("b", None);
    outcomes.settled("b").await;
    outcomes.add(ends_with("c", v1::Outcome::Failed));
    assert!(timeout(Duration::from_secs(1), outcomes.settled("c")).await.is_err());
    let (taken, _) = outcomes.next();
    tokio::join!(outcomes.settled("c"), async { outcomes.give_back(&taken[0].message.request_id, None) });
    outcomes.all_sent().await;
}

#[tokio::test(start_paused = true)]
async fn a_place_that_nobody_knows_is_spoken_of_for_some_seconds_and_holds_up_no_other() {
    let outcomes = Outcomes::default();
    outcomes.add(report("a"));
    outcomes.add(report("a"));
    let began = Instant::now();
    let mut times = 0;
    loop {
        let (batch, due) = outcomes.next();
        let Some(report) = batch.into_iter().next() else {
            let due = due.unwrap();
            assert!(due > Instant::now(), "it does not spin");
            outcomes.add(self::report(&format!("other-{times}")));
            assert_eq!(outcomes.next().0.len(), 1);
            outcomes.give_back(&format!("other-{times}"), None);
            sleep_until(due).await;
            continue;
        };
        times += 1;
        let back = report.unknown();
        let is_over = back.is_none();
        outcomes.give_back("a", back);
        if is_over {
            break;
        }
    }
    assert_eq!((times, began.elapsed().as_secs()), (UNKNOWN_TRIES, 6));
    assert_eq!(ids(&outcomes.next().0), ["a"], "then the next of the same login");
}
