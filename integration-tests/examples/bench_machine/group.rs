//! A group of processes that gets no more than its part of the machine: what stands for a host.
//!
//! The kernel's own limit on processor time (cgroup), in whichever of its two forms this machine has. Making groups needs
//! root; without them there would be no hosts, so there is nothing to measure.

use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, bail};

/// The limit holds over each stretch of this length.
const PERIOD: Duration = Duration::from_millis(20);
const ROOT: &str = "/sys/fs/cgroup";

/// One group; it is gone when this is dropped.
#[derive(Debug)]
pub(crate) struct Group {
    folder: PathBuf,
}

impl Group {
    /// A group of processes that together get `cores` processors.
    ///
    /// # Errors
    /// When this machine has no such groups, or lets us make none.
    pub(crate) fn new(name: &str, cores: f64) -> anyhow::Result<Self> {
        let name = format!("usher-bench-{}-{name}", std::process::id());
        let (period, quota) = (PERIOD.as_micros(), PERIOD.mul_f64(cores).as_micros());
        let unified = Path::new(ROOT);
        let controllers = std::fs::read_to_string(unified.join("cgroup.subtree_control")).unwrap_or_default();
        let separate = unified.join("cpu");
        let (folder, limits) = if controllers.split_whitespace().any(|controller| controller == "cpu") {
            (unified.join(name), vec![("cpu.max", format!("{quota} {period}"))])
        } else if separate.join("cpu.cfs_quota_us").exists() || separate.join("cpu.shares").exists() {
            let limits =
                vec![("cpu.cfs_period_us", period.to_string()), ("cpu.cfs_quota_us", quota.to_string())];
            (separate.join(name), limits)
        } else {
            bail!("no cgroup controller `cpu` at {ROOT}: hosts cannot be limited");
        };
        std::fs::create_dir(&folder)
            .with_context(|| format!("making group {} (as root?)", folder.display()))?;
        let group = Self { folder };
        for (file, limit) in limits {
            let path = group.folder.join(file);
            std::fs::write(&path, limit).with_context(|| format!("limiting by {}", path.display()))?;
        }
        Ok(group)
    }

    /// Puts a process into it.
    ///
    /// # Errors
    /// When the kernel refuses.
    pub(crate) fn add(&self, pid: u32) -> anyhow::Result<()> {
        let path = self.folder.join("cgroup.procs");
        std::fs::write(&path, pid.to_string())
            .with_context(|| format!("adding a process to {}", path.display()))
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        // Its processes were killed just before, and the kernel may need a moment.
        for _ in 0..50 {
            if std::fs::remove_dir(&self.folder).is_ok() {
                return;
            }
            std::thread::sleep(Duration::from_millis(10));
        }
    }
}
