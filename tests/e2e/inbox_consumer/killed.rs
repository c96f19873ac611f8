//! A consumer process, `kill -9`, at each step: the effect's row exists once, and no message is lost (invariant 11).

use holdfast_tests::{caller::CallerProcess, chaos::Proxy, client::event, scene::Scene};
use serde_json::json;

use super::*;

/// Where it is killed.
#[derive(Debug, Clone, Copy)]
enum Step {
    /// Begun, nothing written.
    Entered,
    /// The row is written, and not committed.
    Written,
    /// Committed, and the acknowledgement has not gone out.
    Committed,
}

async fn word_is(process: &mut CallerProcess, word: &str) {
    assert_eq!(process.answer().await, Ok(json!(word)));
}

async fn killed(mode: &str, how: How) {
    let scene = Scene::start().await;
    let proxy = Proxy::before(scene.vhost.broker().port).await;
    let amqp = scene.vhost.url_through(proxy.port());
    let address = scene.server.address().to_string();
    // Declares and binds the queue.
    Running::start(&scene, how, |b| b, |_| Do::Fine).await.stop().await;
    for step in [Step::Entered, Step::Written, Step::Committed] {
        let arguments = [&scene.database.url(), &address, SERVICE, &amqp, QUEUE, mode];
        let mut process = CallerProcess::spawn_program("consumer", &arguments.map(|one| one as &str));
        let id = scene.commit(&event("order.placed")).await;
        word_is(&mut process, "entered").await;
        if !matches!(step, Step::Entered) {
            process.send(&json!("go")).await.unwrap();
            word_is(&mut process, "written").await;
        }
        if matches!(step, Step::Committed) {
            proxy.stall();
            process.send(&json!("go")).await.unwrap();
            wait_for_effect(&scene.database, &id).await;
        }

        process.kill9().await;

        proxy.cut().await;
        proxy.pass().await;
        if how == How::InProcess {
            // So long it would wait for the lease of the start that was killed.
            let free = "SELECT EXISTS (SELECT FROM holdfast.event_inbox WHERE envelope_id = '{id}' FOR UPDATE SKIP LOCKED)";
            let free = free.replace("{id}", &id);
            wait::until_equal("the row's lock", LONG, true, || scene.database.one::<bool>(&free)).await;
            scene
                .database
                .run("UPDATE holdfast.event_inbox SET lease_until = now() WHERE lease_until > now()")
                .await;
        }
        let next = Running::start(&scene, how, |b| b, |_| Do::Fine).await;
        wait_for_effect(&scene.database, &id).await;
        wait_for_empty(&scene).await;
        is_processed(&scene.database, &id).await;
        let runs = u32::from(!matches!(step, Step::Committed));
        assert_eq!((next.book.runs(&id), effects(&scene.database, &id).await), (runs, 1), "{step:?}");
        let lost = consumption(&scene.database, &id, "lost_starts").await;
        assert_eq!(lost, runs.to_string(), "{step:?}");
        next.stop().await;
    }
    scene.end(3).await;
}

#[tokio::test]
async fn invariant_11_a_consumer_killed_at_any_step_of_a_ticket_leaves_one_effect() {
    killed("ticket", How::Ticket).await;
}

#[tokio::test]
async fn invariant_11_a_consumer_killed_at_any_step_in_process_leaves_one_effect() {
    killed("in_process", How::InProcess).await;
}
