use usher_placement::farm::Farm;
use usher_types::PolicyChange;

use super::*;
use crate::placing::testing;

fn farm() -> (Arc<Shared>, Farm) {
    let (mut farm, ledger) = testing::farm(&PolicyChange::default(), &[("a", 1), ("b", 2)]);
    let (shared, _commands) = testing::shared(&mut farm, ledger);
    (shared, farm)
}

async fn message(frames: &mut Frames) -> v1::WatchFarmResponse {
    v1::WatchFarmResponse::decode(frames.next().await.unwrap().unwrap()).unwrap()
}

fn reason_of(status: &Status) -> String {
    error::error_info(status).map(|info| info.reason).unwrap_or_default()
}

/// As with a connection whose window is full: nobody asks the stream for anything.
#[tokio::test]
async fn a_reader_that_takes_nothing_loses_its_seat_and_the_copy_and_is_told_why() {
    let (shared, _farm) = farm();
    let mut frames = frames(&shared, "gateway", v1::WatchFarmRequest::default()).unwrap();
    assert!(matches!(message(&mut frames).await.event, Some(WireEvent::Start(_))));
    let copy = shared.feed.copy(&shared).await.unwrap();
    // Ours, the one that is kept for others, and the reader's.
    assert_eq!(Arc::strong_count(&copy), 3);
    tokio::time::pause();
    tokio::time::sleep(TAKEN_WITHIN * 2).await;
    assert_eq!((shared.feed.readers(), Arc::strong_count(&copy)), (0, 2));

    // What waited is not lost, and nothing of it says that half a farm were known.
    assert_eq!(message(&mut frames).await.revision, 0);
    let end = frames.next().await.unwrap().unwrap_err();
    assert_eq!((end.code(), reason_of(&end).as_str()), (Code::Aborted, reason::RESYNC));
    assert!(frames.next().await.is_none());
}

#[tokio::test]
async fn a_reader_that_stops_reading_is_told_the_revision_of_what_it_got() {
    let (shared, _farm) = farm();
    let mut frames = frames(&shared, "gateway", v1::WatchFarmRequest::default()).unwrap();
    let revision = loop {
        let message = message(&mut frames).await;
        if matches!(message.event, Some(WireEvent::Bookmark(_))) {
            break message.revision;
        }
    };
    tokio::time::pause();
    // Bookmarks come even now, and one of them waits in vain.
    tokio::time::sleep(TAKEN_WITHIN * 2).await;
    assert_eq!(shared.feed.readers(), 0);
    message(&mut frames).await;
    let end = frames.next().await.unwrap().unwrap_err();
    assert_eq!(error::error_info(&end).unwrap().metadata["revision"], revision.to_string());
}

#[tokio::test]
async fn a_reader_that_goes_leaves_its_seat() {
    let (shared, _farm) = farm();
    let mut frames = frames(&shared, "gateway", v1::WatchFarmRequest::default()).unwrap();
    message(&mut frames).await;
    assert_eq!(shared.feed.readers(), 1);
    drop(frames);
    tokio::time::pause();
    tokio::time::sleep(Duration::from_millis(1)).await;
    assert_eq!(shared.feed.readers(), 0);
}

#[tokio::test]
async fn who_resumes_after_a_while_without_readers_hears_of_now_before_the_bookmark() {
    let (shared, mut farm) = farm();
    let mut first = frames(&shared, "gateway", v1::WatchFarmRequest::default()).unwrap();
    let revision = loop {
        let message = message(&mut first).await;
        if matches!(message.event, Some(WireEvent::Bookmark(_))) {
            break message.revision;
        }
    };
    drop(first);
    tokio::time::pause();
    tokio::time::sleep(Duration::from_secs(60)).await;
    let load = usher_types::Load { users: Some(9), streams_held: 1, ..usher_types::Load::default() };
    farm.observe_load(&testing::hello("a").host_id, load, &[], testing::NOW, 0);
    shared.snapshot.store(farm.snapshot(testing::NOW));
    let resume = v1::WatchFarmRequest {
        resume_revision: Some(revision),
        resume_instance: shared.instance_id.clone(),
        ..v1::WatchFarmRequest::default()
    };
    let mut second = frames(&shared, "gateway", resume).unwrap();
    let Some(WireEvent::Changes(changes)) = message(&mut second).await.event else {
        panic!("first the news")
    };
    assert_eq!(changes.hosts[0].users, Some(9));
}
