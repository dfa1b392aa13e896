//! Who is on the list of coordinators, after all that was said about it?
//!
//! Pure: answers go in, the list comes out. Each coordinator has a number of its own for as long as it is on the list,
//! so that its streams and what it was told stay its own while others come and go.

use std::collections::{BTreeMap, BTreeSet};

use usher_runtime::net::{TargetError, check_target};

/// Most coordinators: each costs a stream. A flood in an answer, or in a file, ends here.
pub const MAX_COORDINATORS: usize = 16;
/// Answers in a row that a coordinator must be missing from before it is given up.
const MISSING: u32 = 3;
/// How the settings mark the name of a service.
const SERVICE: &str = "srv:";

/// The name of the service, if an entry of the settings is one.
#[must_use]
pub fn service_of(entry: &str) -> Option<&str> {
    entry.trim().strip_prefix(SERVICE)
}

/// Whether a service has a name that DNS can be asked for, such as `_usher._tcp.example.org`.
///
/// # Errors
/// What is wrong with it.
pub fn check_service(service: &str) -> Result<String, String> {
    let name = service.trim_end_matches('.').to_ascii_lowercase();
    let label = |label: &str| {
        let allowed = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_');
        (1..=63).contains(&label.len()) && label.bytes().all(allowed)
    };
    let labels: Vec<&str> = name.split('.').collect();
    let is_service = matches!(labels.as_slice(), [service, way, _, ..] if service.starts_with('_') && way.starts_with('_'));
    if is_service && name.len() <= 253 && labels.into_iter().all(label) {
        Ok(name)
    } else {
        Err(format!("{service:?} is not the name of a service as in srv:_usher._tcp.example.org"))
    }
}

/// Where a coordinator is known from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Origin {
    /// The settings name it.
    Settings,
    /// DNS named it for this service.
    Service(String),
    /// DNS named it for this service in an earlier run, and has not answered in this one.
    Remembered(String),
}

/// A coordinator that is reported to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Coordinator {
    /// Its number, which no other gets while this process runs.
    pub number: usize,
    /// Where it is, as the settings or DNS name it.
    pub target: String,
    /// Where it is known from.
    pub origin: Origin,
}

/// What came of a service, for whoever asks.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ServiceStatus {
    /// Its name.
    pub service: String,
    /// Coordinators known from it.
    pub known: usize,
    /// DNS has not answered in this run: they are from an earlier one.
    pub is_remembered: bool,
    /// Why the last look-up gave nothing. Absent: it gave something.
    pub error: Option<String>,
    /// Targets of the last answer that cannot be used, with the reason for the first of them.
    pub unusable: Option<(usize, String)>,
    /// Targets of the last answer beyond the most that are taken.
    pub left_out: usize,
}

#[derive(Debug, Default)]
struct Service {
    /// Who is known, and in how many answers in a row they were missing.
    known: Vec<(String, u32)>,
    has_answered: bool,
    error: Option<String>,
    unusable: Option<(usize, String)>,
    left_out: usize,
}

/// The list.
#[derive(Debug)]
pub struct Roster {
    has_tls: bool,
    fixed: Vec<String>,
    services: BTreeMap<String, Service>,
    /// By address, however it is written.
    numbers: BTreeMap<String, usize>,
    next_number: usize,
}

impl Roster {
    /// The list as the settings begin it, with what an earlier run remembers of their services. Entries that cannot be
    /// used are left out: the settings were checked before.
    #[must_use]
    pub fn new(entries: &[String], has_tls: bool, remembered: &BTreeMap<String, Vec<String>>) -> Self {
        let mut services = BTreeMap::new();
        let mut fixed = Vec::new();
        for entry in entries {
            match service_of(entry) {
                None => fixed.push(entry.trim().to_owned()),
                Some(name) => {
                    if let Ok(name) = check_service(name) {
                        services.insert(name, Service::default());
                    }
                }
            }
        }
        let mut roster = Self { has_tls, fixed, services, numbers: BTreeMap::new(), next_number: 0 };
        for (name, targets) in remembered {
            let (usable, _, _) = roster.usable(targets);
            if let Some(service) = roster.services.get_mut(name) {
                service.known = usable.into_iter().map(|target| (target, 0)).collect();
            }
        }
        roster.number();
        roster
    }

    /// The services that DNS is asked for.
    pub fn services(&self) -> impl Iterator<Item = &str> {
        self.services.keys().map(String::as_str)
    }

    /// DNS names these for a service. Who is missing is counted if `counts`: answers that follow each other quickly are
    /// one word.
    pub fn answered(&mut self, name: &str, targets: &[String], counts: bool) {
        let (usable, unusable, left_out) = self.usable(targets);
        let Some(service) = self.services.get_mut(name) else { return };
        (service.error, service.unusable, service.left_out) = (None, unusable, left_out);
        // An answer of which nothing can be used is none.
        if usable.is_empty() {
            return;
        }
        service.has_answered = true;
        for (target, missing) in &mut service.known {
            *missing = if usable.contains(target) { 0 } else { *missing + u32::from(counts) };
        }
        service.known.retain(|(_, missing)| *missing < MISSING);
        for target in usable {
            if !service.known.iter().any(|(known, _)| *known == target) {
                service.known.push((target, 0));
            }
        }
        // Who was named last goes before who is missing.
        service.known.sort_by_key(|(_, missing)| *missing);
        service.known.truncate(MAX_COORDINATORS);
        self.number();
    }

