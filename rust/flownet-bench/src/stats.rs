//! The middle and the ends of a handful of runs.

/// Middle, least and greatest of some values.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Spread {
    /// The middle value; the lower one of two.
    pub median: f64,
    /// The least.
    pub min: f64,
    /// The greatest.
    pub max: f64,
}

impl Spread {
    /// `None` of no values.
    #[must_use]
    pub fn of(values: impl IntoIterator<Item = f64>) -> Option<Self> {
        let mut values: Vec<f64> = values.into_iter().collect();
        values.sort_by(f64::total_cmp);
        let median = *values.get(values.len().checked_sub(1)? / 2)?;
        Some(Self { median, min: *values.first()?, max: *values.last()? })
    }
}

/// The middle value; the lower one of two. `None` of no values.
#[must_use]
pub fn median(values: impl IntoIterator<Item = f64>) -> Option<f64> {
    Spread::of(values).map(|spread| spread.median)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_median_is_the_middle_and_of_two_the_lower() {
        assert_eq!(median([]), None);
        assert_eq!(median([3.0, 1.0]), Some(1.0));
        assert_eq!(median([5.0, 1.0, 3.0]), Some(3.0));
        assert_eq!(Spread::of([5.0, 1.0, 3.0]), Some(Spread { median: 3.0, min: 1.0, max: 5.0 }));
    }
}
