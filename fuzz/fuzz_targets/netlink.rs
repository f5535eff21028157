//! See `portico_fuzz::netlink`.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    portico_fuzz::netlink(bytes);
});
