//! Processes that do nothing but be there. Each waits for the end of one pipe, so that they all end with this program,
//! however it ends.

use std::io::PipeWriter;
use std::process::{Child, Command, Stdio};

use anyhow::Context;

/// Processes of this machine's, filled up to a number.
#[derive(Debug)]
pub(crate) struct Crowd {
    members: Vec<Child>,
    end: Option<PipeWriter>,
}

impl Crowd {
    /// As many as are missing to `processes` on the whole machine; none if there are more already.
    pub(crate) fn fill_up_to(processes: usize) -> anyhow::Result<Self> {
        let missing = processes.saturating_sub(on_this_machine());
        let (wait, end) = std::io::pipe().context("making a pipe")?;
        let mut crowd = Self { members: Vec::with_capacity(missing), end: Some(end) };
        for _ in 0..missing {
            let mut command = Command::new("cat");
            command.stdin(wait.try_clone().context("sharing a pipe")?);
            let member = command.stdout(Stdio::null()).stderr(Stdio::null()).spawn();
            crowd.members.push(member.context("starting a process that does nothing")?);
        }
        Ok(crowd)
    }
}

impl Drop for Crowd {
    fn drop(&mut self) {
        drop(self.end.take());
        for member in &mut self.members {
            // Whoever is gone already has nothing to wait for.
            let _ = member.wait();
        }
    }
}

/// Numeric folders of `/proc`.
pub(crate) fn on_this_machine() -> usize {
    let names = std::fs::read_dir("/proc").unwrap().flatten().map(|entry| entry.file_name());
    names.filter(|name| name.as_encoded_bytes().iter().all(u8::is_ascii_digit)).count()
}
