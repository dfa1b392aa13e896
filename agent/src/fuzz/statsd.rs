//! Lines of timings, as any program of the host may send them.

use std::time::Duration;

use super::{Seen, Target};
use crate::latency::listener::MAX_DATAGRAM_BYTES;
use crate::latency::statsd::{DatagramCounts, Timing, Word, is_name, parse_datagram};

const DAY: Duration = Duration::from_secs(86_400);

pub(super) fn statsd() -> Target {
    let corpus: [&[u8]; 6] = [
        b"open_db:12.5|ms\n",
        b"open_db:12|ms|@0.1|#env:prod,outcome:ok\nlogin:350|ms|#outcome:failed\n\r\n",
        b"open_db.in_flight:3|g|#oldest_ms:1500\nopen_db.in_flight:0|g",
        b"a:0|ms\na:0.000|ms\na.b-c_d:99999|ms|@0.000001",
        b"hits:1|c\nopen_db:NaN|ms\nopen_db:1|ms\nx y:1|ms\nq:1|ms|@2\nq:1|ms|#outcome:maybe\nq",
        b"",
    ];
    Target {
        name: "statsd",
        corpus: corpus.map(<[u8]>::to_vec).to_vec(),
        words: &[
            b":",
            b"|",
            b"|ms",
            b"|g",
            b"|c",
            b"|@",
            b"|#",
            b",",
            b"outcome:",
            b"failed",
            b"oldest_ms:",
            b".in_flight",
            b"@0.5",
            b"\n",
            b"\r",
            b".",
        ],
        most_bytes: MAX_DATAGRAM_BYTES,
        feed: Box::new(feed),
    }
}

/// The lines of a datagram that say anything.
fn lines(datagram: &[u8]) -> impl Iterator<Item = &[u8]> {
    let lines = datagram.split(|byte| *byte == b'\n');
    lines.map(|line| line.strip_suffix(b"\r").unwrap_or(line)).filter(|line| !line.is_empty())
}

fn all(counts: &DatagramCounts) -> u64 {
    counts.accepted + counts.below_resolution + counts.rejected.iter().sum::<u64>()
}

fn feed(datagram: &[u8]) -> Seen {
    let mut words = 0;
    let counts = parse_datagram(datagram, false, |word| {
        words += 1;
        check(&word);
    });
    assert_eq!(words, counts.accepted);
    assert_eq!(all(&counts), lines(datagram).count() as u64, "each line is counted once: {counts:?}");
    // No line changes what its neighbours say.
    if datagram.len() < 4096 {
        let mut one_by_one = DatagramCounts::default();
        for line in lines(datagram) {
            let counts = parse_datagram(&[line, b"\r\n"].concat(), false, |_| ());
            assert_eq!(all(&counts), 1);
            one_by_one.accepted += counts.accepted;
            one_by_one.below_resolution += counts.below_resolution;
            one_by_one.rejected.iter_mut().zip(counts.rejected).for_each(|(sum, count)| *sum += count);
        }
        assert_eq!(one_by_one, counts);
    }
    cut_off(datagram);
    Seen::taken((counts.accepted.min(2), counts.below_resolution.min(2), counts.rejected.map(|n| n.min(2))))
}

/// Of a datagram that was cut, nothing is taken that the whole one might not have said.
fn cut_off(datagram: &[u8]) {
    let whole = datagram.iter().rposition(|byte| *byte == b'\n').unwrap_or(0);
    let counts = parse_datagram(datagram, true, |word| check(&word));
    assert!(counts.truncated);
    assert_eq!(all(&counts), lines(&datagram[..whole]).count() as u64);
}

fn check(word: &Word<'_>) {
    let (name, weight) = match *word {
        Word::Finished(Timing { name, duration_us, weight }) => {
            assert!(duration_us > 0.0 && duration_us.is_finite(), "{word:?}");
            (name, weight)
        }
        Word::Failed { name, weight } => (name, weight),
        Word::InFlight { name, oldest, .. } => {
            assert!(oldest.is_none_or(|oldest| oldest <= DAY), "{word:?}");
            (name, 1.0)
        }
    };
    assert!(is_name(name) && (1.0..=1e6).contains(&weight), "{word:?}");
}
