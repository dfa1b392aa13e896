//! A file in which sshd can write down who is logged in.

use std::path::Path;

use anyhow::Context;

/// Where programs write it.
const PATH: &str = "/run/utmp";
/// Where the machine's own file waits for the end of the test.
const ASIDE: &str = "/run/utmp.before-usher-test";

/// Bytes of a record, and where its time stands: arm64 has wider fields than the other architectures.
const LAYOUT: (usize, usize) = if cfg!(target_arch = "aarch64") { (400, 344) } else { (384, 340) };
/// Type of a record that says when the system came up.
const BOOT_TIME: i16 = 2;

/// A file with nobody in it, in the place of the machine's own until it is dropped. A container has none, and a
/// person's machine may have the person in it.
#[derive(Debug)]
pub struct UtmpFile(());

impl UtmpFile {
    /// Puts it there.
    ///
    /// # Errors
    /// When this user may not.
    pub fn replace() -> anyhow::Result<Self> {
        // Left behind by a test that was killed: then what is in its place is that test's.
        if Path::new(PATH).exists() && !Path::new(ASIDE).exists() {
            std::fs::rename(PATH, ASIDE).with_context(|| format!("putting {PATH} aside"))?;
        }
        std::fs::write(PATH, boot_record()).with_context(|| format!("making {PATH}"))?;
        Ok(Self(()))
    }
}

impl Drop for UtmpFile {
    fn drop(&mut self) {
        // A failure is seen by the next test that wants a file here.
        let _ = if Path::new(ASIDE).exists() {
            std::fs::rename(ASIDE, PATH)
        } else {
            std::fs::remove_file(PATH)
        };
    }
}

/// What a system writes first: without any record the file would say nothing about users.
fn boot_record() -> Vec<u8> {
    let (bytes, time_at) = LAYOUT;
    let mut record = vec![0; bytes];
    let fields: [(usize, &[u8]); 5] = [
        (0, &BOOT_TIME.to_ne_bytes()),
        (8, b"~"),
        (40, b"~~"),
        (44, b"reboot"),
        (time_at, &1_700_000_000_i32.to_ne_bytes()),
    ];
    for (at, field) in fields {
        record[at..at + field.len()].copy_from_slice(field);
    }
    record
}
