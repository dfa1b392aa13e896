//! The weighted load: CPU, memory, users and processes, each as a share, each with its weight.
//!
//! `W = (w_cpu cpu + w_mem memory + w_users 100 users/top_users + w_procs 100 processes/top_processes) / 100`, 0..=100,
//! low is good. Source: the AADS terminal-server farm manual.
//!
//! * CPU and memory are percentages already. Users and processes become shares of the largest number in the pool, so
//!   that no host's absolute size has to be known; both are divided by the host's `capacity` first, so that a host
//!   twice as large may have twice as many.
//! * Users count the places given out and not seen yet. Reports are seconds old; without the places, every login of a
//!   storm would go to the host that was emptiest in the last report.
//! * A host that has just booted counts as a smaller one for a while, so that it is not sent every login at once. The
//!   others are not measured by it: it takes no part in the largest numbers, and its own terms may exceed their weights.
//! * A number that is not known is not zero: an unknown host would be the emptiest of all. Its term is the median of
//!   the pool. A metric that no host has leaves the sum, and its weight goes to the others.

use usher_types::Weights;

/// What a host brings to the comparison.
#[derive(Copy, Clone, PartialEq, Debug)]
pub struct Metrics {
    /// Busy share, percent 0..=100.
    pub cpu: Option<f64>,
    /// Share in use, percent 0..=100.
    pub memory: Option<f64>,
    /// Distinct users seen, >= 0.
    pub users: Option<f64>,
    /// Users of places given out and not seen yet, >= 0.
    pub pending: f64,
    /// Processes, >= 0.
    pub processes: Option<f64>,
    /// Size relative to a normal host, > 0.
    pub capacity: f64,
    /// Share of its capacity that counts while it is ramping up, > 0, < 1. Absent: all of it.
    pub ramp: Option<f64>,
}

/// A host that is ramping up may have this many times the largest number of users of the others; beyond that it is the
/// worst anyway, and the sum stays a number.
const MOST_WHILE_RAMPING: f64 = 1e9;

impl Metrics {
    /// Whether a metric is not known.
    pub fn is_incomplete(&self) -> bool {
        self.cpu.is_none() || self.memory.is_none() || self.users.is_none() || self.processes.is_none()
    }

    /// `count` per unit of capacity, as it counts now.
    fn per_capacity(&self, count: f64) -> f64 {
        count / (self.capacity * self.ramp.unwrap_or(1.0))
    }

    /// `count` against the largest one, 0..=1; of a host that is ramping up perhaps more.
    fn against(&self, count: f64, top: f64) -> f64 {
        let count = self.per_capacity(count);
        if self.ramp.is_none() || top <= 0.0 || count <= top {
            return ratio(count, top);
        }
        // Two numbers too large to be compared are as far apart as numbers get.
        let times = count / top;
        if times.is_finite() { times.min(MOST_WHILE_RAMPING) } else { MOST_WHILE_RAMPING }
    }

    fn users_share(&self, top: f64) -> Option<f64> {
        self.users.map(|users| self.against(users + self.pending, top))
    }

    fn processes_share(&self, top: f64) -> Option<f64> {
        self.processes.map(|processes| self.against(processes, top))
    }
}

/// A percentage as a share, held within 0..=1.
fn share(percent: f64) -> f64 {
    (percent / 100.0).clamp(0.0, 1.0)
}

/// `value / top`, held within 0..=1; 0 if the top is 0: nobody has any, so nobody has more than another. Two numbers too
/// large to be compared are equal, so 1.
fn ratio(value: f64, top: f64) -> f64 {
    if top <= 0.0 {
        0.0
    } else if value >= top {
        1.0
    } else {
        (value / top).max(0.0)
    }
}

/// Terms that stand for a metric that was not known.
#[derive(Copy, Clone, PartialEq, Eq, Debug, Default)]
pub struct Filled {
    /// CPU was not known.
    pub cpu: bool,
    /// Memory was not known.
    pub memory: bool,
    /// Users were not known.
    pub users: bool,
    /// Processes were not known.
    pub processes: bool,
}

impl Filled {
    /// Whether any term was filled in.
    pub fn any(self) -> bool {
        self.cpu || self.memory || self.users || self.processes
    }

