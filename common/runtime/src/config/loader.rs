//! In which order are settings looked for, and how is every mistake found in one go?
//!
//! The deserializer stops at its first error. So each error is noted, its key taken out of the tree, and
//! the tree read again, until it can be read whole; then the values are validated. A person sees the
//! misspelt key, the wrong type and the bad range together.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::io;
use std::ops::Range;
use std::path::{Path, PathBuf};

use serde::Serialize;
use serde::de::DeserializeOwned;
use toml::{Table, Value};

use super::document::{Document, Override};
use super::error::{ConfigError, ConfigErrors, Place};
use super::fault::{Faults, Validate};
use super::{document, dump};

/// More mistakes than this are not told in one go.
const ERRORS_MAX: usize = 100;

/// Which source gave a value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Origin {
    /// None: it is the default.
    Default,
    /// A file.
    File {
        /// Which.
        path: PathBuf,
        /// Its line, from 1.
        line: usize,
    },
    /// An environment variable, by name.
    Environment(String),
    /// A flag, as typed: `--listen`.
    Flag(String),
}

impl fmt::Display for Origin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Default => f.write_str("default"),
            Self::File { path, line } => write!(f, "{}:{line}", path.display()),
            Self::Environment(name) => write!(f, "environment {name}"),
            Self::Flag(name) => write!(f, "flag {name}"),
        }
    }
}

impl From<&Place> for Origin {
    fn from(place: &Place) -> Self {
        match place {
            Place::Spot { path, line, .. } => Self::File { path: path.clone(), line: *line },
            Place::File(path) => Self::File { path: path.clone(), line: 1 },
            Place::Environment(name) => Self::Environment(name.clone()),
            Place::Flag(name) => Self::Flag(name.clone()),
            Place::Default => Self::Default,
        }
    }
}

/// How the text of an environment variable is to be read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EnvKind {
    /// As it is: texts, durations, addresses, paths.
    Text,
    /// Texts between commas; white space around them and empty ones are dropped.
    List,
    /// A whole number.
    Integer,
    /// `true` or `false`.
    Bool,
}

/// A variable, the dotted key that it sets, and how to read it.
pub type EnvVar<'a> = (&'a str, &'a str, EnvKind);

/// Collects the sources of one program's settings. Loading does not use it up, so a reload reads the same
/// sources again.
#[derive(Clone, Debug)]
pub struct Loader {
    path: PathBuf,
    must_exist: bool,
    /// Who named the file, if it is not the default one.
    named_by: Option<Origin>,
    environment: Vec<Override>,
    flags: Vec<Override>,
    errors: Vec<ConfigError>,
}

/// Settings in force and where each came from.
#[derive(Clone, Debug)]
pub struct Loaded<T> {
    /// The settings.
    pub value: T,
    places: BTreeMap<String, Place>,
}

impl Loader {
    /// Settings from `default_path`, which need not exist.
    pub fn new(default_path: impl Into<PathBuf>) -> Self {
        Self {
            path: default_path.into(),
            must_exist: false,
            named_by: None,
            environment: Vec::new(),
            flags: Vec::new(),
            errors: Vec::new(),
        }
    }

    /// Settings from the file at `path`, which must exist: the one that a person asked about.
    pub fn only(path: impl Into<PathBuf>) -> Self {
        Self { must_exist: true, ..Self::new(path) }
    }

    /// Another file, named by a flag or a variable; that one must exist. `None` changes nothing.
    #[must_use]
    pub fn file(mut self, path: Option<PathBuf>, named_by: Origin) -> Self {
        if let Some(path) = path {
            self.path = path;
            self.named_by = Some(named_by);
        }
        self
    }

