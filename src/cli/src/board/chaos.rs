//! `r2ccl chaos`: software NICs of running jobs break, so that people see what happens then.

use std::process::ExitCode;
use std::time::{Duration, Instant};

use clap::Subcommand;
use r2ccl::config::{Kind, Seconds, rate_bits_per_s};
use r2ccl::monitor::order::{FLAP_MIN, Order};
use r2ccl::monitor::record::Answer;
use serde_json::json;

use super::{Target, processes};

/// Longest time to wait for the processes.
const LIMIT: Duration = Duration::from_secs(10);
/// Times that a flap may take, in seconds.
const FLAP_SECONDS: Seconds = Seconds { range: 0..=3600 };
const BITS_PER_BYTE: u64 = 8;

/// Options of `r2ccl chaos`.
#[derive(clap::Args, Debug)]
#[command(after_help = "\
Only processes obey that were started with R2CCL_CHAOS=1 in their environment, and only those that
run now: a fault ends with its job, or with `restore`. Exit code 0 if all did as they were told.

Examples:
  r2ccl chaos soft0 kill
  r2ccl chaos h1/soft0 slow 800M
  r2ccl chaos soft0 flap 2s
  r2ccl chaos soft0 restore")]
pub struct ChaosArgs {
    /// The NIC, as `r2ccl status` names it: soft0, or HOST/NAME
    #[arg(value_name = "NIC")]
    nic: String,
    /// Print JSON
    #[arg(long, global = true)]
    json: bool,
    /// What happens to it; each fault replaces the one before
    #[command(subcommand)]
    fault: FaultArg,
}

#[derive(Clone, Copy, Debug, Subcommand)]
enum FaultArg {
    /// As if its link were lost, which the plugin is told
    Kill,
    /// Well again
    Restore,
    /// Slower than it is
    Slow {
        /// Bits a second, such as 10G or 800M
        #[arg(value_name = "RATE", value_parser = parse_rate)]
        bytes_per_second: u64,
    },
    /// What goes one way is lost, and nobody is told
    Cut {
        /// Which way, seen from the NIC
        #[arg(value_enum)]
        way: Way,
    },
    /// Everything is lost, and nobody is told
    BlackHole,
    /// Killed and restored in turn
    Flap {
        /// Time for both together, such as 2s or 500ms
        #[arg(value_name = "PERIOD", value_parser = parse_period)]
        period: Duration,
    },
}

#[derive(Clone, Copy, Debug, clap::ValueEnum)]
enum Way {
    /// What it sends
    Send,
    /// What is sent to it
    Receive,
}

impl FaultArg {
    fn order(self) -> Order {
        match self {
            Self::Kill => Order::Kill,
            Self::Restore => Order::Restore,
            Self::Slow { bytes_per_second } => Order::Slow(bytes_per_second),
            Self::Cut { way: Way::Send } => Order::CutSend,
            Self::Cut { way: Way::Receive } => Order::CutReceive,
            Self::BlackHole => Order::BlackHole,
            Self::Flap { period } => Order::Flap(period),
        }
    }
}

fn parse_rate(text: &str) -> Result<u64, String> {
    let rate = rate_bits_per_s(text).map(|bits| bits / BITS_PER_BYTE);
    rate.ok_or_else(|| "write a rate from 1M on, such as 10G or 800M (bit/s)".into())
}

fn parse_period(text: &str) -> Result<Duration, String> {
    let period = FLAP_SECONDS.parse(text)?;
    if period < FLAP_MIN {
        return Err(format!("at least {FLAP_MIN:?}"));
    }
    Ok(period)
}

/// Runs the command.
pub fn chaos(args: &ChaosArgs) -> Result<ExitCode, String> {
    let target = Target::find(&args.nic)?;
    let order = args.fault.order();
    let deadline = Instant::now() + LIMIT;
    let answers = target.tell(deadline, |command, serial| {
        (command.order, command.order_serial) = (order, serial);
    })?;
    let done = answers.count(Answer::Done);
    let is_good = answers.all_done() && done > 0;
    let name = target.name();
    if args.json {
        println!(
            "{:#}",
            json!({
                "nic": name,
                "order": order.to_string(),
                "processes": answers.as_json(),
                "good": is_good,
            })
        );
    } else {
        answers.complain(LIMIT);
        println!("{name}: {order} in {}", processes(done));
        if answers.answered.is_empty() && answers.silent.is_empty() {
            eprintln!("r2ccl: the processes that used {name} have ended or left it");
        }
        let refused = answers.count(Answer::NotAllowed);
        if refused > 0 {
            eprintln!(
                "r2ccl: refused by {}: start the job with R2CCL_CHAOS=1 to rehearse faults",
                processes(refused)
            );
        }
        if answers.count(Answer::Unsupported) > 0 {
            eprintln!(
                "r2ccl: {name} is no software NIC; take its link away instead (`ip link set \
                 IFNAME down`, its switch port, `lab-cut` in the kernel lab)"
            );
        }
    }
    Ok(crate::exit_code(is_good))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rates_and_periods() {
        assert_eq!(parse_rate("800M"), Ok(100_000_000));
        assert!(parse_rate("800").is_err());
        assert_eq!(parse_period("2s"), Ok(Duration::from_secs(2)));
        assert_eq!(parse_period("100ms"), Ok(FLAP_MIN));
        assert!(parse_period("99ms").is_err());
    }
}
