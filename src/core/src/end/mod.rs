//! What one end of a connection over many paths wants and hears: actions, evidence, settings.

mod values;

pub use values::{
    Action, EndConfig, EndSnapshot, EndStatistics, Evidence, Failure, HealthSnapshot, ProbeKind,
    Routing,
};
