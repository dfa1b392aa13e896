//! usher-availability
