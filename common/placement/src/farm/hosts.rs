//! The hosts of a pool, in chunks that snapshots share.
//!
//! A snapshot is made up to a hundred times a second, and of ten thousand hosts some twenty have reported since the last
//! one. Only their chunks are made anew; the others are the same objects as before.

use std::{ops::Index, sync::Arc};

use usher_types::BootTime;

use super::{
    HostView,
    columns::{Columns, Light},
};
use crate::load::LANES;

/// Up to [`LANES`] hosts, and what decisions ask of all of them.
#[derive(Clone, Debug)]
pub(crate) struct Chunk {
    pub(crate) hosts: Vec<Arc<HostView>>,
    pub(crate) columns: Columns,
}

/// The hosts of a pool, in its order.
#[derive(Clone, Debug, Default)]
pub struct Hosts {
    chunks: Vec<Arc<Chunk>>,
    len: usize,
}

impl Hosts {
    /// How many there are.
    pub const fn len(&self) -> usize {
        self.len
    }

    /// Whether there is none.
    pub const fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// The host at `position`.
    pub fn get(&self, position: usize) -> Option<&Arc<HostView>> {
        self.chunks.get(position / LANES)?.hosts.get(position % LANES)
    }

    /// All, in the order of the pool.
    pub fn iter(&self) -> impl Iterator<Item = &Arc<HostView>> + Clone {
        self.chunks.iter().flat_map(|chunk| &chunk.hosts)
    }

    /// Those that are not the same object in `before`, with what stands there at their position. In a farm of which few
    /// hosts have reported since, it costs little.
    pub fn newer_than<'a>(
        &'a self,
        before: Option<&'a Self>,
    ) -> impl Iterator<Item = (&'a Arc<HostView>, Option<&'a Arc<HostView>>)> {
        let old_chunk = move |number: usize| before.and_then(|before| before.chunks.get(number));
        let chunks = self.chunks.iter().enumerate().map(move |(number, chunk)| (chunk, old_chunk(number)));
        let chunks = chunks.filter(|(chunk, old)| !old.is_some_and(|old| Arc::ptr_eq(old, chunk)));
        let pairs = chunks.flat_map(|(chunk, old)| {
            chunk
                .hosts
                .iter()
                .enumerate()
                .map(move |(at, host)| (host, old.and_then(|old| old.hosts.get(at))))
        });
        pairs.filter(|(host, old)| !old.is_some_and(|old| Arc::ptr_eq(old, host)))
    }

    /// Bytes that this one keeps beside those of `before` and the hosts themselves.
    pub fn bytes_beside(&self, before: Option<&Self>) -> usize {
        let is_shared = |(number, chunk): (usize, &Arc<Chunk>)| {
            let old = before.and_then(|before| before.chunks.get(number));
            old.is_some_and(|old| Arc::ptr_eq(old, chunk))
        };
        let own = self.chunks.iter().enumerate().filter(|chunk| !is_shared(*chunk)).count();
        own * CHUNK_BYTES + self.chunks.len() * size_of::<Arc<Chunk>>()
    }

    pub(crate) fn chunks(&self) -> &[Arc<Chunk>] {
        &self.chunks
    }

    /// The columns of the host at `position`, and its place in them.
    pub(crate) fn columns(&self, position: usize) -> (&Columns, usize) {
        (&self.chunks[position / LANES].columns, position % LANES)
    }

    /// Everything made anew.
    pub(super) fn renew_all(&mut self, views: &[Arc<HostView>], light: &Light<'_>) {
        let chunk = |hosts: &[Arc<HostView>]| {
            let mut columns = Columns::new(light.policy.method);
            for (at, host) in hosts.iter().enumerate() {
                columns.set(at, host, light);
            }
            columns.finish();
            Arc::new(Chunk { hosts: hosts.to_vec(), columns })
        };
        self.chunks = views.chunks(LANES).map(chunk).collect();
        self.len = views.len();
    }

    /// Takes over the hosts at the `changed` positions, in ascending order, and those of which something has changed by
    /// itself. There may be more hosts than before; none has changed its position.
    pub(super) fn renew(&mut self, views: &[Arc<HostView>], changed: &[usize], light: &Light<'_>) {
        let mut changed = changed;
        for number in 0..views.len().div_ceil(LANES) {
            let first = number * LANES;
            let here = changed.partition_point(|position| *position < first + LANES);
            let (of_chunk, rest) = changed.split_at(here);
            changed = rest;
            match self.chunks.get_mut(number) {
                Some(chunk) => {
                    let expired = chunk.columns.expired(light.now);
                    if of_chunk.is_empty() && expired == 0 {
                        continue;
                    }
                    renew_chunk(Arc::make_mut(chunk), &views[first..], of_chunk, expired, light);
                }
                None => {
                    let mut chunk = Chunk { hosts: Vec::new(), columns: Columns::new(light.policy.method) };
                    renew_chunk(&mut chunk, &views[first..], of_chunk, 0, light);
                    self.chunks.push(Arc::new(chunk));
                }
            }
        }
        self.len = views.len();
    }

    /// Hosts heard in time and hosts registered, without those that said goodbye. Of the instant of the last renewal.
    pub(super) fn heard(&self) -> (u32, u32) {
        let counts = self.chunks.iter().map(|chunk| chunk.columns.heard());
        counts.fold((0, 0), |(heard, all), (more, of)| (heard + more, all + of))
    }

    pub(super) fn has_peers(&self) -> bool {
        self.chunks.iter().any(|chunk| chunk.columns.has_peers())
    }

    /// Whether something has changed by itself at `now`.
    pub(super) fn is_outdated(&self, now: BootTime) -> bool {
        self.chunks.iter().any(|chunk| chunk.columns.expired(now) != 0)
    }
}

/// Of a chunk with its columns, roughly.
const CHUNK_BYTES: usize = size_of::<Chunk>() + LANES * (size_of::<Arc<HostView>>() + 7 * size_of::<f64>());

/// `views` begin with the chunk's first host.
fn renew_chunk(
    chunk: &mut Chunk,
    views: &[Arc<HostView>],
    changed: &[usize],
    expired: u64,
    light: &Light<'_>,
) {
    let views = &views[..views.len().min(LANES)];
    let known = chunk.hosts.len();
    chunk.hosts.extend(views.iter().skip(known).cloned());
    let mut stale = expired;
    changed.iter().for_each(|position| stale |= 1 << (position % LANES));
    (known..views.len()).for_each(|at| stale |= 1 << at);
    for (at, view) in views.iter().enumerate().filter(|(at, _)| stale >> at & 1 == 1) {
        chunk.hosts[at] = view.clone();
        chunk.columns.set(at, view, light);
    }
    chunk.columns.finish();
}

impl Index<usize> for Hosts {
    type Output = Arc<HostView>;

    fn index(&self, position: usize) -> &Self::Output {
        &self.chunks[position / LANES].hosts[position % LANES]
    }
}
