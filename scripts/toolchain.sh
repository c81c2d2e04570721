# Sourced by the other scripts: puts a new enough Rust toolchain first in PATH, if the machine has one.
# shellcheck shell=bash

# What `rust-version` in Cargo.toml asks for, such as 1.85.
rust_needed() {
    sed -n 's/^rust-version = "\([0-9.]*\)".*/\1/p' Cargo.toml | head -n1
}

# version_at_least HAVE NEED
version_at_least() {
    [ "$(printf '%s\n%s\n' "$2" "$1" | sort -V | head -n1)" = "$2" ]
}

# The version of the compiler in folder $1 (empty if there is none that runs with a cargo beside it).
rust_version_in() {
    [ -x "$1/cargo" ] && [ -x "$1/rustc" ] || return 0
    "$1/cargo" --version >/dev/null 2>&1 || return 0
    "$1/rustc" --version 2>/dev/null | sed -n 's/^rustc \([0-9.]*\).*/\1/p'
}

# Looks where toolchains live: PATH, rustup's folder, the versioned packages of Ubuntu.
use_toolchain() {
    local needed folder version
    needed=$(rust_needed)
    while read -r folder; do
        [ -n "$folder" ] || continue
        version=$(rust_version_in "$folder")
        if [ -n "$version" ] && version_at_least "$version" "$needed"; then
            PATH="$folder:$PATH"
            export PATH
            return 0
        fi
    done <<FOLDERS
$(dirname "$(command -v cargo || echo /nonexistent/cargo)")
${CARGO_HOME:-${HOME:-/nonexistent}/.cargo}/bin
$(printf '%s\n' /usr/lib/rust-*/bin | sort -rV)
FOLDERS
    return 1
}

# The folder where cargo leaves what it builds, whatever the environment and cargo's settings say.
target_folder() {
    cargo metadata --format-version 1 --no-deps --offline |
        sed -n 's/.*"target_directory":"\([^"]*\)".*/\1/p'
}
