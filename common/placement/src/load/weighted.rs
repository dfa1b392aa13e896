//! The weighted load: CPU, memory, users and processes, each as a share, each with its weight.
//!
//! `W = (w_cpu cpu + w_mem memory + w_users 100 users/top_users + w_procs 100 processes/top_processes) / 100`, 0..=100,
//! low is good. Source: the AADS terminal-server farm manual.
//!
//! * CPU and memory are percentages already. Users and processes become shares of the largest number in the pool, so
//!   that no host's absolute size has to be known; both are divided by the host's `capacity` first, so that a host
//!   twice as large may have twice as many.
//! * CPU and memory add what the logins on their way are expected to cost, if the pool predicts. Where the demand of a host
//!   is known, its CPU is the demand that is expected now, without logons that have ended since it was measured.
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
    /// What the logins on their way are expected to add to the CPU, points; below 0 if logons that it was measured with
    /// have ended since.
    pub expected_cpu: f64,
    /// What they are expected to add to the memory in use, points, >= 0.
    pub expected_memory: f64,
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

    /// Whether its users are known and, of CPU, memory and processes, exactly those that are said here.
    pub(crate) fn knows_just(&self, known: [bool; 3]) -> bool {
        self.users.is_some() && known == [self.cpu.is_some(), self.memory.is_some(), self.processes.is_some()]
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

    fn cpu_share(&self) -> Option<f64> {
        self.cpu.map(|cpu| share(cpu + self.expected_cpu))
    }

    fn memory_share(&self) -> Option<f64> {
        self.memory.map(|memory| share(memory + self.expected_memory))
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

/// Terms whose metric was not known.
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
    /// No host knew its users: the places alone count, and no median stands for them.
    pub places_alone: bool,
}

impl Filled {
    /// Whether any term does not say what it would if everything were known.
    pub fn any(self) -> bool {
        self.cpu || self.memory || self.users || self.processes || self.places_alone
    }

    /// The names of the terms that a median stands for.
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
    /// Some host knows its users. If none does, the places alone count, and no median stands for users.
    users_known: bool,
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
        let mut largest = Largest::new(users_full_scale);
        eligible.clone().for_each(|host| largest.add(&host));
        let (known, mut scale) = (largest.known, largest.scale(weights));
        let (top_users, top_processes) = (scale.top_users, scale.top_processes);
        if some_incomplete || known.some_missing() {
            scale.medians = Medians {
                cpu: median(eligible.clone().filter_map(|host| host.cpu_share())),
                memory: median(eligible.clone().filter_map(|host| host.memory_share())),
                users: median(eligible.clone().filter_map(|host| host.users_share(top_users))),
                processes: median(eligible.filter_map(|host| host.processes_share(top_processes))),
            };
        }
        scale
    }

    /// The same, but hosts have come that have as many users per unit of capacity as this.
    pub(crate) fn with_users(self, users: f64) -> Self {
        Self { top_users: self.top_users.max(users), ..self }
    }

    /// Weights in force, percent.
    pub(crate) const fn weights(&self) -> &Weights {
        &self.weights
    }

    /// Whether any term is left to compare hosts by.
    pub(crate) fn has_terms(&self) -> bool {
        let weights = &self.weights;
        weights.cpu_percent + weights.memory_percent + weights.users_percent + weights.processes_percent > 0.0
    }

    /// The terms of a host. Absent if no term is left to compare it by.
    pub fn terms(&self, host: &Metrics) -> Option<LoadTerms> {
        let weights = &self.weights;
        if !self.has_terms() {
            return None;
        }
        let users = host.users_share(self.top_users).unwrap_or_else(|| {
            let missing = host.against(host.pending, self.top_users) + self.medians.users;
            if host.ramp.is_some() { missing } else { missing.min(1.0) }
        });
        // A median, and what is on its way to this host.
        let missing = |median: f64, expected: f64| (median + expected / 100.0).min(1.0);
        let cpu = host.cpu_share().unwrap_or_else(|| missing(self.medians.cpu, host.expected_cpu));
        let memory =
            host.memory_share().unwrap_or_else(|| missing(self.medians.memory, host.expected_memory));
        let processes = host.processes_share(self.top_processes).unwrap_or(self.medians.processes);
        Some(LoadTerms {
            cpu: weights.cpu_percent * cpu,
            memory: weights.memory_percent * memory,
            users: weights.users_percent * users,
            processes: weights.processes_percent * processes,
            filled: Filled {
                cpu: host.cpu.is_none() && weights.cpu_percent > 0.0,
                memory: host.memory.is_none() && weights.memory_percent > 0.0,
                users: host.users.is_none() && weights.users_percent > 0.0 && self.users_known,
                processes: host.processes.is_none() && weights.processes_percent > 0.0,
                places_alone: host.users.is_none() && weights.users_percent > 0.0 && !self.users_known,
            },
        })
    }
}

/// What one walk over the hosts finds of what a scale is made of; the medians need more.
#[derive(Copy, Clone, Debug)]
pub(crate) struct Largest {
    known: Known,
    top_users: f64,
    top_processes: f64,
}

impl Largest {
    pub(crate) fn new(users_full_scale: f64) -> Self {
        Self { known: Known::default(), top_users: users_full_scale, top_processes: 0.0 }
    }

    pub(crate) fn add(&mut self, host: &Metrics) {
        self.known.add(host);
        // Where users are not known, the places alone still are.
        self.top_users = self.top_users.max(host.per_capacity(host.users.unwrap_or(0.0) + host.pending));
        self.top_processes = self.top_processes.max(host.per_capacity(host.processes.unwrap_or(0.0)));
    }

    /// Many hosts at once, of which these are the largest numbers per unit of capacity. All know their users, and each of
    /// the other metrics all or none: CPU, memory, processes.
    pub(crate) fn add_many(&mut self, hosts: usize, know: [bool; 3], top_users: f64, top_processes: f64) {
        let [cpu, memory, processes] = know.map(|known| if known { hosts } else { 0 });
        self.known.hosts += hosts;
        self.known.users += hosts;
        self.known.cpu += cpu;
        self.known.memory += memory;
        self.known.processes += processes;
        self.top_users = self.top_users.max(top_users);
        self.top_processes = self.top_processes.max(top_processes);
    }

    /// Whether there was any host.
    pub(crate) const fn is_of_any(&self) -> bool {
        self.known.hosts > 0
    }

    /// The scale where no median is needed: each metric is known to all hosts or to none.
    pub(crate) fn scale(&self, weights: Weights) -> Scale {
        Scale {
            top_users: self.top_users,
            top_processes: self.top_processes,
            weights: self.known.spread(weights),
            medians: Medians::default(),
            users_known: self.known.users > 0,
        }
    }
}

/// How many hosts there are, and how many know each metric.
#[derive(Copy, Clone, Debug, Default)]
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
mod tests;
