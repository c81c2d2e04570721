//! `r2ccl drain` and `undrain`: a NIC goes out of use, or comes back, under running jobs.

use std::process::ExitCode;
use std::time::{Duration, Instant};

use serde_json::json;

use super::{LOOK, Target, processes};

/// Options of `r2ccl drain` and `r2ccl undrain`.
#[derive(clap::Args, Debug)]
#[command(after_help = "\
A drained NIC takes no new messages, at either end of any connection, as long as there is another
path; what is under way finishes on it. That holds for jobs that start later, too, until `r2ccl
undrain` or the next boot. Exit code 0 if every process has answered and, for drain, no end of any
connection has anything under way on the NIC any more; 1 if not.")]
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
    let answers = target.tell(deadline, |command, serial| {
        (command.is_drained, command.drain_serial) = (is_drained, serial);
    })?;
    let leaving = if is_drained {
        leaving(&target, deadline)
    } else {
        0
    };
    let is_good = answers.all_done() && leaving == 0;
    let name = target.name();
    if args.json {
        println!(
            "{:#}",
            json!({
                "nic": name,
                "drained": is_drained,
                "processes": answers.as_json(),
                "paths_leaving": leaving,
                "good": is_good,
            })
        );
    } else {
        answers.complain(limit);
        let count = processes(answers.answered.len());
        match (is_drained, leaving) {
            (false, _) => println!("{name}: in use again by {count}"),
            (true, 0) => println!("{name}: drained in {count}; nothing is under way on it"),
            (true, leaving) => println!(
                "{name}: drained in {count}, but {leaving} paths over it are still in use: their \
                 connections have no other, or their other end does not answer"
            ),
        }
    }
    Ok(crate::exit_code(is_good))
}

/// Waits until the NIC is out of use; else how many paths over it are not.
fn leaving(target: &Target, deadline: Instant) -> u32 {
    loop {
        let users = target.users();
        let leaving = users.iter().map(|(_, nic)| nic.paths_leaving).sum();
        if leaving == 0 || Instant::now() >= deadline {
            return leaving;
        }
        std::thread::sleep(LOOK);
    }
}
