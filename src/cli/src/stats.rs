//! Medians and their intervals, without randomness: the same numbers give the same verdict.

/// A median with the interval that holds the true median with at least 95 % confidence.
#[derive(Clone, Copy, Debug, PartialEq, serde::Serialize)]
pub struct Median {
    /// The middle value.
    pub median: f64,
    /// Lower end of the interval.
    pub low: f64,
    /// Upper end of the interval.
    pub high: f64,
}

/// Median and its distribution-free interval by order statistics (sign test): the narrowest
/// symmetric pair of ranks whose coverage under the binomial distribution is at least 95 %. With
/// fewer than six values no pair has that coverage; the whole range is given then.
pub fn median(values: &[f64]) -> Option<Median> {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    let count = sorted.len();
    let (first, last) = (*sorted.first()?, *sorted.last()?);
    let middle = (sorted[(count - 1) / 2] + sorted[count / 2]) / 2.0;
    Some(match outside_rank(count) {
        None => Median {
            median: middle,
            low: first,
            high: last,
        },
        Some(rank) => Median {
            median: middle,
            low: sorted[rank],
            high: sorted[count - 1 - rank],
        },
    })
}

/// Largest index `r` such that the values at `r` and `count - 1 - r` enclose the median with 95 %:
/// the chance that at most `r` of `count` fair coins show heads is at most 2.5 %.
fn outside_rank(count: usize) -> Option<usize> {
    let mut chance = 0.5f64.powi(i32::try_from(count).ok()?);
    let mut sum = 0.0;
    let mut rank = None;
    for heads in 0..count {
        sum += chance;
        if sum > 0.025 {
            break;
        }
        rank = Some(heads);
        chance *= (count - heads) as f64 / (heads + 1) as f64;
    }
    rank
}

/// The value below which `per_mille` of 1000 lie, of sorted values; 0 for none.
pub fn percentile(sorted: &[u64], per_mille: usize) -> u64 {
    let index = (sorted.len() * per_mille).div_ceil(1000).saturating_sub(1);
    sorted.get(index).copied().unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Ranks 10 and 21 of 30 are what tables of the sign test give.
    #[test]
    fn interval_of_thirty_values() {
        let values: Vec<f64> = (1..=30).map(f64::from).collect();
        assert_eq!(
            median(&values),
            Some(Median {
                median: 15.5,
                low: 10.0,
                high: 21.0
            })
        );
    }

    #[test]
    fn few_values_give_their_range() {
        assert_eq!(
            median(&[3.0, 1.0, 2.0]),
            Some(Median {
                median: 2.0,
                low: 1.0,
                high: 3.0
            })
        );
        assert_eq!(median(&[]), None);
    }

    #[test]
    fn percentiles() {
        let values: Vec<u64> = (1..=100).collect();
        assert_eq!(percentile(&values, 500), 50);
        assert_eq!(percentile(&values, 990), 99);
        assert_eq!(percentile(&[7], 990), 7);
        assert_eq!(percentile(&[], 500), 0);
    }
}
