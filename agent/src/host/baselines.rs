//! When do baselines go to the disk and come back?
//!
//! At most once a period and only when one moved or grew, on a thread of its own: a slow disk delays the next save, not
//! the reports.
//!
//! What goes wrong with the file is told in the reports: a save that failed until one succeeds, and for a day that the
//! baselines began anew or are those of an older copy, because the index is not what it was until then.

use std::time::Duration;

use tokio::task::JoinHandle;
use usher_availability::{BaselineRecord, Operations};
use usher_types::{BootTime, CollectorState, OperationName};

use crate::latency::baseline_file::{BaselineFile, Baselines, SaveError};
use crate::sample::describe;

/// For how long it is told how the baselines came back: as long as a robust one looks behind.
const TELL_FOR: Duration = Duration::from_secs(24 * 3600);

/// The baselines of one host on disk.
#[derive(Debug)]
pub struct BaselineStore {
    file: BaselineFile,
    /// Absent: what is on disk is not known.
    saved: Option<Baselines>,
    saving: Option<JoinHandle<Result<(), SaveError>>>,
    /// Why the last save failed.
    fault: Option<String>,
    /// What was wrong with the file at the start, and when that was.
    restored: Option<(String, BootTime)>,
}

impl BaselineStore {
    /// Reads the baselines from `file` into `operations`. Blocks.
    #[must_use]
    pub fn restore(
        file: BaselineFile,
        operations: &mut Operations,
        now: BootTime,
        wall_unix_ms: u64,
    ) -> Self {
        let loaded = file.load(wall_unix_ms);
        if let Some(warning) = &loaded.warning {
            tracing::warn!("{warning}");
        }
        for (name, record) in &loaded.baselines {
            // The file was checked: each name in it is one.
            let Ok(name) = OperationName::new(name) else { continue };
            for fault in operations.restore(name.clone(), record, now) {
                tracing::warn!(operation = %name, "{fault}");
            }
        }
        let restored = loaded.warning.map(|warning| (warning, now));
        Self { file, saved: Some(loaded.baselines), saving: None, fault: None, restored }
    }

    /// What there is to be told of the file. Absent: nothing.
    #[must_use]
    pub fn collector(&self, now: BootTime) -> Option<CollectorState> {
        let restored = self.restored.as_ref().filter(|(_, at)| now.since(*at) < TELL_FOR);
        let (error, warning) = (self.fault.clone(), restored.map(|(warning, _)| warning.clone()));
        let is_told = error.is_some() || warning.is_some();
        is_told.then(|| CollectorState { name: "baselines".into(), source: "file".into(), error, warning })
    }

    /// Begins to save what changed since the last save, if that one is done.
    pub async fn save(&mut self, operations: &Operations, now: BootTime, wall_unix_ms: u64) {
        if self.saving.as_ref().is_some_and(|saving| !saving.is_finished()) {
            return;
        }
        self.finish().await;
        let baselines = baselines(operations, now);
        if self.saved.as_ref().is_some_and(|saved| same(&baselines, saved)) {
            return;
        }
        let (file, to_save) = (self.file.clone(), baselines.clone());
        self.saved = Some(baselines);
        self.saving = Some(tokio::task::spawn_blocking(move || file.save(&to_save, wall_unix_ms)));
    }

    /// Waits for a save that was begun.
    pub async fn finish(&mut self) {
        let Some(saving) = self.saving.take() else { return };
        let failed = match saving.await {
            Ok(Ok(())) => {
                self.fault = None;
                return;
            }
            Ok(Err(error)) => describe(&error),
            Err(error) => error.to_string(),
        };
        // Tried again with the next period.
        self.saved = None;
        tracing::warn!(error = failed, "baselines are not saved");
        self.fault = Some(failed);
    }
}

fn baselines(operations: &Operations, now: BootTime) -> Baselines {
    let learned = operations.baselines(now).filter(|(_, record)| !record.is_empty());
    learned.map(|(name, record)| (name.to_string(), record)).collect()
}

