//! Files of the kernel below `/proc`.

use std::time::Duration;

use super::{Machine, Seen, Target, fixture, joined, parts, text};
use crate::sample::cpu::CpuSampler;
use crate::sample::demand::DemandSampler;
use crate::sample::{arc, clocks, container, memory, pids, pressure, uptime};

const SECOND: Duration = Duration::from_secs(1);
/// As much of a file as shows what time grows like; the product reads sixteen times as much.
const MOST_BYTES: usize = 1024 * 1024;

pub(super) fn stat() -> Target {
    let looks = |first: &str, second: &str| {
        joined(&[&fixture(&format!("{first}/proc/stat")), &fixture(&format!("{second}/proc/stat"))])
    };
    let idle = "idle_2_64";
    Target {
        name: "stat",
        corpus: vec![
            looks("busy_host/t0", "busy_host/t1"),
            looks("case_008/t0", "case_008/t1"),
            looks("case_007/t0", "case_007/t1"),
            looks(&format!("{idle}/t0"), &format!("{idle}/t1")),
            b"cpu 1 2 3 4 5 6 7\x1ecpu 2 3 4 5 6 7 8 9 10 11".to_vec(),
        ],
        words: &[b"cpu", b"cpu ", b"cpu0 ", b"cpu1", b"btime ", b" ", b"\n", b"\x1e", b"intr "],
        most_bytes: MOST_BYTES,
        feed: Box::new(|bytes| {
            let [first, second] = parts(bytes).map(text);
            let mut sampler = CpuSampler::default();
            let reading = match (sampler.update(&first, SECOND), sampler.update(&second, SECOND)) {
                (Ok(_), Ok(reading)) => reading,
                // After a look that cannot be read the next one is the first.
                (Err(error), second) => {
                    assert!(second.is_err() || second.is_ok_and(|second| second.percent.is_none()));
                    return Seen::failed(&error);
                }
                (Ok(_), Err(error)) => return Seen::failed(&error),
            };
            if let Some(percent) = reading.percent {
                assert!((0.0..=100.0).contains(&percent), "{percent}");
                let expected = busy_percent(&first, &second);
                assert!((percent - expected).abs() < 1e-6, "{percent}, {expected}");
            }
            let warned = reading.warning.as_ref().map(|warning| warning.len());
            Seen::taken((reading.percent.map(|percent| percent as u64 / 25), warned))
        }),
    }
}

/// The eight columns that count, of the line of all CPUs.
fn columns(stat: &str) -> [f64; 8] {
    let line = stat.lines().find(|line| line.starts_with("cpu ")).unwrap();
    let mut words = line.split_ascii_whitespace().skip(1);
    std::array::from_fn(|_| words.next().map_or(0, |word| word.parse::<u64>().unwrap()) as f64)
}

fn busy_percent(first: &str, second: &str) -> f64 {
    let (first, second) = (columns(first), columns(second));
    let rise = |column: usize| (second[column] - first[column]).max(0.0);
    let idle: f64 = [3, 4].map(rise).iter().sum();
    let busy: f64 = [0, 1, 2, 5, 6, 7].map(rise).iter().sum();
    100.0 * busy / (busy + idle)
}

pub(super) fn meminfo() -> Target {
    Target {
        name: "meminfo",
        corpus: vec![
            fixture("busy_host/t0/proc/meminfo"),
            fixture("case_012/proc/meminfo"),
            b"MemTotal: 100 kB\nMemFree: 10 kB\nBuffers: 5 kB\nCached: 20 kB\nSReclaimable: 7 kB\nShmem: 3 kB\n"
                .to_vec(),
            b"MemTotal:1 kB\nMemAvailable:0 kB".to_vec(),
        ],
        words: &[
            b"MemTotal:", b"MemAvailable:", b"MemFree:", b"Cached:", b"Buffers:", b"Shmem:", b"SReclaimable:",
            b" kB\n", b" MB", b"\n",
        ],
        most_bytes: MOST_BYTES,
        feed: Box::new(|bytes| {
            let text = text(bytes);
            let memory = match memory::parse(&text) {
                Ok(memory) => memory,
                Err(error) => return Seen::failed(&error),
            };
            let value = |key: &str| {
                let mut lines = text.lines().filter_map(|line| line.split_once(':'));
                let (_, value) = lines.find(|(name, _)| *name == key)?;
                let kibibytes = value.trim().trim_end_matches("kB").trim();
                Some(kibibytes.parse::<u64>().unwrap() * 1024)
            };
            assert_eq!(Some(memory.total_bytes), value("MemTotal"));
            assert!(memory.total_bytes > 0 && memory.used_bytes <= memory.total_bytes);
            if let Some(available_bytes) = value("MemAvailable") {
                assert_eq!(memory.used_bytes, memory.total_bytes - available_bytes);
            }
            Seen::taken((value("MemAvailable").is_some(), memory.used_bytes == 0))
        }),
    }
}

