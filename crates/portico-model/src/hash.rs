//! Hash maps of what every change looks up, mostly by name. The hash of the standard library
//! withstands whoever chooses the keys, and takes ten times as long. This one has a seed of its own
//! in each process, which is enough: who may write thousands of Services has simpler ways to be a
//! burden.

use foldhash::fast::RandomState;
use std::collections::{HashMap, HashSet};

pub type Map<K, V> = HashMap<K, V, RandomState>;
pub type Set<K> = HashSet<K, RandomState>;
