//! Is it so yet?

use std::fmt::Display;
use std::time::{Duration, Instant};

/// Longest wait for what takes a moment: far above what any of it takes on a machine that is busy with other things.
pub const LONG: Duration = Duration::from_secs(30);

/// Between two looks: short beside every interval of the tests, long beside the cost of a call.
const BETWEEN_LOOKS: Duration = Duration::from_millis(20);

/// Looks until there is a value, and returns it. An error of `look` says what was seen instead.
///
/// # Panics
/// If there is none `within` the time, with `what` was waited for and what was seen last.
#[track_caller]
pub fn wait_for<T, E: Display, F: AsyncFnMut() -> Result<T, E>>(
    what: &str,
    within: Duration,
    mut look: F,
) -> impl Future<Output = T> {
    let caller = std::panic::Location::caller();
    async move {
        let started = Instant::now();
        let mut seen = "nothing: the first look did not end".to_owned();
        let looking = async {
            loop {
                match look().await {
                    Ok(value) => return value,
                    Err(error) => seen = error.to_string(),
                }
                tokio::time::sleep(BETWEEN_LOOKS).await;
            }
        };
        let found = tokio::time::timeout(within, looking).await;
        found.unwrap_or_else(|_| {
            let waited = started.elapsed().as_secs_f64();
            panic!("{caller}: waited {waited:.1} s for {what}; last seen: {seen}")
        })
    }
}

/// Looks until it holds.
///
/// # Panics
/// If it does not `within` the time.
#[track_caller]
pub fn wait_until<F: AsyncFnMut() -> bool>(
    what: &str,
    within: Duration,
    mut holds: F,
) -> impl Future<Output = ()> {
    wait_for(what, within, async move || if holds().await { Ok(()) } else { Err("it does not hold") })
}
