//! `r2ccl`: what a person or a script does with the plugin from outside.
//!
//! `bench` and `demo` drive a plugin as NCCL does, without NCCL or GPUs ([`bench`], [`demo`]);
//! `run` starts a job with the variables that make NCCL take the plugin ([`launch`]); `config`
//! shows the settings ([`settings`]); `status`, `drain`, `undrain` and `chaos` look at running jobs
//! and tell them things, over the board ([`board`]); `sim` lets simulated worlds happen ([`sim`],
//! [`interleave`]). [`net`] is the door to a plugin's file.

mod bench;
mod board;
mod demo;
mod interleave;
mod launch;
mod locate;
mod net;
mod settings;
mod sim;
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
    /// See an all-reduce outlive dead NICs, explained; half a minute, no GPU needed
    Demo(demo::DemoArgs),
    /// Start a job with the variables that make NCCL use the plugin
    Run(launch::RunArgs),
    /// Measure and check a net plugin, ours or any other, without NCCL and without GPUs
    Bench(Box<bench::BenchArgs>),
    /// Show the plugin's settings, their values and where they come from
    Config(settings::ConfigArgs),
    /// Show the processes of this host that use the plugin, and how their NICs do
    Status(board::StatusArgs),
    /// Take a NIC out of use under running jobs, for maintenance
    Drain(board::DrainArgs),
    /// Use a drained NIC again
    Undrain(board::DrainArgs),
    /// Break a software NIC of jobs that were started with R2CCL_CHAOS=1, to rehearse a fault
    Chaos(board::ChaosArgs),
    /// Let simulated worlds of hosts, NICs and faults happen, and say which broke a rule
    Sim(sim::SimArgs),
    /// One host of a run; started by bench and demo only
    #[command(name = bench::HOST_COMMAND, hide = true)]
    BenchHost,
}

fn main() -> ExitCode {
    let ended = match Cli::parse().command {
        Command::Demo(args) => demo::run(&args),
        Command::Run(args) => launch::run(&args),
        Command::Bench(args) => bench::run(&args),
        Command::Config(args) => settings::run(&args),
        Command::Status(args) => board::status(&args),
        Command::Drain(args) => board::drain(&args, true),
        Command::Undrain(args) => board::drain(&args, false),
        Command::Chaos(args) => board::chaos(&args),
        Command::Sim(args) => sim::run(&args),
        Command::BenchHost => return bench::host_main(),
    };
    ended.unwrap_or_else(|message| {
        eprintln!("r2ccl: {message}");
        ExitCode::from(2)
    })
}

/// Exit code of a command that has run: 0 if its result is good.
fn exit_code(is_good: bool) -> ExitCode {
    if is_good {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    }
}