pub(super) fn uptime() -> Target {
    Target {
        name: "uptime",
        corpus: vec![b"350735.47 234388.90\n".to_vec(), b"0.00 0.00\n".to_vec(), b"1".to_vec()],
        words: &[b" ", b".", b"\n"],
        most_bytes: MOST_BYTES,
        feed: Box::new(|bytes| {
            let text = text(bytes);
            match uptime::parse(&text) {
                Ok(uptime) => {
                    let seconds: f64 = text.split_ascii_whitespace().next().unwrap().parse().unwrap();
                    assert!(
                        seconds >= 0.0 && (uptime.as_secs_f64() - seconds).abs() <= 1e-6 * (1.0 + seconds)
                    );
                    Seen::taken(uptime.as_secs().checked_ilog10())
                }
                Err(error) => Seen::failed(&error),
            }
        }),
    }
}

pub(super) fn schedstat() -> Target {
    let look = |waited: [u64; 2]| {
        format!(
            "version 17\ntimestamp 4295000000\ncpu0 0 0 0 0 0 0 5 {} 7\ndomain0 3 0 1\ncpu1 0 0 0 0 0 0 5 {} 7\n",
            waited[0], waited[1]
        )
    };
    Target {
        name: "schedstat",
        corpus: vec![
            joined(&[look([0, 0]).as_bytes(), look([1_000_000_000, 5]).as_bytes()]),
            joined(&[look([9, 9]).as_bytes(), look([0, u64::MAX]).as_bytes()]),
            joined(&[&fixture("busy_host/t0/proc/schedstat"), &fixture("busy_host/t1/proc/schedstat")]),
        ],
        words: &[b"version ", b"cpu", b"cpu0 ", b"domain0 ", b" ", b"\n", b"\x1e"],
        most_bytes: MOST_BYTES,
        feed: Box::new(|bytes| {
            let [first, second] = parts(bytes).map(text);
            let mut sampler = DemandSampler::default();
            match (sampler.update(&first, SECOND), sampler.update(&second, SECOND)) {
                (Ok(first), Ok(waited)) => {
                    assert_eq!(first, None, "the first look gives no value");
                    assert!(waited.is_none_or(|waited| (0.0..=1e5).contains(&waited)), "{waited:?}");
                    Seen::taken(waited.map(|waited| (waited > 0.0, waited > 1.0)))
                }
                (_, Err(error)) | (Err(error), _) => Seen::failed(&error),
            }
        }),
    }
}

pub(super) fn pressure() -> Target {
    let whole =
        b"some avg10=99.00 avg60=9.00 avg300=9.00 total=9\nfull avg10=12.50 avg60=1.00 avg300=1.00 total=1\n";
    Target {
        name: "pressure",
        corpus: vec![whole.to_vec(), b"some avg10=0.00 total=9\n".to_vec(), b"full avg10=100".to_vec()],
        words: &[b"full ", b"some ", b"avg10=", b"avg60=", b" ", b"\n"],
        most_bytes: MOST_BYTES,
        feed: Box::new(|bytes| match pressure::parse("/proc/pressure/io", &text(bytes)) {
            Ok(percent) => {
                assert!(percent.is_none_or(|percent| (0.0..=100.0).contains(&percent)), "{percent:?}");
                assert!(percent.is_none() || text(bytes).contains("full "));
                Seen::taken(percent.map(|percent| percent as u64 / 25))
            }
            Err(error) => Seen::failed(&error),
        }),
    }
}

