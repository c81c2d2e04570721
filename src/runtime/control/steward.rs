//! The steward thread.

use std::sync::Arc;

use super::Shared;
use super::listener::Listener;
use crate::runtime::error::Result;

pub(super) struct Steward {
    shared: Arc<Shared>,
    listeners: Vec<Listener>,
}

impl Steward {
    pub(super) fn new(shared: Arc<Shared>, listeners: Vec<Listener>) -> Result<Self> {
        Ok(Self { shared, listeners })
    }

    pub(super) fn run(self) {
        let _ = self.shared.steward.set(std::thread::current().id());
        drop(self.listeners);
    }
}
