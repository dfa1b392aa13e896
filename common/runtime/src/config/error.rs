//! What does a person read who has to repair a configuration?
//!
//! One line for each thing that is wrong, `path:line:column: message`, the form that editors and
//! terminals jump to.

use std::fmt;
use std::path::PathBuf;

/// Where a bad value stands. Lines and columns count from 1, columns in characters.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Place {
    /// In a file, at a known spot.
    Spot {
        /// The file.
        path: PathBuf,
        /// Its line.
        line: usize,
        /// The character in that line.
        column: usize,
    },
    /// In a file as a whole: it cannot be read, or lacks something.
    File(PathBuf),
    /// An environment variable.
    Environment(String),
    /// A flag.
    Flag(String),
    /// No source gave it: the default itself.
    Default,
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Spot { path, line, column } => write!(f, "{}:{line}:{column}", path.display()),
            Self::File(path) => write!(f, "{}", path.display()),
            Self::Environment(name) => write!(f, "environment {name}"),
            Self::Flag(name) => write!(f, "flag {name}"),
            Self::Default => f.write_str("default"),
        }
    }
}

/// One thing that is wrong.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ConfigError {
    /// Where.
    pub place: Place,
    /// The key's path, absent if the trouble is not with one key (bad syntax, unreadable file).
    pub key: Option<String>,
    /// The whole message, key and value included.
    pub message: String,
}

impl fmt::Display for ConfigError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.place, self.message)
    }
}

/// Everything that is wrong, at least one thing, one line each.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ConfigErrors(pub Vec<ConfigError>);

impl fmt::Display for ConfigErrors {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, error) in self.0.iter().enumerate() {
            if index > 0 {
                f.write_str("\n")?;
            }
            write!(f, "{error}")?;
        }
        Ok(())
    }
}

impl std::error::Error for ConfigErrors {}
