//! A message's AMQP properties as they travel inside a dead letter: JSON that keeps the kind of every value, so that they can be
//! put back. A header is an object with one member, the kind's name in the contract; a value of none is null.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use holdfast_proto::v1;
use serde_json::{Map, Value, json};

/// Deeper tables are an attack, and no library's reader likes them.
pub(super) const MOST_DEPTH: usize = 16;

/// Everything that is set.
///
/// # Errors
/// The field that cannot be said in JSON.
pub(super) fn to_json(properties: v1::AmqpProperties) -> Result<Value, String> {
    let mut all = Map::new();
    let mut set = |name: &str, value: Option<Value>| {
        if let Some(value) = value {
            all.insert(name.to_owned(), value);
        }
    };
    set("content_type", properties.content_type.map(Value::from));
    set("content_encoding", properties.content_encoding.map(Value::from));
    set("delivery_mode", properties.delivery_mode.map(Value::from));
    set("priority", properties.priority.map(Value::from));
    set("correlation_id", properties.correlation_id.map(Value::from));
    set("reply_to", properties.reply_to.map(Value::from));
    set("expiration", properties.expiration.map(Value::from));
    set("message_id", properties.message_id.map(Value::from));
    set("timestamp", properties.timestamp.map(Value::from));
    set("type", properties.r#type.map(Value::from));
    set("user_id", properties.user_id.map(Value::from));
    set("app_id", properties.app_id.map(Value::from));
    set("cluster_id", properties.cluster_id.map(Value::from));
    if !properties.headers.is_empty() {
        let mut headers = Map::new();
        for (name, header) in properties.headers {
            let said = value(header, MOST_DEPTH).ok_or_else(|| format!("properties.headers[{name:?}]"))?;
            headers.insert(name, said);
        }
        set("headers", Some(Value::Object(headers)));
    }
    Ok(Value::Object(all))
}

/// `None`: too deep, or no number.
fn value(value: v1::AmqpValue, depth: usize) -> Option<Value> {
    use v1::amqp_value::Kind;
    let depth = depth.checked_sub(1)?;
    Some(match value.kind {
        None => Value::Null,
        Some(Kind::Text(text)) => json!({ "text": text }),
        Some(Kind::Number(number)) => json!({ "number": number }),
        Some(Kind::Real(real)) => json!({ "real": serde_json::Number::from_f64(real)? }),
        Some(Kind::Flag(flag)) => json!({ "flag": flag }),
        Some(Kind::Binary(bytes)) => json!({ "binary": STANDARD.encode(bytes) }),
        Some(Kind::Timestamp(seconds)) => json!({ "timestamp": seconds }),
        Some(Kind::List(list)) => {
            let values: Option<Vec<_>> = list.values.into_iter().map(|one| self::value(one, depth)).collect();
            json!({ "list": values? })
        }
        Some(Kind::Table(table)) => {
            let entries: Option<Map<_, _>> =
                table.entries.into_iter().map(|(name, one)| Some((name, self::value(one, depth)?))).collect();
            json!({ "table": entries? })
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use v1::amqp_value::Kind;

    fn of(kind: Kind) -> v1::AmqpValue {
        v1::AmqpValue { kind: Some(kind) }
    }

    fn with(header: v1::AmqpValue) -> v1::AmqpProperties {
        v1::AmqpProperties { headers: [("h".to_owned(), header)].into(), ..Default::default() }
    }

    #[test]
    fn every_kind_of_value_keeps_its_kind() {
        let table = [("a".to_owned(), of(Kind::Timestamp(7))), ("b".to_owned(), v1::AmqpValue::default())];
        let list = vec![
            of(Kind::Text("t".to_owned())),
            of(Kind::Number(-1)),
            of(Kind::Real(0.5)),
            of(Kind::Flag(true)),
            of(Kind::Binary(vec![255])),
            of(Kind::Table(v1::AmqpTable { entries: table.into() })),
        ];
        let said = to_json(with(of(Kind::List(v1::AmqpList { values: list }))));
        let expected = json!({ "headers": { "h": { "list": [
            { "text": "t" }, { "number": -1 }, { "real": 0.5 }, { "flag": true }, { "binary": "/w==" },
            { "table": { "a": { "timestamp": 7 }, "b": null } },
        ] } } });
        assert_eq!(said, Ok(expected));
    }

    #[test]
    fn what_is_too_deep_and_what_is_no_number_is_refused_by_name() {
        let mut deep = of(Kind::Flag(true));
        for _ in 1..MOST_DEPTH {
            deep = of(Kind::List(v1::AmqpList { values: vec![deep] }));
        }
        assert!(to_json(with(deep.clone())).is_ok());
        let deeper = of(Kind::List(v1::AmqpList { values: vec![deep] }));
        for bad in [deeper, of(Kind::Real(f64::NAN)), of(Kind::Real(f64::INFINITY))] {
            assert_eq!(to_json(with(bad)), Err("properties.headers[\"h\"]".to_owned()));
        }
    }
}
