//! `r2ccl status`: processes and their NICs.

use std::process::ExitCode;
use std::time::Duration;

use r2ccl::monitor::board::Board;
use r2ccl::monitor::order::Order;
use r2ccl::monitor::record::{NicRecord, ProcessRecord};
use serde_json::{Value, json};

use super::boards;
use crate::units;

/// Pause of `--watch`.
const REFRESH: Duration = Duration::from_secs(1);
/// Clears a terminal.
const CLEAR: &str = "\x1b[H\x1b[2J";

/// Options of `r2ccl status`.
#[derive(clap::Args, Debug)]
#[command(after_help = "\
Shows the jobs of this user on this host, for root those of all users. A process appears with its
first connection. PATHS are those that may take messages, of all connections; FAILED those that may
not; AWAY and BACK how often one has failed and come back.")]
pub struct StatusArgs {
    /// Print JSON; with --watch a line a second
    #[arg(long)]
    json: bool,
    /// Show it again every second, until interrupted
    #[arg(long)]
    watch: bool,
}

/// Runs the command.
pub fn status(args: &StatusArgs) -> Result<ExitCode, String> {
    loop {
        let boards = boards()?;
        match (args.json, args.watch) {
            (true, true) => println!("{}", as_json(&boards)),
            (true, false) => println!("{:#}", as_json(&boards)),
            (false, true) => print!("{CLEAR}{}", table(&boards)),
            (false, false) => print!("{}", table(&boards)),
        }
        if !args.watch {
            return Ok(ExitCode::SUCCESS);
        }
        std::thread::sleep(REFRESH);
    }
}

fn as_json(boards: &[Board]) -> Value {
    let hosts = boards.iter().map(|board| {
        let processes = board.processes();
        let processes: Vec<_> = processes.iter().map(process_json).collect();
        let commands = board.commands().unwrap_or_default().into_iter();
        let drained = commands.filter(|command| command.is_drained);
        json!({
            "host": board.host(),
            "drained": drained.map(|command| command.name).collect::<Vec<_>>(),
            "processes": processes,
        })
    });
    json!({ "hosts": hosts.collect::<Vec<_>>() })
}

fn process_json(process: &ProcessRecord) -> Value {
    let nics: Vec<_> = process.nics.iter().map(nic_json).collect();
    json!({
        "pid": process.pid,
        "program": process.program,
        "chaos": process.obeys_chaos,
        "nics": nics,
    })
}

fn nic_json(nic: &NicRecord) -> Value {
    json!({
        "name": nic.name,
        "port": port(nic),
        "connections": nic.connections,
        "paths_in_service": nic.paths_in_service,
        "paths_failed": nic.paths_failed,
        "paths_leaving": nic.paths_leaving,
        "bytes_sent": nic.bytes_sent,
        "bytes_received": nic.bytes_received,
        "failovers": nic.failovers,
        "failbacks": nic.failbacks,
        "fault": nic.order.to_string(),
        "drained": nic.is_drained,
    })
}

fn port(nic: &NicRecord) -> &'static str {
    if nic.is_up { "up" } else { "down" }
}

const HEADS: [&str; 11] = [
    "HOST",
    "PROCESS",
    "PROGRAM",
    "NIC",
    "PORT",
    "PATHS",
    "FAILED",
    "SENT",
    "RECEIVED",
    "AWAY/BACK",
    "NOTE",
];

fn table(boards: &[Board]) -> String {
    let mut rows = vec![HEADS.map(str::to_owned)];
    for board in boards {
        for process in board.processes() {
            let row = |nic| row(board.host(), &process, nic);
            rows.extend(process.nics.iter().map(row));
        }
    }
    if rows.len() == 1 {
        return "no job of this user uses the plugin on this host\n".into();
    }
    let mut widths = [0; HEADS.len()];
    for row in &rows {
        for (width, cell) in widths.iter_mut().zip(row) {
            *width = cell.chars().count().max(*width);
        }
    }
    let mut text = String::new();
    for row in &rows {
        let cells = row.iter().zip(widths);
        let line: Vec<_> = cells
            .map(|(cell, width)| format!("{cell:width$}"))
            .collect();
        text.push_str(line.join("  ").trim_end());
        text.push('\n');
    }
    text
}

fn row(host: &str, process: &ProcessRecord, nic: &NicRecord) -> [String; HEADS.len()] {
    let mut notes = Vec::new();
    if nic.is_drained {
        notes.push(match nic.paths_leaving {
            0 => "drained".to_owned(),
            count => format!("drained, {count} paths still in use"),
        });
    }
    if nic.order != Order::Restore {
        notes.push(format!("chaos: {}", nic.order));
    }
    [
        host.to_owned(),
        process.pid.to_string(),
        process.program.clone(),
        nic.name.clone(),
        port(nic).to_owned(),
        nic.paths_in_service.to_string(),
        nic.paths_failed.to_string(),
        units::amount(nic.bytes_sent),
        units::amount(nic.bytes_received),
        format!("{}/{}", nic.failovers, nic.failbacks),
        notes.join(", "),
    ]
}
