//! The header is that of the functions. With `UPDATE_EXPECTED=1` it is written.
#![forbid(unsafe_code)]

use std::fs;
use std::path::Path;

#[test]
fn the_header_is_current() {
    let directory = Path::new(env!("CARGO_MANIFEST_DIR"));
    let config = cbindgen::Config::from_file(directory.join("cbindgen.toml")).expect("readable");
    let bindings = cbindgen::Builder::new()
        .with_config(config)
        .with_src(directory.join("src/lib.rs"))
        .generate()
        .expect("the functions have C types");
    let mut made = Vec::new();
    bindings.write(&mut made);
    let path = directory.join("vpn.h");
    if std::env::var_os("UPDATE_EXPECTED").is_some() {
        fs::write(&path, &made).expect("writable");
    }
    let written = fs::read(&path).unwrap_or_default();
    assert!(written == made, "vpn.h is out of date: UPDATE_EXPECTED=1 cargo test -p vpn-ffi");
}
