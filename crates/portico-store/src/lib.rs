//! portico-store
