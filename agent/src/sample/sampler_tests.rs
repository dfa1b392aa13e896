use super::*;
use crate::sample::Memory;
use crate::sample::test_tree::tree;
use std::fs;

fn sampler(root: &Path) -> Sampler {
    let bus = BusAddress::At(format!("unix:path={}", root.join("no-bus").display()));
    Sampler::new(root, SessionConfig::default(), bus)
}

fn errors(sample: &HostSample) -> Vec<&'static str> {
    sample.collectors.iter().filter(|status| status.error.is_some()).map(|status| status.name).collect()
}

#[tokio::test]
async fn case_002_the_second_sample_has_a_cpu_percentage() {
    let root = tree(&[
        ("proc/stat", "cpu 0 0 0 0 0 0 0 0\n"),
        ("proc/meminfo", "MemTotal: 100 kB\nMemAvailable: 25 kB\n"),
        ("proc/uptime", "60.00 1.00\n"),
        ("proc/pressure/io", "full avg10=4.50 avg60=0.00 avg300=0.00 total=1\n"),
        ("proc/7/stat", ""),
        ("etc/nologin", "closed for repairs\n"),
    ]);
    let mut sampler = sampler(root.path());
    let first = sampler.sample().await;
    assert_eq!(first.cpu_percent, None);
    assert_eq!(errors(&first), ["users"]);
    assert_eq!(first.memory, Some(Memory { used_bytes: 75 * 1024, total_bytes: 100 * 1024 }));
    assert_eq!((first.processes, first.uptime), (Some(1), Some(Duration::from_secs(60))));
    assert_eq!(first.psi_full_percent, Some(4.5));
    assert_eq!(first.not_ready.as_deref(), Some("closed for repairs"));

    fs::write(root.path().join("proc/stat"), "cpu 1 0 0 1 0 0 0 0\n").expect("written");
    assert_eq!(sampler.sample().await.cpu_percent, Some(50.0));
}

#[tokio::test]
async fn case_022_one_unreadable_file_does_not_silence_the_rest() {
    let root = tree(&[("proc/stat", "cpu 0 0 0 0 0 0 0 0\n"), ("proc/7/stat", "")]);
    // A folder in the place of a file cannot be read by any user, not even by root.
    fs::create_dir_all(root.path().join("run/utmp")).expect("made");
    let sample = sampler(root.path()).sample().await;
    assert_eq!(sample.processes, Some(1));
    assert_eq!((sample.memory, sample.sessions.clone()), (None, None));
    assert_eq!(errors(&sample), ["memory", "uptime", "users"]);
    let users = sample
        .collectors
        .iter()
        .find(|status| status.name == "users")
        .and_then(|status| status.error.clone())
        .expect("an error");
    assert!(users.contains("run/utmp: Is a directory"), "{users}");
}

#[tokio::test]
async fn a_mount_that_is_not_there_hides_no_other() {
    let root = tree(&[("home/alice/x", "")]);
    let chosen = ["/home", "/srv"].map(PathBuf::from);
    let sample = sampler(root.path()).with_mounts(&chosen).sample().await;
    assert_eq!(sample.mounts.iter().map(|mount| mount.path.as_str()).collect::<Vec<_>>(), ["/home"]);
    let mounts = sample.collectors.iter().find(|status| status.name == "mounts").expect("a collector");
    assert!(mounts.error.as_ref().expect("an error").starts_with("/srv: "));
}

#[tokio::test]
async fn this_machine_can_be_sampled() {
    let sample = Sampler::new(Path::new("/"), SessionConfig::default(), BusAddress::System).sample().await;
    assert!(sample.memory.is_some() && sample.processes.is_some() && sample.uptime.is_some());
    let names: Vec<_> = sample.collectors.iter().map(|collector| collector.name).collect();
    let expected = ["cpu", "demand", "memory", "processes", "uptime", "pressure", "readiness", "users"];
    assert_eq!(names[..8], expected);
}

#[tokio::test]
async fn a_hung_file_does_not_stop_the_report() {
    let root = tree(&[("proc/7/stat", "")]);
    let fifo = root.path().join("proc/stat");
    rustix::fs::mknodat(rustix::fs::CWD, &fifo, rustix::fs::FileType::Fifo, 0o600.into(), 0).expect("made");
    let mut sampler = sampler(root.path());
    sampler.deadline = Duration::from_millis(200);
    let first = sampler.sample().await;
    assert_eq!(errors(&first), ["cpu", "memory", "uptime", "users"]);
    assert_eq!(first.processes, Some(1));
    let why = first.collectors[0].error.as_deref().expect("an error");
    assert_eq!(why, "CPU counters: timed out after 200 ms");
    let again = sampler.sample().await;
    assert_eq!(again.collectors[0].error.as_deref(), Some("CPU counters: timed out earlier and still hangs"));
    // Lets the reader go.
    drop(fs::OpenOptions::new().write(true).open(fifo).expect("opened"));
}

