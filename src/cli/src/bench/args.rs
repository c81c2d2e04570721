//! What `r2ccl bench` can be told.

use std::path::{Path, PathBuf};
use std::time::Duration;

use clap::Args;

use super::message::Pattern;
use super::session::{COUNT_MAX, Effort};
use super::world::Setup;
use crate::{locate, units};

/// Options of `r2ccl bench`.
#[derive(Args, Clone, Debug)]
#[command(args_override_self = true)]
#[command(after_help = "\
Hosts are processes on this machine; NCCL_HOSTID and R2CCL_HOST_ID tell the plugin which is which.
The plugin's own settings come from the environment as usual. Exit code: 0 if everything arrived
as it was sent, 1 if not or if the run failed, 2 for a mistake in the command.

Examples:
  r2ccl bench                                     our plugin, ping-pong over a range of sizes
  r2ccl bench --pattern stream --sizes 512K --channels 4
  r2ccl bench --pattern allreduce --hosts 3 --sizes 1M..256M*4 --check
  r2ccl bench --compare libnccl-net-r2ccl.so --with libnccl-net-ofi.so --bar 0.5")]
pub struct BenchArgs {
    /// The plugin's file. Default: R2CCL_PLUGIN, else the one beside this program
    #[arg(long, value_name = "FILE")]
    pub plugin: Option<PathBuf>,
    /// Use this table version instead of the newest one that the plugin exports
    #[arg(long, value_name = "vN", value_parser = parse_abi)]
    pub abi: Option<u32>,
    /// Number of hosts; each is a process of its own
    #[arg(long, default_value_t = 2, value_parser = clap::value_parser!(u16).range(1..=64))]
    pub hosts: u16,
    /// Channels (connections in each direction) between two hosts
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u16).range(1..=64))]
    pub channels: u16,
    /// How data moves
    #[arg(long, value_enum, default_value_t = Pattern::Pingpong)]
    pub pattern: Pattern,
    /// Message sizes: a list of numbers and ranges FROM..TO[*FACTOR], with K, M, G (1024)
    #[arg(long, value_name = "LIST", default_value = "8..16M*8")]
    pub sizes: String,
    /// Repeat each size exactly so often (pattern abort: cycles, by default 50)
    #[arg(long, value_name = "N", conflicts_with = "seconds")]
    #[arg(value_parser = clap::value_parser!(u64).range(1..=4_000_000))]
    pub iterations: Option<u64>,
    /// Time spent on each size
    #[arg(long, value_name = "S", default_value_t = 1.0, value_parser = parse_seconds)]
    pub seconds: f64,
    /// Check every byte on arrival and again before its buffer is used again
    #[arg(long)]
    pub check: bool,
    /// Print JSON instead of a table
    #[arg(long)]
    pub json: bool,
    /// Devices that channels use in turn, by index; all by default
    #[arg(long, value_name = "LIST", value_delimiter = ',')]
    pub nics: Vec<i32>,
    /// Move buffers so many bytes off the page boundary
    #[arg(long, value_name = "BYTES", default_value_t = 0)]
    #[arg(value_parser = clap::value_parser!(u16).range(0..=4095))]
    pub offset: u16,
    /// Memory for the buffers of one connection and direction; fewer than 8 slots if need be
    #[arg(long, value_name = "SIZE", default_value = "256M", value_parser = units::parse_bytes)]
    pub window: u64,
    /// Longest time without a sign of life before the run is given up
    #[arg(long, value_name = "S", default_value_t = 60.0, value_parser = parse_seconds)]
    pub timeout: f64,
    /// Give the hosts, or that of this number, another variable; may be repeated
    #[arg(long = "env", value_name = "[HOST:]NAME=VALUE", value_parser = parse_variable)]
    pub environment: Vec<(String, String)>,
    /// Kill one host (SIGKILL) so many milliseconds after the first message; success is then that
    /// all others get an error from the plugin instead of hanging
    #[arg(long, value_name = "HOST@MS", value_parser = parse_kill)]
    pub kill: Option<(usize, Duration)>,
    /// Compare this plugin with the one of --with: runs in turn, and the median of the ratios
    #[arg(long, value_name = "FILE", requires = "with", conflicts_with_all = ["plugin", "kill"])]
    pub compare: Option<PathBuf>,
    /// The other plugin of a comparison
    #[arg(long, value_name = "FILE", requires = "compare")]
    pub with: Option<PathBuf>,
    /// Table version for the plugin of --with
    #[arg(long, value_name = "vN", value_parser = parse_abi, requires = "compare")]
    pub abi_with: Option<u32>,
    /// A variable for the plugin of --with only; may be repeated
    #[arg(long, value_name = "NAME=VALUE", value_parser = parse_variable, requires = "compare")]
    pub env_with: Vec<(String, String)>,
    /// Pairs of runs in a comparison
    #[arg(long, default_value_t = 30, value_parser = clap::value_parser!(u16).range(6..=1000))]
    pub pairs: u16,
    /// The ratio that a comparison must lie above for exit code 0
    #[arg(long, value_name = "RATIO", requires = "compare")]
    pub bar: Option<f64>,
}

