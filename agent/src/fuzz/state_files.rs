//! The agent's own files, which a disk, an administrator or another program may have changed.

use std::path::PathBuf;
use std::time::Duration;

use sha2::{Digest, Sha256};
use usher_availability::{OperationSettings, Operations};
use usher_placement::host::{CoreSettings, HostCore, NameSettings};
use usher_types::{BootId, BootTime, HostOverrides, OperationName, PoolName};

use super::{Machine, Seen, Target, text};
use crate::admission::PlacesFile;
use crate::drain::{DrainFile, MAX_REASON_CHARS};
use crate::host::identity::load_or_make;
use crate::latency::baseline_file::{BaselineFile, BaselineOrigin, BaselineOwner};
use crate::latency::statsd::is_name;

const NOW_MS: u64 = 1_767_225_600_000;
const MOST_BYTES: usize = 1024 * 1024;

/// What the broken file must not take with it: files that were moved aside are looked at by nobody.
fn files(machine: &Machine) -> Vec<PathBuf> {
    std::fs::read_dir(machine.root()).unwrap().map(|entry| entry.unwrap().path()).collect()
}

fn clear(machine: &Machine) {
    files(machine).into_iter().for_each(|path| drop(std::fs::remove_file(path)));
}

/// Half of the inputs get the checksum that belongs to them, or next to none would be looked into.
fn signed(body: &[u8], version: u32) -> Vec<u8> {
    let sum: String = Sha256::digest(body).iter().map(|byte| format!("{byte:02x}")).collect();
    [format!("usher-baselines {version} {sum}\n").as_bytes(), body].concat()
}

pub(super) fn baselines() -> Target {
    let machine = Machine::new();
    let owner = BaselineOwner { host_id: "h1".into(), cpu_model: Some("Fast 9000".into()) };
    let file = BaselineFile::new(machine.root().join("baselines"), owner);
    let mut learned = Operations::new(OperationSettings::default());
    for (name, duration_us) in [("open_db", 12_500.0), ("login", 350_000.0)] {
        learned.record(name, duration_us, 30.0).unwrap();
    }
    learned.end_period(BootTime::from_millis(15_000));
    let now = BootTime::from_millis(16_000);
    let learned: Vec<_> = learned.baselines(now).map(|(name, record)| (name.to_string(), record)).collect();
    file.save(&learned.into_iter().collect(), NOW_MS).unwrap();
    let whole = std::fs::read(machine.root().join("baselines")).unwrap();
    let body = whole[whole.iter().position(|byte| *byte == b'\n').unwrap() + 1..].to_vec();
    let old = br#"{"format":1,"host_id":"h1","cpu_model":"Fast 9000","entries":{"a":{"baseline_us":900.0,"samples":7,"updated_unix_ms":5},"b":{"baseline_us":1.0,"samples":1,"updated_unix_ms":9}}}"#;
    Target {
        name: "baselines",
        corpus: vec![body, whole, old.to_vec()],
        words: &[
            b"\"entries\":",
            b"\"lowest_us\":",
            b"\"qualified_us\":",
            b"\"samples\":",
            b"null",
            b"{",
            b"}",
            b"[",
            b"]",
            b",",
            b"\"format\":1",
            b"\"saved_unix_ms\":",
            b"usher-baselines 2 ",
            b"\n",
            b"-1",
            b"1e308",
        ],
        most_bytes: MOST_BYTES,
        feed: Box::new(move |bytes| {
            clear(&machine);
            let is_old = text(bytes).contains("\"format\":1");
            let content = match bytes {
                raw if raw.starts_with(b"usher-baselines") => raw.to_vec(),
                body => signed(body, if is_old { 1 } else { 2 }),
            };
            machine.set("baselines", Some(&content));
            let loaded = file.load(NOW_MS + 5_000);
            match loaded.origin {
                BaselineOrigin::File => {}
                BaselineOrigin::Reset { reason } => {
                    assert!(loaded.baselines.is_empty() && loaded.warning.is_some());
                    return Seen::refused(&reason.replace(&*machine.root().to_string_lossy(), ""));
                }
                other => panic!("{other:?} of one file"),
            }
            let mut operations = Operations::new(OperationSettings::default());
            let mut faults = 0;
            for (name, record) in &loaded.baselines {
                assert!(is_name(name), "{name:?}");
                let name = OperationName::new(name).expect("a name of the file can be one of an operation");
                let said = operations.restore(name, record, BootTime::from_millis(20_000));
                assert!(said.iter().all(|fault| !fault.to_string().is_empty()));
                faults += said.len();
            }
            sound(&operations);
            // What was restored can be kept again.
            let again = operations.baselines(BootTime::from_millis(20_000));
            let again = again.map(|(name, record)| (name.to_string(), record)).collect();
            file.save(&again, NOW_MS + 5_000).unwrap();
            assert_eq!(file.load(NOW_MS + 5_000).origin, BaselineOrigin::File);
            Seen::taken((loaded.baselines.len().min(4), faults.min(4)))
        }),
    }
}

/// No baseline that a mean could be divided by to no sense.
fn sound(operations: &Operations) {
    for window in operations.window(BootTime::from_millis(20_000)) {
        assert!(window.baseline_us.is_none_or(|us| us.is_finite() && us > 0.0), "{window:?}");
    }
}

