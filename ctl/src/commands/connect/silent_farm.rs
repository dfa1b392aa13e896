//! Where does a login go when no coordinator answers?
//!
//! Where the farm as it was last known says. Each connection that a coordinator gave leaves a copy of the farm behind, at
//! its leisure, for one that nobody answers. Only silence is a reason to use it: a no is an answer, and whoever gave it knows
//! more than the copy. If the copy is of no use either, the failure is the one there would have been, with the reason.

use std::ffi::OsString;
use std::path::PathBuf;
use std::time::Duration;

use tokio::task::{JoinHandle, spawn_local};
use usher_client::{FarmCache, LastKnown, NoLocal, RenewError, Request};
use usher_proto::error::reason;
use usher_proto::v1;

use super::ask::Login;
use super::flat;
use crate::connect::Coordinators;
use crate::failure::Failure;
use crate::output::remark;
use crate::output::text::{clean, duration};

/// A copy is taken when the last one is so old. Shorter costs coordinators and the network more; a third of what a decision
/// allows leaves room for two that fail.
const RENEW_EVERY: Duration = Duration::from_secs(5 * 60);

/// What the command line says of it.
#[derive(Debug, Clone, Default)]
pub(super) struct Chosen {
    pub(super) dir: Option<PathBuf>,
    pub(super) off: bool,
}

/// The farm as it was last known.
#[derive(Debug)]
pub(super) struct SilentFarm {
    cache: Cache,
    /// Once it is read.
    known: Option<LastKnown>,
}

#[derive(Debug, Clone)]
enum Cache {
    Off,
    /// There is no folder for it.
    Nowhere,
    /// `named`: somebody wants it there, and should hear if it cannot be.
    In {
        cache: FarmCache,
        named: bool,
    },
}

impl SilentFarm {
    /// Options win over settings; `environment` says where a person's own caches are.
    pub(super) fn new(
        chosen: Chosen,
        coordinators: &Coordinators,
        environment: impl Fn(&str) -> Option<OsString>,
    ) -> Self {
        let settings = coordinators.cache();
        let is_off = chosen.off || (chosen.dir.is_none() && !settings.enabled);
        let named = chosen.dir.or_else(|| settings.dir.clone());
        let is_named = named.is_some();
        let cache = match named.or_else(|| own_dir(environment)) {
            _ if is_off => Cache::Off,
            None => Cache::Nowhere,
            Some(dir) => {
                let cache = FarmCache::new(dir, coordinators.in_order()).max_age(settings.max_age.get());
                Cache::In { cache, named: is_named }
            }
        };
        Self { cache, known: None }
    }

    /// Takes a copy of the farm if it is time for one, in a task of this thread. It may be stopped at any time.
    pub(super) fn renew(&self) -> Option<JoinHandle<()>> {
        let Cache::In { cache, named } = self.cache.clone() else { return None };
        Some(spawn_local(async move {
            // Whom coordinators do not tell of the farm does without.
            if let Err(error @ RenewError::Disk { .. }) = cache.renew(RENEW_EVERY).await
                && named
            {
                remark(&format!("usherctl connect: {}", clean(&error.to_string())));
            }
        }))
    }

    /// A place by what was known, on none of the hosts that were `tried`.
    ///
    /// # Errors
    /// `silence`, with the reason why this does not help.
    pub(super) async fn place(
        &mut self,
        login: &Login,
        tried: &[String],
        silence: Failure,
    ) -> Result<v1::Placement, Failure> {
        let is_first = self.known.is_none();
        let placed = match self.known().await {
            Ok(known) => decide(known, login, tried).await.map(|placement| (placement, known.age())),
            Err(why) => Err(why),
        };
        let why_not = match placed {
            Ok((placement, age)) => {
                if is_first {
                    remark(&said(&login.pool, age));
                }
                return Ok(placement);
            }
            Err(Useless::Off) => return Err(silence),
            Err(Useless::Nowhere) => "there is no folder to keep the farm in".to_owned(),
            Err(Useless::Not(why)) => no_local(&why),
            Err(Useless::Host(why)) => why,
        };
        let silence = flat(&silence.for_people());
        Err(Failure::Check(format!("{silence}; no decision without one: {why_not}")))
    }

