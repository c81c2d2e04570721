//! What stands on the board, as lines of words: a process with its NICs, and what NICs are told.
//! Whoever reads trusts nothing: a line that is not as it should be makes the whole text worthless.

use std::fmt::Write;
use std::str::FromStr;

use super::order::Order;

/// NICs that a process shows at the most.
pub const NICS_MAX: usize = 32;
/// Longest name, in bytes.
const NAME_BYTES_MAX: usize = 48;

/// What has become of the last thing that a NIC was told.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Answer {
    /// Nothing was told.
    #[default]
    None,
    /// Done.
    Done,
    /// Faults are for jobs that were started with `R2CCL_CHAOS=1`.
    NotAllowed,
    /// This kind of NIC cannot be broken by a command.
    Unsupported,
}

const ANSWERS: [(Answer, &str); 4] = [
    (Answer::None, "-"),
    (Answer::Done, "done"),
    (Answer::NotAllowed, "not-allowed"),
    (Answer::Unsupported, "unsupported"),
];

/// A process that uses NICs.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ProcessRecord {
    /// Its id, as it knows it itself.
    pub pid: u32,
    /// Name of its program.
    pub program: String,
    /// Whether `r2ccl chaos` may break its NICs.
    pub obeys_chaos: bool,
    /// Its NICs.
    pub nics: Vec<NicRecord>,
}

/// A NIC as one process sees it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct NicRecord {
    /// Its name, such as `soft0`.
    pub name: String,
    /// Whether its port is up.
    pub is_up: bool,
    /// Connections that have a path over it.
    pub connections: u32,
    /// Their paths over it that may take messages.
    pub paths_in_service: u32,
    /// Their paths over it that have failed and are not back.
    pub paths_failed: u32,
    /// Of those in service, the ones that a drain has not brought out of use at both ends.
    pub paths_leaving: u32,
    /// Payload bytes sent.
    pub bytes_sent: u64,
    /// Payload bytes received.
    pub bytes_received: u64,
    /// How often a path over it has failed.
    pub failovers: u64,
    /// How often one has come back.
    pub failbacks: u64,
    /// The fault that it is told to have.
    pub order: Order,
    /// Whether new messages keep off it.
    pub is_drained: bool,
    /// Serial of the last thing that it was told and that was seen to.
    pub answered: u64,
    /// How that went.
    pub answer: Answer,
}

/// What one NIC is told, in all processes of the host.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NicCommand {
    /// Its name.
    pub name: String,
    /// Whether new messages are to keep off it.
    pub is_drained: bool,
    /// When that was said; serials grow.
    pub drain_serial: u64,
    /// How it is to behave.
    pub order: Order,
    /// When that was said.
    pub order_serial: u64,
}

impl NicCommand {
    /// The last word.
    pub fn serial(&self) -> u64 {
        self.drain_serial.max(self.order_serial)
    }
}

/// `text` as one word of a line.
pub fn word(text: &str) -> String {
    let clean = text.chars().map(|c| match c {
        c if c.is_control() || c.is_whitespace() => '_',
        c => c,
    });
    let mut word = String::new();
    for c in clean {
        if word.len() + c.len_utf8() > NAME_BYTES_MAX {
            break;
        }
        word.push(c);
    }
    if word.is_empty() { "_".into() } else { word }
}

/// The words of a line, each of its type; `None` as soon as one is not.
struct Words<'a>(std::str::SplitAsciiWhitespace<'a>);

impl<'a> Words<'a> {
    fn next<T: FromStr>(&mut self) -> Option<T> {
        self.0.next()?.parse().ok()
    }

    fn name(&mut self) -> Option<String> {
        let name = self.0.next()?;
        (word(name) == name).then(|| name.to_owned())
    }

    fn flag(&mut self) -> Option<bool> {
        match self.0.next()? {
            "0" => Some(false),
            "1" => Some(true),
            _ => None,
        }
    }

    fn answer(&mut self) -> Option<Answer> {
        let text = self.0.next()?;
        let found = ANSWERS.iter().find(|(_, name)| *name == text);
        found.map(|(answer, _)| *answer)
    }

    fn end(mut self) -> Option<()> {
        self.0.next().is_none().then_some(())
    }
}

impl ProcessRecord {
    /// As text, for the board.
    pub fn encode(&self) -> String {
        let mut text = format!(
            "{} {} {}\n",
            self.pid,
            word(&self.program),
            u8::from(self.obeys_chaos)
        );
        for nic in self.nics.iter().take(NICS_MAX) {
            nic.encode(&mut text);
        }
        text
    }

    /// From text; `None` unless all of it is as it should be.
    pub fn decode(text: &str) -> Option<Self> {
        let mut lines = text.lines();
        let mut words = Words(lines.next()?.split_ascii_whitespace());
        let mut record = Self {
            pid: words.next()?,
            program: words.name()?,
            obeys_chaos: words.flag()?,
            nics: Vec::new(),
        };
        words.end()?;
        for line in lines {
            record.nics.push(NicRecord::decode(line)?);
        }
        (record.nics.len() <= NICS_MAX).then_some(record)
    }
}

