//! Who is cut off, and who answers for whom.

use super::*;

#[tokio::test]
async fn a_host_that_does_not_read_is_cut_off() {
    let (link, output) = HostLink::new(1, 2);
    let tick = || Message::Tick(v1::Tick { tick: 1, ..v1::Tick::default() });
    assert!(link.send(tick()) && link.send(tick()));
    assert!(!link.ended.is_cancelled());
    assert!(!link.send(tick()));
    assert!(link.ended.is_cancelled());
    assert_eq!(output.count().await, 0, "nothing more goes out");
}

#[tokio::test(start_paused = true)]
async fn a_host_of_whose_queue_nothing_goes_out_for_a_minute_is_cut_off_and_a_slow_one_is_not() {
    let tick = |tick| Message::Tick(v1::Tick { tick, ..v1::Tick::default() });
    let (stuck, _unread) = HostLink::new(1, OUTBOX);
    let (slow, mut read) = HostLink::new(1, OUTBOX);
    // Nothing was said for long: the first word waits for nobody.
    tokio::time::advance(Duration::from_secs(600)).await;
    let mut cut_off_after = None;
    for second in 0..300 {
        if !stuck.send(tick(second)) {
            cut_off_after.get_or_insert(second);
        }
        assert!(slow.send(tick(second)) && slow.send(tick(second)));
        if second % 50 == 0 {
            read.next().await;
        }
        tokio::time::advance(Duration::from_secs(1)).await;
    }
    assert_eq!(cut_off_after, Some(61));
    assert!(stuck.ended.is_cancelled() && !slow.ended.is_cancelled());
}

#[tokio::test]
async fn a_stream_ends_after_its_last_message_though_its_link_is_still_held() {
    let (link, output) = HostLink::new(1, 8);
    link.send(Message::Tick(v1::Tick { tick: 1, ..v1::Tick::default() }));
    link.finish();
    assert_eq!(output.count().await, 1);
    assert!(!link.send(Message::Tick(v1::Tick { tick: 2, ..v1::Tick::default() })));
}

#[tokio::test]
async fn the_end_of_a_stream_leaves_the_one_that_replaced_it_whatever_their_epochs() {
    let (links, host_id) = (Links::default(), HostId::new("N1").unwrap());
    let ((old, _to_old), (new, _to_new)) = (HostLink::new(1, 8), HostLink::new(1, 8));
    links.open(host_id.clone(), old.clone());
    links.open(host_id.clone(), new.clone());
    assert!(old.ended.is_cancelled());
    links.close(&host_id, &old);
    assert!(links.send(&host_id, Message::Tick(v1::Tick { tick: 1, ..v1::Tick::default() })));
    links.end(&host_id, 2);
    assert!(!new.ended.is_cancelled(), "another stream is meant");
    links.end(&host_id, 1);
    assert!(new.ended.is_cancelled());
    links.close(&host_id, &new);
    assert_eq!(links.len(), 0);
}

#[tokio::test(start_paused = true)]
async fn a_ping_is_answered_or_times_out() {
    let (link, mut sent) = HostLink::new(1, 8);
    assert!(!link.answers(Duration::from_secs(2)).await);
    let other = link.clone();
    let answering = tokio::spawn(async move {
        while let Some(Ok(v1::AttachResponse { message: Some(Message::Ping(ping)) })) = sent.next().await {
            other.pong(ping.nonce);
        }
    });
    assert!(link.answers(Duration::from_secs(2)).await);
    answering.abort();
}

#[test]
fn one_host_alone_names_no_other_coordinator_where_most_know_better() {
    let links = Links::default();
    for n in 0..5 {
        let (link, _output) = HostLink::new(1, 8);
        let others = match n {
            0 => vec!["evil:1".to_owned(), "evil:1".to_owned(), "evil:1".to_owned()],
            1 => Vec::new(),
            2 => vec!["c2:7443".to_owned()],
            _ => vec!["c2:7443".to_owned(), "c3:7443".to_owned()],
        };
        link.set_others(others);
        links.open(HostId::new(format!("N{n}")).unwrap(), link);
    }
    assert_eq!(links.other_coordinators(), ["c2:7443", "c3:7443"]);
    assert!(Links::default().other_coordinators().is_empty());
}

#[tokio::test(start_paused = true)]
async fn a_host_answers_for_itself_only() {
    let (links, token) = (Links::default(), crate::placing::testing::request("R1").token);
    let (asked, other) = (HostId::new("N1").unwrap(), HostId::new("N2").unwrap());
    let (link, _sent) = HostLink::new(1, 8);
    links.open(asked.clone(), link);
    let (key, limit) = ((token.clone(), 1), Duration::from_millis(250));
    let ask = links.ask_consent(&asked, v1::ExpectSession::default(), key, limit);
    let answers = async {
        assert!(!links.consent(&other, &token, 1, Ok(())), "nobody asked it");
        assert!(links.consent(&asked, &token, 1, Err(RefusalReason::MaxUsers)));
    };
    assert_eq!(tokio::join!(ask, answers).0, Some(Err(RefusalReason::MaxUsers)));
    let answers = async {
        links.session_checked(&other, 1, Some(true));
        links.session_checked(&asked, 1, Some(false));
    };
    assert_eq!(tokio::join!(links.ask_session(&asked, "7", "alice", limit), answers).0, Some(false));
}

#[tokio::test(start_paused = true)]
async fn a_question_that_nobody_answers_ends_in_silence_and_is_forgotten() {
    let links = Links::default();
    let (link, _sent) = HostLink::new(1, 8);
    let host_id = HostId::new("N1").unwrap();
    links.open(host_id.clone(), link);
    assert_eq!(links.ask_session(&host_id, "1", "alice", Duration::from_millis(250)).await, None);
    assert_eq!(links.checks.len(), 0);
}
