//! The canonical form of a JSON value (RFC 8785, JCS): the bytes that signatures of cards cover.
//!
//! Members are sorted by the UTF-16 code units of their names, strings are escaped as little as JSON allows, numbers are
//! written as ECMAScript does. A parsed [`Value`] has no NaN, no duplicate names and no lone surrogates, so every value
//! has a canonical form.

use serde_json::{Map, Number, Value};

/// The largest integer that a double represents exactly, with all below it. RFC 8785 knows no other numbers than doubles.
const MAX_SAFE_INTEGER: u64 = (1 << 53) - 1;
/// ECMA-262, `Number::toString`: powers of ten up to which a number is written without an exponent.
const PLAIN_EXPONENTS: std::ops::Range<i32> = -6..21;

/// Writes a value in its canonical form.
pub fn to_canonical_json(value: &Value) -> String {
    let mut out = String::new();
    write_value(&mut out, value);
    out
}

fn write_value(out: &mut String, value: &Value) {
    match value {
        Value::Null => out.push_str("null"),
        Value::Bool(true) => out.push_str("true"),
        Value::Bool(false) => out.push_str("false"),
        Value::Number(number) => write_number(out, number),
        Value::String(text) => write_string(out, text),
        Value::Array(items) => {
            out.push('[');
            for (index, item) in items.iter().enumerate() {
                if index > 0 {
                    out.push(',');
                }
                write_value(out, item);
            }
            out.push(']');
        }
        Value::Object(members) => write_object(out, members),
    }
}

fn write_object(out: &mut String, members: &Map<String, Value>) {
    let mut sorted: Vec<_> = members.iter().collect();
    // Not the order of the characters: those beyond U+FFFF begin with a surrogate, which is below U+E000.
    sorted.sort_by(|(one, _), (other, _)| one.encode_utf16().cmp(other.encode_utf16()));
    out.push('{');
    for (index, (name, value)) in sorted.into_iter().enumerate() {
        if index > 0 {
            out.push(',');
        }
        write_string(out, name);
        out.push(':');
        write_value(out, value);
    }
    out.push('}');
}

fn write_string(out: &mut String, text: &str) {
    out.push('"');
    for c in text.chars() {
        match c {
            '"' => out.push_str("\\\""),
            '\\' => out.push_str("\\\\"),
            '\u{8}' => out.push_str("\\b"),
            '\t' => out.push_str("\\t"),
            '\n' => out.push_str("\\n"),
            '\u{c}' => out.push_str("\\f"),
            '\r' => out.push_str("\\r"),
            c if c < ' ' => out.push_str(&format!("\\u{:04x}", u32::from(c))),
            c => out.push(c),
        }
    }
    out.push('"');
}

fn write_number(out: &mut String, number: &Number) {
    let is_safe = |integer: u64| integer <= MAX_SAFE_INTEGER;
    if number.as_u64().is_some_and(is_safe) || number.as_i64().is_some_and(|n| is_safe(n.unsigned_abs())) {
        out.push_str(&number.to_string());
        return;
    }
    write_double(out, number.as_f64().unwrap_or_default());
}