impl BenchArgs {
    /// The plugin to drive.
    pub fn plugin(&self) -> Result<PathBuf, String> {
        locate::plugin(self.plugin.as_deref())
    }

    /// The sizes, checked against what one operation may move.
    pub fn sizes(&self) -> Result<Vec<u64>, String> {
        let sizes = units::parse_sizes(&self.sizes)?;
        let limit = super::link::MESSAGE_MAX as u64;
        match sizes.iter().find(|&&size| size > limit) {
            Some(size) => Err(format!(
                "size {size} is above 1 GiB, NCCL's limit for a message"
            )),
            None => Ok(sizes),
        }
    }

    /// How often each size is repeated.
    pub fn effort(&self) -> Effort {
        match self.iterations {
            Some(count) => Effort::Count(count),
            // Long enough to be under way when the host dies.
            None if self.kill.is_some() => Effort::Count(COUNT_MAX),
            None => Effort::Time(Duration::from_secs_f64(self.seconds)),
        }
    }

    /// The run that these options describe, with `plugin`.
    pub fn setup(&self, plugin: &Path, environment: &[(String, String)]) -> Result<Setup, String> {
        let hosts = usize::from(self.hosts);
        let alone = matches!(self.pattern, Pattern::Pingpong | Pattern::Allreduce);
        if alone && hosts < 2 {
            return Err("this pattern needs at least 2 hosts".into());
        }
        if let Some((host, _)) = self.kill.filter(|&(host, _)| host >= hosts) {
            return Err(format!(
                "--kill {host}: hosts are counted from 0 to {}",
                hosts - 1
            ));
        }
        Ok(Setup {
            plugin: locate::absolute(plugin)?,
            abi: self.abi,
            hosts,
            channels: usize::from(self.channels),
            pattern: self.pattern,
            nics: self.nics.clone(),
            check: self.check,
            offset: usize::from(self.offset),
            window: self.window,
            timeout: Duration::from_secs_f64(self.timeout),
            environment: environment.to_vec(),
            kill: self.kill,
        })
    }
}

fn parse_abi(text: &str) -> Result<u32, String> {
    let number = text.trim_start_matches('v').parse().ok();
    number
        .filter(|version| (8..=12).contains(version))
        .ok_or_else(|| "versions are v8, v9, v10, v11 and v12".into())
}

fn parse_seconds(text: &str) -> Result<f64, String> {
    let seconds = text
        .parse()
        .ok()
        .filter(|seconds| (0.01..=86_400.0).contains(seconds));
    seconds.ok_or_else(|| "a number of seconds from 0.01 to 86400".into())
}

fn parse_variable(text: &str) -> Result<(String, String), String> {
    let is_name = |name: &str| match name.split_once(':') {
        Some((host, name)) => host.parse::<u16>().is_ok() && !name.is_empty(),
        None => !name.is_empty(),
    };
    match text.split_once('=') {
        Some((name, value)) if is_name(name) => Ok((name.to_string(), value.to_string())),
        _ => Err("write NAME=VALUE or HOST:NAME=VALUE".into()),
    }
}

fn parse_kill(text: &str) -> Result<(usize, Duration), String> {
    let parsed = text.split_once('@').and_then(|(host, delay)| {
        let delay = delay.trim_end_matches("ms").parse().ok()?;
        Some((
            host.trim_start_matches('h').parse().ok()?,
            Duration::from_millis(delay),
        ))
    });
    parsed.ok_or_else(|| "write HOST@MILLISECONDS, for example 1@500".into())
}
