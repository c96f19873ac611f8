//! A delivery as a dead letter: body and properties as they came.

use holdfast_proto::v1;
use lapin::BasicProperties;
use lapin::types::{AMQPValue, ShortString};

use super::Message;

/// What SurfaceDeadLetter wants.
pub(super) fn of(message: &Message, token: &str) -> v1::SurfaceDeadLetterRequest {
    v1::SurfaceDeadLetterRequest {
        service: String::new(),
        token: token.to_owned(),
        body: message.body.clone(),
        properties: Some(properties(&message.properties)),
        exchange: message.exchange.clone(),
        routing_key: message.routing_key.clone(),
    }
}

fn properties(properties: &BasicProperties) -> v1::AmqpProperties {
    let text = |text: &Option<ShortString>| text.as_ref().map(|text| text.as_str().to_owned());
    let headers = properties.headers().as_ref().map(|headers| {
        headers.inner().iter().map(|(name, header)| (name.as_str().to_owned(), value(header))).collect()
    });
    v1::AmqpProperties {
        content_type: text(properties.content_type()),
        content_encoding: text(properties.content_encoding()),
        headers: headers.unwrap_or_default(),
        delivery_mode: properties.delivery_mode().map(u32::from),
        priority: properties.priority().map(u32::from),
        correlation_id: text(properties.correlation_id()),
        reply_to: text(properties.reply_to()),
        expiration: text(properties.expiration()),
        message_id: text(properties.message_id()),
        timestamp: *properties.timestamp(),
        r#type: text(properties.kind()),
        user_id: text(properties.user_id()),
        app_id: text(properties.app_id()),
        cluster_id: text(properties.cluster_id()),
    }
}

fn value(value: &AMQPValue) -> v1::AmqpValue {
    use v1::amqp_value::Kind;
    let kind = match value {
        AMQPValue::Boolean(flag) => Kind::Flag(*flag),
        AMQPValue::ShortShortInt(n) => Kind::Number((*n).into()),
        AMQPValue::ShortShortUInt(n) => Kind::Number((*n).into()),
        AMQPValue::ShortInt(n) => Kind::Number((*n).into()),
        AMQPValue::ShortUInt(n) => Kind::Number((*n).into()),
        AMQPValue::LongInt(n) => Kind::Number((*n).into()),
        AMQPValue::LongUInt(n) => Kind::Number((*n).into()),
        AMQPValue::LongLongInt(n) => Kind::Number(*n),
        // What is no number in JSON is a text there.
        AMQPValue::Float(n) if !n.is_finite() => Kind::Text(n.to_string()),
        AMQPValue::Double(n) if !n.is_finite() => Kind::Text(n.to_string()),
        AMQPValue::Float(n) => Kind::Real((*n).into()),
        AMQPValue::Double(n) => Kind::Real(*n),
        AMQPValue::DecimalValue(n) => Kind::Real(f64::from(n.value) / 10_f64.powi(i32::from(n.scale))),
        AMQPValue::ShortString(text) => Kind::Text(text.as_str().to_owned()),
        AMQPValue::LongString(text) => match std::str::from_utf8(text.as_bytes()) {
            Ok(text) => Kind::Text(text.to_owned()),
            Err(_) => Kind::Binary(text.as_bytes().to_vec()),
        },
        AMQPValue::FieldArray(list) => {
            Kind::List(v1::AmqpList { values: list.as_slice().iter().map(self::value).collect() })
        }
        AMQPValue::Timestamp(seconds) => Kind::Timestamp(*seconds),
        AMQPValue::FieldTable(table) => {
            let entry =
                |(name, one): (&ShortString, &AMQPValue)| (name.as_str().to_owned(), self::value(one));
            Kind::Table(v1::AmqpTable { entries: table.inner().iter().map(entry).collect() })
        }
        AMQPValue::ByteArray(bytes) => Kind::Binary(bytes.as_slice().to_vec()),
        AMQPValue::Void => return v1::AmqpValue { kind: None },
    };
    v1::AmqpValue { kind: Some(kind) }
}

#[cfg(test)]
mod tests {
    use lapin::types::FieldTable;
    use v1::amqp_value::Kind;

    use super::*;

    #[test]
    fn values_keep_their_kind_and_what_json_cannot_say_is_text_or_bytes() {
        let kind = |given: AMQPValue| value(&given).kind;
        assert_eq!(kind(AMQPValue::ShortUInt(7)), Some(Kind::Number(7)));
        assert_eq!(kind(AMQPValue::Float(f32::NAN)), Some(Kind::Text("NaN".to_owned())));
        assert_eq!(kind(AMQPValue::LongString(vec![0xff].into())), Some(Kind::Binary(vec![0xff])));
        assert_eq!(kind(AMQPValue::Void), None);
        let mut table = FieldTable::default();
        table.insert("at".into(), AMQPValue::Timestamp(5));
        let list = AMQPValue::FieldArray(vec![AMQPValue::FieldTable(table)].into());
        let Some(Kind::List(list)) = kind(list) else { return assert_eq!("no list", "") };
        let Some(Kind::Table(table)) = &list.values[0].kind else { return assert_eq!("no table", "") };
        assert_eq!(table.entries["at"].kind, Some(Kind::Timestamp(5)));
    }

    #[test]
    fn only_what_is_set_is_said() {
        let said = properties(&BasicProperties::default().with_priority(3).with_type("a.b".into()));
        let wanted =
            v1::AmqpProperties { priority: Some(3), r#type: Some("a.b".to_owned()), ..Default::default() };
        assert_eq!(said, wanted);
    }
}
