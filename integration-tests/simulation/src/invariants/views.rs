//! Do all coordinators see the same farm, and is it the true one?

use std::collections::BTreeMap;
use std::time::Duration;

/// How one coordinator lists one host.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HostView {
    /// It has a stream of the host.
    pub is_connected: bool,
    /// The state by its name.
    pub state: String,
    /// Users seen. Absent: unknown.
    pub users: Option<u32>,
    /// Places not yet seen as sessions.
    pub places: u32,
    /// Drained, by whom.
    pub drain: String,
    /// Settings in force at the agent.
    pub settings: Option<u64>,
    /// Of the pool, as this coordinator has them.
    pub pool_version: u64,
}

/// The newest list of each coordinator.
#[derive(Debug, Default)]
pub struct Views {
    lists: BTreeMap<usize, (Duration, BTreeMap<usize, HostView>)>,
}

impl Views {
    /// A coordinator's list at `now`.
    pub fn listed(&mut self, coordinator: usize, now: Duration, list: BTreeMap<usize, HostView>) {
        self.lists.insert(coordinator, (now, list));
    }

    /// Hosts that a coordinator has no stream of, or that did not list since `since`. Empty: all are seen by all.
    pub fn unseen(&self, coordinators: usize, hosts: usize, since: Duration) -> Vec<String> {
        let mut unseen = Vec::new();
        for coordinator in 0..coordinators {
            match self.lists.get(&coordinator).filter(|(at, _)| *at >= since) {
                None => unseen.push(format!("c{} does not answer", coordinator + 1)),
                Some((_, list)) => {
                    let is_seen = |host: &usize| list.get(host).is_some_and(|view| view.is_connected);
                    let missing = (0..hosts).filter(|host| !is_seen(host));
                    unseen.extend(missing.map(|host| format!("c{} without h{}", coordinator + 1, host + 1)));
                }
            }
        }
        unseen
    }

    /// In what the lists since `since` differ from each other, or from the truth: the users of each host, and no place any
    /// more. Empty: in nothing.
    pub fn differences(&self, coordinators: usize, users: &[u32], since: Duration) -> Vec<String> {
        let mut differences = self.unseen(coordinators, users.len(), since);
        let mut first: Option<(usize, &BTreeMap<usize, HostView>)> = None;
        for (coordinator, (_, list)) in &self.lists {
            if let Some((other, seen)) = first
                && seen != list
            {
                let differs = |(host, view): &(&usize, &HostView)| seen.get(host) != Some(view);
                for (host, view) in list.iter().filter(differs) {
                    let there = seen.get(host);
                    let name = |of: usize| of + 1;
                    differences.push(format!(
                        "h{}: c{} {there:?}, c{} {view:?}",
                        name(*host),
                        name(other),
                        name(*coordinator)
                    ));
                }
            }
            first.get_or_insert((*coordinator, list));
            for (host, users) in users.iter().enumerate() {
                match list.get(&host) {
                    Some(view) if view.users == Some(*users) && view.places == 0 => {}
                    Some(view) => differences.push(format!(
                        "h{} has {users} users and no place; c{} says {:?} and {}",
                        host + 1,
                        coordinator + 1,
                        view.users,
                        view.places
                    )),
                    None => differences.push(format!("c{} does not list h{}", coordinator + 1, host + 1)),
                }
            }
        }
        differences
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn view() -> HostView {
        HostView {
            is_connected: true,
            state: "AVAILABLE".into(),
            users: Some(2),
            places: 0,
            drain: String::new(),
            settings: Some(3),
            pool_version: 3,
        }
    }

    fn views(second: HostView) -> Views {
        let mut views = Views::default();
        let now = Duration::from_secs(5);
        views.listed(0, now, BTreeMap::from([(0, view())]));
        views.listed(1, now, BTreeMap::from([(0, second)]));
        views
    }

    #[test]
    fn equal_true_lists_agree() {
        assert_eq!(views(view()).differences(2, &[2], Duration::from_secs(5)), Vec::<String>::new());
    }

    #[test]
    fn each_difference_is_one() {
        for second in [
            HostView { state: "OFFLINE".into(), ..view() },
            HostView { users: Some(3), ..view() },
            HostView { places: 1, ..view() },
            HostView { drain: "ops".into(), ..view() },
            HostView { settings: Some(2), ..view() },
            HostView { pool_version: 2, ..view() },
            HostView { is_connected: false, ..view() },
        ] {
            assert!(
                !views(second.clone()).differences(2, &[2], Duration::from_secs(5)).is_empty(),
                "{second:?}"
            );
        }
        assert!(!views(view()).differences(2, &[1], Duration::from_secs(5)).is_empty(), "not the truth");
        assert!(!views(view()).differences(3, &[2], Duration::from_secs(5)).is_empty(), "c3 never answered");
        assert!(!views(view()).differences(2, &[2], Duration::from_secs(6)).is_empty(), "old lists");
        assert!(!views(view()).differences(2, &[2, 0], Duration::from_secs(5)).is_empty(), "a host too few");
    }
}