/// Ages grow by themselves: that alone is no reason to write.
fn same(a: &Baselines, b: &Baselines) -> bool {
    let same = |((name_a, a), (name_b, b)): ((&String, &BaselineRecord), (&String, &BaselineRecord))| {
        name_a == name_b && a.same_learning(b)
    };
    a.len() == b.len() && a.iter().zip(b).all(same)
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use usher_availability::OperationSettings;

    use super::*;
    use crate::latency::baseline_file::BaselineOwner;

    fn file(folder: &Path) -> BaselineFile {
        let owner = BaselineOwner { host_id: "h1".into(), cpu_model: None };
        BaselineFile::new(folder.join("baselines"), owner)
    }

    fn operations() -> Operations {
        Operations::new(OperationSettings::default())
    }

    #[tokio::test]
    async fn baselines_come_back_with_their_age() {
        let folder = tempfile::tempdir().unwrap();
        let mut learned = operations();
        let mut store =
            BaselineStore::restore(file(folder.path()), &mut learned, BootTime::from_millis(0), 1_000_000);
        learned.record("logon", 20_000.0, 30.0).unwrap();
        learned.end_period(BootTime::from_millis(5_000));
        store.save(&learned, BootTime::from_millis(6_000), 1_006_000).await;
        store.finish().await;

        let mut again = operations();
        let later = BootTime::from_millis(9_000);
        let _store = BaselineStore::restore(file(folder.path()), &mut again, later, 1_009_000);
        let window = again.window(later);
        assert_eq!((window[0].baseline_us, window[0].baseline_samples), (Some(20_000.0), 30));
        assert_eq!(window[0].baseline_age, Some(std::time::Duration::from_secs(4)));
    }

    #[tokio::test]
    async fn a_disk_that_refuses_is_told_until_it_takes_a_save() {
        let folder = tempfile::tempdir().unwrap();
        let mut learned = operations();
        let now = BootTime::from_millis(1);
        let missing = folder.path().join("missing");
        let mut store = BaselineStore::restore(file(&missing), &mut learned, now, 1_000_000);
        assert_eq!(store.collector(now), None);
        learned.record("logon", 20_000.0, 30.0).unwrap();
        learned.end_period(now);
        store.save(&learned, now, 1_000_000).await;
        store.finish().await;
        let told = store.collector(now).unwrap();
        assert_eq!((told.name.as_str(), told.source.as_str(), told.warning), ("baselines", "file", None));
        let error = told.error.unwrap();
        assert!(
            error.starts_with("cannot save baselines: cannot write") && error.contains("missing"),
            "{error}"
        );

        std::fs::create_dir(&missing).unwrap();
        store.save(&learned, now, 1_000_000).await;
        store.finish().await;
        assert_eq!(store.collector(now), None);
    }

    #[tokio::test]
    async fn baselines_that_began_anew_are_told_for_a_day() {
        let folder = tempfile::tempdir().unwrap();
        std::fs::write(folder.path().join("baselines"), "spoilt").unwrap();
        let store = BaselineStore::restore(
            file(folder.path()),
            &mut operations(),
            BootTime::from_millis(1),
            1_000_000,
        );
        let told = |hours: u64| store.collector(BootTime::from_millis(hours * 3_600_000));
        let warning = told(23).unwrap().warning.unwrap();
        assert!(warning.starts_with("baselines begin anew: "), "{warning}");
        assert_eq!(told(25), None);
    }

    #[tokio::test]
    async fn nothing_new_is_not_saved_again() {
        let folder = tempfile::tempdir().unwrap();
        let mut learned = operations();
        let now = BootTime::from_millis(1);
        let mut store = BaselineStore::restore(file(folder.path()), &mut learned, now, 1_000_000);
        store.save(&learned, now, 1_000_000).await;
        store.finish().await;
        assert!(!folder.path().join("baselines").exists());
    }
}
