//! Mail over a real mail server, read by a program that is not ours: the command that tries it out, and the whole way
//! from a real vendor that fails to the mails of its owner, with the program or the server ending in between.

use std::process::Output;
use std::time::Duration;

use pointsman::quality::machine::State;

use crate::lab::SOON;
use crate::lab::asterisk::Kind;
use crate::lab::folder::Folder;
use crate::lab::mail_server::{Mail, MailServer, Message, PASSWORD, Tls, USER};
use crate::lab::pbx::Switch;
use crate::lab::pointsman::{Node, command, configuration};
use crate::lab::sipp::Behaviour;
use crate::lab::{keys, ports};
use crate::story::{NUMBERS, Scene};

/// Who the mails are from: long, and nothing that a header could hold as it is.
const SENDER: &str = "Отдел контроля качества междугородных и международных соединений, дежурная смена № 4";

/// Nobody waits as long as the outbox may for a server that was away for some seconds.
const BACK: Duration = Duration::from_secs(60);

/// A customer's name of 200 characters.
fn owner() -> String {
    let name: String = "Акционерное общество «Дальняя связь и сыновья» ".chars().cycle().take(199).collect();
    name + "й"
}

fn customer() -> String {
    format!("[[customers]]\nid = \"acme\"\nname = \"{}\"\nemail = \"noc@acme.example\"\nlanguage = \"ru\"\n", owner())
}

/// Words with one space between: a text is wrapped somewhere, and it does not matter where.
fn unwrapped(text: &str) -> String {
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}

/// What no mail that leaves may lack.
fn is_sound(mail: &Mail) {
    assert_eq!((mail.sender.as_str(), mail.user.as_str()), (USER, USER));
    assert_eq!(mail.recipients, ["noc@acme.example"]);
    assert!(["TLSv1.2", "TLSv1.3"].contains(&mail.tls.as_str()), "{}", mail.tls);
    message_is_sound(&mail.message);
    let lines: Vec<&[u8]> = mail.raw.split(|byte| *byte == b'\n').collect();
    let (last, lines) = lines.split_last().unwrap();
    assert!(last.is_empty() && lines.iter().all(|line| line.ends_with(b"\r") && line.len() <= 998), "{mail:#?}");
    assert!(mail.raw.is_ascii());
}

fn message_is_sound(message: &Message) {
    assert_eq!(message.defects, [""; 0], "{message:#?}");
    assert_eq!(message.from, [(SENDER.to_owned(), USER.to_owned())]);
    assert_eq!(message.to, [(String::new(), "noc@acme.example".to_owned())]);
    assert_eq!(message.header("Auto-Submitted"), "auto-generated");
    assert_eq!(message.header("List-Id"), "<quality.operator.example>");
    assert_eq!(message.header("X-Pointsman-Customer"), "acme");
    let id = message.header("Message-ID");
    assert!(id.starts_with('<') && id.ends_with("@operator.example>"), "{id}");
    // A name is cut where it is shown, not in the middle of a character.
    let shown: String = owner().chars().take(79).chain(['…']).collect();
    for kind in ["text/plain", "text/html"] {
        let body = message.body(kind);
        assert!(unwrapped(body).contains(&shown), "{body}");
        assert!(!body.contains('\u{fffd}'), "{body}");
    }
}

// === The command ===

/// A configuration for `test-email`, and no program that runs.
fn desk(email: &str) -> Folder {
    let folder = Folder::new("desk");
    let node = Node::at("pbx", ports::kept()).text();
    let text = configuration(&[node], &["vendor-a"], "") + email + &customer();
    folder.write("pointsman.toml", &text);
    folder
}

fn test_email(desk: &Folder, more: &[&str]) -> Output {
    command(desk, &[&["test-email", "acme", "--config", "pointsman.toml"], more].concat())
}

/// All that a command said.
fn said(output: &Output) -> String {
    [String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr)].concat()
}

