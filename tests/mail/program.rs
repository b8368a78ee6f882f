//! The program in this process, over a clock that may run faster.

use std::time::Duration;

use pointsman::clock::Clock;
use pointsman::control::{self, Request, Response};
use pointsman::engine::run::{self, Running};
use pointsman::engine::view::{LinkState, View};
use pointsman::notify::letter::{DeliveryState, Letter};
use pointsman::quality::machine::State;
use pointsman::sim::mail::{Act, Step};

use crate::stage::{BATCH, Mail, PATIENCE, Stage, WINDOW};

async fn start(stage: &Stage, connections: &[&str], more: &str) -> Running {
    let running = run::start(stage.config(connections, more), stage.clock).await.unwrap();
    sees(&running, |view| view.nodes.iter().all(|node| node.link.state == LinkState::Up)).await;
    running
}

async fn sees(running: &Running, what: impl Fn(&View) -> bool) {
    let mut views = running.view();
    let seen = tokio::time::timeout(PATIENCE, views.wait_for(|view| what(view))).await.is_ok();
    assert!(seen, "{:#?}", *running.view().borrow());
}

async fn is(running: &Running, connection: &str, state: State) {
    sees(running, |view| {
        view.connections.iter().any(|one| one.key.connection.as_str() == connection && one.state == state)
    })
    .await;
}

fn briefs(mails: &[Mail]) -> Vec<String> {
    mails.iter().map(Mail::brief).collect()
}

async fn ask(stage: &Stage, request: Request) -> Response {
    control::request(&stage.path("pointsman.sock"), &request).await.unwrap()
}

async fn letters(stage: &Stage) -> Vec<Letter> {
    match ask(stage, Request::Outbox { all: true }).await {
        Response::Outbox(letters) => letters,
        other => panic!("{other:?}"),
    }
}

#[tokio::test]
async fn an_owner_hears_once_of_each_real_change_and_of_nothing_in_between() {
    let stage = Stage::set(Clock::system()).await;
    let running = start(&stage, &["vendor-a"], "retry_overflow = \"stay\"").await;

    stage.calls("vendor-a", WINDOW, false).await;
    let alarm = stage.mails(2).await;
    assert_eq!(briefs(&alarm), ["alarm vendor-a > noc@acme.example", "alarm vendor-a > duty@acme.example"]);
    assert_eq!(alarm[0].id, alarm[1].id, "one mail to two people");
    assert!(alarm[0].subject.contains("vendor-a"), "{}", alarm[0].subject);
    for words in ["Акме", "0.0 %", "60 %", "503", "49301"] {
        assert!(alarm[0].text.contains(words), "{words} in {}", alarm[0].text);
        assert!(alarm[0].html.contains(words), "{words} in {}", alarm[0].html);
    }
    assert!(!alarm[0].text.contains("4930123456"), "the number is masked: {}", alarm[0].text);

    // A further bad verdict is none of the owner's business.
    stage.calls("vendor-a", BATCH, false).await;
    sees(&running, |view| view.changes.len() == 2).await;
    stage.calls("vendor-a", BATCH, true).await;
    is(&running, "vendor-a", State::Good).await;
    let mails = stage.mails(4).await;
    assert_eq!(briefs(&mails[2..]), ["recovery vendor-a > noc@acme.example", "recovery vendor-a > duty@acme.example"]);
    assert_eq!(mails[2].answers.as_ref(), Some(&alarm[0].id), "it answers its alarm");

    stage.calls("vendor-a", WINDOW, false).await;
    let mails = stage.mails(6).await;
    assert_eq!(mails[4].kind, "alarm");
    assert_eq!(mails[4].answers, None, "a new trouble is a new thread");
    sees(&running, |view| view.mail.sent == 6 && view.mail.waiting == 0).await;
    assert!(running.stop().await);
    assert_eq!(stage.mails.received_ever(), 6);
}

