//! Places given out: the coordinator's ledger of them, and the host's own book.

mod host_book;
mod ledger;

pub use host_book::{BookRecord, HostBook, Occupancy};
pub use ledger::{Grant, GrantParts, GrantState, Ledger, Retry};
