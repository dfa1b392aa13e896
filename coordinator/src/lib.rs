//! usher-coordinator
