//! Settings for common kinds of farms, several at once.

use serde::{Deserialize, Serialize};

use crate::{Affinity, Method, PolicyChange, WeightsChange};

/// A kind of farm.
#[derive(Copy, Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Profile {
    /// Equal hosts: users alone count (AADS's advice for such farms).
    Identical,
    /// Hosts of different sizes that serve the same: 15/15/55/15.
    Mixed,
    /// Hosts on which users do different things: CPU and users, 50/50.
    Unlike,
    /// Login nodes of a cluster: 40/30/15/15, and users return to what they left running.
    SshLogin,
    /// Domino servers: the availability index, no affinity.
    Domino,
    /// Web servers: the availability index, no affinity.
    Web,
}

impl Profile {
    /// Every profile.
    pub const ALL: [Self; 6] =
        [Self::Identical, Self::Mixed, Self::Unlike, Self::SshLogin, Self::Domino, Self::Web];

    /// As everyone writes it.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Identical => "identical",
            Self::Mixed => "mixed",
            Self::Unlike => "unlike",
            Self::SshLogin => "ssh-login",
            Self::Domino => "domino",
            Self::Web => "web",
        }
    }

    /// The profile of this name.
    pub fn named(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|profile| profile.as_str() == name)
    }

    /// The settings that it makes; all others keep their values.
    pub fn change(self) -> PolicyChange {
        let weighted = |cpu: f64, memory: f64, users: f64, processes: f64| PolicyChange {
            method: Some(Method::WeightedLoad),
            weights: Some(WeightsChange {
                cpu_percent: Some(cpu),
                memory_percent: Some(memory),
                users_percent: Some(users),
                processes_percent: Some(processes),
            }),
            ..PolicyChange::default()
        };
        let available = PolicyChange {
            method: Some(Method::Availability),
            affinity: Some(Affinity::None),
            ..PolicyChange::default()
        };
        match self {
            Self::Identical => weighted(0.0, 0.0, 100.0, 0.0),
            Self::Mixed => weighted(15.0, 15.0, 55.0, 15.0),
            Self::Unlike => weighted(50.0, 0.0, 50.0, 0.0),
            Self::SshLogin => {
                PolicyChange { affinity: Some(Affinity::Linger), ..weighted(40.0, 30.0, 15.0, 15.0) }
            }
            Self::Domino | Self::Web => available,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Policy;

    #[test]
    fn every_profile_can_be_applied_and_is_found_by_its_name() {
        for profile in Profile::ALL {
            assert!(profile.change().apply_to(&Policy::default()).is_ok(), "{profile:?}");
            assert_eq!(Profile::named(profile.as_str()), Some(profile));
        }
        assert_eq!(Profile::named("domino ").map(Profile::as_str), None);
    }
}
