//! Was anything lost that an operator was told is in force?
//!
//! A value whose change was acknowledged stays until it is changed again. A change whose answer was lost may or may not have
//! happened: until the next acknowledged one, either is right.

use std::collections::BTreeMap;
use std::time::Duration;

use super::Violation;

/// When a change must be in force at every coordinator: a second, and the time of a list that is on its way.
const IN_FORCE: Duration = Duration::from_millis(1500);

/// The check of acknowledged settings. Each is known by a name, and its value as text.
#[derive(Debug, Default)]
pub struct Kept {
    settings: BTreeMap<String, Setting>,
    checks: u64,
}

#[derive(Debug, Default)]
struct Setting {
    acknowledged: Option<String>,
    acknowledged_at: Duration,
    perhaps: Vec<String>,
}

impl Kept {
    /// How often a value was compared.
    pub fn checks(&self) -> u64 {
        self.checks
    }

    /// A change was asked for.
    pub fn asked(&mut self, name: &str, value: &str) {
        self.settings.entry(name.to_owned()).or_default().perhaps.push(value.to_owned());
    }

    /// It was acknowledged: what was asked before is over. Only one is under way at a time.
    pub fn acknowledged(&mut self, name: &str, value: &str, now: Duration) {
        let setting = self.settings.entry(name.to_owned()).or_default();
        setting.acknowledged_at = now;
        setting.acknowledged = Some(value.to_owned());
        setting.perhaps.clear();
    }

    /// Whether this value was the last one to be acknowledged.
    pub fn is_acknowledged(&self, name: &str, value: &str) -> bool {
        self.settings.get(name).is_some_and(|setting| setting.acknowledged.as_deref() == Some(value))
    }

    /// It was refused: nothing changed.
    pub fn refused(&mut self, name: &str, value: &str) {
        if let Some(setting) = self.settings.get_mut(name) {
            setting.perhaps.retain(|perhaps| perhaps != value);
        }
    }

    /// What is in force.
    pub fn look(&mut self, name: &str, value: &str, at: &str, now: Duration) -> Option<Violation> {
        let setting = self.settings.get(name)?;
        let acknowledged = setting.acknowledged.as_deref()?;
        if now.saturating_sub(setting.acknowledged_at) < IN_FORCE {
            return None;
        }
        self.checks += 1;
        let is_right = value == acknowledged || setting.perhaps.iter().any(|perhaps| perhaps == value);
        (!is_right).then(|| {
            let what = format!("{name} is {value} at {at}, but {acknowledged} was acknowledged");
            Violation::new("kept", now, what)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_acknowledged_must_be_in_force_until_it_may_have_been_changed() {
        let mut kept = Kept::default();
        let now = Duration::from_secs(9);
        kept.asked("drain h1", "true");
        assert_eq!(kept.look("drain h1", "false", "c1", now), None, "nobody said so yet");
        kept.acknowledged("drain h1", "true", Duration::from_secs(8));
        assert_eq!(kept.look("drain h1", "false", "c1", now), None, "it is on its way");
        let now = Duration::from_secs(10);
        assert!(kept.look("drain h1", "false", "c1", now).is_some());
        kept.asked("drain h1", "false");
        assert_eq!(kept.look("drain h1", "false", "c1", now), None, "the answer may have been lost");
        assert_eq!(kept.look("drain h1", "true", "c1", now), None);
        kept.refused("drain h1", "false");
        assert!(kept.look("drain h1", "false", "c1", now).is_some());
    }
}
