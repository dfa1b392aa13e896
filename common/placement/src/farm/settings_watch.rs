//! Does somebody else give this farm's hosts other settings than we do?
//!
//! Each host repeats the hash of the settings that it holds. One that goes on repeating another hash than ours follows
//! another coordinator, whose file or store is not like ours. For a while that is no news: settings that were just
//! applied travel, and reports of before are still on their way. What a host says that has no stream here counts for
//! nothing: it may long have changed.

use std::{collections::BTreeSet, time::Duration};

use usher_types::{BootTime, SettingsHash};

use super::{Effect, Farm, HostEntry};

/// For how long a host may have other settings before somebody should look. Settings are in force everywhere within a second;
/// two reports at the default interval must not be enough for an alarm. Twice as long: found out later, nothing else.
const DIFFERS_AFTER: Duration = Duration::from_secs(12);

/// Since when a host has had other settings, and which.
#[derive(Copy, Clone, Debug)]
pub(super) struct Differing {
    ours: SettingsHash,
    theirs: SettingsHash,
    since: BootTime,
}

impl HostEntry {
    /// The other hash that the host has had for long, as of `now`.
    fn differs(&mut self, ours: SettingsHash, now: BootTime) -> Option<SettingsHash> {
        let reading = self.view.reading.as_ref().filter(|_| self.view.connected);
        let theirs = reading.and_then(|reading| reading.settings_hash).filter(|theirs| *theirs != ours);
        let before = self.differing.filter(|before| before.ours == ours && Some(before.theirs) == theirs);
        self.differing = before.or(theirs.map(|theirs| Differing { ours, theirs, since: now }));
        self.differing.filter(|it| now.since(it.since) >= DIFFERS_AFTER).map(|it| it.theirs)
    }
}

impl Farm {
    /// Marks the hosts that have other settings than ours at `now`. Says so once for each change of which settings these are.
    pub(super) fn compare_settings(&mut self, now: BootTime) -> Vec<Effect> {
        let mut effects = Vec::new();
        for pool in self.pools.values_mut() {
            let (mut hosts, mut hashes) = (0, BTreeSet::new());
            for (position, host_id) in pool.host_ids.iter().enumerate() {
                let Some(host) = self.hosts.get_mut(host_id) else { continue };
                let differs = host.differs(pool.settings_hash, now);
                hosts += usize::from(differs.is_some());
                hashes.extend(differs);
                if host.view.settings_differ != differs {
                    host.view.settings_differ = differs;
                    pool.views[position] = std::sync::Arc::new(host.view.clone());
                    pool.shown.changed(position);
                    pool.dirty = true;
                }
            }
            if pool.foreign_hashes != hashes {
                pool.foreign_hashes.clone_from(&hashes);
                let (name, ours) = (pool.record.name.clone(), pool.settings_hash);
                effects.push(Effect::SettingsDiffer { pool: name, ours, hosts, theirs: hashes });
            }
        }
        effects
    }
}
