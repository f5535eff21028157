//! See `portico_fuzz::vrrp`.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    portico_fuzz::vrrp(bytes);
});
