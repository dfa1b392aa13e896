//! Which number has an account?
//!
//! utmp and programs name their users and do not number them. The file `/etc/passwd` does, for accounts of this machine
//! alone, which is enough: those of services are made by its packages. An account that is not there belongs to a
//! person.

use std::collections::BTreeMap;
use std::path::Path;

use super::error::SampleError;
use super::source::read_text;

/// Numbers by login name.
pub type Accounts = BTreeMap<String, u32>;

/// Reads the text of `/etc/passwd`. A line that is not understood names nobody.
#[must_use]
pub fn parse(text: &str) -> Accounts {
    text.lines()
        .filter_map(|line| {
            let mut fields = line.split(':');
            let name = fields.next().filter(|name| !name.is_empty())?;
            Some((name.to_owned(), fields.nth(1)?.parse().ok()?))
        })
        .collect()
}

/// [`parse`] of the file below `root`.
///
/// # Errors
/// When it cannot be read.
pub fn read(root: &Path) -> Result<Accounts, SampleError> {
    Ok(parse(&read_text(root, "etc/passwd")?))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn accounts_have_the_numbers_of_the_file() {
        let text =
            "root:x:0:0:root:/root:/bin/bash\n# x\n+::::::\ngit:x:998:998::/:/bin/sh\nbad:x:-1:0\nbad:x\n";
        assert_eq!(parse(text), Accounts::from([("root".into(), 0), ("git".into(), 998)]));
        assert_eq!(read(Path::new("/")).unwrap().get("root"), Some(&0));
    }

    proptest! {
        #[test]
        fn any_text_is_read(text in "([a-z:0-9\n#+-]|.){0,80}") {
            let _ = parse(&text);
        }
    }
}
