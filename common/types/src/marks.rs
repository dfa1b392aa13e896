//! What an admin says of a host or of a replica. Hosts do not know it and cannot change it.

use serde::{Deserialize, Serialize};

use crate::{CriticalLevel, FieldFault, HostOverrides, Percent, Policy, UserLimit};

/// An admin's settings of one host; they win over the host's own and over the pool's.
#[derive(Copy, Clone, PartialEq, Debug, Default, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct HostMarks {
    /// Size relative to a normal host, > 0.
    pub capacity: Option<f64>,
    /// Limit of users.
    pub max_users: Option<UserLimit>,
    /// BUSY at or below this availability index.
    pub threshold: Option<Percent>,
    /// Exponent of the availability index, 1..=30.
    pub range: Option<f64>,
    /// BUSY until this is taken back.
    pub busy: bool,
}

impl HostMarks {
    /// Whether nothing is set.
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }

    /// These settings over the host's own.
    #[must_use]
    pub fn over(&self, own: HostOverrides) -> HostOverrides {
        HostOverrides {
            capacity: self.capacity.or(own.capacity),
            max_users: self.max_users.or(own.max_users),
            threshold: self.threshold.or(own.threshold),
            range: self.range.or(own.range),
        }
    }
}

/// One setting that is to change.
#[derive(Copy, Clone, PartialEq, Debug, Default)]
pub enum Change<T> {
    /// As it is.
    #[default]
    Keep,
    /// Not set any more: the host's own, or the pool's, holds again.
    Clear,
    /// To this.
    Set(T),
}

impl<T> Change<T> {
    fn apply(self, before: Option<T>) -> Option<T> {
        match self {
            Self::Keep => before,
            Self::Clear => None,
            Self::Set(value) => Some(value),
        }
    }
}

/// Settings of one host that are to change.
#[derive(Copy, Clone, PartialEq, Debug, Default)]
pub struct HostMarksChange {
    /// Size relative to a normal host, > 0, <= 1000.
    pub capacity: Change<f64>,
    /// Limit of users, >= 1.
    pub max_users: Change<UserLimit>,
    /// BUSY at or below this availability index, 0..=100.
    pub threshold: Change<f64>,
    /// Exponent of the availability index, 1..=30.
    pub range: Change<f64>,
    /// BUSY by an admin's word. Absent: as it is.
    pub busy: Option<bool>,
}

/// A host a thousand times the normal one is a mistake of units.
const MAX_CAPACITY: f64 = 1000.0;

impl HostMarksChange {
    /// What `before` becomes.
    ///
    /// # Errors
    /// Every setting that is refused; nothing changes then.
    pub fn apply_to(&self, before: &HostMarks) -> Result<HostMarks, Vec<FieldFault>> {
        let mut faults = Vec::new();
        let mut refuse = |field: &str, value: &dyn std::fmt::Display, allowed: &str| {
            faults.push(FieldFault::new(field, value, allowed));
        };
        if let Change::Set(capacity) = self.capacity
            && !(capacity > 0.0 && capacity <= MAX_CAPACITY)
        {
            refuse("capacity", &capacity, "above 0, at most 1000; to exclude the host, drain it");
        }
        if self.max_users == Change::Set(UserLimit::Users(0)) {
            refuse("max_users", &0, "at least 1, or \"unlimited\"; to exclude the host, drain it");
        }
        let threshold = match self.threshold {
            Change::Keep => Change::Keep,
            Change::Clear => Change::Clear,
            Change::Set(value) => match Percent::new(value) {
                Ok(percent) => Change::Set(percent),
                Err(error) => {
                    refuse("threshold_percent", &value, error.allowed);
                    Change::Keep
                }
            },
        };
        if let Change::Set(range) = self.range
            && !(1.0..=30.0).contains(&range)
        {
            refuse("range", &range, Policy::RANGE_ALLOWED);
        }
        if !faults.is_empty() {
            return Err(faults);
        }
        Ok(HostMarks {
            capacity: self.capacity.apply(before.capacity),
            max_users: self.max_users.apply(before.max_users),
            threshold: threshold.apply(before.threshold),
            range: self.range.apply(before.range),
            busy: self.busy.unwrap_or(before.busy),
        })
    }
}

/// What an admin says of one host's copy of a resource.
#[derive(Copy, Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ReplicaMark {
    /// Nobody is sent to it.
    OutOfService,
    /// It will be deleted: nobody is sent to it any more.
    PendingDelete,
}

impl ReplicaMark {
    /// As everyone writes it.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::OutOfService => "out_of_service",
            Self::PendingDelete => "pending_delete",
        }
    }
}

impl CriticalLevel {
    /// What may be written for one.
    pub const ALLOWED: &'static str = "above 0, at most 100, or \"off\"";

    /// Whether it can be.
    pub fn is_valid(self) -> bool {
        self.percent().is_none_or(|percent| percent > 0.0 && percent <= 100.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn case_073_a_capacity_of_zero_is_refused_and_the_cure_named() {
        let change = HostMarksChange { capacity: Change::Set(0.0), ..HostMarksChange::default() };
        let faults = change.apply_to(&HostMarks::default()).unwrap_err();
        assert!(faults[0].to_string().contains("capacity = 0") && faults[0].allowed.contains("drain"));
    }

    // rule: error-fields
    #[test]
    fn case_148_every_wrong_mark_is_named() {
        let change = HostMarksChange {
            capacity: Change::Set(f64::NAN),
            max_users: Change::Set(UserLimit::Users(0)),
            threshold: Change::Set(101.0),
            range: Change::Set(120.0),
            busy: Some(true),
        };
        let fields: Vec<String> =
            change.apply_to(&HostMarks::default()).unwrap_err().into_iter().map(|f| f.field).collect();
        assert_eq!(fields, ["capacity", "max_users", "threshold_percent", "range"]);
    }

    // rule: settings-precedence
    #[test]
    fn a_mark_that_is_cleared_gives_way_to_the_hosts_own() {
        let marks = HostMarks { capacity: Some(2.0), range: Some(8.0), ..HostMarks::default() };
        let change = HostMarksChange { capacity: Change::Clear, ..HostMarksChange::default() };
        let marks = change.apply_to(&marks).unwrap();
        let own = HostOverrides { capacity: Some(3.0), range: Some(6.0), ..HostOverrides::default() };
        assert_eq!((marks.over(own).capacity, marks.over(own).range), (Some(3.0), Some(8.0)));
    }
}
