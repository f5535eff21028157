//! Names that many objects share, kept once.

use crate::hash::Set;
use std::sync::Arc;

#[derive(Default)]
pub(super) struct Names {
    known: Set<Arc<str>>,
    /// Unused names are looked for when there are this many.
    clean_at: usize,
}

impl Names {
    pub(super) fn get(&mut self, name: &str) -> Arc<str> {
        if let Some(known) = self.known.get(name) {
            return known.clone();
        }
        if self.known.len() >= self.clean_at {
            self.known.retain(|name| Arc::strong_count(name) > 1);
            self.clean_at = (self.known.len() * 2).max(64);
        }
        let name: Arc<str> = name.into();
        self.known.insert(name.clone());
        name
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_is_kept_once_and_forgotten_when_nobody_uses_it() {
        let mut names = Names::default();
        let kept = names.get("kept");
        assert!(Arc::ptr_eq(&kept, &names.get("kept")));
        for n in 0..1000 {
            names.get(&n.to_string());
        }
        assert!(names.known.len() <= 64, "{}", names.known.len());
        assert!(Arc::ptr_eq(&kept, &names.get("kept")));
    }
}
