//! For how much of the time did all work wait?
//!
//! The kernel measures for CPU, memory and disk how long every task that wanted to run stood still (`full`, mean of the
//! last 10 s). A host can be in that state at any CPU use, so it is the sign that a percentage of CPU is not. The
//! highest of the three counts: any of them is enough to stop everybody.
//!
//! Kernels before 4.20 do not measure it, others can be told not to, and the line for the CPU came only with 5.13. What
//! the kernel does not measure is absent and no failure; what it measures and cannot be read is one.

use std::io;
use std::path::Path;

use super::error::SampleError;
use super::source::read_text;

const SOURCES: [(&str, &str); 3] = [
    ("proc/pressure/cpu", "/proc/pressure/cpu"),
    ("proc/pressure/memory", "/proc/pressure/memory"),
    ("proc/pressure/io", "/proc/pressure/io"),
];

/// Reads the text of one file of `/proc/pressure`, named `subject`: the `full` mean of the last 10 s, percent, 0..=100.
/// Absent if it has no such line.
///
/// # Errors
/// When the line has no such number.
pub fn parse(subject: &'static str, text: &str) -> Result<Option<f64>, SampleError> {
    let Some(line) = text.lines().find_map(|line| line.strip_prefix("full ")) else { return Ok(None) };
    let value = line.split_ascii_whitespace().find_map(|field| field.strip_prefix("avg10="));
    let percent = value.and_then(|value| value.parse().ok()).filter(|value| (0.0..=100.0).contains(value));
    percent
        .map(Some)
        .ok_or_else(|| SampleError::malformed(subject, "line of full has no avg10 within 0..=100"))
}

/// The highest of CPU, memory and disk, from the files below `root`. Absent if the kernel measures none of them.
///
/// # Errors
/// As [`parse`], and when a file is there and cannot be read.
pub fn read(root: &Path) -> Result<Option<f64>, SampleError> {
    let mut highest: Option<f64> = None;
    for (file, subject) in SOURCES {
        let text = match read_text(root, file) {
            Err(SampleError::Read { source, .. }) if is_not_measured(&source) => continue,
            text => text?,
        };
        let percent = parse(subject, &text)?;
        highest = percent.into_iter().chain(highest).reduce(f64::max);
    }
    Ok(highest)
}

/// Without the feature there is no file; with the feature turned off at boot it cannot be opened.
fn is_not_measured(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::Unsupported)
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    fn read_files(files: &[(&str, &str)]) -> Result<Option<f64>, SampleError> {
        let root = tempfile::tempdir().unwrap();
        fs::create_dir_all(root.path().join("proc/pressure")).unwrap();
        for (name, text) in files {
            fs::write(root.path().join("proc/pressure").join(name), text).unwrap();
        }
        read(root.path())
    }

    fn text(full: &str) -> String {
        format!(
            "some avg10=99.00 avg60=9.00 avg300=9.00 total=9\nfull avg10={full} avg60=1.00 avg300=1.00 total=1\n"
        )
    }

    #[test]
    fn the_highest_of_the_three_counts() {
        let (memory, io) = (text("12.50"), text("60.07"));
        let files = [("cpu", "some avg10=99.00 total=9\n"), ("memory", memory.as_str()), ("io", io.as_str())];
        assert_eq!(read_files(&files).unwrap(), Some(60.07));
        assert_eq!(read_files(&files[..2]).unwrap(), Some(12.5));
    }

    #[test]
    fn what_the_kernel_does_not_measure_is_absent_and_no_failure() {
        assert_eq!(read_files(&[]).unwrap(), None);
        assert_eq!(read_files(&[("cpu", "some avg10=99.00 total=9\n")]).unwrap(), None);
        assert!(is_not_measured(&io::Error::from_raw_os_error(rustix::io::Errno::OPNOTSUPP.raw_os_error())));
    }

    #[test]
    fn a_line_that_cannot_be_believed_is_a_failure_that_names_its_file() {
        for bad in ["", "x", "nan", "-1", "100.5", "inf"] {
            let io = text(bad);
            let error = read_files(&[("io", &io)]).unwrap_err().to_string();
            assert!(error.starts_with("/proc/pressure/io: "), "{error}");
        }
    }

    #[test]
    fn this_machine_can_be_read() {
        read(Path::new("/")).unwrap();
    }
}
