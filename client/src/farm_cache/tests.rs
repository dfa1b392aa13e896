use std::collections::BTreeMap;
use std::time::SystemTime;

use usher_proto::v1::watch_farm_response::Event;

use super::*;
use crate::farm::telling::{bookmark, hosts, start, told};

const EVERY: Duration = Duration::from_secs(300);

fn coordinators(names: &[&str]) -> InOrder {
    let names = names.iter().map(ToString::to_string).collect();
    InOrder::new(names, Duration::from_secs(5), None, None).unwrap()
}

fn cache(folder: &tempfile::TempDir) -> FarmCache {
    FarmCache::new(folder.path().join("usher"), &coordinators(&["127.0.0.1:1"]))
}

/// Hosts of one pool with 3 users each, of which each takes `max_users`.
fn known(names: &[&str], max_users: Option<u32>) -> Known {
    let mut mirror = Mirror::new(None);
    let mut changes = hosts(1, names.iter().map(|name| told(name, "desk")).collect());
    if let Some(Event::Changes(changes)) = &mut changes.event
        && let Some(policy) = &mut changes.pools[0].policy
    {
        let users = max_users.map(v1::user_limit::Limit::Users);
        policy.max_users = users.map(|limit| v1::UserLimit { limit: Some(limit) }).or(policy.max_users);
    }
    for message in [start("f"), changes, bookmark(1)] {
        mirror.take(message, SystemClock.now()).unwrap();
    }
    mirror.known()
}

fn kept(cache: &FarmCache, known: &Known) {
    fs::create_dir_all(cache.path().parent().unwrap()).unwrap();
    cached::write(cache.path(), known, &Moment::this().unwrap()).unwrap();
}

fn written_at(path: &Path, at: SystemTime) {
    File::options().append(true).open(path).unwrap().set_modified(at).unwrap();
}

#[test]
fn each_set_of_coordinators_has_a_file_of_its_own_whatever_their_order() {
    let path = |names: &[&str]| FarmCache::new("/c", &coordinators(names)).path().to_owned();
    assert_eq!(path(&["a:1", "b:1"]), path(&["b:1", "a:1", "b:1"]));
    assert_ne!(path(&["a:1", "b:1"]), path(&["a:1"]));
    assert!(path(&["a:1"]).starts_with("/c"));
}

#[test]
fn of_many_programs_one_takes_the_copy_and_only_of_a_file_that_is_old() {
    let folder = tempfile::tempdir().unwrap();
    let cache = cache(&folder);
    let turn = Turn::take(cache.path(), EVERY).unwrap().expect("there is no file");
    assert!(Turn::take(cache.path(), EVERY).unwrap().is_none(), "another one is about it");
    drop(turn);
    assert!(Turn::take(cache.path(), EVERY).unwrap().is_none(), "one has just tried");
    let lock = with_ending(cache.path(), "lock");
    let long_ago = SystemTime::now() - TRY_AGAIN;
    written_at(&lock, long_ago);
    assert!(Turn::take(cache.path(), EVERY).unwrap().is_some(), "that was long ago");

    written_at(&lock, long_ago);
    kept(&cache, &known(&["h1"], None));
    assert!(Turn::take(cache.path(), EVERY).unwrap().is_none(), "the file is new");
    written_at(cache.path(), SystemTime::now() + EVERY);
    assert!(Turn::take(cache.path(), EVERY).unwrap().is_some(), "no file is from the future");
    written_at(&lock, long_ago);
    written_at(cache.path(), SystemTime::now() - EVERY);
    assert!(Turn::take(cache.path(), EVERY).unwrap().is_some(), "the file is old");
}

#[test]
fn calls_can_be_made_from_any_task() {
    fn is_send<T: Send>(_: &T) {}
    let cache = FarmCache::new("/c", &coordinators(&["a:1"]));
    is_send(&cache.renew(EVERY));
    is_send(&cache.read());
    let _deciding = |farm: &LastKnown| is_send(&farm.place(Request::new("desk")));
}

