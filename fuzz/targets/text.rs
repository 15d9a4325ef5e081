#![no_main]
libfuzzer_sys::fuzz_target!(init: drop(std::panic::take_hook()), |bytes: &[u8]| everstep_fuzz::text(bytes));
