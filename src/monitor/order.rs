//! What a NIC can be told to be like (`r2ccl chaos`).

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use r2ccl_fabric::Fault;

/// Shortest flap: each half of it lasts as long as nobody looks at the orders.
pub const FLAP_MIN: Duration = super::watch::PERIOD.saturating_mul(2);

/// How a NIC is to behave until the next order.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Order {
    /// As it is.
    #[default]
    Restore,
    /// As if its link were lost.
    Kill,
    /// So many bytes a second.
    Slow(u64),
    /// What it sends is lost.
    CutSend,
    /// What is sent to it is lost.
    CutReceive,
    /// Both are lost.
    BlackHole,
    /// Killed and restored in turn, once in this time.
    Flap(Duration),
}

/// Orders without a number, as they are written.
const PLAIN: [(Order, &str); 5] = [
    (Order::Restore, "restore"),
    (Order::Kill, "kill"),
    (Order::CutSend, "cut-send"),
    (Order::CutReceive, "cut-receive"),
    (Order::BlackHole, "black-hole"),
];

impl Order {
    /// The fault that the device is to have, so long after the order was given.
    pub fn fault(self, since: Duration) -> Fault {
        match self {
            Self::Restore => Fault::Restore,
            Self::Kill => Fault::Kill,
            Self::Slow(bytes_per_second) => Fault::Slow { bytes_per_second },
            Self::CutSend => Fault::CutSend,
            Self::CutReceive => Fault::CutReceive,
            Self::BlackHole => Fault::BlackHole,
            Self::Flap(period) => {
                let half_ms = (period.as_millis() / 2).max(1);
                let is_first_half = since.as_millis() / half_ms % 2 == 0;
                if is_first_half {
                    Fault::Kill
                } else {
                    Fault::Restore
                }
            }
        }
    }
}

impl fmt::Display for Order {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Slow(rate) => write!(out, "slow:{rate}"),
            Self::Flap(period) => write!(out, "flap:{}", period.as_millis()),
            plain => {
                let found = PLAIN.iter().find(|(order, _)| order == plain);
                out.write_str(found.map_or("restore", |(_, text)| text))
            }
        }
    }
}

impl FromStr for Order {
    type Err = ();

    fn from_str(text: &str) -> Result<Self, ()> {
        if let Some((_, number)) = text.split_once("slow:") {
            let rate = number.parse().ok().filter(|rate| *rate > 0);
            return rate.map(Self::Slow).ok_or(());
        }
        if let Some((_, number)) = text.split_once("flap:") {
            let period = number.parse().ok().map(Duration::from_millis);
            let period = period.filter(|period| *period >= FLAP_MIN);
            return period.map(Self::Flap).ok_or(());
        }
        let found = PLAIN.iter().find(|(_, name)| *name == text);
        found.map(|(order, _)| *order).ok_or(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn written_and_read_back() {
        let numbers = [Order::Slow(7), Order::Flap(Duration::from_millis(300))];
        for order in PLAIN.iter().map(|(order, _)| *order).chain(numbers) {
            assert_eq!(order.to_string().parse(), Ok(order));
        }
        for nonsense in ["", "slow:0", "slow:", "flap:1", "flap:-5", "kill ", "Kill"] {
            assert_eq!(nonsense.parse::<Order>(), Err(()), "{nonsense}");
        }
    }

    #[test]
    fn a_flap_goes_to_and_fro() {
        let flap = Order::Flap(Duration::from_millis(200));
        let at = |ms| flap.fault(Duration::from_millis(ms));
        assert_eq!([at(0), at(99)], [Fault::Kill; 2]);
        assert_eq!([at(100), at(199)], [Fault::Restore; 2]);
        assert_eq!(at(200), Fault::Kill);
    }
}
