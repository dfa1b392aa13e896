//! Files of control groups, of both versions of the kernel's interface.

use super::{BETWEEN, Machine, Seen, Target, joined, parts, text};
use crate::sample::cgroup::{self, CpuShare};
use crate::sample::memory::Memory;

const MACHINE_CPUS: u64 = 8;
const MACHINE_BYTES: u64 = 1 << 30;
const MOST_BYTES: usize = 1024 * 1024;

const WORDS: &[&[u8]] =
    &[b"max", b" ", b"100000", b"usage_usec ", b"inactive_file ", b"0-7", b"-", b",", b"\n", b"\x1e"];

pub(super) fn version_2() -> Target {
    target(
        "cgroup_2",
        [
            "sys/fs/cgroup/cpu.max",
            "sys/fs/cgroup/cpu.stat",
            "sys/fs/cgroup/cpuset.cpus.effective",
            "sys/fs/cgroup/memory.max",
            "sys/fs/cgroup/memory.current",
            "sys/fs/cgroup/memory.stat",
        ],
        [
            [
                b"150000 100000\n",
                b"usage_usec 7000000\nuser_usec 1\n",
                b"0-5\n",
                b"1000\n",
                b"900\n",
                b"anon 1\ninactive_file 300\n",
            ],
            [b"max 100000\n", b"usage_usec 1\n", b"0-1,5\n", b"max\n", b"900\n", b""],
            [b"max", b"", b"0-7", b"max", b"", b""],
        ],
    )
}

pub(super) fn version_1() -> Target {
    target(
        "cgroup_1",
        [
            "sys/fs/cgroup/cpu,cpuacct/cpu.cfs_quota_us",
            "sys/fs/cgroup/cpu,cpuacct/cpu.cfs_period_us",
            "sys/fs/cgroup/cpu,cpuacct/cpuacct.usage",
            "sys/fs/cgroup/memory/memory.limit_in_bytes",
            "sys/fs/cgroup/memory/memory.usage_in_bytes",
            "sys/fs/cgroup/memory/memory.stat",
        ],
        [
            [b"150000\n", b"100000\n", b"7000000000\n", b"1000\n", b"900\n", b"total_inactive_file 300\n"],
            [b"-1\n", b"100000\n", b"1\n", b"9223372036854771712\n", b"1\n", b""],
            [b"1\n", b"1000000\n", b"0\n", b"1\n", b"5\n", b"total_inactive_file 9\n"],
        ],
    )
}

/// An empty part is a file that is not there.
fn target(name: &'static str, files: [&'static str; 6], machines: [[&[u8]; 6]; 3]) -> Target {
    let machine = Machine::new();
    Target {
        name,
        corpus: machines.iter().map(|machine| joined(machine)).collect(),
        words: WORDS,
        most_bytes: MOST_BYTES,
        feed: Box::new(move |bytes| {
            for (file, content) in files.into_iter().zip(parts::<6>(bytes)) {
                machine.set(file, Some(content).filter(|content| !content.is_empty()));
            }
            parsers_alone(bytes);
            let cpu = cgroup::cpu_share(machine.root(), MACHINE_CPUS);
            let memory = cgroup::memory_share(machine.root(), MACHINE_BYTES);
            match (cpu, memory) {
                (Ok(cpu), Ok(memory)) => {
                    check(cpu, memory);
                    let cpus = cpu.map(|share| share.cpus as u64);
                    Seen::taken((cpus, memory.map(|memory| memory.used_bytes == memory.total_bytes)))
                }
                (Err(error), memory) => {
                    check(None, memory.ok().flatten());
                    Seen::failed(&error)
                }
                (cpu, Err(error)) => {
                    check(cpu.ok().flatten(), None);
                    Seen::failed(&error)
                }
            }
        }),
    }
}

fn check(cpu: Option<CpuShare>, memory: Option<Memory>) {
    if let Some(CpuShare { cpus, .. }) = cpu {
        assert!(cpus.is_finite() && cpus > 0.0 && cpus < MACHINE_CPUS as f64, "{cpus}");
    }
    if let Some(Memory { used_bytes, total_bytes }) = memory {
        assert!(used_bytes <= total_bytes && total_bytes > 0 && total_bytes < MACHINE_BYTES, "{memory:?}");
    }
}

/// What the parsers give is a number of CPUs, whatever stands around it.
fn parsers_alone(bytes: &[u8]) {
    let [first, second] = parts(bytes).map(text);
    let is_sound = |cpus: &f64| cpus.is_finite() && *cpus > 0.0;
    assert!(cgroup::parse_cpu_max(&first).ok().flatten().is_none_or(|cpus| is_sound(&cpus)));
    assert!(cgroup::parse_cfs(&first, &second).ok().flatten().is_none_or(|cpus| is_sound(&cpus)));
    for part in bytes.split(|byte| *byte == BETWEEN) {
        if let Ok(cpus) = cgroup::parse_cpu_list(&text(part)) {
            assert!(cpus == 0 || part.iter().any(u8::is_ascii_digit), "{cpus}");
        }
    }
}
