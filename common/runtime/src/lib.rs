//! usher-runtime
