//! usher-agent
