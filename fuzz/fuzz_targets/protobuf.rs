//! See `portico_fuzz::protobuf_object`.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    portico_fuzz::protobuf_object(bytes);
});
