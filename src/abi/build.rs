//! Makes the bindings from `nccl-headers` when the feature `bindgen` is on, and nothing otherwise.

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    #[cfg(feature = "bindgen")]
    generate::run();
}

#[cfg(feature = "bindgen")]
mod generate {
    use bindgen::callbacks::{IntKind, ParseCallbacks};
    use std::path::PathBuf;

    /// Types of the macros: `i32` where an argument of type `int` takes them, `u64` for a size.
    #[derive(Debug)]
    struct MacroTypes;

    impl ParseCallbacks for MacroTypes {
        fn int_macro(&self, name: &str, _value: i64) -> Option<IntKind> {
            Some(match name {
                "NCCL_MAX_NET_SIZE_BYTES" | "MAX_NET_SIZE" => IntKind::U64,
                name if is_subsystem(name) => IntKind::ULong,
                _ => IntKind::I32,
            })
        }
    }

    /// Whether a macro is a subsystem bit, for the `unsigned long` argument of the logger.
    fn is_subsystem(name: &str) -> bool {
        name.strip_prefix("NCCL_")
            .is_some_and(|rest| !rest.contains('_'))
    }

    pub fn run() {
        let headers = PathBuf::from("../../nccl-headers");
        let umbrella = headers.join("nccl_net.h");
        println!("cargo::rerun-if-changed={}", headers.display());
        let out = PathBuf::from(std::env::var_os("OUT_DIR").expect("cargo sets OUT_DIR"));
        bindgen::Builder::default()
            .header(umbrella.to_string_lossy())
            .allowlist_file(".*nccl-headers.*")
            // C enums become plain integers: a Rust enum with a value of the other side's choosing
            // would be undefined behaviour.
            .default_enum_style(bindgen::EnumVariation::Consts)
            .prepend_enum_name(false)
            .derive_debug(true)
            .derive_default(false)
            .layout_tests(true)
            .use_core()
            .parse_callbacks(Box::new(MacroTypes))
            .disable_header_comment()
            .raw_line("// Made by scripts/regen-bindings.sh from nccl-headers; do not edit.")
            .generate()
            .expect("bindgen reads nccl-headers")
            .write_to_file(out.join("bindings.rs"))
            .expect("OUT_DIR is writable");
    }
}