#[tokio::test]
async fn nobody_hears_who_is_not_to() {
    let stage = Stage::set(Clock::system()).await;
    let running = start(&stage, &["vendor-a"], "[[connections]]\nid = \"quiet\"\ncustomer = \"acme\"\nquality = { notify_on_status_change = false }\n[[connections]]\nid = \"nobodys\"").await;
    for connection in ["quiet", "nobodys", "vendor-a"] {
        stage.calls(connection, WINDOW, false).await;
        is(&running, connection, State::Bad).await;
    }
    stage.mails(2).await;
    assert!(running.stop().await);
    assert!(stage.mails.received().iter().map(Mail::of).all(|mail| mail.connections == ["vendor-a"]));
}

#[tokio::test]
async fn after_a_reload_mail_goes_to_the_addresses_of_now_and_to_customers_that_came_with_it() {
    use pointsman::config::{self, Purpose};
    use pointsman::engine::reload::{Loader, Order};
    use pointsman::engine::request::By;
    let stage = Stage::set(Clock::system()).await;
    let path = stage.write_config(&["vendor-a"], "");
    let file = path.clone();
    let load = move || config::load_with(&file, [], Purpose::Connect);
    let config = std::sync::Arc::new(load().unwrap().config);
    let running = run::start_with(config, stage.clock, Some(Loader::new(load))).await.unwrap();
    sees(&running, |view| view.nodes.iter().all(|node| node.link.state == LinkState::Up)).await;

    let text = std::fs::read_to_string(&path).unwrap();
    let text = text.replace("[\"noc@acme.example\", \"duty@acme.example\"]", "\"new@acme.example\"");
    let more = "[[customers]]\nid = \"globex\"\nemail = \"noc@globex.example\"\n[[connections]]\nid = \"vendor-g\"\ncustomer = \"globex\"\n";
    std::fs::write(&path, text + more).unwrap();
    let by = By::new("a test", "").unwrap();
    running.reloader().reload(Order { dry_run: false, by }).await.unwrap();
    stage.calls("vendor-a", WINDOW, false).await;
    stage.mails(1).await;
    stage.calls("vendor-g", WINDOW, false).await;
    let mails = stage.mails(2).await;
    assert_eq!(briefs(&mails), ["alarm vendor-a > new@acme.example", "alarm vendor-g > noc@globex.example"]);
    assert!(running.stop().await);
}

#[tokio::test]
async fn a_storm_makes_one_digest() {
    let stage = Stage::set(Clock::running_at(60)).await;
    let connections = ["v1", "v2", "v3", "v4"];
    let text = stage.write_config(&connections, "");
    let storm = std::fs::read_to_string(&text)
        .unwrap()
        .replace("digest_window_sec = 0", "digest_window_sec = 60\ndigest_after = 3");
    std::fs::write(&text, storm).unwrap();
    let config = pointsman::config::load_with(&text, [], pointsman::config::Purpose::Connect).unwrap().config;
    let running = run::start(std::sync::Arc::new(config), stage.clock).await.unwrap();
    sees(&running, |view| view.nodes.iter().all(|node| node.link.state == LinkState::Up)).await;
    for connection in connections {
        stage.calls(connection, WINDOW, false).await;
    }
    let mails = stage.mails(2).await;
    assert_eq!(briefs(&mails), ["digest v1+v2+v3+v4 > noc@acme.example", "digest v1+v2+v3+v4 > duty@acme.example"]);

    // Two that recover are no storm, and each answers the digest.
    for connection in ["v2", "v3"] {
        stage.calls(connection, BATCH, true).await;
    }
    let mails = stage.mails(6).await;
    for recovery in &mails[2..] {
        assert_eq!((recovery.kind.as_str(), recovery.answers.as_ref()), ("recovery", Some(&mails[0].id)));
    }
    assert!(running.stop().await);
}

