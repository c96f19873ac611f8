//! The little HTTP/1.1 that the management API of RabbitMQ and the admin port need: one request, one answer, no reuse.

use std::net::{Ipv4Addr, SocketAddr};

use base64::{Engine as _, prelude::BASE64_STANDARD};
use serde_json::Value;
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpStream,
};

/// Sends one request as guest; gives the status and the body (`Null` if there is none or it is no JSON).
pub(crate) async fn request(
    port: u16,
    method: &str,
    path: &str,
    body: Option<&Value>,
) -> std::io::Result<(u16, Value)> {
    let mut stream = TcpStream::connect((Ipv4Addr::LOCALHOST, port)).await?;
    let body = body.map(Value::to_string).unwrap_or_default();
    let login = BASE64_STANDARD.encode("guest:guest");
    // 1.0, so that the answer ends with the connection and is never in chunks.
    let head = format!(
        "{method} {path} HTTP/1.0\r\nhost: 127.0.0.1\r\nauthorization: Basic {login}\r\n\
         content-type: application/json\r\ncontent-length: {}\r\nconnection: close\r\n\r\n{body}",
        body.len()
    );
    stream.write_all(head.as_bytes()).await?;
    let mut answer = Vec::new();
    stream.read_to_end(&mut answer).await?;
    parse(&answer).ok_or_else(|| std::io::Error::other(format!("no HTTP answer to {method} {path}")))
}

/// What an HTTP server answers to a plain GET: the status, the head's lines and the body.
///
/// # Panics
/// When it does not answer like one.
pub async fn get(address: SocketAddr, path: &str) -> (u16, String, String) {
    let mut stream = TcpStream::connect(address).await.expect("connect");
    let ask = format!("GET {path} HTTP/1.1\r\nhost: {address}\r\nconnection: close\r\n\r\n");
    stream.write_all(ask.as_bytes()).await.expect("ask");
    let mut answer = String::new();
    stream.read_to_string(&mut answer).await.expect("an answer");
    let (head, body) = answer.split_once("\r\n\r\n").expect("a head and a body");
    let status = head.split(' ').nth(1).and_then(|status| status.parse().ok()).expect("a status");
    (status, head.to_owned(), body.to_owned())
}

fn parse(answer: &[u8]) -> Option<(u16, Value)> {
    let split = answer.windows(4).position(|four| four == b"\r\n\r\n")?;
    let head = std::str::from_utf8(&answer[..split]).ok()?;
    let status = head.split(' ').nth(1)?.parse().ok()?;
    let body = serde_json::from_slice(&answer[split + 4..]).unwrap_or(Value::Null);
    Some((status, body))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_answer_is_a_status_and_json_or_null() {
        assert_eq!(parse(b"HTTP/1.0 204 No Content\r\na: b\r\n\r\n"), Some((204, Value::Null)));
        assert_eq!(parse(b"HTTP/1.0 200 OK\r\n\r\n[1]"), Some((200, serde_json::json!([1]))));
        assert_eq!(parse(b""), None);
    }
}
