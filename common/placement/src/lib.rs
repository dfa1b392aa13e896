//! usher-placement