/// An hour without a mail server, with changes all along: everything arrives afterwards, each connection's in order.
#[tokio::test]
async fn an_outage_of_an_hour_delivers_everything_in_order_afterwards() {
    let stage = Stage::set(Clock::running_at(720)).await;
    let running = start(&stage, &["vendor-a", "vendor-b"], "").await;
    stage.mails.set_script(vec![(Step::Greeting, Act::answer(421, "not now"))]);
    let began = stage.clock.now();
    let mut changes = 0;
    while stage.clock.now().since(began) < Duration::from_secs(3600) {
        let bad = changes % 2 == 0;
        for connection in ["vendor-a", "vendor-b"] {
            stage.calls(connection, if bad { WINDOW } else { BATCH }, !bad).await;
            is(&running, connection, if bad { State::Bad } else { State::Good }).await;
        }
        changes += 1;
    }
    assert!(changes >= 2, "{changes} changes within the hour");
    assert_eq!(stage.mails.received_ever(), 0);
    sees(&running, |view| view.mail.problem.contains("421") && view.mail.waiting == changes * 4).await;
    stage.mails.set_script(Vec::new());
    let mails = stage.mails(changes * 4).await;
    for (connection, to) in
        ["vendor-a", "vendor-b"].iter().flat_map(|one| ["noc@acme.example", "duty@acme.example"].map(|to| (one, to)))
    {
        let kinds =
            mails.iter().filter(|mail| mail.connections == [*connection] && mail.to == to).map(|mail| &mail.kind);
        let expected = ["alarm", "recovery"].iter().cycle().take(changes);
        assert!(kinds.eq(expected), "{connection} {to}: {:#?}", briefs(&mails));
    }
    sees(&running, |view| view.mail.waiting == 0 && view.mail.problem.is_empty()).await;
    assert!(running.stop().await);
}

#[tokio::test]
async fn a_recipient_that_is_refused_keeps_nobody_from_the_mail_and_waits_for_the_operator() {
    let stage = Stage::set(Clock::system()).await;
    let running = start(&stage, &["vendor-a"], "[operator]\nemail = \"ops@operator.example\"").await;
    let refuse = vec![(Step::RcptOf("noc@acme.example".to_owned()), Act::answer(550, "5.1.1 no such user"))];
    stage.mails.set_script(refuse);
    stage.calls("vendor-a", WINDOW, false).await;
    let mails = stage.mails(2).await;
    assert_eq!(briefs(&mails), ["alarm vendor-a > duty@acme.example", "condition-began  > ops@operator.example"]);
    assert!(mails[1].text.contains("noc@acme.example") && mails[1].text.contains("550"), "{}", mails[1].text);
    sees(&running, |view| view.mail.dead == 1).await;
    let dead = letters(&stage).await.into_iter().find(|letter| letter.customer.is_some()).unwrap();
    let states: Vec<_> = dead.deliveries.iter().map(|delivery| delivery.state).collect();
    assert_eq!(states, [DeliveryState::Dead, DeliveryState::Sent]);

    stage.mails.set_script(Vec::new());
    let retried = ask(&stage, Request::OutboxRetry { letter: Some(dead.number) }).await;
    assert_eq!(retried, Response::Deliveries(1));
    let mails = stage.mails(4).await;
    assert_eq!(briefs(&mails[2..]), ["alarm vendor-a > noc@acme.example", "condition-over  > ops@operator.example"]);
    assert_eq!(mails[2].id, mails[0].id);
    assert_eq!(mails[3].answers.as_ref(), Some(&mails[1].id));
    let unknown = control::request(&stage.path("pointsman.sock"), &Request::OutboxRetry { letter: Some(99) }).await;
    assert!(unknown.unwrap_err().to_string().contains("there is no mail 99"));
    assert!(running.stop().await);
}