#[test]
fn a_test_mail_arrives_over_starttls_and_over_tls() {
    for tls in [Tls::Starttls, Tls::Implicit] {
        let server = MailServer::start(tls);
        let desk = desk(&server.configuration(SENDER));

        let output = test_email(&desk, &[]);
        assert_eq!(output.status.code(), Some(0), "{}", said(&output));
        assert_eq!(said(&output), "noc@acme.example: taken: 250 2.0.0 kept as 1\n");
        let output = test_email(&desk, &["--json", "--example", "alarm"]);
        assert_eq!(output.status.code(), Some(0), "{}", said(&output));
        let json: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
        let expected = serde_json::json!([{ "to": "noc@acme.example", "ok": true, "answer": "250 2.0.0 kept as 2" }]);
        assert_eq!(json, expected);

        let mails = server.gets(2, SOON);
        mails.iter().for_each(is_sound);
        assert!(mails.iter().all(|mail| mail.message.header("X-Pointsman-Kind") == "test"));
        let subjects = mails.iter().map(|mail| mail.message.header("Subject")).collect::<Vec<_>>();
        assert!(subjects[1].contains("качество ниже нормы"), "{subjects:?}");
    }
}

#[test]
fn a_test_mail_that_is_printed_is_sound_and_goes_nowhere() {
    let server = MailServer::start(Tls::Starttls);
    let desk = desk(&server.configuration(SENDER));
    for example in ["test", "alarm", "recovery", "digest"] {
        let output = test_email(&desk, &["--print", "--example", example]);
        assert_eq!(output.status.code(), Some(0), "{}", said(&output));
        message_is_sound(&Message::parse(&output.stdout));
    }
    assert!(server.mails().is_empty());
}

#[test]
fn a_test_mail_that_cannot_be_sent_says_why_and_no_password() {
    let server = MailServer::start(Tls::Starttls);
    let right = server.configuration(SENDER);
    let stranger = Folder::new("stranger");
    keys::write(&stranger, "mail", "localhost");
    let with = |from: &str, to: &str| {
        assert!(right.contains(from), "{right}");
        right.replace(from, to)
    };
    let authority = server.authority().display().to_string();
    let foreign = stranger.join("keys/authority.pem").display().to_string();
    let cases = [
        // Refused by the server.
        (with(PASSWORD, "wrong-horse-battery"), "535"),
        // A certificate that is from somebody else, and one for another name.
        (with(&authority, &foreign), "UnknownIssuer"),
        (with(&server.address("localhost"), &server.address("127.0.0.1")), "certificate not valid for name"),
        // A server that takes nothing without TLS.
        (with("\"starttls\"", "\"none\""), "does not offer a login"),
    ];
    for (email, words) in cases {
        let desk = desk(&email);
        for format in [&[][..], &["--json"]] {
            let output = test_email(&desk, format);
            let said = said(&output);
            assert_eq!(output.status.code(), Some(1), "{said}");
            assert!(said.contains(words), "{words} in {said}");
            assert!(!said.contains("horse"), "{said}");
        }
    }
    assert!(server.mails().is_empty());
}

// === The whole way ===

/// A scene whose vendors are the customer's, with this server for their mail.
fn scene(server: &MailServer) -> Scene {
    let quality = "retry_interval_sec = 6\nretry_batch = 2\nnotify_on_status_change = true";
    Scene::with(Switch::Asterisk(Kind::Recent), quality, |text| {
        let text = text.replace("[[connections]]\n", "[[connections]]\ncustomer = \"acme\"\n");
        text + &server.configuration(SENDER) + "digest_window_sec = 0\n" + &customer()
    })
}

/// The vendor is repaired, gets its retry and is good.
fn vendor_recovers(scene: &mut Scene) {
    scene.first.turn(Behaviour::Good);
    scene.first_becomes(State::Retry, SOON);
    scene.order_becomes("vendor-a,vendor-b");
    for _ in 0..2 {
        assert_eq!(scene.call(), (200, vec!["vendor-a".to_owned()]));
    }
    scene.first_becomes(State::Good, SOON);
}

/// Waits until the program has delivered that many since it was started and has nothing left.
fn outbox_is_empty(scene: &Scene, sent: u64) {
    scene.pointsman.shows(&format!("{sent} mails sent and none waiting"), BACK, |view| {
        let mail = &view.mail;
        let left = mail.waiting + mail.undecided + mail.dead;
        (mail.sent == sent && left == 0 && mail.problem.is_empty()).then_some(())
    });
}

fn kinds(mails: &[Mail]) -> Vec<&str> {
    mails.iter().map(|mail| mail.message.header("X-Pointsman-Kind")).collect()
}

