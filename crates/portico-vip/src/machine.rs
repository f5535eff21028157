//! The links of this machine and their addresses.

use crate::config::Surroundings;
use ipnet::IpNet;
use std::ffi::CStr;
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::ptr;

/// The list that the C library makes, given back when it is no longer needed.
struct List(*mut libc::ifaddrs);

impl Drop for List {
    #[expect(unsafe_code, reason = "the list is the C library's")]
    fn drop(&mut self) {
        // SAFETY: it came from getifaddrs and is freed once.
        unsafe { libc::freeifaddrs(self.0) };
    }
}

/// Looked up once, in the network namespace of the calling thread.
#[expect(unsafe_code, reason = "the list is the C library's")]
pub fn surroundings() -> io::Result<Surroundings> {
    let mut head = ptr::null_mut();
    // SAFETY: writes one pointer to a list that is ours from then on.
    if unsafe { libc::getifaddrs(&mut head) } != 0 {
        return Err(io::Error::last_os_error());
    }
    let list = List(head);
    let mut addresses = Vec::new();
    let mut next = list.0;
    // SAFETY: entries are valid, and end with a null pointer, until the list is freed at the end of
    // this function.
    while let Some(entry) = unsafe { next.as_ref() } {
        next = entry.ifa_next;
        // SAFETY: a name is a text that ends in NUL and lives as long as the list.
        let name = unsafe { CStr::from_ptr(entry.ifa_name) }
            .to_string_lossy()
            .into_owned();
        if let (Some(address), Some(mask)) = (read(entry.ifa_addr), read(entry.ifa_netmask))
            && let Ok(network) = IpNet::with_netmask(address, mask)
        {
            addresses.push((name, network));
        }
    }
    Ok(Surroundings { addresses })
}

/// An address of a family that we know.
#[expect(unsafe_code, reason = "the kind of an address stands at its beginning")]
fn read(address: *const libc::sockaddr) -> Option<IpAddr> {
    // SAFETY: null, or the beginning of an address whose whole length belongs to its family.
    let family = i32::from(unsafe { address.as_ref() }?.sa_family);
    match family {
        libc::AF_INET => {
            // SAFETY: the family says that it is one of these.
            let address = unsafe { ptr::read_unaligned(address.cast::<libc::sockaddr_in>()) };
            Some(Ipv4Addr::from(u32::from_be(address.sin_addr.s_addr)).into())
        }
        libc::AF_INET6 => {
            // SAFETY: the family says that it is one of these.
            let address = unsafe { ptr::read_unaligned(address.cast::<libc::sockaddr_in6>()) };
            Some(Ipv6Addr::from(address.sin6_addr.s6_addr).into())
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_machine_has_a_loopback() {
        let found = surroundings().unwrap().addresses;
        assert!(
            found.contains(&("lo".to_owned(), "127.0.0.1/8".parse().unwrap())),
            "{found:?}"
        );
    }
}
