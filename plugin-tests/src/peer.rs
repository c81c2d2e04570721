//! Another process with the plugin, which does what lines on its standard input say.
//!
//! Commands: `listen N`, `connect HANDLES`, `accept`, `send COUNT BYTES`, `receive COUNT BYTES`,
//! `flood BYTES`, `close`, `exit`. Each is answered by one line that begins with `@`. `send` and
//! `receive` take `exit` as a last word: the process then ends in the moment in which the last
//! message is done, with nothing closed.

use std::io::{BufRead, BufReader, Write};
use std::process::{Child, ChildStdin, Stdio};
use std::sync::mpsc::{Receiver, channel};

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

use crate::net::{DEADLINE, Handle, Id, Net, Outcome, Refusal, until};
use crate::process::command;
use crate::stream::Stream;

/// Set in a process that serves.
const PEER: &str = "PLUGIN_TEST_PEER";

/// A peer process; killed when dropped.
pub struct Peer {
    child: Child,
    input: ChildStdin,
    answers: Receiver<String>,
}

impl Peer {
    /// Starts one with these settings; `test` is a test of this program that calls [`serve`].
    pub fn start(test: &str, settings: &[(&str, &str)]) -> Self {
        let mut child = command(test, settings)
            .env(PEER, "1")
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .expect("a test can start itself");
        let input = child.stdin.take().expect("a pipe");
        let output = BufReader::new(child.stdout.take().expect("a pipe"));
        let (sender, answers) = channel();
        std::thread::spawn(move || {
            for line in output.lines().map_while(Result::ok) {
                if let Some(answer) = line.strip_prefix('@') {
                    let _ = sender.send(answer.to_owned());
                }
            }
        });
        Self {
            child,
            input,
            answers,
        }
    }

    /// Gives a command without waiting for its end.
    pub fn tell(&mut self, command: &str) {
        writeln!(self.input, "{command}").expect("the peer lives");
    }

    /// The answer to the oldest command without one.
    pub fn answer(&self) -> Result<String, Refusal> {
        let answer = self
            .answers
            .recv_timeout(DEADLINE)
            .expect("an answer of the peer");
        match answer.split_once(' ') {
            Some(("error", rest)) => {
                let (code, line) = rest.split_once(' ').expect("code and line");
                Err(Refusal {
                    code: code.parse().expect("a code"),
                    line: line.to_owned(),
                })
            }
            Some((_, rest)) => Ok(rest.to_owned()),
            None => Ok(String::new()),
        }
    }

    /// Gives a command and waits for its end.
    pub fn ask(&mut self, command: &str) -> Result<String, Refusal> {
        self.tell(command);
        self.answer()
    }

    /// Handles of so many new listeners of the peer's.
    pub fn listen(&mut self, count: usize) -> Vec<Handle> {
        let handles = self.ask(&format!("listen {count}")).expect("listeners");
        handles.split(' ').map(unhex).collect()
    }

    /// Connections from here to the peer.
    pub fn connect_to(&mut self, net: Net, count: usize) -> Vec<Id> {
        let handles = self.listen(count);
        self.tell("accept");
        let made = handles
            .into_iter()
            .map(|handle| connect(net, handle).expect("a connection"));
        let made = made.collect();
        self.answer().expect("the peer accepts");
        made
    }

    /// A connection from the peer to here.
    pub fn connect_from(&mut self, net: Net) -> Id {
        let (listener, handle) = net.listen().expect("a listener");
        self.tell(&format!("connect {}", hex(&handle)));
        let made = accept(net, listener).expect("a connection");
        self.answer().expect("the peer connects");
        net.close_listen(listener);
        made
    }

    /// Sends a signal.
    pub fn signal(&self, signal: Signal) {
        kill(Pid::from_raw(self.child.id() as i32), signal).expect("a child of ours");
    }

    /// Waits until the process has ended by itself.
    pub fn ended(mut self) {
        until("the end of the peer", || {
            self.child.try_wait().expect("a child of ours")
        });
    }
}

