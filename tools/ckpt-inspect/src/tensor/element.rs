//! The elements of a tensor, decoded exactly and never rewritten.

use everstep::Dtype;
use serde_json::{Value as Json, json};

/// One element.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) enum Element {
    /// A byte that means truth.
    Truth(u8),
    /// Of any width and sign.
    Integer(i128),
    /// Of 32 bits or fewer.
    Single(f32),
    /// Of 64 bits.
    Double(f64),
    /// Real and imaginary part, of 32 bits.
    Pair(f32, f32),
    /// Of 64 bits.
    DoublePair(f64, f64),
}

/// The elements that `bytes` hold, in order; `count` of them, for packed types may leave half a byte.
pub(crate) fn elements(dtype: Dtype, bytes: &[u8], count: u64) -> impl Iterator<Item = Element> + '_ {
    let width = usize::try_from(dtype.bits() / 8).unwrap_or(0);
    let packed = (width == 0).then(|| bytes.iter().flat_map(|byte| [byte & 15, byte >> 4]));
    let fours = packed.into_iter().flatten().map(move |four| of_four(dtype, four));
    let whole =
        bytes.chunks_exact(width.max(1)).filter(move |_| width > 0).map(move |raw| of_bytes(dtype, raw));
    fours.chain(whole).take(usize::try_from(count).unwrap_or(usize::MAX))
}

fn of_four(dtype: Dtype, four: u8) -> Element {
    match dtype {
        Dtype::I4 => Element::Integer(i128::from(four) - if four > 7 { 16 } else { 0 }),
        Dtype::U4 => Element::Integer(i128::from(four)),
        _ => Element::Single(E2M1.decode(u16::from(four))),
    }
}

fn of_bytes(dtype: Dtype, raw: &[u8]) -> Element {
    match dtype {
        Dtype::Bool => Element::Truth(raw[0]),
        Dtype::U8 | Dtype::U16 | Dtype::U32 | Dtype::U64 => Element::Integer(i128::from(unsigned(raw))),
        Dtype::I8 | Dtype::I16 | Dtype::I32 | Dtype::I64 => Element::Integer(signed(raw)),
        Dtype::F16 => Element::Single(HALF.decode(short(raw))),
        Dtype::Bf16 => Element::Single(f32::from_bits(u32::from(short(raw)) << 16)),
        Dtype::F32 => Element::Single(single(raw)),
        Dtype::F64 => Element::Double(double(raw)),
        Dtype::Complex64 => Element::Pair(single(&raw[..4]), single(&raw[4..])),
        Dtype::Complex128 => Element::DoublePair(double(&raw[..8]), double(&raw[8..])),
        Dtype::F8E8m0fnu => Element::Single(scale(raw[0])),
        Dtype::F8E4m3fn => Element::Single(E4M3FN.decode(u16::from(raw[0]))),
        Dtype::F8E4m3fnuz => Element::Single(E4M3FNUZ.decode(u16::from(raw[0]))),
        Dtype::F8E5m2 => Element::Single(E5M2.decode(u16::from(raw[0]))),
        Dtype::F8E5m2fnuz => Element::Single(E5M2FNUZ.decode(u16::from(raw[0]))),
        Dtype::F4E2m1 | Dtype::I4 | Dtype::U4 => of_four(dtype, raw[0] & 15),
    }
}

fn unsigned(raw: &[u8]) -> u64 {
    raw.iter().rev().fold(0, |sum, byte| sum << 8 | u64::from(*byte))
}

fn signed(raw: &[u8]) -> i128 {
    let value = i128::from(unsigned(raw));
    let negative = raw.last().is_some_and(|byte| *byte > 127);
    if negative { value - (1i128 << (8 * raw.len())) } else { value }
}

fn short(raw: &[u8]) -> u16 {
    u16::from_le_bytes([raw[0], raw[1]])
}

fn single(raw: &[u8]) -> f32 {
    f32::from_le_bytes([raw[0], raw[1], raw[2], raw[3]])
}

fn double(raw: &[u8]) -> f64 {
    f64::from_bits(unsigned(raw))
}

/// A power of two without a sign.
fn scale(byte: u8) -> f32 {
    match byte {
        0 => f32::from_bits(0x0040_0000),
        255 => f32::NAN,
        exponent => f32::from_bits(u32::from(exponent) << 23),
    }
}

/// Where the special values of a small float are.
#[derive(Clone, Copy, PartialEq)]
enum Specials {
    /// As in IEEE 754: infinities and NaN at the highest exponent.
    Ieee,
    /// No infinity; NaN where every bit but the sign is set.
    AllOnes,
    /// No infinity and no negative zero; NaN where only the sign is set.
    NegativeZero,
    /// None at all.
    Absent,
}