    /// The names of the filled terms.
    pub fn names(self) -> impl Iterator<Item = &'static str> {
        [(self.cpu, "cpu"), (self.memory, "memory"), (self.users, "users"), (self.processes, "processes")]
            .into_iter()
            .filter_map(|(filled, name)| filled.then_some(name))
    }
}

/// The four terms, each 0..=its weight; of a host that is ramping up those of users and processes may be more.
#[derive(Copy, Clone, PartialEq, Debug, Default)]
pub struct LoadTerms {
    /// Points from CPU.
    pub cpu: f64,
    /// Points from memory.
    pub memory: f64,
    /// Points from users.
    pub users: f64,
    /// Points from processes.
    pub processes: f64,
    /// Which of them stand for an unknown metric.
    pub filled: Filled,
}

impl LoadTerms {
    /// The weighted load, 0..=100; of a host that is ramping up perhaps more.
    pub fn weighted_load(&self) -> f64 {
        self.cpu + self.memory + self.users + self.processes
    }
}

/// What the hosts of a pool are compared with.
#[derive(Copy, Clone, PartialEq, Debug)]
pub struct Scale {
    /// Largest number of users per unit of capacity, places included.
    pub top_users: f64,
    /// Largest number of processes per unit of capacity.
    pub top_processes: f64,
    /// Weights in force, percent: those of metrics that no host has are spread over the others.
    weights: Weights,
    /// Shares (0..=1) that stand for a metric that a host does not know.
    medians: Medians,
}

#[derive(Copy, Clone, PartialEq, Debug, Default)]
struct Medians {
    cpu: f64,
    memory: f64,
    users: f64,
    processes: f64,
}

impl Scale {
    /// The scale of a pool.
    ///
    /// * `weights`: percent, together 100.
    /// * `users_full_scale`: floor under the largest number of users, >= 0.
    /// * `eligible`: the hosts whose numbers count; walked several times, so it must be cheap to clone.
    /// * `some_incomplete`: a host that is to be compared, but whose numbers do not count, lacks a metric.
    pub fn of(
        weights: Weights,
        users_full_scale: f64,
        eligible: impl Iterator<Item = Metrics> + Clone,
        some_incomplete: bool,
    ) -> Self {
        let mut known = Known::default();
        let (mut top_users, mut top_processes) = (users_full_scale, 0.0_f64);
        for host in eligible.clone() {
            known.add(&host);
            // Where users are not known, the places alone still are.
            top_users = top_users.max(host.per_capacity(host.users.unwrap_or(0.0) + host.pending));
            top_processes = top_processes.max(host.per_capacity(host.processes.unwrap_or(0.0)));
        }
        let mut scale =
            Self { top_users, top_processes, weights: known.spread(weights), medians: Medians::default() };
        if some_incomplete || known.some_missing() {
            scale.medians = Medians {
                cpu: median(eligible.clone().filter_map(|host| host.cpu.map(share))),
                memory: median(eligible.clone().filter_map(|host| host.memory.map(share))),
                users: median(eligible.clone().filter_map(|host| host.users_share(top_users))),
                processes: median(eligible.filter_map(|host| host.processes_share(top_processes))),
            };
        }
        scale
    }

    /// The terms of a host. Absent if no term is left to compare it by.
    pub fn terms(&self, host: &Metrics) -> Option<LoadTerms> {
        let weights = &self.weights;
        let sum =
            weights.cpu_percent + weights.memory_percent + weights.users_percent + weights.processes_percent;
        if sum <= 0.0 {
            return None;
        }
        let users = host.users_share(self.top_users).unwrap_or_else(|| {
            let missing = host.against(host.pending, self.top_users) + self.medians.users;
            if host.ramp.is_some() { missing } else { missing.min(1.0) }
        });
        let cpu = host.cpu.map_or(self.medians.cpu, share);
        let memory = host.memory.map_or(self.medians.memory, share);
        let processes = host.processes_share(self.top_processes).unwrap_or(self.medians.processes);
        Some(LoadTerms {
            cpu: weights.cpu_percent * cpu,
            memory: weights.memory_percent * memory,
            users: weights.users_percent * users,
            processes: weights.processes_percent * processes,
            filled: Filled {
                cpu: host.cpu.is_none() && weights.cpu_percent > 0.0,
                memory: host.memory.is_none() && weights.memory_percent > 0.0,
                users: host.users.is_none() && weights.users_percent > 0.0,
                processes: host.processes.is_none() && weights.processes_percent > 0.0,
            },
        })
    }
}

