//! The plugin's stream against a bare loop of RDMA writes of the same size and depth, in turn, in
//! the kernel lab; `scripts/lab/raw-writes.sh` builds and runs this there. Prints JSON.
//!
//! One process sends and one receives in both, started anew for each run, and nothing but the
//! stream is timed: processes and queue pairs that are used for the first time are slower for some
//! time.

use std::io::{BufRead, BufReader, Write};
use std::process::{Child, ChildStdin, ChildStdout, Command, ExitCode, Stdio};
use std::sync::Arc;

use r2ccl_fabric::QueuePairAddress;
use r2ccl_fabric::verbs::raw::{RawEnd, Stream, Target};
use r2ccl_fabric::verbs::{VerbsConfig, VerbsDevice, open_all};
use r2ccl_plugin_tests::{command, plugin};
use serde_json::{Value, json};

/// NCCL's size of a step and number of steps.
const BYTES: u32 = 512 << 10;
const DEPTH: u32 = 8;
/// Writes before what is measured, as many as the driver's.
const WARM_UP: u64 = 16;
/// NICs of both hosts, on one wire of the lab.
const NICS: [&str; 2] = ["rxe_a0", "rxe_b0"];
/// Of each triple of runs, who is first: the bare loop, the stream, the stream again as a control.
const ORDERS: [[usize; 3]; 6] = [
    [0, 1, 2],
    [2, 1, 0],
    [1, 2, 0],
    [0, 2, 1],
    [2, 0, 1],
    [1, 0, 2],
];

type Failure = Box<dyn std::error::Error>;

fn main() -> ExitCode {
    let arguments: Vec<_> = std::env::args().skip(1).collect();
    let words: Vec<_> = arguments.iter().map(String::as_str).collect();
    let done = match words[..] {
        ["end", nic, role] => end(nic, role == "send"),
        [pairs, count] => compare(pairs, count, NICS),
        [pairs, count, one, other] => compare(pairs, count, [one, other]),
        _ => Err("usage: raw-writes PAIRS MESSAGES [NIC NIC]".into()),
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("raw-writes: {error}");
            ExitCode::FAILURE
        }
    }
}

fn open(nic: &str) -> Result<Arc<VerbsDevice>, Failure> {
    // With seven retries Soft-RoCE would go on without end.
    let config = VerbsConfig {
        timeout: 14,
        retry_count: 6,
        ..VerbsConfig::default()
    };
    let found = open_all(&config, &|device, _| device == nic)?;
    let device = found.ports.into_iter().next().map(|port| port.device);
    Ok(device.ok_or_else(|| format!("no {nic}: {:?}", found.notes))?)
}

/// One end of a bare pair, a process of its own. Each line that comes in but the first is a
/// number of writes, each that goes out the nanoseconds that they took.
fn end(nic: &str, is_sender: bool) -> Result<(), Failure> {
    let stream = |count| Stream {
        count,
        bytes: BYTES,
        depth: DEPTH,
    };
    let mut end = RawEnd::new(open(nic)?, stream(0))?;
    let Target { address, rkey } = end.target();
    println!("{address} {rkey} {}", join(&end.address().0));
    let mut lines = std::io::stdin().lines();
    let line = lines.next().ok_or("no peer")??;
    let numbers = line.split(' ').map(str::parse);
    let numbers = numbers.collect::<Result<Vec<u64>, _>>()?;
    let (&[address, rkey], peer) = numbers.split_first_chunk().ok_or("no peer")?;
    let rkey = u32::try_from(rkey)?;
    let peer: Vec<_> = peer.iter().map(|byte| *byte as u8).collect();
    let peer = peer.try_into().map_err(|_| "no address")?;
    end.connect(&QueuePairAddress(peer))?;
    println!("ready");
    for line in lines {
        let count = line?.parse()?;
        let taken = match is_sender {
            true => end.send(stream(count), Target { address, rkey })?,
            false => end.receive(count)?,
        };
        println!("{}", taken.as_nanos());
    }
    Ok(())
}

fn join(bytes: &[u8]) -> String {
    let words: Vec<_> = bytes.iter().map(u8::to_string).collect();
    words.join(" ")
}

/// A process that is one end of the bare pair.
struct Bare {
    child: Child,
    input: ChildStdin,
    output: BufReader<ChildStdout>,
}

impl Bare {
    fn start(nic: &str, role: &str) -> Result<Self, Failure> {
        let mut child = Command::new(std::env::current_exe()?)
            .args(["end", nic, role])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()?;
        let input = child.stdin.take().ok_or("no input")?;
        let output = BufReader::new(child.stdout.take().ok_or("no output")?);
        Ok(Self {
            child,
            input,
            output,
        })
    }

