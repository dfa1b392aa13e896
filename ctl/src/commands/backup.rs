//! How does what people decided get out of the store?

use std::io::{IsTerminal, Write};
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::Context as _;
use clap::Args;
use indicatif::ProgressBar;
use serde::Serialize;
use serde_json::Value;
use tonic::Response;
use usher_proto::v1;
use usher_proto::v1::admin_service_client::AdminServiceClient;

use crate::commands::Context;
use crate::failure::Failure;
use crate::output::json::emit_json;
use crate::output::text::{bytes, clean};
use crate::output::{emit, remark};

/// A whole store takes longer than a question.
pub(super) const MOVES_WITHIN: Duration = Duration::from_secs(60);
/// The name that stands for standard output, or input.
pub(super) const STREAM: &str = "-";

/// Arguments of `backup`.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  usherctl backup farm.backup               of a coordinator that goes on meanwhile
  usherctl backup --force farm.backup       in the place of the one before
  usherctl backup - | gzip > farm.backup.gz

Pools with their history, drains and marks, and which host each certificate belongs to. What
hosts tell again by themselves is not in it. `usherctl restore` brings it back")]
pub(crate) struct Arguments {
    /// The file; - is standard output
    file: PathBuf,
    /// Replace the file if it is there
    #[arg(long)]
    force: bool,
}

/// What was written, for scripts.
#[derive(Debug, Serialize)]
struct Written<'a> {
    file: &'a Path,
    bytes: usize,
    backup: Value,
}

/// Writes a backup.
pub(crate) async fn run(context: &Context, arguments: Arguments) -> Result<(), Failure> {
    let Arguments { file, force } = arguments;
    let is_stream = file.as_os_str() == STREAM;
    if !is_stream && !force && file.symlink_metadata().is_ok() {
        return Err(Failure::usage(format!("{} is there already; --force replaces it", file.display())));
    }
    let backup = fetch(context).await?;
    if is_stream {
        std::io::stdout().lock().write_all(&backup).context("writing to standard output")?;
        return Ok(());
    }
    keep(&file, &backup, force).with_context(|| format!("writing {}", file.display()))?;
    let first = backup.split(|byte| *byte == b'\n').next().unwrap_or_default();
    let header: Value = serde_json::from_slice(first).unwrap_or_default();
    if header["set_aside"].as_u64().unwrap_or(0) > 0 {
        remark(&format!(
            "warning: {} rows of the store could not be read and are not in the backup; `usherctl quarantine` lists them",
            header["set_aside"]
        ));
    }
    if context.json() {
        return emit_json(&Written { file: &file, bytes: backup.len(), backup: header });
    }
    emit(&said(&file, &backup, &header))
}

fn said(file: &Path, backup: &[u8], header: &Value) -> String {
    // The first and the last line are no rows.
    let rows = backup.iter().filter(|byte| **byte == b'\n').count().saturating_sub(2);
    let text = |key: &str| clean(header[key].as_str().unwrap_or("?"));
    format!(
        "{}: {rows} rows of farm {} ({}), {}",
        clean(&file.display().to_string()),
        text("farm"),
        text("store"),
        bytes(backup.len() as u64)
    )
}

async fn fetch(context: &Context) -> Result<Vec<u8>, Failure> {
    let progress = Progress::new("read");
    let coordinators = context.coordinators_within(MOVES_WITHIN)?;
    let backup = coordinators.call("making a backup", async |channel, call| {
        let request = call.request(v1::BackupRequest {});
        let mut pieces = AdminServiceClient::new(channel).backup(request).await?.into_inner();
        let mut file = Vec::new();
        while let Some(piece) = pieces.message().await? {
            file.extend_from_slice(&piece.chunk);
            progress.tell(file.len());
        }
        Ok(Response::new(file))
    });
    backup.await
}

/// Whole, or not at all; on the disk when this returns; readable by its owner only: it says who decides.
fn keep(file: &Path, backup: &[u8], force: bool) -> anyhow::Result<()> {
    let folder = file.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
    // Made with the mode 0600.
    let mut new = tempfile::Builder::new().prefix(".usher-backup-").tempfile_in(folder)?;
    new.write_all(backup)?;
    new.as_file().sync_all()?;
    // Somebody may have made the file meanwhile.
    if force {
        new.persist(file)?
    } else {
        new.persist_noclobber(file)?
    };
    std::fs::File::open(folder)?.sync_all()?;
    Ok(())
}

/// How much has moved, for a person who waits.
pub(super) struct Progress {
    bar: Option<ProgressBar>,
    verb: &'static str,
}

impl Progress {
    pub(super) fn new(verb: &'static str) -> Self {
        let bar = std::io::stderr().is_terminal().then(|| {
            let bar = ProgressBar::new_spinner();
            bar.enable_steady_tick(Duration::from_millis(100));
            bar
        });
        Self { bar, verb }
    }

    pub(super) fn tell(&self, moved: usize) {
        if let Some(bar) = &self.bar {
            bar.set_message(format!("{} {}", bytes(moved as u64), self.verb));
        }
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        if let Some(bar) = &self.bar {
            bar.finish_and_clear();
        }
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    #[test]
    fn a_backup_is_its_owners_alone_and_replaces_no_file_unasked() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("farm.backup");
        keep(&file, b"one", false).unwrap();
        assert_eq!(file.metadata().unwrap().permissions().mode() & 0o777, 0o600);
        assert!(keep(&file, b"two", false).is_err());
        assert_eq!(std::fs::read(&file).unwrap(), b"one");
        keep(&file, b"two", true).unwrap();
        assert_eq!(std::fs::read(&file).unwrap(), b"two");
        assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 1, "nothing is left beside it");
    }

    #[test]
    fn what_was_written_is_said_with_its_farm() {
        let header = serde_json::json!({ "farm": "north\u{1b}", "store": "etcd" });
        let text = said(Path::new("a.backup"), b"{}\n{}\n{}\n", &header);
        assert!(text.starts_with("a.backup: 1 rows of farm north") && text.contains("(etcd)"), "{text}");
        assert!(!text.contains('\u{1b}'));
    }
}