impl Drop for Peer {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Connects to a handle.
pub fn connect(net: Net, mut handle: Handle) -> Outcome<Id> {
    until("connect", || net.connect(&mut handle).transpose())
}

/// Accepts a connection.
pub fn accept(net: Net, listener: Id) -> Outcome<Id> {
    until("accept", || net.accept(listener).transpose())
}

/// Serves commands if this process was started for that, and ends it.
#[allow(clippy::disallowed_methods)] // Ending without any clean-up is what is tested.
pub fn serve() {
    if std::env::var_os(PEER).is_none() {
        return;
    }
    let mut served = Served {
        net: Net::load(),
        listeners: Vec::new(),
        streams: Vec::new(),
    };
    let mut waiting = Waiting::default();
    for line in std::io::stdin().lines().map_while(Result::ok) {
        let words: Vec<&str> = line.split(' ').collect();
        let answer = served.obey(&words, &mut waiting);
        if words.last() == Some(&"exit") {
            leave();
        }
        match answer {
            Ok(text) => say(&format!("ok {text}")),
            Err(Refusal { code, line }) => say(&format!("error {code} {line}")),
        }
    }
    leave();
}

fn say(answer: &str) {
    // The test runner may have begun a line.
    let _ = std::io::stdout().write_all(format!("\n@{answer}\n").as_bytes());
}

fn leave() -> ! {
    // SAFETY: nothing of this process is needed any more.
    unsafe { libc::_exit(0) }
}

/// Communicators whose message size is not known yet.
#[derive(Default)]
struct Waiting {
    send: Vec<Id>,
    receive: Vec<Id>,
}

struct Served {
    net: Net,
    listeners: Vec<Id>,
    streams: Vec<Stream>,
}

impl Served {
    fn obey(&mut self, words: &[&str], waiting: &mut Waiting) -> Outcome<String> {
        let net = self.net;
        match words {
            ["listen", count] => {
                let count = number(count);
                let made: Outcome<Vec<_>> = (0..count).map(|_| net.listen()).collect();
                let made = made?;
                self.listeners.extend(made.iter().map(|(id, _)| *id));
                let handles: Vec<String> = made.iter().map(|(_, handle)| hex(handle)).collect();
                return Ok(handles.join(" "));
            }
            ["accept"] => {
                for listener in std::mem::take(&mut self.listeners) {
                    let made = accept(net, listener);
                    net.close_listen(listener);
                    waiting.receive.push(made?);
                }
            }
            ["connect", handles @ ..] => {
                for handle in handles {
                    waiting.send.push(connect(net, unhex(handle))?);
                }
            }
            ["send" | "receive", count, bytes, ..] => {
                self.prepare(number(bytes) as usize, waiting);
                // In turns: each of many connections gets along.
                let limits: Vec<u64> = self
                    .streams
                    .iter()
                    .map(|stream| stream.done + number(count))
                    .collect();
                until("messages", || {
                    let mut is_done = true;
                    for (stream, limit) in self.streams.iter_mut().zip(&limits) {
                        if stream.done < *limit {
                            is_done = false;
                            if let Err(refusal) = stream.step(*limit) {
                                return Some(Err(refusal));
                            }
                        }
                    }
                    is_done.then_some(Ok(()))
                })?;
            }
            ["flood", bytes] => {
                self.prepare(number(bytes) as usize, waiting);
                say("ok");
                // Without end, whatever the other side does: until this process is killed or the
                // connection fails.
                loop {
                    for stream in &mut self.streams {
                        stream.step(u64::MAX)?;
                    }
                }
            }
            ["close"] => self.streams.drain(..).for_each(Stream::close),
            ["exit"] => {}
            other => panic!("unknown command {other:?}"),
        }
        Ok(String::new())
    }

    fn prepare(&mut self, bytes: usize, waiting: &mut Waiting) {
        let net = self.net;
        let send = waiting
            .send
            .drain(..)
            .map(|comm| Stream::sender(net, comm, bytes));
        self.streams.extend(send);
        let receive = waiting
            .receive
            .drain(..)
            .map(|comm| Stream::receiver(net, comm, bytes));
        self.streams.extend(receive);
    }
}

fn number(text: &str) -> u64 {
    text.parse().expect("a number")
}

fn hex(handle: &Handle) -> String {
    handle.iter().map(|byte| format!("{byte:02x}")).collect()
}

fn unhex(text: &str) -> Handle {
    let byte = |index| u8::from_str_radix(&text[2 * index..2 * index + 2], 16);
    std::array::from_fn(|index| byte(index).expect("hexadecimal digits"))
}