    /// DNS gives nothing for a service: what was known holds.
    pub fn failed(&mut self, name: &str, error: String) {
        if let Some(service) = self.services.get_mut(name) {
            service.error = Some(error);
        }
    }

    /// Those that can be used, written the same way; how many cannot, and why; and how many are too many.
    fn usable(&self, targets: &[String]) -> (Vec<String>, Option<(usize, String)>, usize) {
        let mut usable = Vec::new();
        let mut unusable: Option<(usize, String)> = None;
        let mut seen = BTreeSet::new();
        for target in targets {
            match check_target(target, self.has_tls) {
                Ok(address) => {
                    if seen.insert(address.clone()) {
                        usable.push(address);
                    }
                }
                Err(error) => {
                    unusable = Some(match unusable {
                        None => (1, error.to_string()),
                        Some((count, first)) => (count + 1, first),
                    });
                }
            }
        }
        let left_out = usable.len().saturating_sub(MAX_COORDINATORS);
        usable.truncate(MAX_COORDINATORS);
        (usable, unusable, left_out)
    }

    fn address(&self, target: &str) -> Result<String, TargetError> {
        check_target(target, self.has_tls)
    }

    /// Gives numbers to those that are new, and takes them from those that are gone.
    fn number(&mut self) {
        let listed: Vec<String> =
            self.listed().iter().filter_map(|(target, _)| self.address(target).ok()).collect();
        self.numbers.retain(|address, _| listed.contains(address));
        for address in listed {
            if let std::collections::btree_map::Entry::Vacant(new) = self.numbers.entry(address) {
                new.insert(self.next_number);
                self.next_number += 1;
            }
        }
    }

    /// Each once, those of the settings first, and no more than [`MAX_COORDINATORS`].
    fn listed(&self) -> Vec<(String, Origin)> {
        let fixed = self.fixed.iter().map(|target| (target.clone(), Origin::Settings));
        let found = self.services.iter().flat_map(|(name, service)| {
            let origin = match service.has_answered {
                true => Origin::Service(name.clone()),
                false => Origin::Remembered(name.clone()),
            };
            service.known.iter().map(move |(target, _)| (target.clone(), origin.clone()))
        });
        let mut seen = BTreeSet::new();
        let mut listed: Vec<_> = fixed
            .chain(found)
            .filter(|(target, _)| self.address(target).is_ok_and(|address| seen.insert(address)))
            .collect();
        listed.truncate(MAX_COORDINATORS);
        listed
    }

    /// The coordinators in force.
    #[must_use]
    pub fn coordinators(&self) -> Vec<Coordinator> {
        let numbered = self.listed().into_iter().filter_map(|(target, origin)| {
            let number = *self.numbers.get(&self.address(&target).ok()?)?;
            Some(Coordinator { number, target, origin })
        });
        numbered.collect()
    }

    /// What is to be remembered: who is known from each service.
    #[must_use]
    pub fn to_remember(&self) -> BTreeMap<String, Vec<String>> {
        let targets = |service: &Service| service.known.iter().map(|(target, _)| target.clone()).collect();
        let known = self.services.iter().filter(|(_, service)| !service.known.is_empty());
        known.map(|(name, service)| (name.clone(), targets(service))).collect()
    }

