//! `r2ccl config`: the plugin's settings as this environment sets them.

use std::process::ExitCode;

use r2ccl::config::{Description, Settings, Source};
use serde_json::json;

/// Options of `r2ccl config`.
#[derive(clap::Args, Debug)]
#[command(after_help = "\
Exit code 1 if a variable cannot be used as it stands: the plugin would say the same in NCCL's log
and take the default.")]
pub struct ConfigArgs {
    /// Print JSON
    #[arg(long, conflicts_with = "markdown")]
    json: bool,
    /// Print the reference page (docs/CONFIG.md)
    #[arg(long)]
    markdown: bool,
    /// Show meaning, range and default as well
    #[arg(short, long)]
    verbose: bool,
}

/// Runs the command.
pub fn run(args: &ConfigArgs) -> Result<ExitCode, String> {
    if args.markdown {
        print!("{}", r2ccl::config::markdown());
        return Ok(ExitCode::SUCCESS);
    }
    let settings = Settings::from_env();
    let rows = settings.describe();
    if args.json {
        let complaints: Vec<_> = settings
            .complaints
            .iter()
            .map(|complaint| json!({ "name": complaint.name, "message": complaint.message }))
            .collect();
        let rows: Vec<_> = rows.iter().map(as_json).collect();
        println!(
            "{:#}",
            json!({ "settings": rows, "complaints": complaints })
        );
    } else {
        print(&rows, args.verbose);
        for complaint in &settings.complaints {
            eprintln!("r2ccl: {complaint}");
        }
    }
    let usable = settings.complaints.is_empty();
    Ok(crate::exit_code(usable))
}

fn as_json(row: &Description) -> serde_json::Value {
    json!({
        "name": row.name,
        "value": row.value,
        "source": row.source.to_string(),
        "type": row.type_text,
        "default": row.default,
        "range": row.range,
        "stability": row.stability.to_string(),
        "shared": row.is_shared,
        "meaning": row.meaning,
    })
}

fn print(rows: &[Description], verbose: bool) {
    let names = rows.iter().map(|row| row.name.len()).max().unwrap_or(0);
    let values = rows
        .iter()
        .map(|row| row.value.len().min(40))
        .max()
        .unwrap_or(0);
    for row in rows {
        let Description {
            name,
            value,
            source,
            ..
        } = row;
        let value = if value.is_empty() { "-" } else { value };
        let mark = if *source == Source::Environment {
            "  <- environment"
        } else {
            ""
        };
        println!("{name:names$}  {value:values$}{mark}");
        if verbose {
            println!(
                "    {}\n    {}; default {}",
                row.meaning, row.range, row.default
            );
        }
    }
}