fn core_settings() -> CoreSettings {
    CoreSettings {
        pool: PoolName::new("desk").unwrap(),
        overrides: HostOverrides::default(),
        incarnation_ms: 1,
        latency_period: Duration::from_secs(15),
        periods: 5,
        max_names: 512,
        names: NameSettings::default(),
        coordinators: vec!["a".into(), "b".into()],
        report_interval: Duration::from_secs(5),
    }
}

pub(super) fn places() -> Target {
    let machine = Machine::new();
    let file = PlacesFile::new(machine.root(), BootId::new("b1").unwrap());
    const PLACE: &[u8] =
        br#"{"token":{"gateway":"g","request_id":"R1"},"attempt":1,"content_hash":7,"pool":"desk",
        "endpoint":{"kind":"ssh","address":"192.0.2.1","port":22},"user":"alice","cost":1,"counted_users":1,
        "left_ms":120000,"connected":false,"admitted":true}"#;
    file.save(HostCore::new(core_settings(), Default::default()).record()).unwrap();
    let whole = std::fs::read(machine.root().join("places.json")).unwrap();
    Target {
        name: "places",
        corpus: vec![
            whole,
            br#"{"boot_id":"b1","availability_latched":true,"book":{"places":[],"ended":[]}}"#.to_vec(),
        ],
        words: &[
            b"\"places\":",
            b"\"ended\":",
            b"\"latched\":",
            b"\"told\":",
            b"\"cpu\"",
            b"null",
            b"{",
            b"}",
            b"[",
            b"]",
            b",",
            b"[{}]",
            PLACE,
        ],
        most_bytes: MOST_BYTES,
        feed: Box::new(move |bytes| {
            clear(&machine);
            machine.set("places.json", Some(bytes));
            let kept = file.load().expect("a file that can be read is no error, whatever it holds");
            let is_aside = machine.root().join("places.json.broken").exists();
            assert!(!is_aside || kept == Default::default());
            if is_aside {
                return Seen::refused(&"moved aside");
            }
            let now = BootTime::from_millis(1_000);
            let mut core = HostCore::new(core_settings(), kept);
            core.expire(now);
            file.save(core.record()).unwrap();
            file.load().unwrap();
            let load = core.load(now, NOW_MS);
            Seen::taken((core.record().book.len().min(4), load.is_some(), core.next_expiry().is_some()))
        }),
    }
}

pub(super) fn drain() -> Target {
    let machine = Machine::new();
    let file = DrainFile::new(machine.root(), BootId::new("b1").unwrap());
    Target {
        name: "drain",
        corpus: vec![
            br#"{"boot_id":"b1","drain":{"mode":"until_restart","reason":"disks","author":"root","no_reconnect":true}}"#
                .to_vec(),
            br#"{"boot_id":"b0","drain":{"mode":"persistent","reason":"","author":"","no_reconnect":false}}"#.to_vec(),
        ],
        words: &[b"\"mode\":", b"\"persistent\"", b"\"reason\":", b"null", b"{", b"}", b",", b"\\u0000", b"\"b1\"", b"\\n"],
        most_bytes: MOST_BYTES,
        feed: Box::new(move |bytes| {
            machine.set("drain.json", Some(bytes));
            let Some(drain) = file.load() else {
                // Only a file that says so itself is void.
                assert!(text(bytes).contains("until_restart"));
                return Seen::taken("of another boot");
            };
            for text in [&drain.reason, &drain.author] {
                assert!(text.chars().count() <= MAX_REASON_CHARS, "{} bytes", text.len());
                assert!(!text.chars().any(char::is_control), "{text:?}");
            }
            if drain.author == "usher-agent" && drain.reason.contains("cannot be understood") {
                return Seen::refused(&"drained");
            }
            Seen::taken((std::mem::discriminant(&drain.mode), drain.no_reconnect, drain.reason.len().min(2)))
        }),
    }
}

pub(super) fn identity() -> Target {
    let machine = Machine::new();
    Target {
        name: "identity",
        corpus: vec![
            b"0d1f0b3e-3b0e-4b57-9a44-3a2f9a6c1d11\n".to_vec(),
            b"  0D1F0B3E3B0E4B579A443A2F9A6C1D11".to_vec(),
        ],
        words: &[b"-", b"{", b"}", b"urn:uuid:", b"\n", b"0d1f0b3e"],
        most_bytes: MOST_BYTES,
        feed: Box::new(move |bytes| {
            machine.set("host_id", Some(bytes));
            match load_or_make(machine.root()) {
                Ok(id) => {
                    assert_eq!(id.as_str().len(), 36);
                    let digits = |text: &str| {
                        text.chars().filter(char::is_ascii_hexdigit).collect::<String>().to_ascii_lowercase()
                    };
                    assert!(digits(&text(bytes)).ends_with(&digits(id.as_str())), "{id}");
                    Seen::taken(bytes.len())
                }
                Err(_) => {
                    let kept = std::fs::read(machine.root().join("host_id")).unwrap();
                    assert_eq!(kept, bytes, "an identity that cannot be read is never replaced");
                    Seen::refused(&"no identity")
                }
            }
        }),
    }
}
