//! `r2ccl drain` and `undrain`: a NIC goes out of use, or comes back, under running jobs.

use std::process::ExitCode;
use std::time::{Duration, Instant};

use r2ccl::monitor::watch::PERIOD;
use serde_json::json;

use super::{LOOK, Target, processes};
use crate::units;

/// Time without a byte after which a NIC counts as out of use: several looks of every process.
const QUIET: Duration = PERIOD.saturating_mul(6);

/// Options of `r2ccl drain` and `r2ccl undrain`.
#[derive(clap::Args, Debug)]
#[command(after_help = "\
A drained NIC takes no new messages, at either end of any connection, as long as there is another
path; what is under way finishes on it. That holds for jobs that start later, too, until `r2ccl
undrain` or the next boot. Exit code 0 if every process has answered and, for drain, nothing moves
over the NIC any more; 1 if not.")]
pub struct DrainArgs {
    /// The NIC, as `r2ccl status` names it: soft0, or HOST/NAME
    #[arg(value_name = "NIC")]
    nic: String,
    /// Longest time to wait for the processes, in seconds
    #[arg(long, value_name = "S", default_value_t = 10)]
    #[arg(value_parser = clap::value_parser!(u64).range(1..=3600))]
    timeout: u64,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

/// Runs the command.
pub fn drain(args: &DrainArgs, is_drained: bool) -> Result<ExitCode, String> {
    let target = Target::find(&args.nic)?;
    let limit = Duration::from_secs(args.timeout);
    let deadline = Instant::now() + limit;
    let serial = target.tell(deadline, |command, serial| {
        (command.is_drained, command.drain_serial) = (is_drained, serial);
    })?;
    let answers = target.wait(serial, deadline);
    let moved = if is_drained {
        moved(&target, deadline)
    } else {
        0
    };
    let is_good = answers.all_done() && moved == 0;
    let name = target.name();
    if args.json {
        println!(
            "{:#}",
            json!({
                "nic": name,
                "drained": is_drained,
                "processes": answers.as_json(),
                "bytes_moving": moved,
                "good": is_good,
            })
        );
    } else {
        answers.complain(limit);
        let count = processes(answers.answered.len());
        match (is_drained, moved) {
            (false, _) => println!("{name}: in use again by {count}"),
            (true, 0) => {
                println!("{name}: drained in {count}; nothing has moved over it for {QUIET:?}")
            }
            (true, moved) => println!(
                "{name}: drained in {count}, but {} have moved over it in the last {QUIET:?}: some \
                 connections have no other path",
                units::amount(moved)
            ),
        }
    }
    Ok(if is_good {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    })
}

/// Waits until nothing moves over a NIC for [`QUIET`]; else what has moved in the last of these.
fn moved(target: &Target, deadline: Instant) -> u64 {
    let total = || {
        let nics = target.users().into_iter().map(|(_, nic)| nic);
        let each = nics.map(|nic| nic.bytes_sent.wrapping_add(nic.bytes_received));
        each.fold(0, u64::wrapping_add)
    };
    loop {
        let before = total();
        let since = Instant::now();
        while since.elapsed() < QUIET {
            std::thread::sleep(LOOK);
        }
        // A process that has ended takes its bytes along.
        let moved = total().saturating_sub(before);
        if moved == 0 || Instant::now() >= deadline {
            return moved;
        }
    }
}
