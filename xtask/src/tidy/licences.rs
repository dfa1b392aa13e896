//! May every package of Cargo.lock be linked into usher and given away with it?
//!
//! deny.toml says what is allowed. A licence is an SPDX expression: of `A OR B` one must be allowed, of
//! `A AND B` both. The old spelling `A/B` means OR.

use super::Finding;
use super::tree::{Package, Tree};

/// The only registry; a package from elsewhere is not covered by Cargo.lock's checksums.
const REGISTRY: &str = "registry+";

pub(super) fn check(tree: &Tree) -> Vec<Finding> {
    let mut findings = Vec::new();
    for package in &tree.packages {
        findings.extend(judge(tree, package).map(|message| Finding::error(&package.name, message)));
    }
    findings
}

fn judge(tree: &Tree, package: &Package) -> impl Iterator<Item = String> {
    let licence = match package.licence.as_deref().map(|licence| (licence, Expression::of(licence, tree))) {
        None => Some("states no licence".to_owned()),
        Some((licence, None)) => Some(format!("its licence is not an SPDX expression: {licence}")),
        Some((licence, Some(false))) => Some(format!("its licence is not allowed by deny.toml: {licence}")),
        Some((_, Some(true))) => None,
    };
    let ban = tree.deny.banned.iter().find(|(name, _)| *name == package.name);
    let ban = ban.map(|(_, reason)| format!("is banned by deny.toml: {reason}"));
    let source = package.source.as_ref().filter(|source| !source.starts_with(REGISTRY));
    let source = source.map(|source| format!("comes from {source}, not from the registry"));
    [licence, ban, source].into_iter().flatten()
}

/// An SPDX expression being judged: `AND` binds closer than `OR`.
struct Expression<'text> {
    tokens: Vec<&'text str>,
    at: usize,
    allowed: &'text [String],
}

impl<'text> Expression<'text> {
    /// Whether the expression is allowed; none when it is malformed.
    fn of(text: &'text str, tree: &'text Tree) -> Option<bool> {
        let mut expression = Self { tokens: tokens(text), at: 0, allowed: &tree.deny.allowed_licences };
        let verdict = expression.any()?;
        (expression.at == expression.tokens.len()).then_some(verdict)
    }

    fn any(&mut self) -> Option<bool> {
        let mut verdict = self.all()?;
        while self.take(&["OR", "/"]) {
            // Both sides are read in any case: the text behind must be understood too.
            let other = self.all()?;
            verdict = verdict || other;
        }
        Some(verdict)
    }

    fn all(&mut self) -> Option<bool> {
        let mut verdict = self.one()?;
        while self.take(&["AND"]) {
            let other = self.one()?;
            verdict = verdict && other;
        }
        Some(verdict)
    }

    fn one(&mut self) -> Option<bool> {
        if self.take(&["("]) {
            let verdict = self.any()?;
            return self.take(&[")"]).then_some(verdict);
        }
        let mut licence = self.name()?.to_owned();
        if self.take(&["WITH"]) {
            licence = format!("{licence} WITH {}", self.name()?);
        }
        Some(self.allowed.contains(&licence))
    }

    fn name(&mut self) -> Option<&'text str> {
        let name = *self.tokens.get(self.at)?;
        self.at += 1;
        (!["OR", "AND", "WITH", "/", "(", ")"].contains(&name)).then_some(name)
    }

    fn take(&mut self, wanted: &[&str]) -> bool {
        let there = self.tokens.get(self.at).is_some_and(|token| wanted.contains(token));
        self.at += usize::from(there);
        there
    }
}

fn tokens(text: &str) -> Vec<&str> {
    let mut tokens = Vec::new();
    for word in text.split_whitespace() {
        let mut rest = word;
        while let Some(at) = rest.find(['(', ')', '/']) {
            tokens.extend([&rest[..at], &rest[at..=at]].into_iter().filter(|token| !token.is_empty()));
            rest = &rest[at + 1..];
        }
        tokens.extend(Some(rest).filter(|token| !token.is_empty()));
    }
    tokens
}

#[cfg(test)]
mod tests {
    use super::super::tree::Deny;
    use super::super::tree::build::{package, packages};
    use super::*;

    fn tree(packages_of_it: Vec<Package>) -> Tree {
        let mut tree = packages(packages_of_it);
        tree.deny = Deny {
            allowed_licences: ["MIT", "ISC", "Apache-2.0 WITH LLVM-exception"].map(str::to_owned).into(),
            banned: vec![("openssl".into(), "TLS is rustls".into())],
        };
        tree
    }

    fn verdict(expression: &str) -> Option<bool> {
        Expression::of(expression, &tree(Vec::new()))
    }

    #[test]
    fn one_allowed_side_of_an_or_is_enough_and_an_and_needs_both() {
        for allowed in ["MIT", "GPL-3.0 OR MIT", "GPL-3.0/MIT", "GPL-3.0 / ISC", "MIT AND (ISC OR GPL-3.0)"] {
            assert_eq!(verdict(allowed), Some(true), "{allowed}");
        }
        for refused in
            ["GPL-3.0", "MIT AND GPL-3.0", "GPL-3.0 OR MIT AND GPL-2.0", "(MIT OR ISC) AND GPL-3.0"]
        {
            assert_eq!(verdict(refused), Some(false), "{refused}");
        }
    }

    #[test]
    fn an_exception_is_part_of_the_licence() {
        assert_eq!(verdict("Apache-2.0 WITH LLVM-exception"), Some(true));
        assert_eq!(verdict("Apache-2.0"), Some(false));
        assert_eq!(verdict("MIT WITH LLVM-exception"), Some(false));
    }

    #[test]
    fn a_malformed_expression_is_not_allowed() {
        for malformed in ["", "MIT OR", "(MIT", "MIT ISC", "AND MIT", "MIT)", "MIT WITH"] {
            assert_eq!(verdict(malformed), None, "{malformed}");
        }
    }

    #[test]
    fn a_package_is_judged_by_licence_name_and_source() {
        let with = |name: &str, licence: Option<&str>, source: Option<&str>| Package {
            licence: licence.map(str::to_owned),
            source: source.map(str::to_owned),
            ..package(name, &[])
        };
        let findings = check(&tree(vec![
            with("fine", Some("MIT"), Some("registry+somewhere")),
            with("silent", None, None),
            with("copyleft", Some("GPL-3.0"), None),
            with("openssl", Some("MIT"), None),
            with("fork", Some("MIT"), Some("git+https://example.org/fork")),
        ]));
        let found: Vec<String> = findings.iter().map(ToString::to_string).collect();
        let expected = [
            "error: silent: states no licence",
            "error: copyleft: its licence is not allowed by deny.toml: GPL-3.0",
            "error: openssl: is banned by deny.toml: TLS is rustls",
            "error: fork: comes from git+https://example.org/fork, not from the registry",
        ];
        assert_eq!(found, expected);
    }
}
