//! What is the id of a resource that was found at a path?
//!
//! Copies of one resource must have one id on every host, wherever the disks are mounted. By default it is the path below
//! the pattern's root. A rule of text and placeholders makes it of parts of the path instead: `mail/{stem}`. A match that
//! lacks a part that the rule names has no id, and is reported: a guessed one would send users to the wrong copy.

use std::path::Path;

/// A rule.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct IdRule(Vec<Part>);

#[derive(Debug, Clone, PartialEq, Eq)]
enum Part {
    Text(String),
    /// The path below the root.
    Path,
    /// The last name.
    Name,
    /// The last name without its last extension.
    Stem,
    /// The name of the folder that it is in.
    Parent,
    /// One of the names of the path below the root, the first is 1.
    Nth(usize),
}

impl IdRule {
    /// Reads a rule.
    ///
    /// # Errors
    /// What is wrong and what is allowed.
    pub(super) fn parse(text: &str) -> Result<Self, String> {
        let mut parts = Vec::new();
        let mut rest = text;
        while let Some(at) = rest.find(['{', '}']) {
            let (before, placeholder) = rest.split_at(at);
            let inner = placeholder.strip_prefix('{').ok_or("a `}` without its `{`")?;
            let (name, after) = inner.split_once('}').ok_or("a `{` without its `}`")?;
            if !before.is_empty() {
                parts.push(Part::Text(before.to_owned()));
            }
            parts.push(placeholder_of(name)?);
            rest = after;
        }
        if parts.iter().all(|part| matches!(part, Part::Text(_))) {
            return Err("it has no placeholder, so all that is found would have one id".to_owned());
        }
        if !rest.is_empty() {
            parts.push(Part::Text(rest.to_owned()));
        }
        Ok(Self(parts))
    }

    /// The id of what was found at `full`, which is `relative` below the pattern's root. Absent: it lacks a part that the
    /// rule names.
    pub(super) fn apply(&self, relative: &str, full: &str) -> Option<String> {
        let mut id = String::with_capacity(relative.len());
        for part in &self.0 {
            id.push_str(match part {
                Part::Text(text) => text,
                Part::Path => relative,
                Part::Name => relative.rsplit('/').next()?,
                Part::Stem => Path::new(relative).file_stem()?.to_str()?,
                Part::Parent => Path::new(full).parent()?.file_name()?.to_str()?,
                Part::Nth(number) => relative.split('/').nth(number.checked_sub(1)?)?,
            });
        }
        id.shrink_to_fit();
        Some(id)
    }
}

fn placeholder_of(name: &str) -> Result<Part, String> {
    match name {
        "path" => Ok(Part::Path),
        "name" => Ok(Part::Name),
        "stem" => Ok(Part::Stem),
        "parent" => Ok(Part::Parent),
        "1" | "2" | "3" | "4" | "5" | "6" | "7" | "8" | "9" => {
            Ok(Part::Nth(name.parse().map_err(|_| "no number")?))
        }
        other => {
            Err(format!("`{{{other}}}` is none of {{path}}, {{name}}, {{stem}}, {{parent}}, {{1}} to {{9}}"))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn id(rule: &str, relative: &str) -> Option<String> {
        IdRule::parse(rule).unwrap().apply(relative, &format!("/srv/data/{relative}"))
    }

    #[test]
    fn an_id_is_made_of_the_parts_of_a_path_that_the_rule_names() {
        for (rule, expected) in [
            ("{path}", "mail/a/crm.v2.nsf"),
            ("{name}", "crm.v2.nsf"),
            ("{stem}", "crm.v2"),
            ("{parent}/{stem}", "a/crm.v2"),
            ("{1}:{2}", "mail:a"),
            ("db-{stem}!", "db-crm.v2!"),
        ] {
            assert_eq!(id(rule, "mail/a/crm.v2.nsf").as_deref(), Some(expected), "{rule}");
        }
        assert_eq!(id("{parent}", "crm").as_deref(), Some("data"), "the root's own name");
        assert_eq!(id("{stem}", ".hidden").as_deref(), Some(".hidden"));
    }

    #[test]
    fn a_path_that_lacks_a_part_has_no_id() {
        assert_eq!(id("{2}", "crm.nsf"), None);
        assert_eq!(IdRule::parse("{parent}").unwrap().apply("crm", "/crm"), None, "the root has no name");
    }

    #[test]
    fn a_rule_that_cannot_mean_anything_is_refused_with_what_is_allowed() {
        for (rule, why) in [
            ("", "no placeholder"),
            ("crm", "no placeholder"),
            ("{stem", "without its `}`"),
            ("stem}", "without its `{`"),
            ("{}", "`{}` is none of {path}"),
            ("{Stem}", "`{Stem}` is none of"),
            ("{0}", "{1} to {9}"),
            ("{10}", "none of"),
            ("{{stem}}", "none of"),
        ] {
            let error = IdRule::parse(rule).unwrap_err();
            assert!(error.contains(why), "{rule}: {error}");
        }
    }
}
