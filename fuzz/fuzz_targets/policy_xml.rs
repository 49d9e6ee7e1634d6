#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| fuzzing::policy_xml(data));