    async fn known(&mut self) -> Result<&LastKnown, Useless> {
        let known = match (self.known.take(), &self.cache) {
            (Some(known), _) => known,
            (None, Cache::Off) => return Err(Useless::Off),
            (None, Cache::Nowhere) => return Err(Useless::Nowhere),
            (None, Cache::In { cache, .. }) => cache.read().await.map_err(Useless::Not)?,
        };
        Ok(self.known.insert(known))
    }
}

/// Why it does not help.
#[derive(Debug)]
enum Useless {
    Off,
    Nowhere,
    Not(NoLocal),
    /// The one that is named is not there, or not the only one.
    Host(String),
}

/// Whether nobody could answer. A no is an answer, but for that of one that has just begun and waits for its hosts.
pub(super) fn is_silence(failure: &Failure) -> bool {
    match failure {
        Failure::NoAnswer(_) => true,
        Failure::Refused(refusal) => refusal.reason == reason::STALE,
        _ => false,
    }
}

async fn decide(known: &LastKnown, login: &Login, tried: &[String]) -> Result<v1::Placement, Useless> {
    let mut request = Request::new(&login.pool).exclude(tried);
    if let Some(only) = &login.only {
        let named = |(id, name): (&str, &str)| is_named(only, id, name);
        match known.hosts(&login.pool).filter(|host| named(*host)).count() {
            1 => {}
            0 => return Err(Useless::Host(format!("the pool had no host {}", clean(only)))),
            _ => return Err(Useless::Host(format!("several of its hosts were called {}", clean(only)))),
        }
        let others = known.hosts(&login.pool).filter(|host| !named(*host)).map(|(id, _)| id);
        request = request.exclude(others);
    }
    if let Some(user) = &login.user {
        request = request.user(user);
    }
    if let Some(resource) = &login.resource {
        request = request.resource(resource);
    }
    if let Some(zone) = &login.zone {
        request = request.client_zone(zone);
    }
    if let Some(host) = login.only.as_ref().or(login.prefer.as_ref()) {
        request = request.prefer_host(host);
    }
    let placed = known.place(request).await.map_err(Useless::Not)?;
    Ok(placed.message().clone())
}

/// Whether somebody who says `wanted` means this host.
pub(super) fn is_named(wanted: &str, id: &str, name: &str) -> bool {
    let wanted = wanted.trim_end_matches('.');
    id.eq_ignore_ascii_case(wanted) || name.trim_end_matches('.').eq_ignore_ascii_case(wanted)
}

fn said(pool: &str, age: Duration) -> String {
    let (pool, age) = (clean(pool), duration(age));
    format!(
        "usherctl connect: pool {pool}: no coordinator answered; decided here by the farm as of {age} ago"
    )
}

/// In one line, with what spoke against each host.
fn no_local(why: &NoLocal) -> String {
    let NoLocal::Refused { hosts, .. } = why else { return clean(&why.to_string()) };
    if hosts.is_empty() {
        return why.to_string();
    }
    let hosts: Vec<_> = hosts.iter().map(|(host, why)| format!("{} {}", clean(host), clean(why))).collect();
    format!("{why}: {}", hosts.join(", "))
}

