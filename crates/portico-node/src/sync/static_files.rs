//! Which versions of the files of static Services are known, and which of them were last told to be
//! in the kernel.

use crate::static_services::InForce;

#[derive(Default)]
pub(super) struct StaticFiles {
    known: InForce,
    told: InForce,
}

impl StaticFiles {
    /// A file has this version now; `None` if it is gone.
    pub(super) fn changed(&mut self, file: String, version: Option<String>) {
        match version {
            Some(version) => self.known.insert(file, version),
            None => self.known.remove(&file),
        };
    }

    /// All that are known are in the kernel. What there is to tell, if that is news.
    pub(super) fn installed(&mut self) -> Option<InForce> {
        if self.told == self.known {
            return None;
        }
        self.told.clone_from(&self.known);
        Some(self.told.clone())
    }
}
