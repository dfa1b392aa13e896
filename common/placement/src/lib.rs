//! tmp
pub mod reservation;
