use super::*;
use crate::sample::{CollectorStatus, SessionSeen};

fn sample() -> HostSample {
    HostSample {
        processes: Some(3),
        collectors: vec![CollectorStatus { name: "cpu", source: "proc", error: None, warning: None }],
        ..HostSample::default()
    }
}

#[test]
fn case_002_the_first_sample_has_no_cpu_and_what_cannot_be_is_absent() {
    assert_eq!(measurement(sample()).cpu, None);
    assert_eq!(measurement(HostSample { cpu_percent: Some(f64::NAN), ..sample() }).cpu, None);
    let half = measurement(HostSample { cpu_percent: Some(50.0), ..sample() });
    assert_eq!((half.cpu.unwrap().get(), half.processes, half.memory), (50.0, Some(3), None));
    assert_eq!(half.collectors[0].name, "cpu");
}

#[test]
fn demand_is_taken_over_and_absent_where_the_kernel_does_not_tell_it() {
    assert_eq!(measurement(sample()).runnable_demand, None);
    let three_times = HostSample { runnable_demand: Some(3.0), ..sample() };
    assert_eq!(measurement(three_times).runnable_demand, Some(3.0));
}

#[test]
fn pressure_and_mounts_are_taken_over_and_what_cannot_be_is_absent() {
    let mount = |path: &str, used_percent| sample::MountUse { path: path.into(), used_percent };
    let taken = measurement(HostSample {
        psi_full_percent: Some(60.0),
        mounts: vec![mount("/", 98.5), mount("/odd", f64::NAN)],
        ..sample()
    });
    assert_eq!(taken.psi_full.map(Percent::get), Some(60.0));
    assert_eq!(taken.mounts.len(), 1);
    assert_eq!((taken.mounts[0].path.as_str(), taken.mounts[0].used.get()), ("/", 98.5));
}

#[test]
fn a_host_with_nologin_is_not_ready_and_says_why() {
    let closed = measurement(HostSample { not_ready: Some("closed".into()), ..sample() });
    assert_eq!(closed.readiness, Readiness::NotReady("closed".into()));
}

#[test]
fn sessions_are_taken_over_with_their_ages() {
    let seen = SessionSeen {
        id: "c1".into(),
        user: "alice".into(),
        state: sample::SessionState::Lingering,
        age: Some(Duration::from_secs(9)),
    };
    let Occupancy::Listed(sessions) =
        occupancy(&SessionSample { source: "logind", sessions: vec![seen], logons: None })
    else {
        panic!("a list");
    };
    assert_eq!((sessions[0].state, sessions[0].age), (SessionState::Lingering, Some(Duration::from_secs(9))));
}

#[tokio::test]
async fn case_126_a_timer_that_was_late_does_not_fire_twice() {
    tokio::time::pause();
    let (events, mut source) = mpsc::channel(64);
    let (_timings, batches) = mpsc::channel(1);
    let stop = CancellationToken::new();
    let period = Duration::from_secs(5);
    let task = tokio::spawn(run_periods(period, batches, events, stop.clone()));
    tokio::task::yield_now().await;
    tokio::time::advance(Duration::from_secs(120)).await;
    assert_eq!(source.recv().await, Some(SourceEvent::PeriodEnded));
    let paused = Instant::now();
    assert_eq!(source.recv().await, Some(SourceEvent::PeriodEnded));
    assert!(paused.elapsed() >= period - Duration::from_millis(1), "{:?}", paused.elapsed());
    stop.cancel();
    task.await.unwrap();
}
