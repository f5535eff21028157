//! The nftables dataplane, by netlink.
