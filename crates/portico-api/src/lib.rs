//! portico-api
