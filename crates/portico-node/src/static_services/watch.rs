//! Tells when something in a folder changes (inotify).

use std::ffi::CString;
use std::fs::File;
use std::io::{self, Read};
use std::os::fd::{FromRawFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;

/// Files that were written, came, went, or all of them at once.
const EVENTS: u32 = libc::IN_CLOSE_WRITE
    | libc::IN_MOVED_TO
    | libc::IN_MOVED_FROM
    | libc::IN_DELETE
    | libc::IN_DELETE_SELF
    | libc::IN_MOVE_SELF
    | libc::IN_ONLYDIR;

pub(super) struct FolderWatch(AsyncFd<File>);

impl FolderWatch {
    pub(super) fn open(folder: &Path) -> io::Result<Self> {
        let path = CString::new(folder.as_os_str().as_bytes())?;
        Ok(Self(registered(File::from(open(&path)?))?))
    }

    /// Returns when something happened in the folder. The caller reads the folder to see what.
    pub(super) async fn next(&self) -> io::Result<()> {
        let mut ready = self.0.readable().await?;
        let mut events = [0; 4096];
        loop {
            match self.0.get_ref().read(&mut events) {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => break,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                read => _ = read?,
            }
        }
        ready.clear_ready();
        Ok(())
    }
}

#[expect(
    unsafe_code,
    reason = "the runtime has to be promised that the descriptor stays open"
)]
fn registered(file: File) -> io::Result<AsyncFd<File>> {
    // SAFETY: a `File` owns its descriptor, always returns the same one, and closes it only when
    // dropped.
    unsafe { AsyncFd::register_with_interest(file, Interest::READABLE) }.map_err(io::Error::from)
}

#[expect(unsafe_code, reason = "the standard library has no inotify")]
fn open(path: &CString) -> io::Result<OwnedFd> {
    // SAFETY: the descriptor is new and has no other owner; the path ends with a zero byte and
    // outlives the call.
    unsafe {
        let fd = libc::inotify_init1(libc::IN_NONBLOCK | libc::IN_CLOEXEC);
        if fd < 0 {
            return Err(io::Error::last_os_error());
        }
        let owned = OwnedFd::from_raw_fd(fd);
        match libc::inotify_add_watch(fd, path.as_ptr(), EVENTS) {
            watch if watch < 0 => Err(io::Error::last_os_error()),
            _ => Ok(owned),
        }
    }
}
