//! Generic netlink: subsystems that have a name, and a number that the kernel gives them.

use super::{Messages, Socket};
use std::io;

/// The subsystem that knows the others.
const CONTROLLER: u16 = 0x10;
const GET_FAMILY: u8 = 3;
const ID: u16 = 1;
const NAME: u16 = 2;

/// Of a message: command, version, and nothing.
pub const HEADER: usize = 4;

/// The number of a subsystem. The kernel loads the module that has it, if it can; `NotFound` if
/// there is none.
pub fn family(socket: &mut Socket, name: &str) -> io::Result<u16> {
    let mut request = Messages::new();
    request.message(CONTROLLER, 0, |m| {
        m.raw(&[GET_FAMILY, 1, 0, 0]);
        m.put_str(NAME, name);
    });
    let id = |message: super::Message| message.attributes(HEADER).find_kind(ID)?.u16();
    let found = socket.query(&request, id)?;
    found
        .first()
        .copied()
        .ok_or_else(|| io::Error::from(io::ErrorKind::NotFound))
}
