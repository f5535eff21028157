//! See `portico_fuzz::heartbeat`.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    portico_fuzz::heartbeat(bytes);
});
