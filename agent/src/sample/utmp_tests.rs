use super::*;
use proptest::prelude::*;
use std::fs;

const U1: &[u8] = include_bytes!("fixtures/utmp-384.bin");
const U2: &[u8] = include_bytes!("fixtures/utmp-400.bin");

/// 2026-01-01 00:00:00 UTC, the boot of the fixtures.
const BOOT: Duration = Duration::from_secs(1_767_225_600);

fn fixture_life(pid: i32) -> Life {
    if [2001, 2002, 4_194_303].contains(&pid) { Life::Alive { since_boot: None } } else { Life::Gone }
}

fn fixture(bytes: &[u8]) -> Result<Vec<UtmpSession>, SampleError> {
    parse(bytes, Some(BOOT), fixture_life)
}

fn users(sessions: &[UtmpSession]) -> Vec<&str> {
    let mut users: Vec<&str> = sessions.iter().map(|session| session.user.as_str()).collect();
    users.dedup();
    users
}

/// A record in the layout of 384 bytes.
fn record_of(kind: i16, pid: i32, line: &str, user: &str, seconds: u64) -> Vec<u8> {
    let mut bytes = vec![0; 384];
    let seconds = i32::try_from(seconds).unwrap().to_ne_bytes();
    let fields: [(usize, &[u8]); 5] = [
        (0, &kind.to_ne_bytes()),
        (4, &pid.to_ne_bytes()),
        (8, line.as_bytes()),
        (44, user.as_bytes()),
        (340, &seconds),
    ];
    for (at, field) in fields {
        bytes[at..at + field.len()].copy_from_slice(field);
    }
    bytes
}

#[test]
fn case_028_029_030_036_only_living_logins_count_in_the_layout_of_384_bytes() {
    let sessions = fixture(U1).expect("readable");
    assert_eq!(users(&sessions), ["alice", "carol"]);
    let lines: Vec<&str> = sessions.iter().map(|session| session.line.as_str()).collect();
    assert_eq!(lines, ["pts/0", "pts/1", "pts/3"]);
    assert!(sessions.iter().all(|session| session.since_unix >= BOOT));
}

#[test]
fn case_032_the_layout_of_400_bytes_gives_the_same() {
    assert_eq!(fixture(U2).expect("readable"), fixture(U1).expect("readable"));
}

#[test]
fn case_032_a_length_that_fits_both_layouts_is_told_apart_by_content() {
    // 9600 = 25 x 384 = 24 x 400.
    let wide = U2.repeat(3);
    assert_eq!(users(&fixture(&wide).expect("readable")), ["alice", "carol"]);
    let mut narrow = U1.repeat(3);
    narrow.extend_from_slice(&U1[..384]);
    assert_eq!(users(&fixture(&narrow).expect("readable")), ["alice", "carol"]);
}

#[test]
fn a_cut_or_foreign_file_is_refused() {
    for bad in [&U1[..3071], &U2[..399], &[0xff; 384][..], &b"text".repeat(96)[..]] {
        assert!(fixture(bad).is_err(), "{} bytes", bad.len());
    }
}

#[test]
fn a_file_without_records_is_unknown_not_zero() {
    for bytes in [0, 384, 9600] {
        let error = fixture(&vec![0; bytes]).expect_err("unknown");
        assert!(error.to_string().contains("nothing on this host writes it"), "{error}");
    }
}

#[test]
fn a_boot_record_alone_means_nobody_is_logged_in() {
    assert_eq!(fixture(&U1[..384]).expect("readable"), []);
}

#[test]
fn case_029_dead_records_and_failed_logins_do_not_count() {
    let boot = BOOT.as_secs();
    let file = [
        record_of(BOOT_TIME, 0, "~", "reboot", boot),
        record_of(8, 2001, "pts/2", "bob", boot + 50),
        // A try of a password that did not end in a session.
        record_of(6, 2002, "ssh:notty", "mallory", boot + 60),
    ];
    assert_eq!(fixture(&file.concat()).unwrap(), []);
}

