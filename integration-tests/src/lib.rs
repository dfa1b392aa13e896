//! usher-integration-tests
