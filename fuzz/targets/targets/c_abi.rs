#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| lockclient_fuzz::c_abi::run(data));
