//! Where does a file go that is not used and may not be lost?
//!
//! Beside where it was, under a name of its own, for people to look at. No file that is there already is written over: two
//! may be moved in one millisecond, and a wall clock may be set back. Whoever moves files here is alone in the folder.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

/// Names that are tried: more files of one name are not an accident.
const NAMES: u32 = 1000;

/// Moves `path` to its own name with `.ending`, or with `.ending.2` and so on if that is taken. Where to.
///
/// # Errors
/// [`io::ErrorKind::NotFound`] without a file, [`io::ErrorKind::AlreadyExists`] if a thousand names are taken, or what the
/// file system says.
pub fn move_aside(path: &Path, ending: &str) -> io::Result<PathBuf> {
    for number in 1..=NAMES {
        let mut name = path.as_os_str().to_owned();
        name.push(format!(".{ending}"));
        if number > 1 {
            name.push(format!(".{number}"));
        }
        let aside = PathBuf::from(name);
        match fs::symlink_metadata(&aside) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                fs::rename(path, &aside)?;
                return Ok(aside);
            }
            Err(error) => return Err(error),
            Ok(_) => {}
        }
    }
    Err(io::Error::new(
        io::ErrorKind::AlreadyExists,
        format!("{NAMES} names that end in .{ending} are taken"),
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_moved_under_one_name_are_all_kept_and_one_that_is_not_there_is_said() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("store");
        let mut aside = Vec::new();
        for content in ["first", "second", "third"] {
            fs::write(&path, content).unwrap();
            aside.push(move_aside(&path, "damaged-now").unwrap());
        }
        let kept: Vec<String> = aside.iter().map(|path| fs::read_to_string(path).unwrap()).collect();
        assert_eq!(kept, ["first", "second", "third"]);
        assert_eq!(aside[1], folder.path().join("store.damaged-now.2"));
        assert_eq!(move_aside(&path, "damaged-now").unwrap_err().kind(), io::ErrorKind::NotFound);
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 3);
    }
}
