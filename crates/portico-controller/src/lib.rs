//! portico-controller