    /// Values from this process's environment. A variable that is empty counts as not set.
    #[must_use]
    pub fn env(self, variables: &[EnvVar<'_>]) -> Self {
        self.env_from(variables, |name| std::env::var(name).ok())
    }

    /// As [`Loader::env`], with the environment as an argument.
    #[must_use]
    pub fn env_from(mut self, variables: &[EnvVar<'_>], lookup: impl Fn(&str) -> Option<String>) -> Self {
        for (name, key, kind) in variables {
            let Some(text) = lookup(name).filter(|text| !text.trim().is_empty()) else { continue };
            let place = Place::Environment((*name).to_owned());
            match read_variable(&text, *kind) {
                Ok(value) => {
                    self.environment.push(Override { key: (*key).to_owned(), text: value.to_string(), place })
                }
                Err(wanted) => self.errors.push(ConfigError {
                    place,
                    key: Some((*key).to_owned()),
                    message: format!("{key} = {text:?} is not {wanted}"),
                }),
            }
        }
        self
    }

    /// A value that wins over the file, and as a flag over the environment too. `key` is dotted.
    #[must_use]
    pub fn override_with(mut self, key: &str, value: impl Into<Value>, origin: Origin) -> Self {
        let (list, place) = match origin {
            Origin::Environment(name) => (&mut self.environment, Place::Environment(name)),
            Origin::Flag(name) => (&mut self.flags, Place::Flag(name)),
            Origin::File { path, .. } => (&mut self.environment, Place::File(path)),
            Origin::Default => (&mut self.environment, Place::Default),
        };
        list.push(Override { key: key.to_owned(), text: value.into().to_string(), place });
        self
    }

    /// The file that is read, whether it exists or not.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Reads all sources. Nothing of `self` changes, so a failed reload leaves the settings in force.
    ///
    /// # Errors
    /// Everything that is wrong, together.
    pub fn load<T>(&self) -> Result<Loaded<T>, ConfigErrors>
    where
        T: DeserializeOwned + Serialize + Default + Validate,
    {
        let fatal = |place, message| {
            let mut errors = self.errors.clone();
            errors.push(ConfigError { place, key: None, message });
            ConfigErrors(errors)
        };
        let text = self.read().map_err(|message| fatal(Place::File(self.path.clone()), message))?;
        let overrides: Vec<Override> = self.environment.iter().chain(&self.flags).cloned().collect();
        let mut document = Document::parse(&self.path, &text, &overrides)
            .map_err(|(place, message)| fatal(place, message))?;
        let places = document.places();
        let mut errors = self.errors.clone();
        // A default that TOML cannot write has no shape to compare with.
        if let Ok(defaults) = Table::try_from(T::default()) {
            refuse_lists_for_tables(&mut document, &defaults, "", &mut errors);
        }
        let value: Option<T> = read_whole(&mut document, &mut errors);
        if let Some(value) = &value {
            let mut faults = Faults::default();
            value.validate(&mut faults);
            errors.extend(faults.iter().map(|fault| ConfigError {
                place: place_of(&places, &fault.key).unwrap_or_else(|| Place::File(self.path.clone())),
                key: Some(fault.key.clone()),
                message: format!("{} {}", fault.key, fault.message),
            }));
        }
        match value {
            Some(value) if errors.is_empty() => Ok(Loaded { value, places }),
            _ => Err(ConfigErrors(errors)),
        }
    }

    fn read(&self) -> Result<String, String> {
        match std::fs::read(&self.path) {
            Ok(bytes) => String::from_utf8(bytes).map_err(|error| format!("is not UTF-8 text: {error}")),
            Err(error) if error.kind() == io::ErrorKind::NotFound => match &self.named_by {
                None if self.must_exist => Err(format!("cannot read the configuration file: {error}")),
                None => Ok(String::new()),
                Some(by) => Err(format!("cannot read the configuration file named by {by}: {error}")),
            },
            Err(error) => Err(format!("cannot read the configuration file: {error}")),
        }
    }
}

impl<T> Loaded<T> {
    /// Where the value of a dotted key came from.
    pub fn origin(&self, key: &str) -> Origin {
        self.places.get(key).map_or(Origin::Default, Origin::from)
    }
}

impl<T: Serialize> Loaded<T> {
    /// The settings in force as TOML, each with its origin in a comment.
    ///
    /// # Errors
    /// When a value cannot be written as TOML: a bug of the settings struct.
    pub fn dump(&self) -> Result<String, toml::ser::Error> {
        let table = Table::try_from(&self.value)?;
        Ok(dump::render(&table, &|key| self.origin(key).to_string()))
    }
}

fn read_variable(text: &str, kind: EnvKind) -> Result<Value, &'static str> {
    let text = text.trim();
    match kind {
        EnvKind::Text => Ok(Value::from(text)),
        EnvKind::List => {
            let items = text.split(',').map(str::trim).filter(|item| !item.is_empty());
            Ok(Value::from(items.map(Value::from).collect::<Vec<_>>()))
        }
        EnvKind::Integer => text.parse::<i64>().map(Value::from).map_err(|_| "a whole number"),
        EnvKind::Bool => text.parse::<bool>().map(Value::from).map_err(|_| "true or false"),
    }
}

/// Serde would take a list for a struct, its values in the order of our source code, which nobody means.
fn refuse_lists_for_tables(
    document: &mut Document<'_>,
    defaults: &Table,
    prefix: &str,
    errors: &mut Vec<ConfigError>,
) {
    for (name, default) in defaults {
        let Value::Table(inner) = default else { continue };
        let key = document::join(prefix, name);
        match document.take_list(&key) {
            Some(span) => errors.push(ConfigError {
                place: document.place(&span),
                message: format!("{key}: must be a table, not a list"),
                key: Some(key),
            }),
            None => refuse_lists_for_tables(document, inner, &key, errors),
        }
    }
}

/// Reads the tree until nothing in it is refused any more. `None` if what is wrong has no place in it.
fn read_whole<T: DeserializeOwned>(document: &mut Document<'_>, errors: &mut Vec<ConfigError>) -> Option<T> {
    let mut removed: BTreeSet<String> = BTreeSet::new();
    while errors.len() < ERRORS_MAX {
        let error = match T::deserialize(toml::Deserializer::from(document.tree())) {
            Ok(value) => return Some(value),
            Err(error) => error,
        };
        let span = error.span().unwrap_or(0..0);
        let Some((path, is_key)) = document.find(&span) else {
            let place = document.place(&span);
            errors.push(ConfigError { place, key: None, message: error.message().to_owned() });
            return None;
        };
        let key = path.join(".");
        let because_removed = backticked(error.message())
            .first()
            .filter(|_| error.message().starts_with("missing field"))
            .is_some_and(|field| removed.contains(&document::join(&key, field)));
        if !because_removed {
            errors.push(describe(document, &span, &key, is_key, error.message()));
        }
        if !document.remove(&path) {
            return None;
        }
        removed.insert(key);
    }
    None
}

fn describe(
    document: &Document<'_>,
    span: &Range<usize>,
    key: &str,
    is_key: bool,
    message: &str,
) -> ConfigError {
    let place = document.place(span);
    let message = if message.starts_with("unknown field") {
        let line = match &place {
            Place::Spot { line, .. } => format!(" (line {line})"),
            _ => String::new(),
        };
        format!("unknown key {key}{line}, {}", suggestion(key, &backticked(message)))
    } else {
        match document.excerpt(span).filter(|_| !is_key) {
            Some(value) => format!("{key} = {value}: {message}"),
            None => format!("{key}: {message}"),
        }
    };
    ConfigError { place, key: Some(key.to_owned()), message }
}

/// Serde's messages quote names like this: unknown field `a`, expected one of `b`, `c`.
fn backticked(message: &str) -> Vec<&str> {
    message.split('`').skip(1).step_by(2).collect()
}

/// `names`: the unknown one, then the known ones.
fn suggestion(key: &str, names: &[&str]) -> String {
    let Some((unknown, known)) = names.split_first() else {
        return format!("{key} is not a setting");
    };
    // A third of the letters may be wrong: a slip of the keyboard, not another word.
    let near = |name: &str| {
        let distance = strsim::damerau_levenshtein(unknown, name);
        (distance <= (unknown.len().max(name.len()) / 3).max(1)).then_some(distance)
    };
    let nearest = known.iter().filter_map(|name| near(name).map(|distance| (distance, name))).min();
    match nearest {
        Some((_, name)) => format!("did you mean {name}?"),
        None if known.is_empty() => "no keys are known here".to_owned(),
        None => format!("known here: {}", known.join(", ")),
    }
}

/// The place of a key, or of the nearest thing around it that stands in a source.
fn place_of(places: &BTreeMap<String, Place>, key: &str) -> Option<Place> {
    let mut key = key;
    loop {
        if let Some(place) = places.get(key) {
            return Some(place.clone());
        }
        key = &key[..key.rfind(['.', '['])?];
    }
}