fn at_work(ticks: u64, waited_ns: u64) -> [(&'static str, String); 2] {
    let cpus = "cpu0 1 0 0 1 0 0 0 0\ncpu1 1 0 0 1 0 0 0 0\n";
    [
        ("proc/stat", format!("cpu {} 0 0 {} 0 0 0 0\n{cpus}", ticks * 150, ticks * 50)),
        ("proc/schedstat", format!("version 15\ncpu0 0 0 0 0 0 0 1 {waited_ns} 1\ncpu1 0 0 0 0 0 0 1 0 1\n")),
    ]
}

async fn two_looks(more: &[(&str, &str)]) -> HostSample {
    let trees = [at_work(1, 0), at_work(2, 4_000_000_000)].map(|files| {
        let files: Vec<_> = files.iter().map(|(name, text)| (*name, text.as_str())).collect();
        tree(&[&files[..], more].concat())
    });
    let mut sampler = sampler(trees[0].path());
    sampler.move_to(trees[0].path(), Duration::ZERO);
    sampler.sample().await;
    sampler.move_to(trees[1].path(), Duration::from_secs(1));
    sampler.sample().await
}

#[tokio::test]
async fn demand_is_busy_time_and_waiting_over_the_time_of_all_cpus() {
    let sample = two_looks(&[]).await;
    assert_eq!((sample.cpu_percent, sample.runnable_demand), (Some(75.0), Some(2.75)));
    assert!(sample.collectors.iter().all(|status| status.name != "container"));
}

#[tokio::test]
async fn a_container_is_said_to_be_one_and_the_machines_queue_is_not_its_own() {
    let container = |sample: &HostSample| {
        let status = sample.collectors.iter().find(|status| status.name == "container").cloned();
        status.and_then(|status| Some((status.source, status.warning?))).expect("it is said")
    };
    let unlimited = two_looks(&[(".dockerenv", "")]).await;
    assert_eq!(unlimited.runnable_demand, Some(2.75));
    let (source, warning) = container(&unlimited);
    assert!(source == "proc" && warning.contains("docker") && warning.contains("whole machine"), "{warning}");

    let lxcfs = two_looks(&[("proc/mounts", "lxcfs /proc/stat fuse.lxcfs rw 0 0\n")]).await;
    assert_eq!((lxcfs.cpu_percent, lxcfs.runnable_demand), (Some(75.0), None));
    assert!(container(&lxcfs).1.contains("lxcfs"));

    let limited = [("sys/fs/cgroup/cpu.max", "50000 100000\n"), ("sys/fs/cgroup/cpu.stat", "usage_usec 9\n")];
    let limited = two_looks(&limited).await;
    assert_eq!((limited.cpu_percent, limited.runnable_demand), (Some(0.0), None));
    let (source, warning) = container(&limited);
    assert!(source == "cgroup" && warning.contains("of the 0.5 CPUs"), "{warning}");
}

#[test]
fn values_of_sysinfo_name_it_and_say_why() {
    let why = Some("sysinfo stands in: /proc/stat: no line of all CPUs".to_owned());
    let mut sample = HostSample::default();
    let cpu =
        CpuReading { percent: Some(5.0), is_sysinfo: true, warning: why.clone(), ..CpuReading::default() };
    sample.take_cpu(Ok(CpuLook { cpu: Ok(cpu), waiting: Ok(None), container: None }));
    sample.take_processes(Ok(Read { value: 7, stands_in: why.clone() }));
    sample.take_processes(Ok(Read { value: 8, stands_in: None }));
    assert_eq!((sample.cpu_percent, sample.processes), (Some(5.0), Some(8)));
    let told: Vec<_> =
        sample.collectors.iter().map(|state| (state.name, state.source, state.warning.is_some())).collect();
    let expected = [
        ("cpu", "sysinfo", true),
        ("demand", "schedstat", false),
        ("processes", "sysinfo", true),
        ("processes", "proc", false),
    ];
    assert_eq!(told, expected);
}