/// A float that a single can hold exactly.
#[derive(Clone, Copy)]
struct Small {
    exponent_bits: u32,
    mantissa_bits: u32,
    bias: i32,
    specials: Specials,
}

const HALF: Small = Small { exponent_bits: 5, mantissa_bits: 10, bias: 15, specials: Specials::Ieee };
const E4M3FN: Small = Small { exponent_bits: 4, mantissa_bits: 3, bias: 7, specials: Specials::AllOnes };
const E4M3FNUZ: Small =
    Small { exponent_bits: 4, mantissa_bits: 3, bias: 8, specials: Specials::NegativeZero };
const E5M2: Small = Small { exponent_bits: 5, mantissa_bits: 2, bias: 15, specials: Specials::Ieee };
const E5M2FNUZ: Small =
    Small { exponent_bits: 5, mantissa_bits: 2, bias: 16, specials: Specials::NegativeZero };
const E2M1: Small = Small { exponent_bits: 2, mantissa_bits: 1, bias: 1, specials: Specials::Absent };

impl Small {
    fn decode(self, bits: u16) -> f32 {
        let Self { exponent_bits, mantissa_bits, bias, specials } = self;
        let mantissa = bits & ((1 << mantissa_bits) - 1);
        let highest = (1u16 << exponent_bits) - 1;
        let exponent = (bits >> mantissa_bits) & highest;
        let negative = bits >> (mantissa_bits + exponent_bits) & 1 == 1;
        let sign = if negative { -1.0 } else { 1.0 };
        match specials {
            Specials::Ieee if exponent == highest && mantissa == 0 => return sign * f32::INFINITY,
            Specials::Ieee if exponent == highest => return f32::NAN,
            Specials::AllOnes if exponent == highest && mantissa == (1 << mantissa_bits) - 1 => {
                return f32::NAN;
            }
            Specials::NegativeZero if negative && exponent == 0 && mantissa == 0 => return f32::NAN,
            _ => {}
        }
        let leading = if exponent == 0 { 0 } else { 1 << mantissa_bits };
        let power = i32::from(exponent.max(1)) - bias - i32::try_from(mantissa_bits).unwrap_or(0);
        sign * f32::from(leading + mantissa) * power_of_two(power)
    }
}

/// `2^power`, for powers of normal singles.
fn power_of_two(power: i32) -> f32 {
    f32::from_bits(u32::try_from(power + 127).unwrap_or(0) << 23)
}

/// The shortest text that gives the same value back.
fn float(value: f64, shortest: impl FnOnce() -> String) -> String {
    if value.is_nan() { "nan".to_owned() } else { shortest() }
}

fn number(value: f64) -> Json {
    if value.is_nan() {
        return "NaN".into();
    }
    if value.is_infinite() {
        return if value > 0.0 { "Infinity" } else { "-Infinity" }.into();
    }
    json!(value)
}

impl Element {
    /// For people.
    pub(crate) fn text(self) -> String {
        match self {
            Self::Truth(0) => "false".to_owned(),
            Self::Truth(1) => "true".to_owned(),
            // Neither: shown as it is.
            Self::Truth(other) => format!("0x{other:02x}"),
            Self::Integer(value) => value.to_string(),
            Self::Single(value) => float(value.into(), || format!("{value:?}")),
            Self::Double(value) => float(value, || format!("{value:?}")),
            Self::Pair(real, imaginary) => joined(Self::Single(real).text(), &Self::Single(imaginary).text()),
            Self::DoublePair(real, imaginary) => {
                joined(Self::Double(real).text(), &Self::Double(imaginary).text())
            }
        }
    }

    /// For scripts: NaN and infinities as text, complex numbers as `[real, imaginary]`.
    pub(crate) fn json(self) -> Json {
        match self {
            Self::Truth(byte @ 0..=1) => (byte == 1).into(),
            Self::Truth(other) => other.into(),
            Self::Integer(value) => integer(value),
            Self::Single(value) => number(value.into()),
            Self::Double(value) => number(value),
            Self::Pair(real, imaginary) => json!([number(real.into()), number(imaginary.into())]),
            Self::DoublePair(real, imaginary) => json!([number(real), number(imaginary)]),
        }
    }

    /// Its real numbers: one, or two of a complex number.
    pub(crate) fn parts(self) -> (Self, Option<Self>) {
        match self {
            Self::Pair(real, imaginary) => (Self::Single(real), Some(Self::Single(imaginary))),
            Self::DoublePair(real, imaginary) => (Self::Double(real), Some(Self::Double(imaginary))),
            other => (other, None),
        }
    }
}

