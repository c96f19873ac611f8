//! JSON data, judged as text.

use super::super::json::number_growth;
use super::{accepted, document, json, only};

/// The description of the only violation, which must be of the JSON field.
#[track_caller]
fn problem(text: &str) -> String {
    let (field, description) = only(json(text));
    assert_eq!(field, "events[0].json");
    description
}

#[test]
fn data_that_is_no_json_is_refused() {
    for text in
        ["", " ", "{", "[1,]", "{\"a\":}", "{a:1}", "nul", "'x'", "01", "1.", ".5", "+1", "NaN", "\u{feff}1"]
    {
        problem(text);
    }
    problem("\"a\nb\"");
    problem("\"\\x\"");
}

#[test]
fn something_behind_the_json_is_refused() {
    for text in ["1 2", "{} {}", "{}}", "null,", "{},\"source\":\"/mine\"", "1}", "\"\"\0"] {
        problem(text);
    }
    accepted(json(" {} \n\t"));
}

#[test]
fn u0000_is_refused_in_strings_and_keys() {
    for text in [r#""a\u0000b""#, r#"{"a\u0000":1}"#, r#"[[{"k":["\u0000"]}]]"#] {
        assert!(problem(text).contains("U+0000"), "{text}");
    }
    problem("\"\0\"");
    accepted(json(r#""\\u0000""#));
}

#[test]
fn lone_surrogates_are_refused_in_strings_and_keys() {
    for text in [r#""\ud800""#, r#""\udc00""#, r#"{"\ud83d":1}"#, r#""\ud800\ud800""#, r#""\ud83dx""#] {
        problem(text);
    }
    accepted(json(r#"{"\ud83d\ude00":"\ud83d\ude00"}"#));
}

#[test]
fn a_key_twice_in_one_object_is_refused_however_it_is_written() {
    for text in
        [r#"{"a":1,"a":1}"#, r#"{"a":1,"\u0061":2}"#, r#"[{"b":{"x":1,"y":2,"x":3}}]"#, r#"{"":1,"":2}"#]
    {
        assert!(problem(text).contains("twice"), "{text}");
    }
    accepted(json(r#"{"a":{"a":1},"b":[{"a":1},{"a":2}]}"#));
}

#[test]
fn nesting_of_64_passes_and_65_is_refused() {
    let arrays = |depth: usize| format!("{}{}", "[".repeat(depth), "]".repeat(depth));
    let objects = |depth: usize| format!("{}1{}", "{\"a\":".repeat(depth), "}".repeat(depth));
    accepted(json(&arrays(64)));
    accepted(json(&objects(64)));
    accepted(json(&format!("{}12.5e3{}", "[".repeat(64), "]".repeat(64))));
    assert!(problem(&arrays(65)).contains("nesting"));
    assert!(problem(&objects(65)).contains("nesting"));
    assert!(problem(&"[".repeat(1_000_000)).contains("nesting"));
}

#[test]
fn numbers_of_more_than_100_digits_written_out_are_refused() {
    for text in [
        "1E400",
        "1e-400",
        "1e100",
        "1e-100",
        "-1e100",
        "1e999999999",
        "1e-999999999",
        "1e99999999999999999999999999",
        "-1.5E-99999999999999999999999999",
        "0e400",
        "0e-400",
        "1.5e9223372036854775807",
        "1.5e-9223372036854775808",
    ] {
        assert!(problem(text).contains("100 digits"), "{text}");
        assert!(problem(&format!("{{\"a\":[{text}]}}")).contains("100 digits"), "{text}");
    }
    assert!(problem(&"9".repeat(101)).contains("100 digits"));
    assert!(problem(&format!("0.{}", "1".repeat(100))).contains("100 digits"));
    assert!(problem(&format!("1{}e-200", "0".repeat(200))).contains("100 digits"));
}

#[test]
fn numbers_of_100_digits_pass_and_keep_every_digit() {
    for text in ["1e99", "1e-99", "-1E+99", "0", "-0", "0.10", "1e00000000000000000000000005"] {
        accepted(json(text));
    }
    let long = format!("-{}.{}", "9".repeat(50), "1".repeat(50));
    let valid = accepted(json(&long));
    assert!(valid.envelope_text("/holdfast/orders", super::NOW).contains(&long));
}

#[test]
fn a_number_grows_by_what_its_exponent_hides() {
    for (text, growth) in [
        ("1", 0),
        ("-12.50", 0),
        ("1e0", 0),
        ("1.50e2", 0),
        ("1e99", 96),
        ("-1e+5", 3),
        ("1e-3", 1),
        ("0e-5", 3),
    ] {
        assert_eq!(number_growth(text), Ok(growth), "{text}");
    }
}

#[test]
fn an_object_cannot_pass_for_a_number_of_the_reader() {
    for text in [
        r#"{"$serde_json::private::Number":"1"}"#,
        r#"{"$serde_json::private::Number":"1e999999999"}"#,
        r#"{"$serde_json::private::Number":{"a":1,"a":2}}"#,
        r#"{"\u0024serde_json::private::Number":"1","a":1,"a":2}"#,
        r#"{"a":1,"$serde_json::private::Number":2}"#,
        r#"[{"$serde_json::private::RawValue":"1"}]"#,
    ] {
        assert!(problem(text).contains("reserved"), "{text}");
    }
    accepted(json(r#""$serde_json::private::Number""#));
}

#[test]
fn every_kind_of_value_passes() {
    for text in ["null", "true", "false", "0", "\"\"", "[]", "{}", r#"{"a":[null,true,-1.5e3,"x",{"b":{}}]}"#]
    {
        let valid = accepted(json(text));
        let expected: serde_json::Value = serde_json::from_str(text).unwrap_or_default();
        assert_eq!(document(&valid)["data"], expected);
    }
}

#[test]
fn an_error_names_the_position_and_never_the_contents() {
    for text in [
        r#"{"secret":"s3cr3t","secret":"s3cr3t"}"#,
        r#"{"secret":"s3cr3t" s3cr3t}"#,
        r#"["s3cr3t\u0000"]"#,
        r#""s3cr3t\ud800""#,
        "s3cr3t",
        "{\"secret\":\n 73577357e400}",
    ] {
        let description = problem(text);
        assert!(!description.contains("s3cr3t") && !description.contains("secret"), "{description}");
        assert!(!description.contains("7357"), "{description}");
        assert!(description.contains(" at line "), "{description}");
    }
}