impl NicRecord {
    fn encode(&self, text: &mut String) {
        let answer = ANSWERS.iter().find(|(answer, _)| *answer == self.answer);
        // Writing to a string cannot fail.
        let _ = writeln!(
            text,
            "{} {} {} {} {} {} {} {} {} {} {} {} {} {}",
            word(&self.name),
            u8::from(self.is_up),
            self.connections,
            self.paths_in_service,
            self.paths_failed,
            self.paths_leaving,
            self.bytes_sent,
            self.bytes_received,
            self.failovers,
            self.failbacks,
            self.order,
            u8::from(self.is_drained),
            self.answered,
            answer.map_or("-", |(_, name)| name),
        );
    }

    fn decode(line: &str) -> Option<Self> {
        let mut words = Words(line.split_ascii_whitespace());
        let record = Self {
            name: words.name()?,
            is_up: words.flag()?,
            connections: words.next()?,
            paths_in_service: words.next()?,
            paths_failed: words.next()?,
            paths_leaving: words.next()?,
            bytes_sent: words.next()?,
            bytes_received: words.next()?,
            failovers: words.next()?,
            failbacks: words.next()?,
            order: words.next()?,
            is_drained: words.flag()?,
            answered: words.next()?,
            answer: words.answer()?,
        };
        words.end()?;
        Some(record)
    }
}

/// Commands as text, for the board.
pub fn encode_commands(commands: &[NicCommand]) -> String {
    let lines = commands.iter().map(|command| {
        format!(
            "{} {} {} {} {}\n",
            word(&command.name),
            u8::from(command.is_drained),
            command.drain_serial,
            command.order,
            command.order_serial,
        )
    });
    lines.collect()
}

/// Commands from text; `None` unless all of it is as it should be.
pub fn decode_commands(text: &str) -> Option<Vec<NicCommand>> {
    let command = |line: &str| {
        let mut words = Words(line.split_ascii_whitespace());
        let command = NicCommand {
            name: words.name()?,
            is_drained: words.flag()?,
            drain_serial: words.next()?,
            order: words.next()?,
            order_serial: words.next()?,
        };
        words.end()?;
        Some(command)
    };
    let commands: Vec<_> = text.lines().map(command).collect::<Option<_>>()?;
    (commands.len() <= NICS_MAX).then_some(commands)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn sample() -> ProcessRecord {
        let nic = |number: u64| NicRecord {
            name: format!("soft{number}"),
            is_up: number == 0,
            connections: 3,
            bytes_sent: u64::MAX,
            failovers: number,
            order: Order::Slow(5),
            is_drained: number == 1,
            answered: 77,
            answer: Answer::NotAllowed,
            ..NicRecord::default()
        };
        ProcessRecord {
            pid: 4711,
            program: "python3".into(),
            obeys_chaos: true,
            nics: vec![nic(0), nic(1)],
        }
    }

    #[test]
    fn there_and_back() {
        let record = sample();
        assert_eq!(ProcessRecord::decode(&record.encode()), Some(record));
        let command = NicCommand {
            name: "soft0".into(),
            is_drained: true,
            drain_serial: 5,
            order: Order::BlackHole,
            order_serial: 3,
        };
        let commands = [command.clone(), command];
        let text = encode_commands(&commands);
        assert_eq!(decode_commands(&text).as_deref(), Some(&commands[..]));
        assert_eq!(decode_commands(""), Some(Vec::new()));
    }

    #[test]
    fn names_stay_one_word() {
        assert_eq!(word("a b\n"), "a_b_");
        assert_eq!(word(""), "_");
        assert!(word(&"é".repeat(99)).len() <= NAME_BYTES_MAX);
    }

    #[test]
    fn every_other_text_is_worthless() {
        let text = sample().encode();
        for (from, to) in [
            ("soft1", "soft 1"),
            ("4711", "-4711"),
            ("4711", "99999999999"),
            ("python3 1", "python3 2"),
            (" 77 ", " 18446744073709551616 "),
            ("slow:5", "slow:x"),
            ("not-allowed", "perhaps"),
        ] {
            assert!(text.contains(from));
            let changed = text.replacen(from, to, 1);
            assert_eq!(ProcessRecord::decode(&changed), None, "{changed}");
        }
        let nic = text.lines().nth(1).expect("a NIC");
        let crowd = format!("{text}{}", format!("{nic}\n").repeat(NICS_MAX));
        assert_eq!(ProcessRecord::decode(&crowd), None);
    }

    proptest! {
        #[test]
        fn nonsense_never_panics(text in "(?s).{0,200}") {
            let _ = ProcessRecord::decode(&text);
            let _ = decode_commands(&text);
        }
    }
}
