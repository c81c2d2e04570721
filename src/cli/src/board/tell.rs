//! How processes are told about a NIC, and what they answer.

use std::time::{Duration, Instant, SystemTime};

use r2ccl::monitor::record::{Answer, NICS_MAX, NicCommand, NicRecord, ProcessRecord};
use serde_json::{Value, json};

use super::{LOOK, Target};

/// What the processes of a host have made of a command.
pub struct Answers {
    /// Those that have seen to it.
    pub answered: Vec<(ProcessRecord, Answer)>,
    /// Those that have not in time.
    pub silent: Vec<ProcessRecord>,
}

impl Answers {
    /// Whether nobody is missing, and each of the others has done it.
    pub fn all_done(&self) -> bool {
        let is_done = |(_, answer): &(_, Answer)| matches!(answer, Answer::Done | Answer::None);
        self.silent.is_empty() && self.answered.iter().all(is_done)
    }

    /// Processes with this answer.
    pub fn count(&self, wanted: Answer) -> usize {
        let matching = self.answered.iter().filter(|(_, answer)| *answer == wanted);
        matching.count()
    }

    /// For scripts.
    pub fn as_json(&self) -> Vec<Value> {
        let line = |process: &ProcessRecord, answer: &str| {
            json!({
                "pid": process.pid,
                "program": process.program,
                "answer": answer,
            })
        };
        let answered = self.answered.iter().map(|(process, answer)| {
            let text = match answer {
                Answer::Done => "done",
                Answer::NotAllowed => "not allowed",
                Answer::Unsupported => "unsupported",
                Answer::None => "came later",
            };
            line(process, text)
        });
        let silent = self.silent.iter().map(|process| line(process, "none"));
        answered.chain(silent).collect()
    }

    /// Says who has not answered.
    pub fn complain(&self, within: Duration) {
        for process in &self.silent {
            eprintln!(
                "r2ccl: process {} ({}) has not answered within {within:?}; does it stand still?",
                process.pid, process.program
            );
        }
    }
}

impl Target {
    /// Tells all processes something about the NIC, and waits until they have seen to it.
    pub fn tell(
        &self,
        deadline: Instant,
        change: impl Fn(&mut NicCommand, u64),
    ) -> Result<Answers, String> {
        let serial = self.post(deadline, change)?;
        Ok(self.wait(serial, deadline))
    }

    /// Writes it on the board; returns its serial.
    fn post(
        &self,
        deadline: Instant,
        change: impl Fn(&mut NicCommand, u64),
    ) -> Result<u64, String> {
        loop {
            let mut outcome = Err("too many NICs are drained: undrain one first".to_owned());
            let changed = self.board.change_commands(|commands| {
                outcome = self.write(commands, &change);
            })?;
            if changed {
                return outcome;
            }
            if Instant::now() >= deadline {
                return Err("another r2ccl holds the board; end it, then try again".into());
            }
            std::thread::sleep(LOOK);
        }
    }

    fn write(
        &self,
        commands: &mut Vec<NicCommand>,
        change: &impl Fn(&mut NicCommand, u64),
    ) -> Result<u64, String> {
        let serial = self.next_serial(commands);
        if let Some(command) = commands.iter_mut().find(|it| it.name == self.nic) {
            change(command, serial);
            return Ok(serial);
        }
        if commands.len() >= NICS_MAX {
            let idle = commands.iter().position(|command| !command.is_drained);
            let idle = idle.ok_or("too many NICs are drained: undrain one first")?;
            commands.remove(idle);
        }
        let mut command = NicCommand {
            name: self.nic.clone(),
            is_drained: false,
            drain_serial: 0,
            order: Default::default(),
            order_serial: 0,
        };
        change(&mut command, serial);
        commands.push(command);
        Ok(serial)
    }

    /// Greater than all before, also of those that were written to a board that broke.
    fn next_serial(&self, commands: &[NicCommand]) -> u64 {
        let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
        let now_ns = since.map_or(0, |time| time.as_nanos() as u64);
        let written = commands.iter().map(NicCommand::serial);
        let answered = self.users().into_iter().map(|(_, nic)| nic.answered);
        let last = written.chain(answered).max().unwrap_or(0);
        now_ns.max(last.saturating_add(1))
    }

    /// Processes that use the NIC, and the NIC as they see it.
    pub fn users(&self) -> Vec<(ProcessRecord, NicRecord)> {
        let processes = self.board.processes().into_iter();
        let user = |process: ProcessRecord| {
            let nic = process.nics.iter().find(|nic| nic.name == self.nic);
            nic.cloned().map(|nic| (process, nic))
        };
        processes.filter_map(user).collect()
    }

    /// Waits until all processes have seen to what they were told.
    fn wait(&self, serial: u64, deadline: Instant) -> Answers {
        loop {
            let (answered, silent): (Vec<_>, Vec<_>) = self
                .users()
                .into_iter()
                .partition(|(_, nic)| nic.answered >= serial);
            if silent.is_empty() || Instant::now() >= deadline {
                let answer = |(process, nic): (ProcessRecord, NicRecord)| (process, nic.answer);
                return Answers {
                    answered: answered.into_iter().map(answer).collect(),
                    silent: silent.into_iter().map(|(process, _)| process).collect(),
                };
            }
            std::thread::sleep(LOOK);
        }
    }
}
