//! An extension module finds Python's symbols in the process that loads it. Building every target of the workspace also
//! links a test executable of the library, which never runs; without this the linker would miss the symbols there.

fn main() {
    println!("cargo:rerun-if-changed=build.rs");
    if std::env::var("CARGO_CFG_TARGET_OS").is_ok_and(|os| os == "linux") {
        println!("cargo:rustc-link-arg=-Wl,--unresolved-symbols=ignore-all");
    }
}
