use std::sync::Arc;

use super::*;
use crate::farm::Host;

const NOW: BootTime = BootTime::from_millis(1_000_000);
const MAX_AGE: Duration = Duration::from_secs(900);

fn moment(boot_id: &str, now: BootTime, wall_unix_ms: u64) -> Moment {
    Moment { boot_id: boot_id.to_owned(), now, wall_unix_ms }
}

fn here() -> Moment {
    moment("b", NOW, 1_700_000_000_000)
}

fn known() -> Known {
    let told = v1::WatchedHost {
        host_id: "h1".into(),
        facts: Some(v1::Hello { pool: "desk".into(), ..v1::Hello::default() }),
        users: Some(3),
        ..v1::WatchedHost::default()
    };
    let as_of = NOW.before(Duration::from_secs(10));
    let measured_at = Some(as_of.before(Duration::from_secs(3)));
    let host = Host { told, measured_at, timed_at: as_of };
    let pool = v1::WatchedPool { pool: "desk".into(), version: 4, ..v1::WatchedPool::default() };
    Known {
        farm: "f".into(),
        as_of,
        hosts_heard: 1,
        hosts_registered: 1,
        pools: [("desk".to_owned(), pool)].into(),
        hosts: [("h1".into(), Arc::new(host))].into(),
    }
}

fn written() -> (tempfile::TempDir, PathBuf) {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("farm.cache");
    write(&path, &known(), &here()).unwrap();
    (folder, path)
}

#[test]
fn what_is_written_is_what_is_read_with_its_ages() {
    let (_folder, path) = written();
    let later = moment("b", NOW + Duration::from_secs(60), 0);
    let (read, age) = read(&path, Some("f"), MAX_AGE, &later).unwrap();
    assert_eq!(age, Duration::from_secs(70), "on the boot-time clock, whatever the wall clock says");
    let host = &read.hosts["h1"];
    assert_eq!((host.told.users, read.pools["desk"].version), (Some(3), 4));
    assert_eq!(read.as_of.since(host.measured_at.unwrap()), Duration::from_secs(3));
}

#[test]
fn after_a_boot_its_age_is_told_by_the_wall_clock() {
    let (_folder, path) = written();
    let age_at = |wall_unix_ms| {
        read(&path, None, MAX_AGE, &moment("c", BootTime::ZERO, wall_unix_ms)).map(|(_, age)| age)
    };
    assert_eq!(age_at(1_700_000_050_000).unwrap(), Duration::from_secs(60));
    assert_eq!(age_at(1_699_999_980_000).unwrap(), Duration::ZERO, "clocks differ by some seconds");
    assert!(matches!(age_at(1_699_000_000_000), Err(Unusable::Future)));
    assert!(matches!(age_at(1_700_086_400_000), Err(Unusable::TooOld(..))));
    // In the same boot the clock cannot have gone back.
    let before = moment("b", NOW.before(Duration::from_secs(11)), 1_700_000_000_000);
    assert!(matches!(read(&path, None, MAX_AGE, &before), Err(Unusable::Future)));
}

#[test]
fn a_file_that_is_not_as_it_was_written_is_not_used() {
    let (folder, path) = written();
    let whole = fs::read(&path).unwrap();
    let judged = |bytes: &[u8]| {
        fs::write(&path, bytes).unwrap();
        read(&path, Some("f"), MAX_AGE, &here()).map(drop)
    };
    for cut in 0..whole.len() {
        assert!(judged(&whole[..cut]).is_err(), "cut at {cut}");
    }
    for at in 0..whole.len() {
        let mut wrong = whole.clone();
        wrong[at] ^= 0x20;
        assert!(judged(&wrong).is_err(), "byte {at}");
        wrong[at] = 0;
        assert!(judged(&wrong).is_err(), "NUL at {at}");
    }
    assert!(judged(&whole).is_ok());
    assert!(
        matches!(read(&path, Some("g"), MAX_AGE, &here()), Err(Unusable::OtherFarm(farm)) if farm == "f")
    );
    assert!(matches!(read(&folder.path().join("none"), None, MAX_AGE, &here()), Err(Unusable::Missing)));
    assert!(matches!(read(folder.path(), None, MAX_AGE, &here()), Err(Unusable::OtherFormat)));
}

