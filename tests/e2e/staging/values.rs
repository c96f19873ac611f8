//! What is accepted is kept: PostgreSQL takes every JSON that validation lets through, and gives the same value back
//! (design, section 2; pitfalls, "jsonb").

use std::collections::BTreeMap;

use holdfast_proto::v1::{Event, event::Data};
use holdfast_tests::{client::event, scene::Scene, wait::LONG};
use serde_json::Value;

/// Hostile, and valid.
fn hostile() -> Vec<String> {
    let nines = "9".repeat(100);
    let tiny = format!("0.{}1", "0".repeat(98));
    let deep = |n: usize| format!("{}1{}", "[".repeat(n), "]".repeat(n));
    let deep_objects = format!("{}1{}", r#"{"":"#.repeat(64), "}".repeat(64));
    let wide = format!("[{}]", vec!["0"; 5_000].join(","));
    let keys = format!("{{{}}}", (0..2_000).map(|n| format!("\"k{n}\":{n}")).collect::<Vec<_>>().join(","));
    let mut all = vec![nines.clone(), format!("-{nines}"), tiny, deep(64), deep_objects, wide, keys];
    all.extend(
        [
            "null",
            "true",
            "0",
            "-0",
            "-0.0",
            "1.50e2",
            "1E+5",
            "1e99",
            "1e-99",
            "0e-5",
            "0.10",
            "1.000",
            "18446744073709551616",
            "-9223372036854775809",
            "3.141592653589793238462643383279502884",
            r#""""#,
            r#"{}"#,
            r#"[]"#,
            r#"{"":""}"#,
            r#"{"":{"":[{}]}}"#,
            r#""\"\\\/\b\f\n\r\t""#,
            r#""\u0001\u001f\u007f\u0080\u009f""#,
            r#""\u00e9\ud83d\ude00""#,
            r#""😀 𝔘𝔫𝔦𝔠𝔬𝔡𝔢 \ufffe \uffff""#,
            "\"\u{10ffff}\u{fdd0}\u{feff}\u{2028}\u{202e}\"",
            r#"{"😀":1,"é":2,"e\u0301":3}"#,
            r#"{"a":1,"A":2," a":3,"a ":4}"#,
            r#"{"$schema":"x","__proto__":1,"constructor":null}"#,
            " \t\r\n{ \"a\" :\n[ 1 , 2 ] } ",
        ]
        .iter()
        .map(|text| (*text).to_owned()),
    );
    all
}

/// The value, with every number as `jsonb` is bound to keep it: by its digits and not as a binary fraction.
fn exact(value: &Value) -> Value {
    match value {
        Value::Number(number) => Value::String(decimal(&number.to_string())),
        Value::Array(items) => items.iter().map(exact).collect(),
        Value::Object(members) => members.iter().map(|(key, value)| (key.clone(), exact(value))).collect(),
        other => other.clone(),
    }
}

/// A number's digits and the place of its point, without zeros that say nothing.
fn decimal(text: &str) -> String {
    let (sign, unsigned) = text.strip_prefix('-').map_or(("", text), |rest| ("-", rest));
    let (mantissa, exponent) = unsigned.split_once(['e', 'E']).unwrap_or((unsigned, "0"));
    let (whole, fraction) = mantissa.split_once('.').unwrap_or((mantissa, ""));
    let digits = format!("{whole}{fraction}");
    let point = whole.len() as i64 + exponent.parse::<i64>().unwrap();
    let significant = digits.trim_start_matches('0');
    if significant.is_empty() {
        return "0".to_owned();
    }
    let point = point - (digits.len() - significant.len()) as i64;
    format!("{sign}0.{}e{point}", significant.trim_end_matches('0'))
}

#[tokio::test]
async fn every_json_that_is_accepted_is_delivered_with_its_value() {
    let scene = Scene::start().await;
    let mut wanted = BTreeMap::new();
    let events: Vec<Event> = hostile()
        .into_iter()
        .map(|text| {
            let event = Event { data: Some(Data::Json(text.clone())), ..event("order.placed") };
            wanted.insert(event.id.clone(), text);
            event
        })
        .collect();

    scene.commit_all(&events).await;

    let ids: Vec<&String> = wanted.keys().collect();
    for delivery in scene.consumer.wait_for_ids(&ids, LONG).await {
        let sent = &wanted[&delivery.id];
        let start = sent.chars().take(80).collect::<String>();
        let sent: Value = serde_json::from_str(sent).unwrap();
        assert_eq!(exact(&delivery.json["data"]), exact(&sent), "{start}");
    }
    scene.end(wanted.len()).await;
}

#[tokio::test]
async fn the_order_of_keys_is_not_kept_but_texts_and_numbers_are_as_they_were_sent() {
    let scene = Scene::start().await;
    let data = r#"{"zz":"9.90","a":1.50,"long key":"Grüße\t\u20ac"}"#;
    let event = Event { data: Some(Data::Json(data.to_owned())), ..event("order.placed") };

    let id = scene.commit(&event).await;

    let seen = scene.consumer.wait_for_ids(&[id], LONG).await;
    let body = String::from_utf8(seen[0].body.clone()).unwrap();
    assert!(body.contains(r#"{"a": 1.50, "zz": "9.90", "long key": "Grüße\t€"}"#), "{body}");
    scene.end(1).await;
}

#[tokio::test]
async fn every_attribute_that_was_sent_is_delivered() {
    let scene = Scene::start().await;
    let event = Event {
        subject: "o-1 \"quoted\" \\ 😀".to_owned(),
        time: Some(prost_types::Timestamp { seconds: -62_135_596_800, nanos: 1 }),
        data_content_type: "application/vnd.orders+json; v=\"1\"".to_owned(),
        ordering_key: Some(String::new()),
        traceparent: "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01".to_owned(),
        tracestate: "v=ü".to_owned(),
        correlation_id: "c\"".to_owned(),
        causation_id: "\\".to_owned(),
        extensions: BTreeMap::from([
            ("region".to_owned(), "eu\"".to_owned()),
            ("empty".to_owned(), String::new()),
        ])
        .into_iter()
        .collect(),
        ..event("order.placed:v2_x-y")
    };

    let id = scene.commit(&event).await;

    let seen = scene.consumer.wait_for_ids(&[&id], LONG).await;
    let wanted = serde_json::json!({
        "specversion": "1.0", "source": "/holdfast/orders", "id": id, "type": "order.placed:v2_x-y",
        "subject": event.subject, "time": "0001-01-01T00:00:00.000000001Z",
        "datacontenttype": event.data_content_type, "traceparent": event.traceparent,
        "tracestate": event.tracestate, "correlationid": "c\"", "causationid": "\\", "region": "eu\"",
        "empty": "", "data": {"n": 1},
    });
    assert_eq!(seen[0].json, wanted);
    assert_eq!(seen[0].header("traceparent").unwrap(), event.traceparent);
    assert_eq!(seen[0].header("tracestate").unwrap(), event.tracestate);
    scene.end(1).await;
}
