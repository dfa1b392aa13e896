//! Where in its sources does each key stand?
//!
//! The file, the environment and the flags become one tree before anything is read from it, and every
//! node of that tree keeps a span. Spans inside the file's text are the file's; the ones behind its end
//! are numbers of overrides. So whatever the deserializer complains about, its span alone says which
//! source to name, and the same tree answers where the value of a key came from.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::ops::Range;
use std::path::{Path, PathBuf};

use toml::Spanned;
use toml::de::{DeTable, DeValue};

use super::error::Place;

/// One step of a key's path. Elements of lists are written `name[3]`.
pub(super) type KeyPath = Vec<String>;

/// A value from outside the file. `text` is TOML.
#[derive(Clone, Debug)]
pub(super) struct Override {
    pub(super) key: String,
    pub(super) text: String,
    pub(super) place: Place,
}

/// All sources as one tree.
#[derive(Debug)]
pub(super) struct Document<'i> {
    path: PathBuf,
    text: &'i str,
    overrides: &'i [Override],
    root: Spanned<DeTable<'i>>,
}

impl<'i> Document<'i> {
    /// Parses the file's text and lays the overrides over it, the later ones on top.
    ///
    /// # Errors
    /// Place and message of the first error of syntax.
    pub(super) fn parse(
        path: &Path,
        text: &'i str,
        overrides: &'i [Override],
    ) -> Result<Self, (Place, String)> {
        let spot = |span: Option<Range<usize>>| spot_in(path, text, span.map_or(0, |span| span.start));
        let root = DeTable::parse(text).map_err(|error| (spot(error.span()), error.message().to_owned()))?;
        let mut document = Self { path: path.to_owned(), text, overrides, root };
        for (index, given) in overrides.iter().enumerate() {
            let value = DeValue::parse(&given.text)
                .map_err(|error| (given.place.clone(), error.message().to_owned()))?;
            let start = text.len() + 1 + index;
            let span = start..start + 1;
            let keys: Vec<&str> = given.key.split('.').collect();
            insert(document.root.get_mut(), &keys, respan(value.into_inner(), &span), &span);
        }
        Ok(document)
    }

    /// The tree, for the deserializer.
    pub(super) fn tree(&self) -> Spanned<DeTable<'i>> {
        self.root.clone()
    }

    /// Which source a span belongs to.
    pub(super) fn place(&self, span: &Range<usize>) -> Place {
        if span.start <= self.text.len() {
            return spot_in(&self.path, self.text, span.start);
        }
        match self.overrides.get(span.start - self.text.len() - 1) {
            Some(given) => given.place.clone(),
            None => Place::Default,
        }
    }

    /// The source text under a span, its first line, at most 60 characters.
    pub(super) fn excerpt(&self, span: &Range<usize>) -> Option<String> {
        let text = if span.start <= self.text.len() {
            self.text.get(span.clone())?
        } else {
            &self.overrides.get(span.start - self.text.len() - 1)?.text
        };
        let line = text.lines().next()?;
        Some(if line.chars().count() > 60 {
            line.chars().take(57).chain("...".chars()).collect()
        } else {
            line.to_owned()
        })
    }

    /// The path of the key or value with exactly this span, and whether the key itself was meant.
    pub(super) fn find(&self, span: &Range<usize>) -> Option<(KeyPath, bool)> {
        let mut path = Vec::new();
        find_in_table(self.root.get_ref(), span, &mut path).map(|is_key| (path, is_key))
    }

    /// Takes a key out. Of a list's element the whole list goes, as the rest has no meaning without it.
    /// Returns whether anything was there.
    pub(super) fn remove(&mut self, path: &[String]) -> bool {
        let mut table = self.root.get_mut();
        for (index, step) in path.iter().enumerate() {
            let name = step.split('[').next().unwrap_or(step);
            if index + 1 == path.len() || name.len() != step.len() {
                return table.remove(name).is_some() || table.remove(step.as_str()).is_some();
            }
            match table.get_mut(name).map(Spanned::get_mut) {
                Some(DeValue::Table(inner)) => table = inner,
                _ => return false,
            }
        }
        false
    }

    /// Takes the list at a dotted key out, if one is there, and returns its span.
    pub(super) fn take_list(&mut self, key: &str) -> Option<Range<usize>> {
        let mut table = self.root.get_mut();
        let mut steps = key.split('.').peekable();
        while let Some(step) = steps.next() {
            if steps.peek().is_none() {
                let list = table.get(step).filter(|value| value.get_ref().is_array())?;
                let span = list.span();
                table.remove(step);
                return Some(span);
            }
            match table.get_mut(step).map(Spanned::get_mut) {
                Some(DeValue::Table(inner)) => table = inner,
                _ => return None,
            }
        }
        None
    }

    /// Every key's path with the place of its value, tables and lists included.
    pub(super) fn places(&self) -> BTreeMap<String, Place> {
        let mut found = BTreeMap::new();
        self.collect(self.root.get_ref(), "", &mut found);
        found
    }

    fn collect(&self, table: &DeTable<'_>, prefix: &str, found: &mut BTreeMap<String, Place>) {
        for (key, value) in table {
            let path = join(prefix, key.get_ref());
            found.insert(path.clone(), self.place(&key.span()));
            match value.get_ref() {
                DeValue::Table(inner) => self.collect(inner, &path, found),
                DeValue::Array(items) => {
                    for (index, item) in items.iter().enumerate() {
                        let path = format!("{path}[{index}]");
                        found.insert(path.clone(), self.place(&item.span()));
                        if let DeValue::Table(inner) = item.get_ref() {
                            self.collect(inner, &path, found);
                        }
                    }
                }
                _ => {}
            }
        }
    }
}

