use tokio::net::TcpListener;
use usher_runtime::config::HumanDuration;

use super::*;
use crate::latency::listener::OwnedWord;

const LONG: Duration = Duration::from_secs(60);

struct Watched {
    settings: watch::Sender<Arc<AgentConfig>>,
    pool_kind: watch::Sender<DoorKind>,
    board: StandingBoard,
    events: mpsc::Receiver<SourceEvent>,
    stop: CancellationToken,
    task: tokio::task::JoinHandle<()>,
}

fn watched(port: u16) -> Watched {
    let (settings, settings_seen) = watch::channel(Arc::new(AgentConfig::default()));
    let (pool_kind, pool_kind_seen) = watch::channel(DoorKind::None);
    let (events_in, events) = mpsc::channel(1);
    let (board, stop) = (StandingBoard::default(), CancellationToken::new());
    let endpoint = |kind: &str, port| Endpoint { kind: kind.into(), address: "127.0.0.1".into(), port };
    let door = DoorWatch {
        endpoints: vec![endpoint("web", 1), endpoint("tcp", port)],
        settings: settings_seen,
        pool_kind: pool_kind_seen,
        board: board.clone(),
        events: events_in,
    };
    let task = tokio::spawn(door.run(stop.clone()));
    Watched { settings, pool_kind, board, events, stop, task }
}

impl Watched {
    async fn next(&mut self) -> OwnedWord {
        match tokio::time::timeout(LONG, self.events.recv()).await.expect("in time") {
            Some(SourceEvent::Calls(words)) => words[0].clone(),
            other => panic!("no call: {other:?}"),
        }
    }

    fn shut(&self) -> Option<String> {
        self.board.parts().door_shut
    }
}

/// Paused time: the 15 s between two tries pass at once.
#[tokio::test(start_paused = true)]
async fn a_door_that_fails_three_times_is_not_ready_and_one_success_opens_it() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    drop(listener);
    let mut watched = watched(address.port());
    watched.pool_kind.send_replace(DoorKind::Tcp);
    for _ in 0..3 {
        assert_eq!(watched.shut(), None);
        assert_eq!(watched.next().await, OwnedWord::Failed { name: "door".into(), weight: 1.0 });
    }
    let why = watched.shut().unwrap();
    assert!(why.starts_with(&format!("door: cannot connect to {address}: ")), "{why}");
    let seen = &watched.board.parts().collectors["door"];
    assert_eq!(seen.source, "tcp");
    assert!(seen.error.as_ref().unwrap().ends_with("(3 in a row)"), "{seen:?}");

    let _listener = TcpListener::bind(address).await.unwrap();
    while !matches!(watched.next().await, OwnedWord::Finished(_)) {}
    assert_eq!(watched.shut(), None);
    assert_eq!(watched.board.parts().collectors["door"].error, None);
    watched.stop.cancel();
    watched.task.await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn what_was_seen_of_a_door_is_forgotten_when_another_is_to_be_tried() {
    let mut watched = watched(9);
    watched.pool_kind.send_replace(DoorKind::Ssh);
    for _ in 0..3 {
        watched.next().await;
    }
    assert!(watched.shut().is_some());
    watched.pool_kind.send_replace(DoorKind::None);
    while watched.shut().is_some() {
        // A try may be under way.
        let _ = watched.events.try_recv();
        tokio::task::yield_now().await;
    }
    assert!(!watched.board.parts().collectors.contains_key("door"));

    // The host's own word wins over the pool's, and so does the place that it names.
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let mut own = AgentConfig::default();
    own.door.kind = Some(DoorKind::Tcp);
    own.door.address = Some(listener.local_addr().unwrap().to_string());
    own.door.interval = HumanDuration::from_secs(1);
    watched.settings.send_replace(Arc::new(own));
    while !matches!(watched.next().await, OwnedWord::Finished(_)) {}
    assert_eq!(watched.board.parts().collectors["door"].source, "tcp");
}
