//! What a package installs beside the program: completions and manual pages.

use std::path::PathBuf;

use anyhow::Context as _;
use clap::{Args, CommandFactory};
use clap_complete::Shell;

use crate::cli::Cli;
use crate::failure::Failure;
use crate::output::emit;

/// Arguments of `completions`.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  usherctl completions bash > /etc/bash_completion.d/usherctl
  usherctl completions zsh > ~/.zfunc/_usherctl
  usherctl completions fish > ~/.config/fish/completions/usherctl.fish")]
pub(crate) struct CompletionsArguments {
    /// The shell
    shell: Shell,
}

/// Arguments of `man`.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  usherctl man | man -l -                   read the page of usherctl itself
  usherctl man /usr/local/share/man/man1    write the pages of all commands")]
pub(crate) struct ManArguments {
    /// Folder for the pages of all commands, made if it is not there [default: print the first page]
    #[arg(value_name = "DIR")]
    folder: Option<PathBuf>,
}

/// Prints the completions of a shell.
pub(crate) fn completions(arguments: &CompletionsArguments) -> Result<(), Failure> {
    let mut script = Vec::new();
    clap_complete::generate(arguments.shell, &mut Cli::command(), "usherctl", &mut script);
    emit(&String::from_utf8_lossy(&script))
}

/// Prints the first manual page, or writes all of them.
pub(crate) fn pages(arguments: &ManArguments) -> Result<(), Failure> {
    let Some(folder) = &arguments.folder else {
        let mut page = Vec::new();
        clap_mangen::Man::new(Cli::command()).render(&mut page).context("making the manual page")?;
        return emit(&String::from_utf8_lossy(&page));
    };
    std::fs::create_dir_all(folder).with_context(|| format!("making folder {}", folder.display()))?;
    clap_mangen::generate_to(Cli::command(), folder)
        .with_context(|| format!("writing manual pages to {}", folder.display()))?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_command_has_a_manual_page() {
        let folder = tempfile::tempdir().unwrap();
        let into = folder.path().join("man1");
        pages(&ManArguments { folder: Some(into.clone()) }).unwrap();
        for page in ["usherctl.1", "usherctl-place.1", "usherctl-host-show.1", "usherctl-calc-load.1"] {
            let text = std::fs::read_to_string(into.join(page)).unwrap();
            assert!(text.contains(".SH SYNOPSIS"), "{page}");
        }
    }
}