#[test]
fn a_file_with_a_right_sum_and_hostile_content_is_not_used_either() {
    let (_folder, path) = written();
    let head = r#"{"farm":"f","boot_id":"b","as_of_us":1,"as_of_unix_ms":1}"#;
    let with = |rest: &[u8]| {
        let mut bytes = FIRST_LINE.as_bytes().to_vec();
        bytes.extend(hex(&Sha256::digest(rest)).as_bytes());
        bytes.push(b'\n');
        bytes.extend(rest);
        fs::write(&path, bytes).unwrap();
        read(&path, None, Duration::MAX, &here())
    };
    let bookmark = v1::WatchFarmResponse {
        event: Some(Event::Bookmark(v1::FarmBookmark::default())),
        ..v1::WatchFarmResponse::default()
    };
    let body = |bytes: &[u8]| [head.as_bytes(), b"\n", bytes].concat();
    let message = |event| v1::WatchFarmResponse { revision: 1, event: Some(event), held_ms: 0 };
    let start = message(Event::Start(v1::FarmStart {
        farm: "f".into(),
        instance_id: "i".into(),
        ..v1::FarmStart::default()
    }));
    let nobody = message(Event::Changes(v1::FarmChanges {
        hosts: vec![v1::WatchedHost::default()],
        ..v1::FarmChanges::default()
    }));
    let huge = message(Event::Changes(v1::FarmChanges {
        gone_hosts: vec![String::new(); MOST_IN_ONE],
        ..v1::FarmChanges::default()
    }));
    let told = |change: &v1::WatchFarmResponse| {
        let all = [&start, change, &bookmark].map(Message::encode_length_delimited_to_vec).concat();
        body(&all)
    };
    assert!(with(&told(&message(Event::Changes(v1::FarmChanges::default())))).is_ok());
    for (what, rest) in [
        ("no head", b"\n".to_vec()),
        ("another head", b"{\"farm\":1}\n".to_vec()),
        ("nothing in it", body(&[])),
        ("an end without a beginning", body(&bookmark.encode_length_delimited_to_vec())),
        ("no message", body(&[5, 255, 255, 255, 255, 255])),
        ("nonsense before the end", told(&nobody)),
        ("a message that no wire carries", told(&huge)),
        ("a length without an end", body(&[255; 12])),
    ] {
        assert!(matches!(with(&rest), Err(Unusable::OtherFormat)), "{what}");
    }
}

#[test]
fn what_is_set_aside_is_kept_for_people_but_not_for_ever() {
    let (folder, path) = written();
    for second in 0..8 {
        fs::write(&path, "x").unwrap();
        let aside = set_aside(&path, &moment("b", NOW, 1_700_000_000_000 + second)).unwrap();
        assert!(aside.exists() && !path.exists());
    }
    assert_eq!(fs::read_dir(folder.path()).unwrap().count(), KEPT_ASIDE);
}

#[test]
fn a_large_farm_is_written_in_messages_that_are_read_again() {
    let mut large = known();
    let first = large.hosts["h1"].clone();
    for number in 0..300 {
        let replicas = v1::WatchedReplicas { resource_ids: vec!["x".repeat(100); 100], unlisted: false };
        let told =
            v1::WatchedHost { host_id: format!("h{number}"), replicas: Some(replicas), ..first.told.clone() };
        large.hosts.insert(told.host_id.as_str().into(), Arc::new(Host { told, ..(*first).clone() }));
    }
    assert!(messages(&large).iter().all(|message| message.encoded_len() < 2 * FULL_BYTES));
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("farm.cache");
    write(&path, &large, &here()).unwrap();
    assert_eq!(read(&path, None, MAX_AGE, &here()).unwrap().0.hosts.len(), 300);
}