#[tokio::test]
async fn a_folder_that_cannot_be_made_and_coordinators_that_are_silent_are_said() {
    let folder = tempfile::tempdir().unwrap();
    let nowhere = FarmCache::new(folder.path().join("a/b"), &coordinators(&["127.0.0.1:1"]));
    assert!(matches!(nowhere.renew(EVERY).await, Err(RenewError::Disk { .. })));
    let silent = cache(&folder).renew(EVERY).await.unwrap_err().to_string();
    assert!(silent.contains("127.0.0.1:1") && silent.contains("refused"), "{silent}");
    assert!(!cache(&folder).renew(EVERY).await.unwrap(), "it is not tried again at once");
}

#[tokio::test]
async fn what_is_damaged_is_set_aside_and_what_is_old_or_missing_is_said() {
    let folder = tempfile::tempdir().unwrap();
    let cache = cache(&folder);
    assert_eq!(cache.read().await.unwrap_err(), NoLocal::NothingKnown);
    kept(&cache, &known(&["h1"], None));
    let strict = cache.clone().max_age(Duration::ZERO);
    assert!(matches!(strict.read().await, Err(NoLocal::TooOld { .. })));
    assert!(cache.path().exists(), "it may be young enough for others");
    let whole = fs::read(cache.path()).unwrap();
    fs::write(cache.path(), &whole[..whole.len() - 3]).unwrap();
    let why = cache.read().await.unwrap_err().to_string();
    assert!(why.contains("cut") && why.contains("farm-"), "{why}");
    assert_eq!(cache.read().await.unwrap_err(), NoLocal::NothingKnown, "it is out of the way");
}

#[tokio::test]
async fn programs_that_know_nothing_of_each_other_do_not_all_choose_the_same_host() {
    let folder = tempfile::tempdir().unwrap();
    let cache = cache(&folder);
    kept(&cache, &known(&["h1", "h2", "h3", "h4"], None));
    let mut given = BTreeMap::<String, u32>::new();
    for _ in 0..100 {
        let farm = cache.read().await.unwrap();
        let placement = farm.place(Request::new("desk").user("alice")).await.unwrap();
        assert!(placement.is_local() && placement.flags().contains(&"local_decision".to_owned()));
        assert!(placement.farm_age().unwrap() < Duration::from_secs(60));
        *given.entry(placement.host_name().to_owned()).or_default() += 1;
    }
    // Each is equally likely: fewer than 5 of 100 is one in a million.
    assert!(given.len() == 4 && given.values().all(|count| *count >= 5), "{given:?}");
}

#[tokio::test]
async fn a_login_that_is_only_imagined_refuses_nobody_a_place() {
    let folder = tempfile::tempdir().unwrap();
    let cache = cache(&folder);
    kept(&cache, &known(&["h1", "h2", "h3"], Some(4)));
    for _ in 0..30 {
        let farm = cache.read().await.unwrap();
        let only = Request::new("desk").exclude(["h2", "h3"]);
        assert_eq!(farm.place(only).await.unwrap().host_id(), "h1");
    }
    // Neither do those that were imagined before a host that did not work out: h1 has one seat, and so has h2.
    kept(&cache, &known(&["h1", "h2"], Some(4)));
    for _ in 0..30 {
        let farm = cache.read().await.unwrap();
        let first = farm.place(Request::new("desk")).await.unwrap();
        let second = farm.place(Request::new("desk").exclude([first.host_id()])).await.unwrap();
        assert_ne!(first.host_id(), second.host_id());
    }
    kept(&cache, &known(&["h1", "h2", "h3"], Some(4)));
    let farm = cache.read().await.unwrap();
    let mut names: Vec<_> = farm.hosts("desk").collect();
    names.sort_unstable();
    assert_eq!(names, [("h1", "h1"), ("h2", "h2"), ("h3", "h3")]);
    assert_eq!(farm.hosts("mail").count(), 0);
    assert_eq!(farm.place(Request::new("mail")).await.unwrap_err(), NoLocal::UnknownPool("mail".to_owned()));
}
