//! portico-apiserver
