//! What many numbers amount to.

use serde_json::{Value as Json, json};

use crate::tensor::element::Element;

/// Statistics of one real part of a tensor's elements. Minimum, maximum, mean and deviation are of finite ones.
#[derive(Debug, Clone, Default)]
pub(crate) struct Statistics {
    count: u64,
    finite: u64,
    zeros: u64,
    nan: u64,
    positive_infinity: u64,
    negative_infinity: u64,
    least: Option<Element>,
    most: Option<Element>,
    mean: f64,
    /// Sum of squared differences from the mean.
    spread: f64,
}

impl Statistics {
    /// Takes in one number.
    pub(crate) fn add(&mut self, element: Element) {
        self.count += 1;
        let value = as_double(element);
        if value.is_nan() {
            self.nan += 1;
        } else if value == f64::INFINITY {
            self.positive_infinity += 1;
        } else if value == f64::NEG_INFINITY {
            self.negative_infinity += 1;
        } else {
            self.add_finite(element, value);
        }
    }

    fn add_finite(&mut self, element: Element, value: f64) {
        self.finite += 1;
        self.zeros += u64::from(value == 0.0);
        // Welford: no sum that overflows, no difference of large sums.
        let away = value - self.mean;
        self.mean += away / self.finite as f64;
        self.spread += away * (value - self.mean);
        if self.least.is_none_or(|least| is_less(element, least)) {
            self.least = Some(element);
        }
        if self.most.is_none_or(|most| is_less(most, element)) {
            self.most = Some(element);
        }
    }

    fn deviation(&self) -> f64 {
        (self.spread / self.finite as f64).sqrt()
    }

    /// Labels and texts for people.
    pub(crate) fn fields(&self) -> Vec<(&'static str, String)> {
        let shown = |element: Option<Element>| element.map_or_else(|| "-".to_owned(), Element::text);
        let computed = |value: f64| if self.finite == 0 { "-".to_owned() } else { significant(value) };
        vec![
            ("count", self.count.to_string()),
            ("min", shown(self.least)),
            ("max", shown(self.most)),
            ("mean", computed(self.mean)),
            ("std", computed(self.deviation())),
            ("zeros", self.zeros.to_string()),
            ("nan", self.nan.to_string()),
            ("+inf", self.positive_infinity.to_string()),
            ("-inf", self.negative_infinity.to_string()),
        ]
    }

    /// For scripts; `null` where no finite number was met.
    pub(crate) fn json(&self) -> Json {
        let computed = |value: f64| if self.finite == 0 { Json::Null } else { Element::Double(value).json() };
        json!({
            "count": self.count,
            "min": self.least.map(Element::json),
            "max": self.most.map(Element::json),
            "mean": computed(self.mean),
            "std": computed(self.deviation()),
            "zeros": self.zeros,
            "nan": self.nan,
            "positive_infinity": self.positive_infinity,
            "negative_infinity": self.negative_infinity,
        })
    }
}

/// Six digits, as far as they say anything.
fn significant(value: f64) -> String {
    let size = value.abs();
    if size != 0.0 && !(1e-4..1e7).contains(&size) {
        return format!("{value:.5e}");
    }
    let text = format!("{value:.6}");
    text.trim_end_matches('0').trim_end_matches('.').to_owned()
}

fn as_double(element: Element) -> f64 {
    match element {
        Element::Truth(byte) => f64::from(u8::from(byte != 0)),
        Element::Integer(value) => value as f64,
        Element::Single(value) | Element::Pair(value, _) => value.into(),
        Element::Double(value) | Element::DoublePair(value, _) => value,
    }
}

/// Exact also for integers that no double holds.
fn is_less(a: Element, b: Element) -> bool {
    match (a, b) {
        (Element::Integer(a), Element::Integer(b)) => a < b,
        _ => as_double(a) < as_double(b),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(elements: impl IntoIterator<Item = Element>) -> Statistics {
        let mut statistics = Statistics::default();
        elements.into_iter().for_each(|element| statistics.add(element));
        statistics
    }

    #[test]
    fn what_is_not_finite_is_counted_and_spoils_nothing() {
        let values = [1.0, f32::NAN, 3.0, f32::INFINITY, -0.0, f32::NEG_INFINITY, f32::NEG_INFINITY];
        let statistics = of(values.map(Element::Single)).json();
        assert_eq!(
            (&statistics["count"], &statistics["zeros"], &statistics["nan"]),
            (&7.into(), &1.into(), &1.into())
        );
        assert_eq!(
            (&statistics["positive_infinity"], &statistics["negative_infinity"]),
            (&1.into(), &2.into())
        );
        assert_eq!((&statistics["min"], &statistics["max"]), (&json!(-0.0), &json!(3.0)));
        let mean = statistics["mean"].as_f64().unwrap();
        assert!((mean - 4.0 / 3.0).abs() < 1e-12, "{mean}");
        let deviation = statistics["std"].as_f64().unwrap();
        assert!((deviation - (14.0f64 / 9.0).sqrt()).abs() < 1e-12, "{deviation}");
    }

    #[test]
    fn large_integers_are_compared_exactly() {
        let large = i128::from(u64::MAX);
        let statistics = of([large - 1, large, large - 2].map(Element::Integer)).json();
        assert_eq!((&statistics["min"], &statistics["max"]), (&json!(u64::MAX - 2), &json!(u64::MAX)));
    }

    #[test]
    fn without_a_finite_number_there_is_no_mean() {
        let statistics = of([Element::Single(f32::NAN)]);
        assert_eq!(statistics.json()["mean"], Json::Null);
        assert_eq!(statistics.fields()[1], ("min", "-".to_owned()));
        assert_eq!(of([]).json()["count"], 0);
    }

    #[test]
    fn computed_numbers_are_short() {
        for (value, text) in [
            (0.0, "0"),
            (1.5, "1.5"),
            (1.0 / 3.0, "0.333333"),
            (-2e-9, "-2.00000e-9"),
            (12345678.0, "1.23457e7"),
        ] {
            assert_eq!(significant(value), text);
        }
    }
}
