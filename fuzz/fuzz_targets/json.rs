//! See `portico_fuzz::json_object`.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    portico_fuzz::json_object(bytes);
});
