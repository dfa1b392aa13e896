//! How much of the memory in use would ZFS give back?
//!
//! The cache of ZFS lies outside the page cache, so the kernel's `MemAvailable` leaves it out and a file server with
//! ZFS looks full for good. ZFS shrinks it down to a floor when programs need memory; what lies above the floor is
//! available to them.

use std::path::Path;

use super::error::SampleError;
use super::source::read_optional_text;

const SUBJECT: &str = "/proc/spl/kstat/zfs/arcstats";

/// Reads the text of `arcstats`: bytes of the cache above its floor.
///
/// # Errors
/// When it does not tell the size or the floor.
pub fn parse(text: &str) -> Result<u64, SampleError> {
    let value = |key: &str| {
        let line = text.lines().find(|line| line.split_ascii_whitespace().next() == Some(key));
        // Each line is a name, a type and the value.
        let value = line.and_then(|line| line.split_ascii_whitespace().nth(2)?.parse::<u64>().ok());
        value.ok_or_else(|| SampleError::malformed(SUBJECT, format!("no {key}")))
    };
    Ok(value("size")?.saturating_sub(value("c_min")?))
}

/// [`parse`] of the file below `root`; absent without ZFS.
///
/// # Errors
/// As there, and when the file is there and cannot be read.
pub fn read(root: &Path) -> Result<Option<u64>, SampleError> {
    read_optional_text(root, "proc/spl/kstat/zfs/arcstats")?.map(|text| parse(&text)).transpose()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sample::test_tree::tree;
    use proptest::prelude::*;

    const TEXT: &str = "13 1 0x01 123 33456 8269 97\nname                            type data\n\
                        hits                            4    99\nc_min                           4    1000\n\
                        size                            4    5000\n";

    #[test]
    fn what_lies_above_the_floor_can_be_given_back() {
        assert_eq!(parse(TEXT).unwrap(), 4000);
        assert_eq!(parse("size 4 10\nc_min 4 20\n").unwrap(), 0);
    }

    #[test]
    fn without_zfs_there_is_nothing_and_a_bad_text_is_an_error() {
        assert_eq!(read(tree(&[]).path()).unwrap(), None);
        for bad in ["", "size 4 x\nc_min 4 1", "size 4 1", "size 4 -1\nc_min 4 1"] {
            assert!(parse(bad).is_err(), "{bad}");
        }
    }

    proptest! {
        #[test]
        fn any_text_is_read_or_refused(text in "((size|c_min| |4|[0-9]{1,21}|\n){0,20})") {
            let _ = parse(&text);
        }
    }
}