/// A person's own folder for it. Absent: there is no place for such things.
fn own_dir(environment: impl Fn(&str) -> Option<OsString>) -> Option<PathBuf> {
    let absolute = |name| environment(name).map(PathBuf::from).filter(|path| path.is_absolute());
    let base = absolute("XDG_CACHE_HOME").or_else(|| Some(absolute("HOME")?.join(".cache")))?;
    base.is_dir().then(|| base.join("usher"))
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use tonic::{Code, Status};
    use usher_proto::error::status;

    use super::*;
    use crate::client_config::CacheSettings;
    use crate::failure::Refusal;

    fn own(variables: &[(&str, &Path)]) -> Option<PathBuf> {
        own_dir(|name| Some(variables.iter().find(|(known, _)| *known == name)?.1.as_os_str().to_owned()))
    }

    #[test]
    fn a_persons_own_folder_is_where_caches_are_if_there_is_such_a_place() {
        let folder = tempfile::tempdir().unwrap();
        let (home, caches) = (folder.path(), folder.path().join(".cache"));
        assert_eq!(own(&[]), None);
        assert_eq!(own(&[("HOME", home)]), None, "nobody has made it");
        std::fs::create_dir(&caches).unwrap();
        assert_eq!(own(&[("HOME", home)]), Some(caches.join("usher")));
        assert_eq!(own(&[("HOME", home), ("XDG_CACHE_HOME", home)]), Some(home.join("usher")));
        let relative = [("HOME", home), ("XDG_CACHE_HOME", Path::new("x"))];
        assert_eq!(own(&relative), Some(caches.join("usher")), "what is not absolute names nothing");
    }

    #[test]
    fn options_win_over_settings() {
        let cache = |chosen, settings| {
            let coordinators =
                Coordinators::loopback("127.0.0.1:1".to_owned(), RENEW_EVERY).with_cache(settings);
            match SilentFarm::new(chosen, &coordinators, |_| None).cache {
                Cache::Off => "off".to_owned(),
                Cache::Nowhere => "nowhere".to_owned(),
                Cache::In { cache, .. } => cache.path().parent().unwrap().display().to_string(),
            }
        };
        let chosen = |dir: Option<&str>, off| Chosen { dir: dir.map(PathBuf::from), off };
        let set = CacheSettings { dir: Some("/set".into()), ..CacheSettings::default() };
        let off = CacheSettings { enabled: false, ..set.clone() };
        assert_eq!(cache(chosen(None, false), CacheSettings::default()), "nowhere");
        assert_eq!(cache(chosen(None, false), set.clone()), "/set");
        assert_eq!(cache(chosen(Some("/named"), false), set.clone()), "/named");
        assert_eq!(cache(chosen(None, true), set), "off");
        assert_eq!(cache(chosen(None, false), off.clone()), "off");
        assert_eq!(cache(chosen(Some("/named"), false), off), "/named", "who names it wants it");
    }

    #[test]
    fn a_no_is_an_answer_and_waiting_for_hosts_is_none() {
        let refused = |code, reason: &str| {
            let said: Status = status(code, reason, "no", std::collections::HashMap::new(), None);
            is_silence(&Failure::Refused(Box::new(Refusal::of("placing", &said))))
        };
        assert!(is_silence(&Failure::NoAnswer(Vec::new())));
        assert!(refused(Code::Unavailable, reason::STALE));
        assert!(!refused(Code::ResourceExhausted, reason::MAX_USERS));
        assert!(!refused(Code::PermissionDenied, reason::NOT_AUTHORIZED));
        assert!(!refused(Code::Unavailable, reason::ALL_OFFLINE));
    }

    #[tokio::test]
    async fn without_anything_known_the_failure_is_that_of_before_with_the_reason() {
        let folder = tempfile::tempdir().unwrap();
        let login = Login { pool: "desk".to_owned(), ..Login::default() };
        for (off, expected) in
            [(true, "error: x"), (false, "error: x; no decision without one: nothing is known of the farm")]
        {
            let chosen = Chosen { dir: Some(folder.path().to_owned()), off };
            let coordinators = Coordinators::loopback("127.0.0.1:1".to_owned(), RENEW_EVERY);
            let mut farm = SilentFarm::new(chosen, &coordinators, |_| None);
            let failure = farm.place(&login, &[], Failure::Check("x".to_owned())).await.unwrap_err();
            assert_eq!(failure.for_people(), expected);
        }
    }

    #[test]
    fn what_is_said_names_the_pool_and_the_age() {
        assert_eq!(
            said("desk", Duration::from_secs(200)),
            "usherctl connect: pool desk: no coordinator answered; decided here by the farm as of 3m20s ago"
        );
        let hosts = vec![("h1".to_owned(), "MAXUSERS".to_owned()), ("h2".to_owned(), "OFFLINE".to_owned())];
        assert_eq!(
            no_local(&NoLocal::Refused { reason: "MAX_USERS", hosts }),
            "MAX_USERS: h1 MAXUSERS, h2 OFFLINE"
        );
    }
}
