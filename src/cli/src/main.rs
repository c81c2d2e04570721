//! `r2ccl`: what a person or a script does with the plugin from outside.
//!
//! `bench` and `demo` drive a plugin as NCCL does, without NCCL or GPUs ([`bench`], [`demo`]); `run`
//! starts a job with the variables that make NCCL take the plugin ([`launch`]); `config` shows the
//! settings ([`settings`]). [`net`] is the door to a plugin's file.

mod bench;
mod locate;
mod net;
mod stats;
mod units;

use std::process::ExitCode;

use clap::{Parser, Subcommand};

#[derive(Parser)]
#[command(
    name = "r2ccl",
    version,
    about = "R2CCL: an NCCL network that outlives broken NICs"
)]
#[command(propagate_version = true)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Measure and check a net plugin, ours or any other, without NCCL and without GPUs
    Bench(Box<bench::BenchArgs>),
    /// One host of a run; started by bench and demo only
    #[command(name = bench::HOST_COMMAND, hide = true)]
    BenchHost,
}

fn main() -> ExitCode {
    let ended = match Cli::parse().command {
        Command::Bench(args) => bench::run(&args),
        Command::BenchHost => return bench::host_main(),
    };
    ended.unwrap_or_else(|message| {
        eprintln!("r2ccl: {message}");
        ExitCode::from(2)
    })
}