    fn say(&mut self, line: &str) -> Result<(), Failure> {
        Ok(writeln!(self.input, "{line}")?)
    }

    fn hear(&mut self) -> Result<String, Failure> {
        let mut line = String::new();
        self.output.read_line(&mut line)?;
        Ok(line.trim().to_owned())
    }
}

impl Drop for Bare {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Both ends of the bare loop.
struct Pair([Bare; 2]);

impl Pair {
    fn start(nics: [&str; 2]) -> Result<Self, Failure> {
        let mut ends = [
            Bare::start(nics[0], "send")?,
            Bare::start(nics[1], "receive")?,
        ];
        let lines = [ends[0].hear()?, ends[1].hear()?];
        ends[0].say(&lines[1])?;
        ends[1].say(&lines[0])?;
        for end in &mut ends {
            let word = end.hear()?;
            if word != "ready" {
                return Err(format!("an end is not ready: {word:?}").into());
            }
        }
        Ok(Self(ends))
    }

    /// Writes a second.
    fn run(&mut self, count: u64) -> Result<f64, Failure> {
        let mut longest = 0.0;
        for count in [WARM_UP, count] {
            self.0
                .iter_mut()
                .try_for_each(|end| end.say(&count.to_string()))?;
            longest = 0.0;
            for end in &mut self.0 {
                longest = end.hear()?.parse::<f64>()?.max(longest);
            }
        }
        Ok(count as f64 * 1e9 / longest)
    }
}

/// Messages a second of the plugin's stream.
fn stream(count: u64, [one, other]: [&str; 2]) -> Result<f64, Failure> {
    let arguments = format!(
        "--env 0:NCCL_IB_HCA=={one} --env 1:NCCL_IB_HCA=={other} --pattern stream --sizes {BYTES} \
         --iterations {count}"
    );
    let output = command::bench(&plugin::path(), &arguments)
        .env("R2CCL_FABRIC", "verbs")
        .env("NCCL_SOCKET_IFNAME", "lo")
        .env("NCCL_IB_TIMEOUT", "14")
        .env("NCCL_IB_RETRY_CNT", "6")
        .output()?;
    let result = command::result(&output, &arguments);
    if !output.status.success() {
        return Err(format!("{result:#}").into());
    }
    let nanoseconds = result["rows"][0]["nanoseconds"].as_f64();
    Ok(count as f64 * 1e9 / nanoseconds.ok_or("no time")?)
}

fn compare(pairs: &str, count: &str, nics: [&str; 2]) -> Result<(), Failure> {
    let (pairs, count) = (pairs.parse::<usize>()?, count.parse::<u64>()?);
    let mut rates: [Vec<f64>; 3] = Default::default();
    for pair in 0..pairs {
        for which in ORDERS[pair % ORDERS.len()] {
            rates[which].push(match which {
                0 => Pair::start(nics)?.run(count)?,
                _ => stream(count, nics)?,
            });
        }
    }
    let [bare, one, other] = &rates;
    let ratios = ratios(one, bare);
    let result = json!({
        "bytes": BYTES, "depth": DEPTH, "messages": count, "pairs": pairs,
        "bare_gb_per_s": gigabytes(bare), "stream_gb_per_s": gigabytes(one),
        "ratio": median(&ratios), "control": median(&self::ratios(other, one)), "ratios": ratios,
    });
    println!("{result:#}");
    Ok(())
}

fn ratios(above: &[f64], below: &[f64]) -> Vec<f64> {
    above.iter().zip(below).map(|(a, b)| a / b).collect()
}

fn gigabytes(rates: &[f64]) -> Value {
    let gigabytes: Vec<_> = rates.iter().map(|it| it * f64::from(BYTES) / 1e9).collect();
    median(&gigabytes)
}

/// The median, and the ranks that hold it with 95 % by the sign test: see `r2ccl bench --compare`.
fn median(values: &[f64]) -> Value {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    let count = sorted.len();
    let rank = outside_rank(count);
    json!({
        "median": (sorted[(count - 1) / 2] + sorted[count / 2]) / 2.0,
        "low": sorted[rank],
        "high": sorted[count - 1 - rank],
    })
}

/// The largest rank at which at most 2.5 % of the binomial distribution is left out at an end.
fn outside_rank(count: usize) -> usize {
    let (mut chance, mut sum) = (0.5_f64.powi(count as i32), 0.0);
    (0..count)
        .take_while(|heads| {
            sum += chance;
            chance *= (count - heads) as f64 / (heads + 1) as f64;
            sum <= 0.025
        })
        .last()
        .unwrap_or(0)
}
