use std::time::Duration;

use tokio::io::AsyncReadExt;
use tokio::net::TcpListener;
use usher_runtime::config::HumanDuration;

use super::*;
use crate::latency::listener::OwnedWord;

const LONG: Duration = Duration::from_secs(60);

fn probe(name: &str, kind: ProbeKind, target: &str, command: &[&str]) -> ProbeConfig {
    ProbeConfig {
        name: name.into(),
        kind,
        target: target.into(),
        command: command.iter().map(|word| (*word).to_owned()).collect(),
        ca_file: None,
        interval: HumanDuration::from_secs(1),
        deadline: HumanDuration::from_secs(2),
    }
}

fn with(probes: Vec<ProbeConfig>) -> Arc<AgentConfig> {
    Arc::new(AgentConfig { probes, ..AgentConfig::default() })
}

async fn next(events: &mut mpsc::Receiver<SourceEvent>) -> (String, bool) {
    match tokio::time::timeout(LONG, events.recv()).await.expect("in time") {
        Some(SourceEvent::Calls(words)) => match &words[0] {
            OwnedWord::Finished(timing) => (timing.name.clone(), true),
            OwnedWord::Failed { name, .. } => (name.clone(), false),
            other => panic!("no call: {other:?}"),
        },
        other => panic!("no call: {other:?}"),
    }
}

#[tokio::test]
async fn each_probe_is_an_operation_and_new_settings_replace_them() {
    let (settings, seen) = watch::channel(with(vec![
        probe("good", ProbeKind::Command, "", &["/bin/true"]),
        probe("bad", ProbeKind::Command, "", &["/bin/false"]),
    ]));
    let (events_in, mut events) = mpsc::channel(1);
    let (board, stop) = (StandingBoard::default(), CancellationToken::new());
    let task = tokio::spawn(run_probes(seen, board.clone(), events_in, stop.clone()));
    let mut first = [next(&mut events).await, next(&mut events).await];
    first.sort();
    assert_eq!(first, [("bad".to_owned(), false), ("good".to_owned(), true)]);
    let bad = board.parts().collectors["probe bad"].clone();
    assert_eq!(
        (bad.source.as_str(), bad.error.as_deref()),
        ("command", Some("/bin/false ended with exit status: 1"))
    );

    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let target = listener.local_addr().unwrap().to_string();
    settings.send_replace(with(vec![probe("port", ProbeKind::Tcp, &target, &[])]));
    while next(&mut events).await != ("port".to_owned(), true) {}
    assert_eq!(board.parts().collectors.keys().collect::<Vec<_>>(), ["probe port"]);
    stop.cancel();
    task.await.unwrap();
}

#[tokio::test]
async fn a_peer_that_cannot_shake_hands_is_a_failed_call_and_sees_a_hello() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let target = listener.local_addr().unwrap().to_string();
    let hello = tokio::spawn(async move {
        let (mut stream, _) = listener.accept().await.unwrap();
        let mut hello = [0; 3];
        stream.read_exact(&mut hello).await.unwrap();
        hello
    });
    let probe = probe("directory", ProbeKind::Tls, &target, &[]);
    let error = prepare(&probe).await.unwrap().attempt(&probe).await.unwrap_err().to_string();
    assert!(error.contains("no TLS handshake"), "{error}");
    assert_eq!(hello.await.unwrap(), [22, 3, 1], "a handshake record");
}

#[tokio::test]
async fn certificates_that_cannot_be_read_fail_every_try_with_the_file_named() {
    let mut probe = probe("directory", ProbeKind::Tls, "127.0.0.1:1", &[]);
    probe.ca_file = Some("/no/such/file".into());
    let error = prepare(&probe).await.unwrap_err();
    assert!(error.contains("/no/such/file"), "{error}");
}