    /// What came of the services.
    #[must_use]
    pub fn status(&self) -> Vec<ServiceStatus> {
        let status = |(name, service): (&String, &Service)| ServiceStatus {
            service: name.clone(),
            known: service.known.len(),
            is_remembered: !service.has_answered,
            error: service.error.clone(),
            unusable: service.unusable.clone(),
            left_out: service.left_out,
        };
        self.services.iter().map(status).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NAME: &str = "_usher._tcp.example.org";

    fn roster(entries: &[&str]) -> Roster {
        let entries: Vec<String> = entries.iter().map(ToString::to_string).collect();
        Roster::new(&entries, true, &BTreeMap::new())
    }

    fn answer(roster: &mut Roster, targets: &[&str]) {
        let targets: Vec<String> = targets.iter().map(ToString::to_string).collect();
        roster.answered(NAME, &targets, true);
    }

    fn list(roster: &Roster) -> Vec<(usize, String)> {
        roster.coordinators().into_iter().map(|known| (known.number, known.target)).collect()
    }

    fn numbered(list: &[(usize, &str)]) -> Vec<(usize, String)> {
        list.iter().map(|(number, target)| (*number, format!("{target}:7443"))).collect()
    }

    #[test]
    fn who_appears_is_there_at_once_and_who_is_missing_is_gone_after_three_answers() {
        let mut roster = roster(&["srv:_usher._tcp.example.org."]);
        assert_eq!(roster.coordinators(), []);
        answer(&mut roster, &["c1:7443", "c2:7443"]);
        assert_eq!(list(&roster), numbered(&[(0, "c1"), (1, "c2")]));
        for _ in 0..2 {
            answer(&mut roster, &["c2:7443", "c3:7443"]);
            roster.failed(NAME, "nobody answers".into());
            assert_eq!(list(&roster), numbered(&[(1, "c2"), (2, "c3"), (0, "c1")]));
        }
        answer(&mut roster, &["c2:7443", "c3:7443"]);
        assert_eq!(list(&roster), numbered(&[(1, "c2"), (2, "c3")]), "their numbers stay");
        answer(&mut roster, &["c1:7443", "c2:7443", "c3:7443"]);
        assert_eq!(list(&roster).pop(), Some((3, "c1:7443".into())), "it is another one now");
    }

    #[test]
    fn one_that_is_named_again_was_not_missing() {
        let mut roster = roster(&["srv:_usher._tcp.example.org"]);
        answer(&mut roster, &["c1:7443", "c2:7443"]);
        for _ in 0..4 {
            answer(&mut roster, &["c2:7443"]);
            answer(&mut roster, &["c2:7443"]);
            answer(&mut roster, &["c1:7443", "c2:7443"]);
        }
        assert_eq!(roster.coordinators().len(), 2);
    }

    #[test]
    fn while_dns_is_away_or_names_nobody_the_last_answer_holds() {
        let mut roster = roster(&["srv:_usher._tcp.example.org"]);
        answer(&mut roster, &["c1:7443"]);
        for _ in 0..10 {
            roster.failed(NAME, "DNS gives no answer".into());
            answer(&mut roster, &[]);
            answer(&mut roster, &["not a name"]);
        }
        assert_eq!(list(&roster), numbered(&[(0, "c1")]));
        let status = &roster.status()[0];
        assert_eq!(status.unusable.as_ref().map(|(count, _)| *count), Some(1));
    }

    #[test]
    fn a_flood_in_an_answer_is_bounded_and_said() {
        let mut roster = roster(&["c0", "srv:_usher._tcp.example.org"]);
        let flood: Vec<String> = (0..5000).map(|n| format!("x{n:04}:7443")).collect();
        roster.answered(NAME, &flood, true);
        assert_eq!(roster.coordinators().len(), MAX_COORDINATORS);
        assert_eq!(roster.coordinators()[0].target, "c0");
        assert_eq!(roster.status()[0].left_out, 5000 - MAX_COORDINATORS);
        // A zone that names others each time fills nothing either.
        for round in 0..100 {
            let others: Vec<String> = (0..20).map(|n| format!("r{round}-{n}:7443")).collect();
            roster.answered(NAME, &others, true);
            assert!(
                roster.coordinators().len() <= MAX_COORDINATORS && roster.numbers.len() <= MAX_COORDINATORS
            );
        }
    }

    #[test]
    fn one_address_is_one_coordinator_whoever_names_it() {
        let mut roster =
            roster(&["c1.example", "srv:_usher._tcp.example.org", "srv:_other._tcp.example.org"]);
        answer(&mut roster, &["C1.example:7443", "c2.example:7443"]);
        roster.answered("_other._tcp.example.org", &["c2.example".into()], true);
        let known = roster.coordinators();
        assert_eq!(known.len(), 2, "{known:?}");
        assert_eq!(known[0].origin, Origin::Settings);
    }

    #[test]
    fn what_an_earlier_run_knew_is_used_until_dns_answers() {
        let remembered = [(NAME, vec!["c7:7443".into()]), ("_gone._tcp.x", vec!["c8:7443".into()])];
        let remembered = remembered.map(|(name, targets)| (name.to_owned(), targets)).into();
        let mut roster = Roster::new(&[format!("srv:{NAME}")], true, &remembered);
        assert_eq!(roster.coordinators()[0].origin, Origin::Remembered(NAME.into()));
        roster.failed(NAME, "nobody answers".into());
        assert!(roster.status()[0].is_remembered);
        answer(&mut roster, &["c1:7443"]);
        assert_eq!(
            list(&roster),
            numbered(&[(1, "c1"), (0, "c7")]),
            "one that is missing is not gone at once"
        );
        let plain = Roster::new(&[format!("srv:{NAME}")], false, &remembered);
        assert_eq!(plain.coordinators(), [], "without TLS nobody elsewhere is called");
    }

    #[test]
    fn only_names_of_services_are_taken() {
        assert_eq!(check_service("_Usher._tcp.Example.org.").as_deref(), Ok("_usher._tcp.example.org"));
        let long = format!("_usher._tcp.{}", "a".repeat(64));
        for wrong in ["", "_usher._tcp", "usher._tcp.x", "_usher.tcp.x", "_u._tcp..x", "_u._tcp.a b", &long] {
            assert!(check_service(wrong).is_err(), "{wrong:?}");
        }
        assert_eq!(service_of(" srv:_u._tcp.x"), Some("_u._tcp.x"));
        assert_eq!(service_of("c1:7443"), None);
    }
}
