//! consumers.md: every command of it, in its order, as it stands.

use holdfast_tests::{
    client::event,
    inbox::{Inbox, lease},
    runbook::Runbook,
    scene::Scene,
    terminal::Terminal,
};
use serde_json::Value;

use crate::inbox_consumer::{effects, letters};

async fn said(guide: &mut Runbook, block: &str) -> Value {
    serde_json::from_str(&guide.does(block).await).unwrap()
}

#[tokio::test]
async fn the_guide_for_consumers_in_any_language_can_be_played_as_it_stands() {
    let scene = Scene::start().await;
    let letters = letters(&scene).await;
    let mut guide = Runbook::guide("consumers.md", Terminal::at(scene.server.address()));
    guide.set("DATABASE_URL", scene.database.url());
    let message = event("payment.settled").id;
    guide.set("MESSAGE", &message);

    let ticket = guide.does("ticket").await;
    assert!(ticket.contains(r#""process""#) && ticket.trim_end().ends_with("COMMIT"), "{ticket}");
    assert_eq!(effects(&scene.database, &message).await, 1);
    assert!(said(&mut guide, "lease").await["duplicate"].is_object());
    assert_eq!(said(&mut guide, "look").await["consumption"]["state"], "CONSUMPTION_STATE_PROCESSED");

    guide.set("MESSAGE", event("payment.settled").id);
    let begun = said(&mut guide, "lease").await;
    guide.set("GENERATION", begun["process"]["generation"].as_str().unwrap());
    assert!(said(&mut guide, "complete").await["processedAt"].is_string());
    assert!(said(&mut guide, "lease").await["duplicate"].is_object());

    let poison = event("payment.settled").id;
    guide.set("MESSAGE", &poison);
    for error in 1..=5 {
        let begun = said(&mut guide, "lease").await;
        guide.set("GENERATION", begun["process"]["generation"].as_str().unwrap());
        let next = said(&mut guide, "fail").await;
        let expected = if error < 5 { "retry" } else { "deadLetter" };
        assert!(next[expected].is_object(), "error {error}: {next}");
        if let Some(token) = next["deadLetter"]["token"].as_str() {
            guide.set("DEATH", token);
        }
    }
    guide.set("BODY", r#"{"order":"o-1"}"#);
    assert!(said(&mut guide, "surface").await["deadLetteredAt"].is_string());
    let letter = letters.wait_for(1, holdfast_tests::wait::LONG).await[0].clone();
    assert_eq!(letter.json["body"], r#"{"order":"o-1"}"#);
    let again = Inbox::of(&scene).begin(&poison, lease(30)).await;
    assert!(holdfast_tests::inbox::dead_letter(again).already_surfaced);
    guide.is_done();
    scene.end(0).await;
}