/// They are the alarm of vendor-a and the recovery that answers it.
fn are_alarm_and_recovery(alarm: &Mail, recovery: &Mail) {
    for mail in [alarm, recovery] {
        is_sound(mail);
        assert_eq!(mail.message.header("X-Pointsman-Connection"), "vendor-a");
    }
    let (alarm, recovery) = (&alarm.message, &recovery.message);
    assert_eq!(alarm.header("X-Pointsman-Kind"), "alarm");
    assert!(!alarm.has_header("In-Reply-To"), "{alarm:#?}");
    assert_eq!(recovery.header("X-Pointsman-Kind"), "recovery");
    assert_ne!(recovery.header("Message-ID"), alarm.header("Message-ID"));
    for name in ["In-Reply-To", "References"] {
        assert_eq!(recovery.header(name), alarm.header("Message-ID"));
    }
}

#[test]
fn the_owner_of_a_real_vendor_hears_that_it_fails_and_that_it_is_back() {
    let server = MailServer::start(Tls::Starttls);
    let mut scene = scene(&server);
    scene.vendor_goes_bad();
    server.gets(1, SOON);
    vendor_recovers(&mut scene);
    let mails = server.gets(2, SOON);
    are_alarm_and_recovery(&mails[0], &mails[1]);
    let [alarm, recovery] = [0, 1].map(|n| &mails[n].message);

    let expected = "vendor-a: качество ниже нормы — ASR 25,0 % (порог 50 %)";
    assert_eq!(alarm.header("Subject"), expected);
    for kind in ["text/plain", "text/html"] {
        let body = alarm.body(kind);
        // The number is masked but for its beginning, the vendor's answer is in words.
        for words in ["ASR", "25,0 %", "50 %", "503", "00493xxxxxxxx"] {
            assert!(body.contains(words), "{words} in {body}");
        }
        assert!(!body.contains(NUMBERS) && !body.contains("0000005"), "{body}");
    }
    assert_eq!(recovery.header("Subject"), "vendor-a: качество снова в норме");

    outbox_is_empty(&scene, 2);
    assert!(!scene.pointsman.log().contains(PASSWORD));
}

/// Killed while the server has a mail and has not said so yet, and while it has none yet.
#[test]
fn a_program_that_is_killed_while_it_delivers_delivers_afterwards() {
    let server = MailServer::start(Tls::Starttls);
    let mut scene = scene(&server);
    let killed = |scene: &mut Scene| {
        server.is_holding();
        scene.pointsman.kill();
        server.release();
        scene.pointsman.go();
        scene.pointsman.is_in_step_with("pbx");
        outbox_is_empty(scene, 1);
    };
    server.hold("end");
    scene.vendor_goes_bad();
    killed(&mut scene);
    let mails = server.mails();
    assert_eq!(kinds(&mails), ["alarm", "alarm"], "before and after");
    assert_eq!(mails[0].message.header("Message-ID"), mails[1].message.header("Message-ID"));
    assert_eq!(mails[0].raw, mails[1].raw);

    server.hold("rcpt");
    vendor_recovers(&mut scene);
    assert_eq!(server.mails().len(), 2);
    killed(&mut scene);
    let mails = server.mails();
    assert_eq!(kinds(&mails), ["alarm", "alarm", "recovery"]);
    are_alarm_and_recovery(&mails[0], &mails[2]);
}

/// The server ends in the middle of a delivery and is away for a while; it gets everything when it is back, in order.
#[test]
fn a_server_that_was_away_gets_everything_in_order() {
    let mut server = MailServer::start(Tls::Starttls);
    let mut scene = scene(&server);
    server.hold("rcpt");
    scene.vendor_goes_bad();
    server.is_holding();
    server.kill();
    server.release();
    scene.pointsman.shows("the server's end noticed", SOON, |view| {
        (view.mail.waiting == 1 && !view.mail.problem.is_empty()).then_some(())
    });
    vendor_recovers(&mut scene);
    scene.pointsman.shows("two mails that wait", SOON, |view| (view.mail.waiting == 2).then_some(()));
    server.boot();
    let mails = server.gets(2, BACK);
    are_alarm_and_recovery(&mails[0], &mails[1]);
    outbox_is_empty(&scene, 2);
}
