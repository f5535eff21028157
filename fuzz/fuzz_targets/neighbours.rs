//! See `portico_fuzz::neighbours`.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    portico_fuzz::neighbours(bytes);
});
