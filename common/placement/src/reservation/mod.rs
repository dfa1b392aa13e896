mod host_book;
pub use host_book::{BookRecord, HostBook, Occupancy};