/// How many hosts there are, and how many know each metric.
#[derive(Copy, Clone, Default)]
struct Known {
    hosts: usize,
    cpu: usize,
    memory: usize,
    users: usize,
    processes: usize,
}

impl Known {
    fn add(&mut self, host: &Metrics) {
        self.hosts += 1;
        self.cpu += usize::from(host.cpu.is_some());
        self.memory += usize::from(host.memory.is_some());
        self.users += usize::from(host.users.is_some());
        self.processes += usize::from(host.processes.is_some());
    }

    fn some_missing(&self) -> bool {
        [self.cpu, self.memory, self.users, self.processes].iter().any(|known| *known < self.hosts)
    }

    /// The weights without the metrics that no host has, together as much as before. Users stay: their places count.
    fn spread(&self, weights: Weights) -> Weights {
        let keep = |known: usize, weight: f64| if known > 0 || self.hosts == 0 { weight } else { 0.0 };
        let kept = Weights {
            cpu_percent: keep(self.cpu, weights.cpu_percent),
            memory_percent: keep(self.memory, weights.memory_percent),
            users_percent: weights.users_percent,
            processes_percent: keep(self.processes, weights.processes_percent),
        };
        let sum = |w: &Weights| w.cpu_percent + w.memory_percent + w.users_percent + w.processes_percent;
        let (all, left) = (sum(&weights), sum(&kept));
        if left <= 0.0 || left == all {
            return kept;
        }
        let factor = all / left;
        Weights {
            cpu_percent: kept.cpu_percent * factor,
            memory_percent: kept.memory_percent * factor,
            users_percent: kept.users_percent * factor,
            processes_percent: kept.processes_percent * factor,
        }
    }
}

