//! Socket filters: which packets the kernel lets through to a socket, so that other packets do not
//! wake this process.

use socket2::SockFilter;

const ALL: u32 = u32::MAX;

/// The byte at `offset` in the packet becomes what is looked at.
pub fn byte(offset: u32) -> SockFilter {
    step(libc::BPF_LD | libc::BPF_B | libc::BPF_ABS, 0, 0, offset)
}

/// Loads the four bytes at this offset of the packet.
pub fn word(offset: u32) -> SockFilter {
    step(libc::BPF_LD | libc::BPF_W | libc::BPF_ABS, 0, 0, offset)
}

/// Goes on where it is equal, and passes over so many steps where it is not.
pub fn equals(value: u32, steps_if_not: u8) -> SockFilter {
    step(
        libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K,
        0,
        steps_if_not,
        value,
    )
}

/// Goes on where it is equal, and refuses the packet where it is not.
pub fn require(value: u32) -> [SockFilter; 2] {
    [
        step(libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K, 1, 0, value),
        refuse(),
    ]
}

/// Lets the whole packet through.
pub fn accept() -> SockFilter {
    step(libc::BPF_RET | libc::BPF_K, 0, 0, ALL)
}

/// Drops the packet.
pub fn refuse() -> SockFilter {
    step(libc::BPF_RET | libc::BPF_K, 0, 0, 0)
}

/// The byte so far behind an IPv4 header, however long that is.
pub fn byte_after_ipv4(offset: u32) -> [SockFilter; 2] {
    [
        step(libc::BPF_LDX | libc::BPF_B | libc::BPF_MSH, 0, 0, 0),
        step(libc::BPF_LD | libc::BPF_B | libc::BPF_IND, 0, 0, offset),
    ]
}

fn step(code: u32, if_true: u8, if_false: u8, value: u32) -> SockFilter {
    SockFilter::new(code as u16, if_true, if_false, value)
}
