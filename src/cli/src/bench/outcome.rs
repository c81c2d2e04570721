//! How a run ended that did not reach its end.

use serde::Serialize;

/// How a host ended.
#[derive(Clone, Debug, Serialize)]
pub struct Outcome {
    /// Its name, `h0` and so on.
    pub host: String,
    /// Its process.
    pub pid: u32,
    /// What ended it.
    pub end: End,
    /// In words.
    pub message: String,
    /// Milliseconds from the first failure of the run.
    pub after_ms: u64,
}

/// Kinds of ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum End {
    /// The plugin returned an error or broke its contract.
    PluginError,
    /// The host gave up for another reason.
    HostError,
    /// Killed as demanded.
    KilledOnPurpose,
    /// The process died.
    Died,
    /// It did nothing until the driver killed it.
    Hung,
    /// It had done its part of the step.
    Finished,
}

/// A run that did not reach its end.
#[derive(Debug)]
pub struct Failure {
    /// The step that failed.
    pub step: &'static str,
    /// How each host ended.
    pub outcomes: Vec<Outcome>,
}

impl std::fmt::Display for Failure {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "failed in step '{}'", self.step)?;
        for outcome in &self.outcomes {
            write!(
                f,
                "\n  {} (process {}): {}",
                outcome.host, outcome.pid, outcome.message
            )?;
        }
        Ok(())
    }
}

impl std::error::Error for Failure {}
