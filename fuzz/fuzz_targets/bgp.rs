//! See `portico_fuzz::bgp`.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    portico_fuzz::bgp(bytes);
});
