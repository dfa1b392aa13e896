//! A file in which sshd can write down who is logged in.

use std::path::Path;

/// Where programs look for it.
const PATH: &str = "/run/utmp";
/// Where the machine's own file waits for the end of the test.
const ASIDE: &str = "/run/utmp.before-usher-test";

/// Bytes of a record, and where its time stands: arm64 has wider fields than the other architectures.
const LAYOUT: (usize, usize) = if cfg!(target_arch = "aarch64") { (400, 344) } else { (384, 340) };
/// Type of the record that says when the system came up.
const BOOT_TIME: i16 = 2;

/// A file with nobody in it, in the place of the machine's own until it is dropped. A container has none, and a
/// person's machine may have the person in it.
#[derive(Debug)]
pub struct UtmpFile(());

impl UtmpFile {
    /// Puts it there.
    ///
    /// # Panics
    /// If this user may not.
    #[expect(
        clippy::new_without_default,
        reason = "it changes the machine, which nobody expects of a default"
    )]
    pub fn new() -> Self {
        // With a file aside, the one in its place was left by a test that was killed.
        if Path::new(PATH).exists() && !Path::new(ASIDE).exists() {
            std::fs::rename(PATH, ASIDE).unwrap();
        }
        std::fs::write(PATH, boot_record()).unwrap();
        Self(())
    }
}

impl Drop for UtmpFile {
    fn drop(&mut self) {
        let restored =
            if Path::new(ASIDE).exists() { std::fs::rename(ASIDE, PATH) } else { std::fs::remove_file(PATH) };
        if let Err(error) = restored {
            eprintln!("{PATH} is not as it was before: {error}");
        }
    }
}

/// What a system writes first: a file without any record says nothing about users.
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