pub(super) fn arcstats() -> Target {
    Target {
        name: "arcstats",
        corpus: vec![
            b"13 1 0x01 123 33456 8269 97\nname type data\nhits 4 99\nc_min 4 1000\nsize 4 5000\n".to_vec(),
            b"size 4 10\nc_min 4 20\n".to_vec(),
        ],
        words: &[b"size ", b"c_min ", b" 4 ", b"\n"],
        most_bytes: MOST_BYTES,
        feed: Box::new(|bytes| match arc::parse(&text(bytes)) {
            Ok(above_bytes) => {
                let number = |key: &str| {
                    let text = text(bytes);
                    let line = text.lines().find(|line| line.split_ascii_whitespace().next() == Some(key));
                    line.unwrap().split_ascii_whitespace().nth(2).unwrap().parse::<u64>().unwrap()
                };
                assert_eq!(above_bytes, number("size").saturating_sub(number("c_min")));
                Seen::taken(above_bytes == 0)
            }
            Err(error) => Seen::failed(&error),
        }),
    }
}

pub(super) fn pid_stat() -> Target {
    let whole = "2345 (sshd: alice [pr) S 1 2345 2345 0 -1 4194560 1 2 3 4 5 6 7 8 20 0 1 0 10050 17 18 19\n";
    Target {
        name: "pid_stat",
        corpus: vec![
            whole.into(),
            b"1 (a b) c) S 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 99 1".to_vec(),
        ],
        words: &[b")", b"(", b" ", b") S "],
        most_bytes: MOST_BYTES,
        feed: Box::new(|bytes| match pids::began(&text(bytes)) {
            Some(began) => {
                let text = text(bytes);
                let after_name = text.rfind(')').unwrap() + 1;
                let ticks: u64 =
                    text[after_name..].split_ascii_whitespace().nth(19).unwrap().parse().unwrap();
                assert_eq!(began.as_millis(), u128::from(ticks) * 10);
                Seen::taken(began.as_secs().checked_ilog10())
            }
            None => Seen::refused(&"unknown"),
        }),
    }
}

pub(super) fn clocks() -> Target {
    let machine = Machine::new();
    Target {
        name: "clocks",
        corpus: vec![
            joined(&[b"60.5 1\n", b"cpu 1\nbtime 1767225600\n"]),
            joined(&[&fixture("busy_host/t0/proc/uptime"), &fixture("busy_host/t0/proc/stat")]),
        ],
        words: &[b"btime ", b"\n", b"\x1e", b" "],
        most_bytes: MOST_BYTES,
        feed: Box::new(move |bytes| {
            let [uptime, stat] = parts(bytes);
            machine.set("proc/uptime", Some(uptime));
            machine.set("proc/stat", Some(stat));
            let clocks = clocks::read(machine.root());
            match (clocks.monotonic, clocks.booted_unix, clocks.wall_unix) {
                (Some(uptime), Some(booted), wall) => assert_eq!(wall, booted.checked_add(uptime)),
                (_, _, wall) => assert_eq!(wall, None),
            }
            let known =
                (clocks.monotonic.is_some(), clocks.booted_unix.is_some(), clocks.wall_unix.is_some());
            if clocks.wall_unix.is_some() { Seen::taken(known) } else { Seen::refused(&"unknown") }
        }),
    }
}

pub(super) fn container() -> Target {
    let machine = Machine::new();
    Target {
        name: "container",
        corpus: vec![
            joined(&[b"systemd-nspawn\n", b"proc /proc proc rw 0 0\n", b""]),
            joined(&[b"", b"lxcfs /proc/stat fuse.lxcfs rw,nosuid 0 0\nproc /proc proc rw 0 0\n", b""]),
            joined(&[b"", b"", b"PATH=/bin\0container=lxc\0HOME=/"]),
        ],
        words: &[b"fuse.lxcfs", b" /proc/stat ", b"container=", b"\0", b" ", b"\n", b"\x1e"],
        most_bytes: MOST_BYTES,
        feed: Box::new(move |bytes| {
            let files = ["run/systemd/container", "proc/mounts", "proc/1/environ"];
            for (file, content) in files.into_iter().zip(parts::<3>(bytes)) {
                machine.set(file, Some(content));
            }
            match container::detect(machine.root()) {
                Some(found) => {
                    let is_word = |c: char| c.is_ascii_alphanumeric() || "-_.".contains(c);
                    assert!(
                        (1..=32).contains(&found.kind.len()) && found.kind.chars().all(is_word),
                        "{found:?}"
                    );
                    let mounts = parts::<3>(bytes)[1];
                    assert!(!found.has_lxcfs || text(mounts).contains("fuse.lxcfs"));
                    Seen::taken((found.has_lxcfs, found.kind.len()))
                }
                None => Seen::refused(&"no container"),
            }
        }),
    }
}