/// ECMA-262, `Number::toString`, over the shortest digits that read back as the same double.
fn write_double(out: &mut String, number: f64) {
    if number == 0.0 {
        // Also for the negative zero.
        out.push('0');
        return;
    }
    if number < 0.0 {
        out.push('-');
    }
    // The shortest digits, and of two equally near ones the even one. `format!` takes the other.
    let text = Value::from(number.abs()).to_string();
    let (mantissa, exponent) = text.split_once('e').unwrap_or((&text, "0"));
    let (whole, fraction) = mantissa.split_once('.').unwrap_or((mantissa, ""));
    let all = format!("{whole}{fraction}");
    let digits = all.trim_start_matches('0');
    let zeros = i32::try_from(all.len() - digits.len()).unwrap_or_default();
    let digits = digits.trim_end_matches('0');
    let exponent = exponent.parse::<i32>().unwrap_or_default()
        + i32::try_from(whole.len()).unwrap_or_default()
        - zeros
        - 1;
    let count = i32::try_from(digits.len()).unwrap_or(i32::MAX);
    if !PLAIN_EXPONENTS.contains(&exponent) {
        let (first, rest) = digits.split_at(1);
        out.push_str(first);
        if !rest.is_empty() {
            out.push('.');
            out.push_str(rest);
        }
        out.push_str(&format!("e{exponent:+}"));
    } else if exponent < 0 {
        out.push_str("0.");
        (exponent..-1).for_each(|_| out.push('0'));
        out.push_str(digits);
    } else if count <= exponent + 1 {
        out.push_str(digits);
        (count..=exponent).for_each(|_| out.push('0'));
    } else {
        let (whole, fraction) = digits.split_at(usize::try_from(exponent + 1).unwrap_or_default());
        out.push_str(whole);
        out.push('.');
        out.push_str(fraction);
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[track_caller]
    fn check(json: &str, expected: &str) {
        let value: Value = serde_json::from_str(json).unwrap();
        assert_eq!(to_canonical_json(&value), expected, "{json}");
    }

    /// RFC 8785, sections 3.2.2 to 3.2.4.
    #[test]
    fn the_example_of_the_rfc() {
        check(
            r#"{
              "numbers": [333333333.33333329, 1E30, 4.50, 2e-3, 0.000000000000000000000000001],
              "string": "\u20ac$\u000F\u000aA'\u0042\u0022\u005c\\\"\/",
              "literals": [null, true, false]
            }"#,
            r#"{"literals":[null,true,false],"numbers":[333333333.3333333,1e+30,4.5,0.002,1e-27],"string":"€$\u000f\nA'B\"\\\\\"/"}"#,
        );
    }

    /// RFC 8785, section 3.2.3: by UTF-16 code units.
    #[test]
    fn members_are_sorted_as_the_rfc_sorts_them() {
        let value = json!({
            "\u{20ac}": "Euro Sign", "\r": "Carriage Return", "\u{fb33}": "Hebrew Letter Dalet With Dagesh", "1": "One",
            "\u{1f600}": "Emoji: Grinning Face", "\u{80}": "Control", "\u{f6}": "Latin Small Letter O With Diaeresis",
        });
        let canonical = to_canonical_json(&value);
        let order = ["Carriage", "One", "Control", "Latin", "Euro", "Emoji", "Hebrew"];
        let places: Vec<_> = order.iter().map(|word| canonical.find(word).unwrap()).collect();
        assert!(places.is_sorted(), "{canonical}");
        check(r#"{"b":{"d":1,"c":[]},"a":{}}"#, r#"{"a":{},"b":{"c":[],"d":1}}"#);
    }

    /// RFC 8785, appendix B.
    #[test]
    fn numbers_are_written_as_ecmascript_writes_them() {
        let cases: [(u64, &str); 24] = [
            (0x0000_0000_0000_0000, "0"),
            (0x8000_0000_0000_0000, "0"),
            (0x0000_0000_0000_0001, "5e-324"),
            (0x8000_0000_0000_0001, "-5e-324"),
            (0x7fef_ffff_ffff_ffff, "1.7976931348623157e+308"),
            (0xffef_ffff_ffff_ffff, "-1.7976931348623157e+308"),
            (0x4340_0000_0000_0000, "9007199254740992"),
            (0xc340_0000_0000_0000, "-9007199254740992"),
            (0x4430_0000_0000_0000, "295147905179352830000"),
            (0x44b5_2d02_c7e1_4af5, "9.999999999999997e+22"),
            (0x44b5_2d02_c7e1_4af6, "1e+23"),
            (0x44b5_2d02_c7e1_4af7, "1.0000000000000001e+23"),
            (0x444b_1ae4_d6e2_ef4e, "999999999999999700000"),
            (0x444b_1ae4_d6e2_ef4f, "999999999999999900000"),
            (0x444b_1ae4_d6e2_ef50, "1e+21"),
            (0x3eb0_c6f7_a0b5_ed8c, "9.999999999999997e-7"),
            (0x3eb0_c6f7_a0b5_ed8d, "0.000001"),
            (0x41b3_de43_5555_5553, "333333333.3333332"),
            (0x41b3_de43_5555_5554, "333333333.33333325"),
            (0x41b3_de43_5555_5555, "333333333.3333333"),
            (0x41b3_de43_5555_5556, "333333333.3333334"),
            (0x41b3_de43_5555_5557, "333333333.33333343"),
            (0xbecb_f647_612f_3696, "-0.0000033333333333333333"),
            (0x4314_3ff3_c1cb_0959, "1424953923781206.2"),
        ];
        for (bits, expected) in cases {
            let mut out = String::new();
            write_double(&mut out, f64::from_bits(bits));
            assert_eq!(out, expected, "{bits:016x}");
        }
        check("[9007199254740991,-9007199254740991,0,-1,42]", "[9007199254740991,-9007199254740991,0,-1,42]");
        // Beyond the integers of a double, the double.
        check("[12345678901234567890,9007199254740993,1.0]", "[12345678901234567000,9007199254740992,1]");
    }
}
