//! A server without keys does not start, and says everything that keeps it from it.

use holdfast_tests::{
    logs::Logs,
    server::{ServerConfig, ServerProcess},
    wait::{self, LONG},
};

fn config() -> ServerConfig {
    let mut config = ServerConfig::new("postgres://h@127.0.0.1:1/control", "amqp://h:x@127.0.0.1:1/%2f");
    config.service("orders", "postgres://h@127.0.0.1:1/orders");
    config
}

#[tokio::test]
async fn without_a_key_or_with_files_that_cannot_be_used_it_ends_and_names_them_all() {
    let logs = Logs::capture();
    // What it says goes to stderr, which counts as ERROR lines.
    logs.expect("");
    for (change, said) in [
        (vec![("auth", "keys", "[]")], vec!["auth.keys", "without a key nobody can call"]),
        (
            vec![
                ("auth", "keys", "[\"/nowhere/a.pem\", \"/nowhere/b.pem\"]"),
                ("tls", "certificate_file", "\"/nowhere/tls.crt\""),
                ("tls", "key_file", "\"/nowhere/tls.key\""),
                ("", "replicas", "0"),
            ],
            vec!["/nowhere/a.pem", "/nowhere/b.pem", "tls.certificate_file", "tls.key_file", "replicas"],
        ),
        (vec![("", "listen", "\"0.0.0.0:0\"")], vec!["listen", "tls.allow_plaintext"]),
    ] {
        let mut config = config();
        for (section, name, toml) in change {
            config.set(section, name, toml);
        }
        let mut server = ServerProcess::spawn(&config);
        let status = server.exit_status(LONG).await;
        assert!(!status.success(), "{:?}", server.lines());
        // What it said last may still be on its way from the pipe.
        wait::until(&format!("{said:?} to be said"), LONG, || async {
            let lines = server.lines().join("\n");
            if said.iter().all(|word| lines.contains(word)) { Ok(()) } else { Err(lines) }
        })
        .await;
    }
}
