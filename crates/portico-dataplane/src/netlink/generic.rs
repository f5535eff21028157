//! Generic netlink: subsystems that have a name, and a number that the kernel gives them.

use super::uapi::*;
use super::{Messages, Socket};
use std::io;

/// The length of the header of a message: command, version, and two bytes of zero.
pub(crate) const HEADER: usize = 4;

/// The number of a subsystem. The kernel loads the module that has it, if it can; `NotFound` if
/// there is none.
pub(crate) fn family(socket: &mut Socket, name: &str) -> io::Result<u16> {
    let mut request = Messages::new();
    request.message(GENL_ID_CTRL, 0, |m| {
        m.raw(&[CTRL_CMD_GETFAMILY, 1, 0, 0]);
        m.put_str(CTRL_ATTR_FAMILY_NAME, name);
    });
    let id = |message: super::Message| {
        message
            .attributes(HEADER)
            .find_kind(CTRL_ATTR_FAMILY_ID)?
            .u16()
    };
    let found = socket.query(&request, id)?;
    found
        .first()
        .copied()
        .ok_or_else(|| io::Error::from(io::ErrorKind::NotFound))
}
