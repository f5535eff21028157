//! See `portico_fuzz::dns`.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    portico_fuzz::dns(bytes);
});
