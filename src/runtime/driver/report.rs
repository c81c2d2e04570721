//! What people are told of the paths of a connection.

use std::sync::atomic::Ordering;

use super::{Driver, Role, path_id};
use crate::runtime::shared::PathNic;

impl<H: Role> Driver<H> {
    /// Tells people which paths have left service or come back. That is once for each connection
    /// and fault; the log thins it out.
    pub(super) fn report(&mut self) {
        let ids = || (0..self.shared.nics.len()).filter_map(path_id);
        let serving = ids()
            .filter(|id| self.is_serving(*id))
            .fold(0, |mask, id| mask | 1 << id.index());
        let changed = self.serving ^ serving;
        if changed == 0 {
            return;
        }
        let faults = self.end.snapshot().statistics.queue_pair_faults;
        let is_queue_pair = std::mem::replace(&mut self.queue_pair_faults, faults) != faults;
        for id in ids().filter(|id| changed >> id.index() & 1 == 1) {
            let label = &self.shared.label;
            let PathNic { device, tally, .. } = &self.shared.nics[id.index()];
            let nic = &device.info().name;
            let (path, bit) = (id.index(), 1 << id.index());
            let is_back = serving & bit != 0;
            if !is_back {
                tally.failovers.fetch_add(1, Ordering::Relaxed);
            } else if self.failed & bit != 0 {
                tally.failbacks.fetch_add(1, Ordering::Relaxed);
            }
            self.failed = if is_back {
                self.failed & !bit
            } else {
                self.failed | bit
            };
            if is_back {
                self.causes.clear(id);
                tracing::info!("{label}: path {path} over {nic} takes messages");
            } else if is_queue_pair {
                tracing::warn!(
                    "{label}: path {path} over {nic}: its queue pair has failed, not its NICs; \
                     another one is made"
                );
            } else {
                let rest = match serving {
                    0 => "no path is left",
                    _ => "others take over",
                };
                let cause = self.causes.text(id);
                tracing::warn!("{label}: path {path} over {nic} has failed; {rest} ({cause})");
            }
        }
        self.shared.paths.set(serving, self.failed);
        self.serving = serving;
    }

    /// Shows which drained paths are out of use.
    pub(super) fn note_out(&mut self) {
        if self.drain_round > 0 {
            let ids = (0..self.shared.nics.len()).filter_map(path_id);
            let out = ids.filter(|id| self.end.is_out(*id));
            let out = out.fold(0, |mask, id| mask | 1 << id.index());
            self.shared.paths.set_out(self.drain_round, out);
        }
    }

    /// What is known of each NIC, when all have failed.
    pub(super) fn causes(&self) -> String {
        let nics = self.shared.nics.iter().enumerate();
        let causes = nics.filter_map(|(index, nic)| {
            let name = &nic.device.info().name;
            Some(format!("{name}: {}", self.causes.text(path_id(index)?)))
        });
        causes.collect::<Vec<_>>().join("; ")
    }
}
