//! How does a backup come back, and what does that change?

use std::io::{BufRead, IsTerminal, Read};
use std::path::PathBuf;

use anyhow::Context as _;
use clap::Args;
use usher_proto::v1;
use usher_proto::v1::admin_service_client::AdminServiceClient;
use usher_proto::v1::restore_request::Part;

use super::backup::{MOVES_WITHIN, Progress, STREAM};
use crate::commands::Context;
use crate::failure::Failure;
use crate::output::json::emit_json;
use crate::output::table::{Grid, cell};
use crate::output::text::{clean, clean_or_dash};
use crate::output::{emit, remark, words};

/// One piece on its way: far below the 1 MiB that a message may have.
const CHUNK_BYTES: usize = 256 * 1024;

/// Arguments of `restore`.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  usherctl restore farm.backup --dry-run    what would change?
  usherctl restore farm.backup              shows it, asks, then does it
  usherctl restore farm.backup --yes        for scripts
  usherctl restore old.backup --farm-was old
                                            into a farm of another name

All of it or nothing. Settings of pools that differ come back as a new version; pools that the
backup does not have stay, and so does what host a certificate belongs to now")]
pub(crate) struct Arguments {
    /// The file; - is standard input
    file: PathBuf,
    /// Change nothing, say what would change
    #[arg(long)]
    dry_run: bool,
    /// Do not ask
    #[arg(long, conflicts_with = "dry_run")]
    yes: bool,
    /// The farm that the backup is of, if it is not this one
    #[arg(long, value_name = "NAME")]
    farm_was: Option<String>,
}

/// Restores a backup.
pub(crate) async fn run(context: &Context, arguments: Arguments) -> Result<(), Failure> {
    let asks = !arguments.yes && !arguments.dry_run;
    let is_stream = arguments.file.as_os_str() == STREAM;
    if asks && (is_stream || !std::io::stdin().is_terminal() || context.json()) {
        return Err(Failure::usage("nobody can be asked here: say --yes, or --dry-run to look first"));
    }
    let backup = read(&arguments.file)?;
    if !arguments.yes {
        let would = restore(context, &backup, &arguments, true).await?;
        if arguments.dry_run && context.json() {
            return emit_json(&would);
        }
        emit(&page(&would, true))?;
        if arguments.dry_run || !changes(&would) {
            return Ok(());
        }
        remark("type yes to restore it:");
        let mut answer = String::new();
        std::io::stdin().lock().read_line(&mut answer).context("reading the answer")?;
        if answer.trim() != "yes" {
            remark("nothing was changed");
            return Ok(());
        }
    }
    let done = restore(context, &backup, &arguments, false).await?;
    if context.json() { emit_json(&done) } else { emit(&page(&done, false)) }
}

fn read(file: &PathBuf) -> Result<Vec<u8>, Failure> {
    let mut backup = Vec::new();
    let read = if file.as_os_str() == STREAM {
        std::io::stdin().lock().read_to_end(&mut backup)
    } else {
        std::fs::File::open(file).and_then(|mut opened| opened.read_to_end(&mut backup))
    };
    read.map_err(|error| Failure::usage(format!("cannot read {}: {error}", file.display())))?;
    Ok(backup)
}

async fn restore(
    context: &Context,
    backup: &[u8],
    arguments: &Arguments,
    dry_run: bool,
) -> Result<v1::RestoreResponse, Failure> {
    let options = v1::RestoreOptions { dry_run, farm_was: arguments.farm_was.clone() };
    let first = v1::RestoreRequest { part: Some(Part::Options(options)) };
    let pieces = backup.chunks(CHUNK_BYTES).map(|piece| Part::Chunk(piece.to_vec()));
    let pieces = pieces.map(|part| v1::RestoreRequest { part: Some(part) });
    let stream: Vec<v1::RestoreRequest> = std::iter::once(first).chain(pieces).collect();
    let progress = Progress::new("sent");
    progress.tell(backup.len());
    let coordinators = context.coordinators_within(MOVES_WITHIN)?;
    let call = coordinators.call("restoring the backup", async |channel, call| {
        let request = call.request(tokio_stream::iter(stream.clone()));
        AdminServiceClient::new(channel).restore(request).await
    });
    call.await
}

/// Whether anything but what is kept is in it.
fn changes(response: &v1::RestoreResponse) -> bool {
    response.unlisted > 0 || response.rows.iter().any(|row| row.change() != v1::RestoredChange::Kept)
}

fn page(response: &v1::RestoreResponse, dry_run: bool) -> String {
    let backup = response.backup.clone().unwrap_or_default();
    let created = backup.created.as_ref().map_or_else(|| "an unknown time".to_owned(), ToString::to_string);
    let mut text = format!(
        "backup of farm {} of {created}, {} rows of {}",
        clean(&backup.farm),
        backup.rows,
        clean_or_dash(&backup.store)
    );
    if backup.set_aside > 0 {
        text += &format!("; {} rows could not be read when it was made and are not in it", backup.set_aside);
    }
    if !response.rows.is_empty() {
        let mut grid = Grid::new(&["WHAT", "CHANGE", "NAME", "HOST", "DETAIL"], &[]);
        for row in &response.rows {
            grid.row([
                cell(words::word::<v1::RestoredKind>(row.kind)),
                cell(words::word::<v1::RestoredChange>(row.change)),
                cell(clean(&row.name)),
                cell(clean_or_dash(row.host_name.as_deref().unwrap_or(""))),
                cell(clean(&row.detail)),
            ]);
        }
        text += &format!("\n\n{}", grid.render());
    }
    if response.unlisted > 0 {
        text += &format!("\nand {} more", response.unlisted);
    }
    text += match (changes(response), dry_run) {
        (false, true) => "\n\nnothing would change",
        (false, false) => "\n\nnothing has changed: all of it was in force",
        (true, true) => "\n\nso it would be; nothing has changed yet",
        (true, false) => "\n\nrestored, and in force",
    };
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(change: v1::RestoredChange) -> v1::RestoredRow {
        v1::RestoredRow {
            kind: v1::RestoredKind::Pool.into(),
            change: change.into(),
            name: "desk".into(),
            host_name: None,
            detail: "version 8, after 7: range 6 -> 7".into(),
        }
    }

    #[test]
    fn what_a_restore_changes_is_told_before_and_after() {
        let backup =
            v1::BackupInfo { farm: "north".into(), store: "etcd".into(), rows: 3, ..Default::default() };
        let mut response = v1::RestoreResponse { backup: Some(backup), ..Default::default() };
        assert!(page(&response, true).ends_with("nothing would change"));
        response.rows.push(row(v1::RestoredChange::Kept));
        assert!(!changes(&response));
        response.rows.push(row(v1::RestoredChange::Changed));
        let text = page(&response, true);
        assert!(text.contains("CHANGED") && text.contains("range 6 -> 7"), "{text}");
        assert!(text.ends_with("nothing has changed yet"));
        assert!(page(&response, false).ends_with("restored, and in force"));
    }
}
