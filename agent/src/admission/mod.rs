//! What does the host still owe after its agent was killed?
//!
//! Every coordinator counts on the host's list of places. An agent that forgot it at a restart would admit the same
//! places twice, so the book is on disk before anybody is told "admitted", and is read again at the start. It lies in
//! the runtime directory: after another boot all logins are gone, and with them the book, whatever the file says.
//!
//! What the host had learned of itself lies beside it: a host that was BUSY stays so until a period of the new run says
//! otherwise, instead of taking logins for the time that its window is empty; one that comes last because logins failed
//! on it still does.
//!
//! A burst of asks is one write: all that wait are decided one after the other, the book is written once, then all are
//! answered. When the book cannot be written nothing new is admitted, because a place that may be forgotten is a place
//! that may be given twice.

mod places_file;

pub use places_file::{PlacesError, PlacesFile};
