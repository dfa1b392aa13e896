//! Where coordinators keep what lasts: each for itself, over its restarts, and what people decide in one store that all share
//! and that each may be cut off from.

use std::path::Path;
use std::sync::Arc;

use usher_coordinator::metrics::Metrics;
use usher_coordinator::server::SharedPart;
use usher_coordinator::store::{MemoryShared, MemoryStore, StoreHandle};

use crate::plan::{Plan, Sabotage, coordinator};

/// The stores of all coordinators.
#[derive(Debug, Clone)]
pub struct Stores {
    own: Vec<MemoryStore>,
    shared: Vec<MemoryShared>,
    sabotage: Sabotage,
}

impl Stores {
    /// Empty ones.
    pub fn new(plan: &Plan) -> Self {
        let shared = MemoryShared::default();
        Self {
            own: (0..plan.coordinators).map(|index| MemoryStore::new(&coordinator(index))).collect(),
            shared: (0..plan.coordinators)
                .map(|index| match plan.sabotage {
                    Sabotage::StoreApart if index == 0 => MemoryShared::default(),
                    _ => shared.for_another(),
                })
                .collect(),
            sabotage: plan.sabotage,
        }
    }

    /// The stores of coordinator number `index`, for its start number `start`.
    pub fn open(&self, index: usize, start: u32, metrics: Metrics) -> (StoreHandle, SharedPart) {
        let is_lost = self.sabotage == Sabotage::EmptyStore && start > 1;
        let name = coordinator(index);
        let (own, shared) = if is_lost {
            (MemoryStore::new(&name), MemoryShared::default())
        } else {
            (self.own[index].opened_again(), self.shared[index].clone())
        };
        let part = SharedPart { store: Arc::new(shared), seed: false };
        (StoreHandle::inline(Path::new(&name), metrics, own), part)
    }

    /// Cuts coordinator number `index` off from the shared store, or lets it back.
    pub fn cut(&self, index: usize, is_cut: bool) {
        self.shared[index].cut(is_cut);
    }
}
