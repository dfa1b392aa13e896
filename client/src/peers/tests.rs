use super::*;

impl Peers {
    /// Coordinators that nobody connects to, with these places among equals.
    pub(crate) fn unconnected(lots: &[u64]) -> Self {
        let recovered = Arc::new(Notify::new());
        let peer = |lot: &u64| {
            Arc::new(Peer {
                address: format!("c{lot}"),
                link: watch::channel(Link::Connecting).0,
                broken: Notify::new(),
                recovered: recovered.clone(),
                health: Mutex::default(),
                lot: *lot,
            })
        };
        Self { peers: lots.iter().map(peer).collect(), recovered }
    }
}

fn order(peers: &Peers) -> Vec<String> {
    peers.in_order().iter().map(|peer| peer.address.clone()).collect()
}

const QUICK: Duration = Duration::from_millis(2);

#[tokio::test]
async fn equals_are_asked_in_an_order_that_chance_decides_once() {
    let peers = Peers::unconnected(&[3, 1, 2]);
    assert_eq!(order(&peers), ["c1", "c2", "c3"]);
    peers.peers.iter().for_each(|peer| peer.answered(QUICK));
    assert_eq!(order(&peers), ["c1", "c2", "c3"]);
}

#[tokio::test]
async fn who_is_silent_comes_last_until_it_answers() {
    let peers = Peers::unconnected(&[1, 2]);
    peers.peers[0].failed("gone".to_owned());
    assert_eq!(order(&peers), ["c2", "c1"]);
    assert!(peers.down_for().is_none());
    peers.peers[1].failed("gone".to_owned());
    assert!(peers.down_for().is_some());
    peers.peers[0].answered(QUICK);
    assert_eq!(order(&peers), ["c1", "c2"]);
}

#[tokio::test(start_paused = true)]
async fn who_hears_most_of_the_farm_comes_first() {
    let peers = Peers::unconnected(&[1, 2, 3]);
    peers.peers[0].hears(50, 100);
    peers.peers[1].hears(80, 100);
    peers.peers[2].hears(95, 100);
    assert_eq!(order(&peers), ["c3", "c2", "c1"]);
    assert!(peers.peers[1].is_partial() && !peers.peers[2].is_partial(), "nine tenths are enough");
    peers.peers[0].hears(0, 0);
    assert_eq!(order(&peers)[0], "c1", "an empty farm is heard");
    peers.peers[0].hears(50, 100);
    tokio::time::advance(VIEW_LASTS).await;
    assert_eq!(order(&peers)[0], "c1", "what it heard long ago is not held against it");
}

#[tokio::test]
async fn who_takes_several_times_as_long_comes_later() {
    let peers = Peers::unconnected(&[1, 2]);
    peers.peers[0].answered(Duration::from_millis(300));
    peers.peers[1].answered(QUICK);
    assert_eq!(order(&peers), ["c2", "c1"]);
    // A few milliseconds are no difference.
    let peers = Peers::unconnected(&[1, 2]);
    peers.peers[0].answered(Duration::from_millis(30));
    peers.peers[1].answered(QUICK);
    assert_eq!(order(&peers), ["c1", "c2"]);
}

#[tokio::test(start_paused = true)]
async fn who_waits_for_a_connection_is_told_why_there_is_none() {
    let peers = Peers::unconnected(&[1]);
    let peer = &peers.peers[0];
    assert_eq!(peer.channel(Duration::from_secs(1)).await.unwrap_err(), "not connected yet");
    peer.link.send_replace(Link::Down("refused".to_owned()));
    assert_eq!(peer.channel(Duration::from_secs(1)).await.unwrap_err(), "refused");
}

#[tokio::test(start_paused = true)]
async fn that_nobody_was_asked_for_long_is_no_silence() {
    let peers = Peers::unconnected(&[1, 2]);
    peers.peers.iter().for_each(|peer| peer.answered(QUICK));
    tokio::time::advance(Duration::from_secs(3600)).await;
    peers.peers[0].failed("gone".to_owned());
    tokio::time::advance(Duration::from_secs(60)).await;
    assert_eq!(peers.down_for(), None, "one is well");
    peers.peers[1].failed("gone".to_owned());
    tokio::time::advance(Duration::from_secs(1)).await;
    peers.peers[1].failed("still gone".to_owned());
    assert_eq!(peers.down_for(), Some(Duration::from_secs(1)), "since the last one became it");
    peers.peers[0].answered(QUICK);
    assert_eq!(peers.down_for(), None);
}

#[tokio::test(start_paused = true)]
async fn who_waits_for_one_that_is_down_is_told_when_it_answers_again() {
    let peers = Peers::unconnected(&[1, 2]);
    let within = Duration::from_secs(1);
    peers.peers[0].answered(QUICK);
    assert!(timeout(within, peers.recovery()).await.is_err(), "it was well before");
    peers.peers[0].failed("gone".to_owned());
    peers.peers[0].answered(QUICK);
    peers.recovery().await;
    assert!(timeout(within, peers.recovery()).await.is_err(), "once is enough");
}
