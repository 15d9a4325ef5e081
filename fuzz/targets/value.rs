#![no_main]
libfuzzer_sys::fuzz_target!(|bytes: &[u8]| everstep_fuzz::value(bytes));
