use super::*;

fn report(id: &str) -> Report {
    let message = v1::ReportOutcomeRequest { request_id: id.into(), ..v1::ReportOutcomeRequest::default() };
    Report::new(message, None)
}

/// Everything that may be sent now.
fn all_next(outcomes: &Outcomes) -> Vec<Report> {
    let next = || match outcomes.next() {
        Next::Report(report) => Some(report),
        Next::At(_) => None,
    };
    std::iter::from_fn(next).collect()
}

fn ids(reports: &[Report]) -> Vec<&str> {
    reports.iter().map(Report::login).collect()
}

#[tokio::test(start_paused = true)]
async fn what_is_said_of_one_login_is_sent_in_its_order() {
    let outcomes = Outcomes::default();
    ["a", "b", "a", "c"].iter().for_each(|id| outcomes.add(report(id)));
    let first = all_next(&outcomes);
    assert_eq!(ids(&first), ["a", "b", "c"], "the second of a waits for the first");
    outcomes.give_back("c", Sent::Done);
    outcomes.give_back("b", Sent::Again(first[1].clone()));
    outcomes.give_back("a", Sent::Done);
    assert_eq!(ids(&all_next(&outcomes)), ["b", "a"]);
}

#[tokio::test(start_paused = true)]
async fn the_queue_is_bounded_and_says_what_it_lost() {
    let outcomes = Outcomes::default();
    (0..MOST + 5).for_each(|number| outcomes.add(report(&number.to_string())));
    assert_eq!((outcomes.dropped(), outcomes.waiting().queue.len()), (5, MOST));
    let Next::Report(first) = outcomes.next() else { panic!("nothing is left") };
    assert_eq!(first.login(), "5", "the oldest are lost");
    // Those that rest are among them.
    outcomes.give_back("5", Sent::Unknown(first));
    outcomes.add(report("late"));
    assert_eq!((outcomes.dropped(), outcomes.waiting().resting.len()), (6, 1));
    tokio::time::advance(LASTS).await;
    assert!(all_next(&outcomes).is_empty(), "too late to be of use");
    assert_eq!(outcomes.dropped(), (MOST + 6) as u64);
}

#[tokio::test(start_paused = true)]
async fn whoever_waits_is_told_when_all_are_sent() {
    let outcomes = Outcomes::default();
    outcomes.all_sent().await;
    outcomes.add(report("a"));
    let waiting = timeout(Duration::from_secs(1), outcomes.all_sent());
    assert!(waiting.await.is_err());
    assert_eq!(all_next(&outcomes).len(), 1);
    assert!(timeout(Duration::from_secs(1), outcomes.all_sent()).await.is_err(), "under way is not sent");
    outcomes.give_back("a", Sent::Done);
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
    assert_eq!(ids(&all_next(&outcomes)), ["b"], "that a is given up is said no more");
    let settled = timeout(Duration::from_secs(1), outcomes.settled("b"));
    assert!(settled.await.is_err(), "what is under way cannot be taken back");
    outcomes.give_back("b", Sent::Done);
    outcomes.settled("b").await;
    outcomes.add(ends_with("c", v1::Outcome::Failed));
    assert!(timeout(Duration::from_secs(1), outcomes.settled("c")).await.is_err());
    let taken = all_next(&outcomes);
    tokio::join!(outcomes.settled("c"), async { outcomes.give_back(taken[0].login(), Sent::Done) });
    // What nobody knew and is to be said again may be dropped as what was never said.
    outcomes.add(ends_with("d", v1::Outcome::Cancelled));
    let taken = all_next(&outcomes);
    outcomes.give_back("d", Sent::Unknown(taken[0].clone()));
    outcomes.settled("d").await;
    outcomes.all_sent().await;
}

#[tokio::test(start_paused = true)]
async fn a_place_that_nobody_knows_is_spoken_of_for_some_seconds_and_holds_up_no_other() {
    let outcomes = Outcomes::default();
    outcomes.add(report("a"));
    outcomes.add(report("a"));
    let began = Instant::now();
    for times in 1..=UNKNOWN_TRIES {
        let Next::Report(first) = outcomes.next() else { panic!("it is due") };
        outcomes.give_back("a", Sent::Unknown(first));
        if times < UNKNOWN_TRIES {
            let Next::At(Some(due)) = outcomes.next() else { panic!("it rests, and the next of it waits") };
            outcomes.add(report("other"));
            assert_eq!(ids(&all_next(&outcomes)), ["other"]);
            outcomes.give_back("other", Sent::Done);
            sleep_until(due).await;
        }
    }
    assert_eq!(began.elapsed().as_secs(), 6);
    assert_eq!(ids(&all_next(&outcomes)), ["a"], "then the next of the same login");
}

#[tokio::test(start_paused = true)]
async fn a_place_that_nobody_need_know_is_spoken_of_once() {
    let outcomes = Outcomes::default();
    outcomes.add(report("a").said_once());
    let taken = all_next(&outcomes);
    outcomes.give_back("a", Sent::Again(taken[0].clone()));
    let taken = all_next(&outcomes);
    assert_eq!(ids(&taken), ["a"], "silence is no answer");
    outcomes.give_back("a", Sent::Unknown(taken[0].clone()));
    outcomes.all_sent().await;
}

#[tokio::test(start_paused = true)]
async fn who_asks_again_for_a_login_hears_of_the_attempts_that_are_taken_back_no_more() {
    let outcomes = Outcomes::default();
    outcomes.add(ends_with("a", v1::Outcome::Cancelled).after(3));
    outcomes.add(ends_with("a", v1::Outcome::Cancelled).after(2));
    assert_eq!(outcomes.settled("a").await, 3);
    assert_eq!(outcomes.settled("a").await, 0, "nothing waits any more");
}

#[tokio::test(start_paused = true)]
async fn when_nobody_answers_it_is_waited_ever_longer_and_one_answer_ends_it() {
    let mut silence = Silence::default();
    assert!(!silence.lasts());
    (0..AT_ONCE).for_each(|_| silence.heard(true));
    assert!(silence.lasts());
    tokio::time::advance(FIRST_WAIT).await;
    assert!(!silence.lasts(), "those that were under way together count once");
    silence.heard(true);
    tokio::time::advance(FIRST_WAIT).await;
    assert!(silence.lasts());
    silence.heard(false);
    assert!(!silence.lasts());
}

#[tokio::test(start_paused = true)]
async fn what_waits_because_nobody_answers_goes_on_when_one_is_found_well() {
    let (outcomes, peers) = (Arc::new(Outcomes::default()), Arc::new(Peers::unconnected(&[1])));
    outcomes.add(report("a"));
    tokio::spawn(outcomes.clone().send_all(peers.clone(), None, CancellationToken::new()));
    let is_under_way = || outcomes.waiting().busy.contains("a");
    // Each try waits for a connection, and after it longer than after the one before.
    tokio::time::sleep(Duration::from_secs(30)).await;
    while !is_under_way() {
        tokio::time::sleep(FIRST_WAIT).await;
    }
    tokio::time::sleep(ANSWER + FIRST_WAIT).await;
    assert!(!is_under_way(), "it is waited for long");
    let peer = peers.named("c1").unwrap();
    peer.failed("gone".to_owned());
    peer.answered(FIRST_WAIT);
    tokio::time::sleep(Duration::from_millis(1)).await;
    assert!(is_under_way());
}