#[tokio::test]
async fn the_operator_hears_of_a_node_that_is_down_and_of_its_return() {
    let stage = Stage::set(Clock::running_at(60)).await;
    let operator = "[operator]\nemail = \"ops@operator.example\"\nlanguage = \"ru\"\nnode_down_after_sec = 20";
    let running = start(&stage, &["vendor-a"], operator).await;
    stage.pbx.restart(Duration::from_secs(2)).await;
    let mails = stage.mails(2).await;
    assert_eq!(briefs(&mails), ["condition-began  > ops@operator.example", "condition-over  > ops@operator.example"]);
    assert!(mails[0].subject.contains("pbx-01"), "{}", mails[0].subject);
    assert_eq!(mails[1].answers.as_ref(), Some(&mails[0].id));
    assert!(running.stop().await);
}

#[tokio::test]
async fn a_restart_goes_on_where_it_was() {
    let stage = Stage::set(Clock::system()).await;
    let running = start(&stage, &["vendor-a"], "").await;
    stage.mails.set_script(vec![(Step::End, Act::answer(451, "4.3.0 later"))]);
    stage.calls("vendor-a", WINDOW, false).await;
    sees(&running, |view| view.mail.waiting == 2).await;
    // One of them has been tried, at least.
    assert!(stage.mails.until(PATIENCE, |server| server.connections() > 0).await);
    assert!(running.stop().await);

    stage.mails.set_script(Vec::new());
    let running = start(&stage, &["vendor-a"], "").await;
    sees(&running, |view| view.mail.waiting > 0 || view.mail.sent > 0).await;
    assert!(matches!(ask(&stage, Request::OutboxRetry { letter: Some(1) }).await, Response::Deliveries(_)));
    let alarm = stage.mails(2).await;
    stage.calls("vendor-a", BATCH, true).await;
    let mails = stage.mails(4).await;
    assert_eq!(mails[2].answers.as_ref(), Some(&alarm[0].id), "the thread is known after the restart");
    assert!(running.stop().await);
}

#[tokio::test]
async fn a_database_that_does_not_work_holds_up_no_mail() {
    let stage = Stage::set(Clock::system()).await;
    // A folder stands where the database should be.
    std::fs::create_dir(stage.path("pointsman.db")).unwrap();
    let running = start(&stage, &["vendor-a"], "").await;
    assert!(!running.view().borrow().storage.healthy);
    stage.calls("vendor-a", WINDOW, false).await;
    assert_eq!(briefs(&stage.mails(2).await)[0], "alarm vendor-a > noc@acme.example");
    running.stop().await;
}

#[tokio::test]
async fn mail_in_a_database_that_comes_back_after_the_start_is_sent_then() {
    let stage = Stage::set(Clock::system()).await;
    let running = start(&stage, &["vendor-a"], "").await;
    stage.mails.set_script(vec![(Step::End, Act::answer(451, "4.3.0 later"))]);
    stage.calls("vendor-a", WINDOW, false).await;
    sees(&running, |view| view.mail.waiting == 2).await;
    assert!(running.stop().await);

    // A disk that is not mounted yet: something else stands where the database should be.
    let (database, away) = (stage.path("pointsman.db"), stage.path("away.db"));
    std::fs::rename(&database, &away).unwrap();
    std::fs::create_dir(&database).unwrap();
    stage.mails.set_script(Vec::new());
    let running = start(&stage, &["vendor-a"], "").await;
    assert_eq!(running.view().borrow().mail.waiting, 0);
    std::fs::remove_dir(&database).unwrap();
    std::fs::rename(&away, &database).unwrap();
    sees(&running, |view| view.mail.waiting > 0 || view.mail.sent > 0).await;
    // One of them waits after its refusal.
    ask(&stage, Request::OutboxRetry { letter: Some(1) }).await;
    let mails = stage.mails(2).await;
    assert!(mails.iter().all(|mail| mail.kind == "alarm"), "{:#?}", briefs(&mails));
    sees(&running, |view| view.mail.sent == 2 && view.mail.waiting == 0).await;
    assert!(running.stop().await);
    assert_eq!(stage.mails.received_ever(), 2);
}
