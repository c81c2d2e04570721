//! The plugin's stream against a bare loop of RDMA writes of the same size and depth, in turn, in
//! the kernel lab; `scripts/lab/raw-writes.sh` builds and runs this there. Prints JSON.
//!
//! One process sends and one receives, and both have a bare queue pair and a connection of the
//! plugin's: blocks of messages go over either in turn, close together in time, so that a machine
//! that grows slow is not taken for a difference. Both start anew from time to time, since where
//! memory lies makes one pair of processes faster than another by a percent.

use std::io::{BufRead, BufReader, Write};
use std::process::{Child, ChildStdin, ChildStdout, Command, ExitCode, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};

use r2ccl_fabric::QueuePairAddress;
use r2ccl_fabric::verbs::raw::{RawEnd, Stream, Target};
use r2ccl_fabric::verbs::{VerbsConfig, VerbsDevice, open_all};
use r2ccl_plugin_tests::net::{Buffer, Id, Net};
use r2ccl_plugin_tests::peer;
use serde_json::{Value, json};

/// NCCL's size of a step and number of steps.
const BYTES: u32 = 512 << 10;
const DEPTH: u32 = 8;
/// Messages of each kind before what is measured.
const WARM_UP: u64 = 50;
/// Soft-RoCE with seven retries would go on without end.
const TIMEOUT: u8 = 14;
const RETRY_COUNT: u8 = 6;
/// Triples of blocks that one pair of processes counts for.
const TRIPLES_OF_A_PAIR: usize = 12;
/// NICs of both hosts, on one wire of the lab.
const NICS: [&str; 2] = ["rxe_a0", "rxe_b0"];
/// Of each triple of blocks, who is first: the bare loop, the stream, that again as a control.
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
        [triples, count] => compare(triples, count, NICS),
        [triples, count, one, other] => compare(triples, count, [one, other]),
        _ => Err("usage: raw-writes TRIPLES MESSAGES [NIC NIC]".into()),
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
    let config = VerbsConfig {
        timeout: TIMEOUT,
        retry_count: RETRY_COUNT,
        ..VerbsConfig::default()
    };
    let found = open_all(&config, &|device, _| device == nic)?;
    let device = found.ports.into_iter().next().map(|port| port.device);
    Ok(device.ok_or_else(|| format!("no {nic}: {:?}", found.notes))?)
}

/// One end, a process of its own: tells how it is reached, learns the same of its peer, and then
/// moves as many messages over what each line names, and answers with the nanoseconds they took.
fn end(nic: &str, is_sender: bool) -> Result<(), Failure> {
    let stream = |count| Stream {
        count,
        bytes: BYTES,
        depth: DEPTH,
    };
    let mut bare = RawEnd::new(open(nic)?, stream(0))?;
    let net = Net::load();
    let (listener, handle) = net.listen().map_err(|refusal| refusal.line)?;
    let Target { address, rkey } = bare.target();
    let hello = json!({
        "address": address, "rkey": rkey,
        "queue_pair": bare.address().0.to_vec(), "handle": handle.to_vec(),
    });
    println!("{hello}");
    let mut lines = std::io::stdin().lines();
    let peer: Value = serde_json::from_str(&lines.next().ok_or("no peer")??)?;
    let number = |name: &str| peer[name].as_u64().ok_or("no number");
    let target = Target {
        address: number("address")?,
        rkey: u32::try_from(number("rkey")?)?,
    };
    bare.connect(&QueuePairAddress(bytes(&peer["queue_pair"])?))?;
    let connection = match is_sender {
        true => peer::connect(net, bytes(&peer["handle"])?).map_err(|refusal| refusal.line)?,
        false => peer::accept(net, listener).map_err(|refusal| refusal.line)?,
    };
    let mut plugin = PluginEnd::new(net, connection, is_sender);
    println!("ready");
    for line in lines {
        let line = line?;
        let (what, count) = line.split_once(' ').ok_or("not a command")?;
        let count = count.parse()?;
        let taken = match (what, is_sender) {
            ("bare", true) => bare.send(stream(count), target)?,
            ("bare", false) => bare.receive(count)?,
            _ => plugin.run(count)?,
        };
        println!("{}", taken.as_nanos());
    }
    Ok(())
}

fn bytes<const N: usize>(value: &Value) -> Result<[u8; N], Failure> {
    let bytes: Vec<u8> = serde_json::from_value(value.clone())?;
    bytes.try_into().map_err(|_| "not as many bytes".into())
}