#[test]
fn a_record_from_before_the_boot_does_not_count_whatever_runs_under_its_number() {
    let boot = BOOT.as_secs();
    let old = record_of(USER_PROCESS, 2001, "pts/0", "alice", boot - 86_400);
    let new = record_of(USER_PROCESS, 2002, "pts/1", "bob", boot + 5);
    let boot_record = record_of(BOOT_TIME, 0, "~", "reboot", boot);
    let file = [boot_record.clone(), old.clone(), new.clone()].concat();
    assert_eq!(users(&parse(&file, None, fixture_life).unwrap()), ["bob"]);
    // Without the file's word for it, the kernel's counts.
    assert_eq!(users(&fixture(&[old.clone(), new.clone()].concat()).unwrap()), ["bob"]);
    assert_eq!(users(&parse(&[old, new].concat(), None, fixture_life).unwrap()), ["alice", "bob"]);
}

#[test]
fn case_030_a_number_that_was_given_to_a_younger_process_is_not_the_login() {
    let boot = BOOT.as_secs();
    let login = record_of(USER_PROCESS, 2500, "pts/5", "erin", boot + 600);
    let file = [record_of(BOOT_TIME, 0, "~", "reboot", boot), login].concat();
    let began = |seconds| Life::Alive { since_boot: Some(Duration::from_secs(seconds)) };
    for (seconds, counted) in [(10, 1), (599, 1), (640, 1), (700, 0), (90_000, 0)] {
        let sessions = parse(&file, Some(BOOT), |_| began(seconds)).unwrap();
        assert_eq!(sessions.len(), counted, "began {seconds} s after the boot");
    }
}

#[test]
fn a_clock_that_was_set_after_the_boot_hides_nobody() {
    let boot = BOOT.as_secs();
    let login = record_of(USER_PROCESS, 2001, "pts/0", "alice", boot + 600);
    let file = |boot_said: u64| [record_of(BOOT_TIME, 0, "~", "reboot", boot_said), login.clone()].concat();
    let life = |_| Life::Alive { since_boot: Some(Duration::from_secs(599)) };
    // The host slept two hours in its hypervisor: the kernel's boot moves on.
    let later = Some(Duration::from_secs(boot + 7200));
    assert_eq!(parse(&file(boot), later, life).unwrap().len(), 1);
    // The hardware's clock was an hour ahead until the network's came.
    assert_eq!(parse(&file(boot + 3600), Some(BOOT), life).unwrap().len(), 1);
}

#[test]
fn case_034_a_missing_file_is_an_error() {
    let root = tempfile::tempdir().expect("a folder");
    let error = read(root.path(), None).expect_err("unknown");
    assert!(super::super::error::describe(&error).contains("run/utmp"), "{error}");
}

#[test]
fn the_old_place_is_read_when_the_new_one_is_missing() {
    let root = tempfile::tempdir().expect("a folder");
    fs::create_dir_all(root.path().join("var/run")).expect("made");
    fs::write(root.path().join("var/run/utmp"), &U1[..384]).expect("written");
    assert_eq!(read(root.path(), None).expect("readable"), []);
}

proptest! {
    #[test]
    fn any_bytes_are_read_or_refused(mut bytes in proptest::collection::vec(any::<u8>(), 0..1300), cut in any::<bool>()) {
        if cut {
            bytes.truncate(bytes.len() / 384 * 384);
        }
        let _ = fixture(&bytes);
    }

    #[test]
    fn a_file_with_a_few_changed_bytes_is_never_read_in_the_wrong_layout(
        changes in proptest::collection::vec((0..3072_usize, any::<u8>()), 1..6),
        wide in any::<bool>(),
    ) {
        let mut bytes = if wide { U2 } else { U1 }.to_vec();
        for (at, byte) in changes {
            bytes[at] = byte;
        }
        // 3072 and 3200 bytes each fit one layout only: names come from the right one, or none do.
        if let Ok(sessions) = fixture(&bytes) {
            prop_assert!(sessions.iter().all(|session| !session.user.is_empty() && session.line.len() <= 32));
        }
    }
}
