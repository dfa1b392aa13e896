//! Work that really takes processor time: one process for each logon, and one for all sessions of a host.
//!
//! A burner never takes more than its share of a processor, as a logon never uses more than some cores of a host; what it
//! gets of that is up to the kernel. It is this program, started again.

use std::io::{BufRead, BufReader, Read, Write};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use rustix::time::{ClockId, clock_gettime};

/// The share is kept within each slice.
const SLICE: Duration = Duration::from_millis(20);

/// First word of a burner's command line.
pub(crate) const LOGON: &str = "burn-logon";
pub(crate) const SESSIONS: &str = "burn-sessions";

/// Runs as a burner, if this is what the command line asks for.
pub(crate) fn run(arguments: &[String]) -> bool {
    match arguments {
        [kind, work, share] if kind == LOGON => {
            // Told to begin once it is in its host's group.
            let _ = std::io::stdin().read(&mut [0]);
            burn_logon(Duration::from_secs_f64(work.parse().unwrap()), share.parse().unwrap());
            true
        }
        [kind] if kind == SESSIONS => {
            burn_sessions();
            true
        }
        _ => false,
    }
}

fn burn_logon(work: Duration, share: f64) {
    let begun = own_time();
    while let Some(left) = work.checked_sub(own_time() - begun).filter(|left| !left.is_zero()) {
        slice(SLICE.mul_f64(share).min(left));
    }
}

/// Takes the share that the newest line of its input says, until there are no more lines.
fn burn_sessions() {
    let share = Arc::new(AtomicU64::new(0));
    let told = share.clone();
    std::thread::spawn(move || {
        for line in BufReader::new(std::io::stdin()).lines().map_while(Result::ok) {
            told.store(line.parse::<f64>().unwrap().to_bits(), Ordering::Relaxed);
        }
        std::process::exit(0);
    });
    loop {
        slice(SLICE.mul_f64(f64::from_bits(share.load(Ordering::Relaxed))));
    }
}

/// Burns so much within one slice; what it did not get in time is not made up for.
fn slice(burn: Duration) {
    let (begun, until) = (Instant::now(), own_time() + burn);
    while own_time() < until {
        std::hint::spin_loop();
    }
    std::thread::sleep(SLICE.saturating_sub(begun.elapsed()));
}

/// Processor time of this thread.
fn own_time() -> Duration {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    Duration::new(u64::try_from(time.tv_sec).unwrap(), u32::try_from(time.tv_nsec).unwrap())
}

/// A burner process. It ends with its input, and so with this program.
#[derive(Debug)]
pub(crate) struct Burner {
    child: Child,
    input: ChildStdin,
}

impl Burner {
    pub(crate) fn start(arguments: &[String]) -> Self {
        let mut command = Command::new(std::env::current_exe().unwrap());
        command.args(arguments).stdin(Stdio::piped()).stdout(Stdio::null());
        let mut child = command.spawn().unwrap();
        let input = child.stdin.take().unwrap();
        Self { child, input }
    }

    pub(crate) fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Says a line to it.
    pub(crate) fn say(&mut self, line: &str) {
        // One that has ended needs no more telling.
        let _ = writeln!(self.input, "{line}");
    }

    pub(crate) fn has_ended(&mut self) -> bool {
        self.child.try_wait().unwrap().is_some()
    }
}

impl Drop for Burner {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
