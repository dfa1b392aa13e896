//! A whole machine of which one file is broken: it costs its own values and no other.

use std::collections::BTreeSet;

use super::{Machine, Seen, Target, check_refusal, fixture};
use crate::sample::{BusAddress, HostSample, Sampler, SessionConfig};

/// A file, what it holds on the whole machine, and the one value that it gives.
struct Part {
    path: &'static str,
    whole: Vec<u8>,
    gives: &'static str,
}

fn part(path: &'static str, whole: impl Into<Vec<u8>>, gives: &'static str) -> Part {
    Part { path, whole: whole.into(), gives }
}

/// The first byte of an input says which.
fn machine() -> Vec<Part> {
    vec![
        part("proc/stat", fixture("busy_host/t0/proc/stat"), "cpu"),
        part("proc/meminfo", fixture("busy_host/t0/proc/meminfo"), "memory"),
        part("proc/uptime", "350735.47 234388.90\n", "uptime"),
        part("proc/pressure/io", "full avg10=4.50 avg60=0.00 avg300=0.00 total=1\n", "pressure"),
        part("run/utmp", fixture("u1/run/utmp"), "users"),
        part("sys/fs/cgroup/memory.max", "max\n", "memory"),
        part("sys/fs/cgroup/cpu.max", "max 100000\n", "cpu"),
        part("run/nologin", "closed\n", "readiness"),
        part("proc/schedstat", fixture("busy_host/t0/proc/schedstat"), "demand"),
    ]
}

/// What a sample says, value by value, for comparison.
fn values(sample: &HostSample) -> [(&'static str, String); 6] {
    let users = sample.sessions.as_ref().map(|sessions| {
        let users = sessions.sessions.iter().map(|session| session.user.as_str());
        users.collect::<BTreeSet<_>>()
    });
    [
        ("memory", format!("{:?}", sample.memory)),
        ("processes", format!("{:?}", sample.processes)),
        ("uptime", format!("{:?}", sample.uptime)),
        ("pressure", format!("{:?}", sample.psi_full_percent)),
        ("users", format!("{users:?}")),
        ("readiness", format!("{:?}", sample.not_ready)),
    ]
}

pub(super) fn whole_report() -> Target {
    let (machine, parts) = (Machine::new(), machine());
    for part in &parts {
        machine.set(part.path, Some(&part.whole));
    }
    for pid in [2001, 2002, 4_194_303] {
        machine.set(&format!("proc/{pid}/comm"), Some(b"sh\n"));
    }
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap();
    let root = machine.root().to_owned();
    let sample = move || {
        let bus = BusAddress::At(format!("unix:path={}", root.join("no-bus").display()));
        runtime.block_on(async { Sampler::new(&root, SessionConfig::default(), bus).sample().await })
    };
    let whole = values(&sample());
    assert!(whole.iter().all(|(_, value)| value != "None"), "{whole:?}");
    let input =
        |(number, part): (usize, &Part)| [&[u8::try_from(number).unwrap()], part.whole.as_slice()].concat();
    Target {
        name: "whole_report",
        corpus: parts.iter().enumerate().map(input).collect(),
        words: &[b"\n", b" ", b"MemTotal:", b"cpu ", b"btime ", b"max", b"full avg10=", &[0; 384]],
        most_bytes: 64 * 1024,
        feed: Box::new(move |bytes| {
            let Some((first, content)) = bytes.split_first() else { return Seen::refused(&"nothing") };
            let part = &parts[usize::from(*first) % parts.len()];
            machine.set(part.path, Some(content));
            let broken = sample();
            machine.set(part.path, Some(&part.whole));
            for ((name, value), (_, before)) in values(&broken).iter().zip(&whole) {
                assert!(
                    value == before || *name == part.gives,
                    "{}: {name} was {before}, is {value}",
                    part.path
                );
            }
            let mut failed = Vec::new();
            for collector in &broken.collectors {
                collector.error.iter().chain(&collector.warning).for_each(|told| check_refusal(told));
                if collector.error.is_some() {
                    assert_eq!(collector.name, part.gives, "{}: {collector:?}", part.path);
                    failed.push(collector.name);
                }
            }
            match failed.as_slice() {
                [] => Seen::taken(part.path),
                failed => Seen::refused(&failed.join(" ")),
            }
        }),
    }
}
