//! What happens to the NICs, and when.

use r2ccl::monitor::order::Order;

/// Time that a NIC that is repaired may take until it carries its share again: the hold-down, the
/// ramp, and some for a busy machine, in seconds.
const RETURN: f64 = 4.0;

/// Something happens to NICs of host 0.
#[derive(Clone, Debug)]
pub struct Act {
    /// Seconds from the beginning.
    pub at: f64,
    /// The NICs, by their numbers.
    pub nics: Vec<usize>,
    /// What they are told.
    pub order: Order,
}

impl Act {
    /// In words.
    pub fn text(&self) -> String {
        let names: Vec<_> = self.nics.iter().map(|nic| format!("soft{nic}")).collect();
        match self.order {
            Order::Kill => format!("{} dies", names.join(" and ")),
            _ => format!("{} repaired", names.join(" and ")),
        }
    }
}

/// All that happens: NICs die one after the other, then all are repaired.
#[derive(Clone, Debug)]
pub struct Story {
    /// In the order of time.
    pub acts: Vec<Act>,
    /// When it is over, in seconds.
    pub end: f64,
}

impl Story {
    /// So many NICs die, `seconds` apart. The first NIC stays.
    pub fn new(kills: usize, seconds: u64) -> Self {
        let pause = seconds as f64;
        let mut acts: Vec<Act> = (1..=kills)
            .map(|nic| Act {
                at: pause * nic as f64,
                nics: vec![nic],
                order: Order::Kill,
            })
            .collect();
        let at = pause * (kills + 1) as f64;
        acts.push(Act {
            at,
            nics: (1..=kills).collect(),
            order: Order::Restore,
        });
        Story {
            acts,
            end: at + RETURN + pause,
        }
    }
}
