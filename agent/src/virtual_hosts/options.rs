//! Which modelled hosts shall there be?

use std::path::PathBuf;

use super::fixed::FixedValues;

/// Most hosts of one process: each costs a connection to every coordinator.
pub const MAX_HOSTS: usize = 20_000;

/// How modelled hosts behave.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, clap::ValueEnum)]
pub enum ModelKind {
    /// Users come, work and go
    #[default]
    Model,
    /// Values stay as given; nobody comes
    Fixed,
}

/// What was asked for.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct VirtualOptions {
    /// How many, 1..=20000.
    pub count: usize,
    /// The number of the first.
    pub first: usize,
    /// How they behave.
    pub kind: ModelKind,
    /// Values of fixed hosts; the last one stands for all that follow.
    pub values: Vec<FixedValues>,
    /// Their names; those without one are called `virtual-K`.
    pub names: Vec<String>,
    /// Which of them, counted from 1, holds which resource.
    pub replicas: Vec<(usize, String)>,
    /// Seed of all chance.
    pub seed: u64,
    /// Every change of their users and places is written to this file. Absent: nowhere.
    pub log: Option<PathBuf>,
}

impl VirtualOptions {
    /// The name of the host at `index`, from 0.
    #[must_use]
    pub fn name(&self, index: usize) -> String {
        self.names.get(index).cloned().unwrap_or_else(|| format!("virtual-{}", self.number(index)))
    }

    /// The number of the host at `index`: it names its folders, whatever the host is called.
    #[must_use]
    pub fn number(&self, index: usize) -> usize {
        self.first.saturating_add(index)
    }

    /// The port that its endpoint shows: 2200 and its number, the highest when there are not so many ports.
    #[must_use]
    pub fn port(&self, index: usize) -> u16 {
        u16::try_from(self.number(index).saturating_add(2200)).unwrap_or(u16::MAX)
    }

    /// The values of the host at `index`. Nothing given: everything is unknown.
    #[must_use]
    pub fn values(&self, index: usize) -> FixedValues {
        self.values.get(index).or(self.values.last()).copied().unwrap_or_default()
    }

    /// The resources of the host at `index`, in the order given.
    pub fn replicas(&self, index: usize) -> impl Iterator<Item = &str> {
        let of_host = move |(host, _): &&(usize, String)| *host == index + 1;
        self.replicas.iter().filter(of_host).map(|(_, resource)| resource.as_str())
    }

    /// The seed of the host at `index`: its own, so that one host more changes no other.
    #[must_use]
    pub fn host_seed(&self, index: usize) -> u64 {
        // The golden ratio in 64 bits: numbers in a row give seeds far apart.
        self.seed.wrapping_add((self.number(index) as u64).wrapping_mul(0x9E37_79B9_7F4A_7C15))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_values_stand_for_all_that_follow() {
        let values = ["users=1", "users=2"].map(|text| text.parse().unwrap());
        let options = VirtualOptions { count: 3, first: 4, values: values.to_vec(), ..Default::default() };
        let users: Vec<_> = (0..3).map(|index| options.values(index).users).collect();
        assert_eq!(users, [Some(1), Some(2), Some(2)]);
        assert_eq!((options.name(0), options.port(1)), ("virtual-4".to_owned(), 2205));
    }

    #[test]
    fn replicas_belong_to_the_host_that_they_name() {
        let replicas = vec![(1, "crm".to_owned()), (2, "crm".to_owned()), (2, "mail:1".to_owned())];
        let options = VirtualOptions { replicas, ..Default::default() };
        assert_eq!(options.replicas(1).collect::<Vec<_>>(), ["crm", "mail:1"]);
        assert_eq!(options.replicas(2).count(), 0);
    }
}