/// `prefix.key`.
pub(super) fn join(prefix: &str, key: &str) -> String {
    if prefix.is_empty() { key.to_owned() } else { format!("{prefix}.{key}") }
}

fn spot_in(path: &Path, text: &str, offset: usize) -> Place {
    let before = text.get(..offset.min(text.len())).unwrap_or(text);
    let line_start = before.rfind('\n').map_or(0, |newline| newline + 1);
    Place::Spot {
        path: path.to_owned(),
        line: before.matches('\n').count() + 1,
        column: before[line_start..].chars().count() + 1,
    }
}

fn insert<'i>(table: &mut DeTable<'i>, keys: &[&str], value: DeValue<'i>, span: &Range<usize>) {
    let Some((first, rest)) = keys.split_first() else { return };
    let key = || Spanned::new(span.clone(), Cow::Owned((*first).to_owned()));
    if rest.is_empty() {
        // Taken out first: inserting over a key would keep the old key with its old span.
        table.remove(*first);
        table.insert(key(), Spanned::new(span.clone(), value));
        return;
    }
    let inner =
        table.entry(key()).or_insert_with(|| Spanned::new(span.clone(), DeValue::Table(DeTable::new())));
    // Where the file has no table, its own mistake is what must be reported.
    if let DeValue::Table(inner) = inner.get_mut() {
        insert(inner, rest, value, span);
    }
}

fn respan<'i>(value: DeValue<'i>, span: &Range<usize>) -> DeValue<'i> {
    match value {
        DeValue::Table(table) => {
            let moved = table.into_iter().map(|(key, value)| {
                let value = respan(value.into_inner(), span);
                (Spanned::new(span.clone(), key.into_inner()), Spanned::new(span.clone(), value))
            });
            DeValue::Table(moved.collect())
        }
        DeValue::Array(mut items) => {
            for item in items.iter_mut() {
                let value = std::mem::replace(item.get_mut(), DeValue::Boolean(false));
                *item = Spanned::new(span.clone(), respan(value, span));
            }
            DeValue::Array(items)
        }
        plain => plain,
    }
}

fn find_in_table(table: &DeTable<'_>, span: &Range<usize>, path: &mut KeyPath) -> Option<bool> {
    for (key, value) in table {
        path.push(key.get_ref().to_string());
        if let Some(is_key) = find_in_value(value, span, path) {
            return Some(is_key);
        }
        if key.span() == *span {
            return Some(value.span() != *span);
        }
        path.pop();
    }
    None
}

/// The innermost first: in an override all nodes have the same span.
fn find_in_value(value: &Spanned<DeValue<'_>>, span: &Range<usize>, path: &mut KeyPath) -> Option<bool> {
    match value.get_ref() {
        DeValue::Table(inner) => {
            if let Some(is_key) = find_in_table(inner, span, path) {
                return Some(is_key);
            }
        }
        DeValue::Array(items) => {
            for (index, item) in items.iter().enumerate() {
                let name = path.pop().unwrap_or_default();
                path.push(format!("{name}[{index}]"));
                if let Some(is_key) = find_in_value(item, span, path) {
                    return Some(is_key);
                }
                path.pop();
                path.push(name);
            }
        }
        _ => {}
    }
    (value.span() == *span).then_some(false)
}