/// The median, for an even number the mean of the middle two; 0 of nothing.
fn median(values: impl Iterator<Item = f64>) -> f64 {
    let mut values: Vec<f64> = values.collect();
    values.sort_by(f64::total_cmp);
    let middle = values.len() / 2;
    match values.len() {
        0 => 0.0,
        len if len % 2 == 1 => values[middle],
        _ => f64::midpoint(values[middle - 1], values[middle]),
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn weights(cpu: f64, memory: f64, users: f64, processes: f64) -> Weights {
        Weights {
            cpu_percent: cpu,
            memory_percent: memory,
            users_percent: users,
            processes_percent: processes,
        }
    }

    fn host(cpu: f64, memory: f64, users: f64, processes: f64) -> Metrics {
        Metrics {
            cpu: Some(cpu),
            memory: Some(memory),
            users: Some(users),
            pending: 0.0,
            processes: Some(processes),
            capacity: 1.0,
            ramp: None,
        }
    }

    fn loads(weights: Weights, hosts: &[Metrics]) -> Vec<f64> {
        let scale = Scale::of(weights, 0.0, hosts.iter().copied(), false);
        hosts.iter().map(|host| scale.terms(host).map_or(f64::NAN, |terms| terms.weighted_load())).collect()
    }

    // rule: load-formula
    #[test]
    fn case_067_the_worked_example_with_every_term() {
        let hosts = [host(35.0, 55.0, 10.0, 70.0), host(25.0, 45.0, 14.0, 89.0)];
        let scale = Scale::of(weights(30.0, 30.0, 25.0, 15.0), 0.0, hosts.iter().copied(), false);
        let [first, second] = hosts.map(|host| scale.terms(&host).unwrap());
        let parts = [first.cpu, first.memory, first.users, first.processes];
        for (part, expected) in parts.iter().zip([10.5, 16.5, 17.857, 11.798]) {
            assert!((part - expected).abs() < 0.001, "{part} is not {expected}");
        }
        assert!((first.weighted_load() - 56.6549).abs() < 0.0001);
        let parts = [second.cpu, second.memory, second.users, second.processes];
        assert_eq!(parts, [7.5, 13.5, 25.0, 15.0]);
    }

    // rule: load-zero-top
    #[test]
    fn case_068_nobody_logged_in_anywhere() {
        let hosts = [host(0.0, 0.0, 0.0, 0.0); 3];
        assert_eq!(loads(weights(0.0, 0.0, 100.0, 0.0), &hosts), [0.0, 0.0, 0.0]);
    }

    // rule: load-formula
    #[test]
    fn case_076_least_users_win() {
        let hosts = [host(0.0, 0.0, 6.0, 0.0), host(0.0, 0.0, 5.0, 0.0)];
        let loads = loads(weights(0.0, 0.0, 100.0, 0.0), &hosts);
        assert_eq!(loads[0], 100.0);
        assert!((loads[1] - 83.333).abs() < 0.001);
    }

    // rule: load-pending
    #[test]
    fn places_given_out_count_as_users() {
        let mut hosts = [host(0.0, 0.0, 10.0, 0.0); 2];
        hosts[0].pending = 10.0;
        assert_eq!(loads(weights(0.0, 0.0, 100.0, 0.0), &hosts), [100.0, 50.0]);
    }

    // rule: load-tops
    #[test]
    fn a_host_twice_as_large_may_have_twice_as_many() {
        let large = Metrics { capacity: 2.0, ..host(0.0, 0.0, 20.0, 0.0) };
        assert_eq!(loads(weights(0.0, 0.0, 100.0, 0.0), &[large, host(0.0, 0.0, 10.0, 0.0)]), [100.0, 100.0]);
    }

    // rule: ramp-capacity
    // rule: load-bounds a ramping host's terms may exceed their weights
    #[test]
    fn a_host_that_is_ramping_up_counts_as_a_smaller_one() {
        let scale =
            Scale::of(weights(0.0, 0.0, 50.0, 50.0), 0.0, [host(0.0, 0.0, 10.0, 100.0)].into_iter(), false);
        let ramping = Metrics { ramp: Some(0.25), pending: 2.0, ..host(0.0, 0.0, 3.0, 10.0) };
        let terms = scale.terms(&ramping).unwrap();
        assert_eq!((terms.users, terms.processes), (100.0, 20.0));
        assert_eq!(scale.terms(&Metrics { ramp: None, ..ramping }).unwrap().users, 25.0);
        // A metric that it does not know takes the median of the others, though it is none of them.
        let others = [host(0.0, 0.0, 10.0, 100.0), host(0.0, 0.0, 5.0, 100.0)].into_iter();
        let scale = Scale::of(weights(0.0, 0.0, 50.0, 50.0), 0.0, others, true);
        let unknown = Metrics { users: None, ..ramping };
        assert_eq!(scale.terms(&unknown).unwrap().users, 50.0 * (0.75 + 0.8));
        // Where the others have nobody, what it has is no term either.
        let nobody = Scale::of(weights(0.0, 0.0, 50.0, 50.0), 0.0, std::iter::empty(), false);
        assert_eq!(nobody.terms(&ramping).unwrap().weighted_load(), 0.0);
        // However small it is, its load stays a number.
        let tiny = Metrics { ramp: Some(0.1), capacity: f64::MIN_POSITIVE, ..host(0.0, 0.0, 1e6, 1e6) };
        assert!(scale.terms(&tiny).unwrap().weighted_load().is_finite());
    }

    // rule: load-floor
    #[test]
    fn a_floor_under_the_largest_user_count_softens_the_night() {
        let scale =
            Scale::of(weights(0.0, 0.0, 100.0, 0.0), 20.0, [host(0.0, 0.0, 1.0, 0.0)].into_iter(), false);
        assert_eq!(scale.terms(&host(0.0, 0.0, 1.0, 0.0)).unwrap().weighted_load(), 5.0);
    }

    // rule: load-median
    #[test]
    fn an_unknown_metric_takes_the_median_and_is_named() {
        let known = [host(10.0, 50.0, 2.0, 8.0), host(30.0, 50.0, 2.0, 8.0), host(80.0, 50.0, 2.0, 8.0)];
        let blind = Metrics { cpu: None, ..host(0.0, 50.0, 2.0, 8.0) };
        let all = known.iter().copied().chain([blind]);
        let terms = Scale::of(weights(40.0, 20.0, 20.0, 20.0), 0.0, all, false).terms(&blind).unwrap();
        assert!((terms.cpu - 12.0).abs() < 1e-9);
        assert_eq!(terms.filled.names().collect::<Vec<_>>(), ["cpu"]);
    }

    // rule: load-bounds
    #[test]
    fn case_072_a_percentage_beyond_100_counts_as_100_where_it_stands_for_others_too() {
        let hosts = [Metrics { cpu: None, ..host(0.0, 0.0, 0.0, 0.0) }, host(354.0, 0.0, 0.0, 0.0)];
        assert_eq!(loads(weights(100.0, 0.0, 0.0, 0.0), &hosts), [100.0, 100.0]);
    }

    // rule: load-median places added
    #[test]
    fn unknown_users_take_the_median_and_their_places_are_added() {
        let known = [host(0.0, 0.0, 10.0, 0.0), host(0.0, 0.0, 20.0, 0.0)];
        let blind = Metrics { users: None, pending: 2.0, ..host(0.0, 0.0, 0.0, 0.0) };
        let all = known.iter().copied().chain([blind]);
        let terms = Scale::of(weights(0.0, 0.0, 100.0, 0.0), 0.0, all, false).terms(&blind).unwrap();
        assert!((terms.users - (75.0 + 10.0)).abs() < 1e-9, "{terms:?}");
    }

    #[test]
    fn one_unknown_metric_makes_a_host_incomplete() {
        let known = host(0.0, 0.0, 0.0, 0.0);
        assert!(!known.is_incomplete());
        assert!(Metrics { cpu: None, ..known }.is_incomplete());
        assert!(Metrics { memory: None, ..known }.is_incomplete());
        assert!(Metrics { users: None, ..known }.is_incomplete());
        assert!(Metrics { processes: None, ..known }.is_incomplete());
    }

    // rule: load-spread
    #[test]
    fn a_metric_that_nobody_has_gives_its_weight_to_the_others() {
        let hosts = [
            Metrics { processes: None, ..host(50.0, 50.0, 10.0, 0.0) },
            Metrics { processes: None, ..host(0.0, 0.0, 5.0, 0.0) },
        ];
        let loads = loads(weights(25.0, 25.0, 25.0, 25.0), &hosts);
        assert!((loads[0] - (100.0 / 3.0) * (0.5 + 0.5 + 1.0)).abs() < 1e-9);
    }

    // rule: load-spread
    #[test]
    fn users_known_nowhere_leave_the_places_to_count() {
        let blind = |pending| Metrics { users: None, pending, ..host(0.0, 0.0, 0.0, 0.0) };
        assert_eq!(loads(weights(0.0, 0.0, 100.0, 0.0), &[blind(2.0), blind(1.0)]), [100.0, 50.0]);
    }

    // rule: load-no-term
    #[test]
    fn with_no_metric_left_there_is_no_load() {
        let blind = Metrics { cpu: None, ..host(0.0, 0.0, 0.0, 0.0) };
        assert_eq!(
            Scale::of(weights(100.0, 0.0, 0.0, 0.0), 0.0, [blind].into_iter(), false).terms(&blind),
            None
        );
    }

    fn metric() -> impl Strategy<Value = Option<f64>> {
        proptest::option::of(0.0..1e6)
    }

    proptest! {
        // rule: load-bounds
        #[test]
        fn every_term_lies_within_its_weight_and_they_add_up(
            hosts in proptest::collection::vec(
                (metric(), metric(), metric(), metric(), 0.0..1e3f64, 0.01..100.0f64), 1..20,
            ),
            cut in (0.0..100.0f64, 0.0..100.0f64, 0.0..100.0f64),
        ) {
            let mut cuts = [cut.0, cut.1, cut.2];
            cuts.sort_by(f64::total_cmp);
            let weights = weights(cuts[0], cuts[1] - cuts[0], cuts[2] - cuts[1], 100.0 - cuts[2]);
            let hosts: Vec<Metrics> = hosts
                .into_iter()
                .map(|(cpu, memory, users, processes, pending, capacity)| Metrics {
                    cpu: cpu.map(|v| v % 101.0), memory: memory.map(|v| v % 101.0), users, pending, processes, capacity, ramp: None,
                })
                .collect();
            let scale = Scale::of(weights, 0.0, hosts.iter().copied(), false);
            for terms in hosts.iter().filter_map(|host| scale.terms(host)) {
                let parts = [terms.cpu, terms.memory, terms.users, terms.processes];
                prop_assert!(parts.iter().all(|part| part.is_finite() && *part >= 0.0));
                prop_assert!(terms.weighted_load() <= 100.0 + 1e-6);
            }
        }
    }
}