fn integer(value: i128) -> Json {
    u64::try_from(value)
        .map(Json::from)
        .or_else(|_| i64::try_from(value).map(Json::from))
        .unwrap_or(Json::Null)
}

fn joined(real: String, imaginary: &str) -> String {
    let sign = if imaginary.starts_with('-') { "" } else { "+" };
    format!("{real}{sign}{imaginary}j")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn texts(dtype: Dtype, bytes: &[u8], count: u64) -> Vec<String> {
        elements(dtype, bytes, count).map(Element::text).collect()
    }

    #[test]
    fn every_type_is_decoded_to_what_it_means() {
        let cases: &[(Dtype, &[u8], &[&str])] = &[
            (Dtype::Bool, &[0, 1, 5], &["false", "true", "0x05"]),
            (Dtype::U8, &[0, 255], &["0", "255"]),
            (Dtype::I8, &[127, 128, 255], &["127", "-128", "-1"]),
            (Dtype::I16, &[0, 128], &["-32768"]),
            (Dtype::U64, &[255; 8], &["18446744073709551615"]),
            (Dtype::I64, &[255; 8], &["-1"]),
            (
                Dtype::F16,
                &[0, 0x3c, 0, 0x80, 0, 0x7c, 1, 0x7e, 1, 0],
                &["1.0", "-0.0", "inf", "nan", "5.9604645e-8"],
            ),
            (Dtype::Bf16, &[0x80, 0x3f, 0xc0, 0x7f, 0x80, 0xff], &["1.0", "nan", "-inf"]),
            (Dtype::F32, &[0, 0, 0, 0x80, 0xcd, 0xcc, 0xcc, 0x3d], &["-0.0", "0.1"]),
            (Dtype::F64, &[0x9a, 0x99, 0x99, 0x99, 0x99, 0x99, 0xb9, 0x3f], &["0.1"]),
            (Dtype::Complex64, &[0, 0, 0x80, 0x3f, 0, 0, 0, 0xc0], &["1.0-2.0j"]),
            (
                Dtype::F8E4m3fn,
                &[0x7e, 0x7f, 0x80, 0x01, 0xfe],
                &["448.0", "nan", "-0.0", "0.001953125", "-448.0"],
            ),
            (Dtype::F8E4m3fnuz, &[0x7f, 0x80, 0x01], &["240.0", "nan", "0.0009765625"]),
            (
                Dtype::F8E5m2,
                &[0x7b, 0x7c, 0xfc, 0x7d, 0x01],
                &["57344.0", "inf", "-inf", "nan", "1.5258789e-5"],
            ),
            (Dtype::F8E5m2fnuz, &[0x7f, 0x80, 0x01], &["57344.0", "nan", "7.6293945e-6"]),
            (Dtype::F8E8m0fnu, &[0, 127, 254, 255], &["5.877472e-39", "1.0", "1.7014118e38", "nan"]),
            (Dtype::F4E2m1, &[0x10, 0x72, 0xf8], &["0.0", "0.5", "1.0", "6.0", "-0.0", "-6.0"]),
            (Dtype::I4, &[0x87, 0x0f], &["7", "-8", "-1"]),
            (Dtype::U4, &[0x87], &["7", "8"]),
        ];
        for (dtype, bytes, expected) in cases {
            assert_eq!(texts(*dtype, bytes, expected.len() as u64), *expected, "{dtype}");
        }
    }

    #[test]
    fn every_half_and_small_float_survives_its_text() {
        for bits in 0..=u16::MAX {
            let value = HALF.decode(bits);
            let exponent = (bits >> 10) & 31;
            assert_eq!(value.is_nan(), exponent == 31 && bits & 1023 != 0, "{bits:04x}");
            if !value.is_nan() {
                assert_eq!(value.is_sign_negative(), bits > 0x7fff, "{bits:04x}");
            }
        }
        for bits in 0..=255u16 {
            for small in [E4M3FN, E4M3FNUZ, E5M2, E5M2FNUZ] {
                let value = small.decode(bits);
                assert!(value.is_nan() || Element::Single(value).text().parse() == Ok(value), "{bits:02x}");
            }
        }
    }

    #[test]
    fn json_keeps_what_json_has_no_numbers_for() {
        let of = |value: f32| Element::Single(value).json().to_string();
        assert_eq!(of(f32::NAN), "\"NaN\"");
        assert_eq!(of(f32::NEG_INFINITY), "\"-Infinity\"");
        assert_eq!(of(-0.0), "-0.0");
        assert_eq!(of(0.1), "0.10000000149011612", "the very value, as a double");
        assert_eq!(Element::Integer(u64::MAX.into()).json(), json!(u64::MAX));
        assert_eq!(Element::Pair(1.0, f32::NAN).json(), json!([1.0, "NaN"]));
    }
}
