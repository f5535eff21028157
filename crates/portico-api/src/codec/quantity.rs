//! Quantities such as `500m` and `2Gi`: syntax and canonical form.
//!
//! A number in decimal keeps at most nine fractional digits and rounds up; a number in binary is
//! capped at 2^63-1. The canonical form has no fraction, the largest suffix that allows this, and
//! stays binary or decimal as it was written.

const BAD_FORMAT: &str =
    "quantities must match the regular expression '^([+-]?[0-9.]+)([eEinumkKMGTP]*[-+]?[0-9]*)$'";
const BAD_SUFFIX: &str = "unable to parse quantity's suffix";
const TOO_LONG: &str = "unable to parse numeric part of quantity";

#[derive(Clone, Copy, PartialEq)]
enum Format {
    Binary,
    Decimal,
    Exponent,
}

/// The canonical text of a quantity.
pub(super) fn canonical(text: &str) -> Result<String, &'static str> {
    let (negative, digits, suffix) = split(text)?;
    let (format, exponent) = interpret(suffix).ok_or(BAD_SUFFIX)?;
    let (whole, fraction) = digits.split_once('.').unwrap_or((digits, ""));
    let mut mantissa = 0i128;
    for digit in whole.bytes().chain(fraction.bytes()) {
        let next = mantissa
            .checked_mul(10)
            .and_then(|m| m.checked_add(i128::from(digit - b'0')));
        mantissa = next.ok_or(TOO_LONG)?;
    }
    let mut scale = -i64::try_from(fraction.len()).map_err(|_| TOO_LONG)?;
    if format == Format::Binary {
        mantissa = mantissa
            .checked_mul(1i128.checked_shl(exponent as u32).ok_or(TOO_LONG)?)
            .ok_or(TOO_LONG)?;
    } else {
        scale += exponent;
    }
    let (mantissa, scale) = round_up_to_nano(mantissa, scale);
    if mantissa == 0 {
        return Ok("0".into());
    }
    let whole_number = (scale == 0).then_some(mantissa);
    let text = match (format, whole_number) {
        // Small binary numbers are shown as decimals, to avoid rounding.
        (Format::Binary, Some(number)) if number >= 1024 => {
            binary(number.min(i128::from(i64::MAX)))
        }
        (Format::Exponent, _) => decimal(mantissa, scale, true)?,
        _ => decimal(mantissa, scale, false)?,
    };
    Ok(if negative { format!("-{text}") } else { text })
}

/// Sign, number and suffix.
fn split(text: &str) -> Result<(bool, &str, &str), &'static str> {
    let unsigned = text.strip_prefix(['-', '+']).unwrap_or(text);
    let end = unsigned
        .find(|c: char| !c.is_ascii_digit() && c != '.')
        .unwrap_or(unsigned.len());
    let (digits, suffix) = unsigned.split_at_checked(end).ok_or(BAD_FORMAT)?;
    let plain = digits.bytes().any(|b| b.is_ascii_digit())
        && digits.bytes().filter(|b| *b == b'.').count() <= 1;
    let letters = suffix.trim_start_matches(|c| "eEinumkKMGTP".contains(c));
    let number = letters.strip_prefix(['-', '+']).unwrap_or(letters);
    if !plain || !number.bytes().all(|b| b.is_ascii_digit()) {
        return Err(BAD_FORMAT);
    }
    Ok((text.starts_with('-'), digits, suffix))
}

fn interpret(suffix: &str) -> Option<(Format, i64)> {
    let decimal = |exponent| Some((Format::Decimal, exponent));
    let binary = |exponent| Some((Format::Binary, exponent));
    match suffix {
        "n" => decimal(-9),
        "u" => decimal(-6),
        "m" => decimal(-3),
        "" => decimal(0),
        "k" => decimal(3),
        "M" => decimal(6),
        "G" => decimal(9),
        "T" => decimal(12),
        "P" => decimal(15),
        "E" => decimal(18),
        "Ki" => binary(10),
        "Mi" => binary(20),
        "Gi" => binary(30),
        "Ti" => binary(40),
        "Pi" => binary(50),
        "Ei" => binary(60),
        _ => {
            let exponent: i32 = suffix.strip_prefix(['e', 'E'])?.parse().ok()?;
            Some((Format::Exponent, exponent.into()))
        }
    }
}

/// The number no finer than 10^-9 and as a whole number where it is one (up to a scale of 18).
fn round_up_to_nano(mut mantissa: i128, mut scale: i64) -> (i128, i64) {
    if mantissa == 0 {
        return (0, 0);
    }
    while scale < -9 {
        let rest = i128::from(mantissa % 10 != 0);
        mantissa = mantissa / 10 + rest;
        scale += 1;
        if mantissa == 1 {
            // Rounded up to the smallest digit: it stays that however far the scale goes.
            scale = -9;
        }
    }
    while scale < 0 && mantissa % 10 == 0 {
        mantissa /= 10;
        scale += 1;
    }
    while scale > 0 && scale <= 18 {
        match mantissa.checked_mul(10) {
            Some(larger) => (mantissa, scale) = (larger, scale - 1),
            None => break,
        }
    }
    (mantissa, scale)
}

fn binary(mut number: i128) -> String {
    let mut suffix = 0;
    while number % 1024 == 0 && suffix < 6 {
        number /= 1024;
        suffix += 1;
    }
    format!(
        "{number}{}",
        ["", "Ki", "Mi", "Gi", "Ti", "Pi", "Ei"]
            .get(suffix)
            .unwrap_or(&"")
    )
}

fn decimal(
    mut mantissa: i128,
    mut scale: i64,
    exponent_form: bool,
) -> Result<String, &'static str> {
    while mantissa % 10 == 0 {
        mantissa /= 10;
        scale += 1;
    }
    let most = if exponent_form { i64::MAX } else { 18 };
    while scale % 3 != 0 || scale > most {
        mantissa = mantissa.checked_mul(10).ok_or(TOO_LONG)?;
        scale -= 1;
    }
    if exponent_form && scale != 0 {
        return Ok(format!("{mantissa}e{scale}"));
    }
    let suffixes = ["n", "u", "m", "", "k", "M", "G", "T", "P", "E"];
    let index = usize::try_from(scale / 3 + 3).map_err(|_| TOO_LONG)?;
    Ok(format!(
        "{mantissa}{}",
        suffixes.get(index).ok_or(TOO_LONG)?
    ))
}