/// One end of a connection of the plugin's, driven as NCCL does: slots in turn, the oldest request
/// tested. Like the bare loop it yields when there is nothing to do.
struct PluginEnd {
    net: Net,
    connection: Id,
    is_sender: bool,
    slots: Vec<u8>,
    mr: Id,
    requests: [Id; DEPTH as usize],
}

impl PluginEnd {
    fn new(net: Net, connection: Id, is_sender: bool) -> Self {
        let slots = vec![0xa5; (BYTES * DEPTH) as usize];
        let address = slots.as_ptr().expose_provenance();
        let mr = net.register(connection, address, slots.len());
        Self {
            net,
            connection,
            is_sender,
            slots,
            mr: mr.expect("memory that can be registered"),
            requests: [0; DEPTH as usize],
        }
    }

    fn run(&mut self, count: u64) -> Result<Duration, Failure> {
        let start = Instant::now();
        let (mut posted, mut done) = (0, 0);
        while done < count {
            let before = posted + done;
            while posted < count && posted - done < u64::from(DEPTH) {
                match self.post(posted)? {
                    Some(request) => self.requests[(posted % u64::from(DEPTH)) as usize] = request,
                    None => break,
                }
                posted += 1;
            }
            while done < posted {
                let oldest = self.requests[(done % u64::from(DEPTH)) as usize];
                match self.net.test(oldest).map_err(|refusal| refusal.line)? {
                    Some(_) => done += 1,
                    None => break,
                }
            }
            if posted + done == before {
                std::thread::yield_now();
            }
        }
        Ok(start.elapsed())
    }

    fn post(&self, message: u64) -> Result<Option<Id>, Failure> {
        let offset = (message % u64::from(DEPTH)) as usize * BYTES as usize;
        let buffer = Buffer {
            address: self.slots[offset..].as_ptr().expose_provenance(),
            bytes: BYTES as usize,
            tag: 0,
            mr: self.mr,
        };
        let request = match self.is_sender {
            true => self.net.isend(self.connection, buffer),
            false => self.net.irecv(self.connection, &[buffer]),
        };
        request.map_err(|refusal| refusal.line.into())
    }
}

/// A process that is one end.
struct End {
    child: Child,
    input: ChildStdin,
    output: BufReader<ChildStdout>,
}

impl End {
    fn start(nic: &str, role: &str) -> Result<Self, Failure> {
        let mut child = Command::new(std::env::current_exe()?)
            .args(["end", nic, role])
            .env("R2CCL_FABRIC", "verbs")
            .env("NCCL_SOCKET_IFNAME", "lo")
            .env("NCCL_IB_HCA", format!("={nic}"))
            .env("NCCL_IB_TIMEOUT", TIMEOUT.to_string())
            .env("NCCL_IB_RETRY_CNT", RETRY_COUNT.to_string())
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

impl Drop for End {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Both ends.
struct Ends([End; 2]);

impl Ends {
    fn start(nics: [&str; 2]) -> Result<Self, Failure> {
        let mut ends = [
            End::start(nics[0], "send")?,
            End::start(nics[1], "receive")?,
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

    /// Messages a second of one block.
    fn run(&mut self, what: usize, count: u64) -> Result<f64, Failure> {
        let line = format!("{} {count}", if what == 0 { "bare" } else { "plugin" });
        self.0.iter_mut().try_for_each(|end| end.say(&line))?;
        let mut longest: f64 = 0.0;
        for end in &mut self.0 {
            longest = end.hear()?.parse::<f64>()?.max(longest);
        }
        Ok(count as f64 * 1e9 / longest)
    }
}

fn compare(triples: &str, count: &str, nics: [&str; 2]) -> Result<(), Failure> {
    let (triples, count) = (triples.parse::<usize>()?, count.parse::<u64>()?);
    let mut rates: [Vec<f64>; 3] = Default::default();
    for first in (0..triples).step_by(TRIPLES_OF_A_PAIR) {
        let mut ends = Ends::start(nics)?;
        // What touches everything for the first time does not count.
        for which in ORDERS[0] {
            ends.run(which, WARM_UP)?;
        }
        for triple in first..triples.min(first + TRIPLES_OF_A_PAIR) {
            for which in ORDERS[triple % ORDERS.len()] {
                rates[which].push(ends.run(which, count)?);
            }
        }
    }
    let [bare, one, other] = &rates;
    let ratios = ratios(one, bare);
    let result = json!({
        "bytes": BYTES, "depth": DEPTH, "messages": count, "triples": triples,
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
