//! How long calls take, counted without a lock: every placement counts here.

use std::{
    fmt,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use prometheus_client::{
    encoding::{EncodeMetric, MetricEncoder, NoLabelSet},
    metrics::{MetricType, TypedMetric},
};

/// A histogram of durations. Clones share it. A scrape may see a call in its bucket and not in the sum yet.
#[derive(Clone, Debug)]
pub(super) struct Durations {
    inner: Arc<Inner>,
}

#[derive(Debug)]
struct Inner {
    /// Upper bounds in seconds, rising; the last bucket has none.
    bounds_s: &'static [f64],
    buckets: Vec<AtomicU64>,
    sum_us: AtomicU64,
}

impl Durations {
    /// `bounds_s`: upper bounds in seconds, rising.
    pub(super) fn new(bounds_s: &'static [f64]) -> Self {
        let buckets = (0..=bounds_s.len()).map(|_| AtomicU64::new(0)).collect();
        Self { inner: Arc::new(Inner { bounds_s, buckets, sum_us: AtomicU64::new(0) }) }
    }

    /// Counts one call.
    pub(super) fn observe(&self, took: Duration) {
        let seconds = took.as_secs_f64();
        let bucket = self.inner.bounds_s.partition_point(|bound| *bound < seconds);
        self.inner.buckets[bucket].fetch_add(1, Ordering::Relaxed);
        let micros = u64::try_from(took.as_micros()).unwrap_or(u64::MAX);
        self.inner.sum_us.fetch_add(micros, Ordering::Relaxed);
    }
}

impl TypedMetric for Durations {
    const TYPE: MetricType = MetricType::Histogram;
}

impl EncodeMetric for Durations {
    fn encode(&self, mut encoder: MetricEncoder<'_>) -> Result<(), fmt::Error> {
        let bounds = self.inner.bounds_s.iter().copied().chain([f64::MAX]);
        let counts = self.inner.buckets.iter().map(|bucket| bucket.load(Ordering::Relaxed));
        let buckets: Vec<(f64, u64)> = bounds.zip(counts).collect();
        let count = buckets.iter().map(|(_, count)| count).sum();
        // A sum of 2^53 us, where it loses its last digit, is 285 years of calls.
        let sum_s = self.inner.sum_us.load(Ordering::Relaxed) as f64 / 1e6;
        encoder.encode_histogram::<NoLabelSet>(sum_s, count, &buckets, None)
    }

    fn metric_type(&self) -> MetricType {
        Self::TYPE
    }
}
