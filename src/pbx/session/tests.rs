//! Whole dialogues, played without a socket. Numbers such as E18 or A22 name public bug reports about other clients;
//! what went wrong there is said at each.

use std::time::Duration;

use bytes::BytesMut;
use proptest::prelude::*;
use tokio_util::codec::Decoder;

use super::*;
use crate::ids::LegId;
use crate::pbx::command::Reply;
use crate::pbx::event::Vitals;

const GREETING: &str = "Content-Type: auth/request\n\n";
const GOODBYE: &str = "Content-Type: text/disconnect-notice\nContent-Length: 67\n\n\
                       Disconnected, goodbye.\nSee you at ClueCon! http://www.cluecon.com/\n";
const BANNER: &str = "Asterisk Call Manager/11.0.0\r\n";

/// A session with somebody who plays the PBX. Time is in seconds since the connection was made.
struct Stage<S: Session<u32>> {
    session: S,
    codec: S::Codec,
    input: BytesMut,
    effects: Effects<u32>,
    now: Duration,
}

impl<S: Session<u32>> Stage<S> {
    fn new(session: S) -> Self {
        let now = Duration::ZERO;
        Self { session, codec: S::Codec::default(), input: BytesMut::new(), effects: Effects::default(), now }
    }

    /// The PBX sends this; returns what we send in return.
    fn hear(&mut self, bytes: impl AsRef<[u8]>) -> String {
        self.input.extend_from_slice(bytes.as_ref());
        self.session.heard();
        while let Some(frame) = self.codec.decode(&mut self.input).expect("a stream that can be followed") {
            self.session.frame(frame, self.now, &mut self.effects);
        }
        self.sent()
    }

    /// Time passes, with every timer that falls due; returns what we send.
    fn pass(&mut self, seconds: f64) -> String {
        let until = self.now + Duration::from_secs_f64(seconds);
        while let Some(at) = self.session.deadline().filter(|&at| at <= until && self.effects.end.is_none()) {
            self.now = self.now.max(at);
            self.session.tick(self.now, &mut self.effects);
        }
        self.now = until;
        self.sent()
    }

    fn submit(&mut self, command: Command, answer: u32) -> String {
        self.session.submit(command, answer, self.now, &mut self.effects);
        self.sent()
    }

    fn sent(&mut self) -> String {
        String::from_utf8(self.effects.send.split().to_vec()).unwrap()
    }

    /// The events that are not about the keepalive.
    fn events(&mut self) -> Vec<PbxEvent> {
        let mut events = std::mem::take(&mut self.effects.events);
        events.retain(|event| !matches!(event, PbxEvent::Vitals(_) | PbxEvent::Silent));
        events
    }

    /// Those that are.
    fn vitals(&mut self) -> Vec<PbxEvent> {
        let mut events = std::mem::take(&mut self.effects.events);
        events.retain(|event| matches!(event, PbxEvent::Vitals(_) | PbxEvent::Silent));
        events
    }

    fn answers(&mut self) -> Vec<(u32, CommandResult)> {
        std::mem::take(&mut self.effects.answers)
    }

    fn notes(&mut self) -> Vec<Note> {
        std::mem::take(&mut self.effects.notes)
    }

    fn end(&mut self) -> Option<End> {
        self.effects.end.take()
    }
}

fn reply(text: &str) -> String {
    format!("Content-Type: command/reply\nReply-Text: {text}\n\n")
}

fn response(body: &str) -> String {
    format!("Content-Type: api/response\nContent-Length: {}\n\n{body}", body.len())
}

fn event(fields: &[(&str, &str)]) -> String {
    let body: String =
        fields.iter().map(|(name, value)| format!("{name}: {value}\n")).chain(["\n".to_owned()]).collect();
    format!("Content-Length: {}\nContent-Type: text/event-plain\n\n{body}", body.len())
}

fn credentials(user: Option<&str>) -> Credentials {
    Credentials::new(user.map(str::to_owned), "ClueCon".to_owned().into())
}

fn set(value: &str) -> Command {
    Command::SetVariable { name: "pm_x".to_owned(), value: value.to_owned() }
}

fn get() -> Command {
    Command::GetVariable { name: "pm_x".to_owned() }
}

mod freeswitch {
    use super::*;

    const FILTERS: [&str; 4] = [
        "filter Event-Name HEARTBEAT\n\n",
        "filter variable_sip_gateway_name /./\n\n",
        "filter Channel-Call-State ACTIVE\n\n",
        "filter Call-Direction -inbound\n\n",
    ];

    fn events() -> Stage<EslEvents> {
        Stage::new(EslEvents::new(credentials(None), false))
    }

    fn linked() -> Stage<EslEvents> {
        let mut stage = events();
        stage.hear(GREETING);
        stage.hear(reply("+OK accepted"));
        for _ in FILTERS {
            stage.hear(reply("+OK filter added."));
        }
        stage.hear(reply("+OK event listener enabled plain"));
        assert_eq!(stage.events(), [PbxEvent::Linked]);
        stage.notes();
        stage
    }

    fn heartbeat(core: &str) -> String {
        event(&[("Event-Name", "HEARTBEAT"), ("Core-UUID", core), ("Session-Count", "3")])
    }

    /// A session for commands that is logged in and whose own first questions are answered.
    fn asking() -> Stage<EslCommands<u32>> {
        let mut stage = Stage::new(EslCommands::new(credentials(None)));
        assert_eq!(stage.hear(GREETING), "auth ClueCon\n\n");
        assert_eq!(stage.hear(reply("+OK accepted")), "api global_getvar core_uuid\n\napi status\n\n");
        stage.hear(response("6f2a7c6e-0000-4000-8000-000000000001"));
        stage.hear(response("UP 0 years, 0 days\nFreeSWITCH (Version 1.10.12 -release 64bit) is ready\n"));
        let notes = stage.notes();
        assert!(notes.contains(&Note::Ready));
        assert!(notes.contains(&Note::Software("FreeSWITCH 1.10.12 -release 64bit".to_owned())), "{notes:?}");
        let run = "6f2a7c6e-0000-4000-8000-000000000001".into();
        assert_eq!(stage.events(), [PbxEvent::Incarnation(run)]);
        stage
    }

    #[test]
    fn e17_e25_each_step_waits_for_the_reply_to_the_one_before() {
        let mut stage = events();
        assert_eq!(stage.pass(0.5), "", "nothing before the greeting");
        assert_eq!(stage.hear(GREETING), "auth ClueCon\n\n");
        let mut answer = reply("+OK accepted");
        for filter in FILTERS {
            assert_eq!(stage.hear(std::mem::replace(&mut answer, reply("+OK filter added."))), filter);
        }
        assert_eq!(
            stage.hear(answer),
            "event plain HEARTBEAT CHANNEL_CREATE CHANNEL_CALLSTATE CHANNEL_HANGUP_COMPLETE\n\n"
        );
        assert_eq!((stage.events(), stage.notes()), (vec![], vec![]));
        assert_eq!(stage.hear(reply("+OK event listener enabled plain")), "");
        assert_eq!((stage.events(), stage.notes()), (vec![PbxEvent::Linked], vec![Note::Ready]));

        let mut early = Stage::new(EslCommands::new(credentials(None)));
        assert_eq!(early.submit(set("a"), 1), "", "no command before the login");
        assert_eq!(early.answers(), [(1, Err(CommandError::NotConnected))]);
    }

    #[test]
    fn strict_loss_detection_subscribes_the_end_of_every_channel() {
        let mut stage = Stage::new(EslEvents::new(credentials(None), true));
        stage.hear(GREETING);
        let mut sent = vec![stage.hear(reply("+OK accepted"))];
        for _ in 0..4 {
            sent.push(stage.hear(reply("+OK")));
        }
        assert_eq!(sent[2], "filter Channel-State CS_DESTROY\n\n");
        assert!(sent[3].ends_with("CHANNEL_HANGUP_COMPLETE CHANNEL_STATE\n\n"), "{sent:?}");
        stage.events();
        stage.notes();

        // E32: four sessions ended, one end was seen; it counts once it is still so at the next heartbeat.
        let beat = |started: &str| {
            event(&[("Event-Name", "HEARTBEAT"), ("Session-Since-Startup", started), ("Session-Count", "10")])
        };
        stage.hear(beat("100"));
        stage.hear(event(&[("Event-Name", "CHANNEL_STATE"), ("Channel-State", "CS_DESTROY"), ("Unique-ID", "u-1")]));
        stage.hear(beat("104"));
        assert!(!stage.events().contains(&PbxEvent::Lost(3)));
        stage.hear(beat("104"));
        assert!(stage.events().contains(&PbxEvent::Lost(3)));
        assert_eq!(stage.notes(), [Note::LossFound(3), Note::WantList]);
    }

    /// E13: refused by the access list, the client hung; a wrong password must be told from it, and both from a line
    /// that dropped.
    #[test]
    fn e13_refusals_are_told_apart() {
        let refused = |frames: &[&str]| {
            let mut stage = events();
            let sent: String = frames.iter().map(|frame| stage.hear(frame)).collect();
            (sent, stage.end())
        };
        let acl = "Content-Type: text/rude-rejection\nContent-Length: 24\n\nAccess Denied, go away.\n";
        let (sent, Some(End::Refused(why))) = refused(&[acl, GOODBYE]) else { panic!() };
        assert_eq!(sent, "");
        assert!(why.contains("access list"), "{why}");

        let (_, Some(End::Refused(why))) = refused(&[GREETING, &reply("-ERR invalid"), GOODBYE]) else { panic!() };
        assert!(why.contains("password (-ERR invalid)"), "{why}");

        let (_, Some(End::Lost(why))) = refused(&[GREETING, GOODBYE]) else { panic!() };
        assert_eq!(why, "FreeSWITCH closed the session: Disconnected, goodbye.");

        let accepted = reply("+OK accepted");
        let denied = reply("-ERR permission denied");
        let steps = [GREETING, &accepted, &denied, &denied, &denied, &denied, &denied];
        let (_, Some(End::Refused(why))) = refused(&steps) else { panic!() };
        assert!(why.contains("subscription (-ERR permission denied)"), "{why}");

        let (_, Some(End::Lost(why))) = refused(&["Content-Type: text/html\nContent-Length: 0\n\n"]) else { panic!() };
        assert!(why.contains("greeting") && why.contains("text/html"), "{why}");
    }

    #[test]
    fn a_peer_that_says_nothing_is_given_up_and_the_reason_says_at_which_step() {
        let mut silent = events();
        silent.pass(9.9);
        assert_eq!(silent.end(), None);
        silent.pass(0.2);
        assert_eq!(silent.end(), Some(End::Lost("connected, but no greeting in 10 s".to_owned())));

        let mut mute = events();
        mute.hear(GREETING);
        mute.pass(11.0);
        assert_eq!(mute.end(), Some(End::Lost("no answer to the login in 10 s".to_owned())));

        let mut deaf = events();
        deaf.hear(GREETING);
        deaf.hear(reply("+OK accepted"));
        deaf.pass(11.0);
        assert_eq!(deaf.end(), Some(End::Lost("logged in, but no answer to the subscription".to_owned())));
    }

    /// E01: the reply stood behind an event, and the event was taken for it.
    #[test]
    fn e01_a_reply_behind_an_event_is_still_the_reply() {
        let mut stage = linked();
        assert_eq!(stage.pass(5.0), "api status\n\n");
        stage.hear(event(&[("Event-Name", "CHANNEL_ANSWER"), ("Unique-ID", "u-0"), ("Event-Sequence", "17")]));
        assert_eq!(stage.notes(), []);
        stage.hear(response("UP"));
        assert_eq!(stage.notes(), [Note::RoundTrip(Duration::ZERO)]);
        assert_eq!(stage.end(), None);
    }

    #[test]
    fn freeswitch_tells_whether_it_takes_calls_and_its_idle_cpu() {
        let mut stage = asking();
        let status = |ready: &str| {
            response(&format!(
                "UP 0 years\nFreeSWITCH (Version 1.10.12 -release 64bit) is {ready}\n0 session(s) since startup\n\
                 min idle cpu 0.00/93.27\nCurrent Stack Size/Max 240K/8192K\n"
            ))
        };
        for (answer, ready) in [("ready", true), ("not ready", false)] {
            stage.pass(5.0);
            stage.hear(status(answer));
            let vitals =
                Vitals { took: Some(Duration::ZERO), ready: Some(ready), idle_cpu: Some(93.27), load_avg: None };
            assert_eq!(stage.vitals(), [PbxEvent::Vitals(vitals)]);
        }
        stage.pass(10.0);
        assert_eq!(stage.vitals(), [PbxEvent::Silent]);
    }

    /// E18, L05, L06: two commands in flight; each gets its own answer. A command that may not be used is answered by
    /// the other kind of frame; an unset variable is no error.
    #[test]
    fn e18_answers_go_to_their_commands() {
        let mut stage = asking();
        assert_eq!(stage.submit(get(), 1), "api global_getvar pm_x\n\n");
        assert_eq!(stage.submit(set("vendor-a"), 2), "api global_setvar pm_x=vendor-a\n\n");
        assert_eq!(stage.submit(get(), 3), "api global_getvar pm_x\n\n");
        stage.submit(Command::ClearVariable { name: "pm_x".to_owned() }, 4);
        stage.submit(get(), 5);
        stage.hear(response("vendor-b"));
        stage.hear(event(&[("Event-Name", "CHANNEL_DESTROY"), ("Unique-ID", "u-9")]));
        stage.hear(response("+OK"));
        stage.hear(response("-ERR no reply\n"));
        stage.hear(reply("-ERR permission denied"));
        stage.hear(response("-USAGE: <var>\n"));
        assert_eq!(
            stage.answers(),
            [
                (1, Ok(Reply::Value(Some("vendor-b".to_owned())))),
                (2, Ok(Reply::Done)),
                (3, Ok(Reply::Value(None))),
                (4, Err(CommandError::Refused("-ERR permission denied".to_owned()))),
                (5, Err(CommandError::Refused("-USAGE: <var>".to_owned()))),
            ]
        );
        stage.submit(Command::PutAstDb { family: "f".into(), key: "k".into(), value: "v".into() }, 6);
        assert_eq!(stage.answers(), [(6, Err(CommandError::Unsupported))]);
    }

    /// L07, L08: values that FreeSWITCH would change or take for another command never leave.
    #[test]
    fn l07_l08_what_cannot_be_stored_is_refused_here() {
        let mut stage = asking();
        for (answer, value) in [(1, "[leg_timeout=5]a"), (2, "a/${dest}"), (3, "a\n\napi fsctl shutdown"), (4, "")] {
            assert_eq!(stage.submit(set(value), answer), "");
            assert!(matches!(stage.answers()[..], [(to, Err(CommandError::Illegal(_)))] if to == answer), "{value:?}");
        }
    }

    /// E18, second part: one that times out keeps its place, its late answer is nobody's.
    #[test]
    fn e18_a_late_answer_is_not_the_next_ones() {
        let mut stage = asking();
        stage.submit(get(), 1);
        stage.pass(4.0);
        stage.submit(get(), 2);
        stage.pass(1.0);
        assert_eq!(stage.answers(), [(1, Err(CommandError::TimedOut))]);
        stage.hear(response("for one"));
        stage.hear(response("for two"));
        assert_eq!(stage.answers(), [(2, Ok(Reply::Value(Some("for two".to_owned()))))]);
    }

    /// E19: FreeSWITCH went away while commands waited, and whoever waited hung.
    #[test]
    fn e19_all_that_wait_hear_of_the_loss_at_once() {
        let mut stage = asking();
        stage.submit(set("a"), 1);
        stage.submit(Command::List, 2);
        for answer in 3..9 {
            stage.submit(Command::Describe(LegId::new("u-1")), answer);
        }
        stage.session.close(&mut stage.effects);
        let mut answers = stage.answers();
        answers.sort_by_key(|(to, _)| *to);
        let all: Vec<_> = (1..9).map(|to| (to, Err(CommandError::LinkLost))).collect();
        assert_eq!(answers, all);
        assert_eq!(stage.events(), [PbxEvent::Lost(6)], "the descriptions would have been events");
    }

    /// E35: a channel ended between the list and the question about it.
    #[test]
    fn e35_a_leg_that_is_gone_is_an_answer() {
        let mut stage = asking();
        stage.session.list(stage.now, &mut stage.effects);
        assert_eq!(stage.sent(), "api show channels as json\n\n");
        stage.hear(response(
            r#"{"row_count":2,"rows":[
                {"uuid":"u-1","direction":"outbound","name":"sofia/external/1","callstate":"RINGING"},
                {"uuid":"u-2","direction":"inbound","name":"sofia/internal/2","callstate":"ACTIVE"}]}"#,
        ));
        let [PbxEvent::Snapshot(snapshot)] = &stage.events()[..] else { panic!() };
        let legs: Vec<_> = snapshot.legs.iter().map(|l| (l.leg.as_str(), l.outbound, l.answered)).collect();
        assert_eq!(legs, [("u-1", Some(true), false), ("u-2", Some(false), true)]);
        assert!(stage.notes().contains(&Note::Listed));

        assert_eq!(stage.submit(Command::Describe(LegId::new("u-1")), 1), "api uuid_dump u-1 json\n\n");
        stage.hear(response("-ERR No such channel!\n"));
        assert_eq!(stage.events(), [PbxEvent::LegGone(LegId::new("u-1"))]);
        assert_eq!(stage.answers(), [(1, Ok(Reply::Done))]);
        stage.submit(Command::Describe(LegId::new("u 1\n\n")), 2);
        assert!(matches!(stage.answers()[..], [(2, Err(CommandError::Illegal(_)))]));
    }

    #[test]
    fn lists_that_are_empty_broken_or_forbidden() {
        let list = |body: &str| {
            let mut stage = asking();
            stage.session.list(stage.now, &mut stage.effects);
            assert_eq!(stage.sent(), "api show channels as json\n\n");
            stage.hear(body);
            let heard = (stage.events(), stage.notes());
            let again = stage.pass(5.0).contains("show channels");
            let failed = heard.1.iter().any(|note| matches!(note, Note::ListFailed(_)));
            assert_eq!(again, failed, "a list that failed is read again soon");
            heard
        };
        let (events, _) = list(&response("{\"row_count\": 0}\n"));
        assert_eq!(events, [PbxEvent::Snapshot(crate::pbx::event::Snapshot::default())]);
        let (events, notes) = list(&response(r#"{"columns": []}"#));
        assert!(events.is_empty() && notes.iter().any(|n| matches!(n, Note::ListFailed(_))), "{notes:?}");
        let (events, notes) = list(&reply("-ERR permission denied"));
        assert!(events.is_empty(), "nothing is concluded from a list that did not come");
        assert!(notes.contains(&Note::ListRefused("-ERR permission denied".to_owned())), "{notes:?}");
    }

    #[test]
    fn questions_about_legs_are_paced_and_variables_go_between_them() {
        let mut stage = asking();
        let sent: String =
            (0..100).map(|n| stage.submit(Command::Describe(LegId::new(&format!("u-{n}"))), n)).collect();
        assert_eq!(sent.matches("uuid_dump").count(), 4);
        assert_eq!(stage.submit(set("a"), 1000), "api global_setvar pm_x=a\n\n");
        let mut asked = 4;
        for _ in 0..4 {
            asked += stage.hear(response("-ERR No such channel!\n")).matches("uuid_dump").count();
        }
        stage.hear(response("+OK"));
        assert!(stage.answers().contains(&(1000, Ok(Reply::Done))), "behind four questions, not a hundred");
        while !stage.events().is_empty() {
            asked += stage.hear(response("-ERR No such channel!\n")).matches("uuid_dump").count();
        }
        assert_eq!(asked, 100);
    }

    /// E27: only the id tells that FreeSWITCH was restarted.
    #[test]
    fn e27_a_new_run_is_announced_before_what_it_says() {
        let mut stage = linked();
        stage.hear(heartbeat("core-1"));
        assert_eq!(stage.events().first(), Some(&PbxEvent::Incarnation("core-1".into())));
        stage.hear(heartbeat("core-1"));
        assert!(!stage.events().iter().any(|event| matches!(event, PbxEvent::Incarnation(_))), "no news");
        stage.hear(heartbeat("core-2"));
        assert_eq!(stage.events().first(), Some(&PbxEvent::Incarnation("core-2".into())));
    }

    /// E29: the path died without a FIN.
    #[test]
    fn e29_three_keepalives_without_a_sign_of_life_are_the_end() {
        let mut stage = linked();
        assert_eq!(stage.pass(14.9).matches("api status").count(), 2);
        assert_eq!(stage.pass(5.0).matches("api status").count(), 1);
        assert_eq!(stage.end(), None);
        stage.pass(0.2);
        let Some(End::Lost(why)) = stage.end() else { panic!() };
        assert!(why.contains("no sign of life"), "{why}");
    }

    /// E29, second part: answers come, events do not.
    #[test]
    fn e29_heartbeats_that_stop_are_the_end_too() {
        let mut stage = linked();
        let alive = |stage: &mut Stage<EslEvents>, seconds: u32, beats: bool| {
            for second in 0..seconds {
                let asked = stage.pass(1.0).matches("api status").count();
                (0..asked).for_each(|_| {
                    stage.hear(response("UP"));
                });
                if beats && second % 20 == 0 {
                    stage.hear(heartbeat("core-1"));
                }
            }
            stage.end()
        };
        assert_eq!(alive(&mut stage, 100, true), None);
        assert_eq!(alive(&mut stage, 39, false), None);
        let Some(End::Lost(why)) = alive(&mut stage, 3, false) else { panic!() };
        assert!(why.contains("HEARTBEAT") && why.contains("20 s"), "{why}");

        let mut quiet = linked();
        quiet.hear(heartbeat("core-1"));
        assert_eq!(alive(&mut quiet, 600, false), None, "one alone does not tell when the next is due");
    }

    /// L03: a command of somebody else holds everything back for seconds.
    #[test]
    fn l03_a_pause_shorter_than_three_keepalives_is_no_end() {
        let mut stage = linked();
        for _ in 0..20 {
            stage.pass(14.0);
            assert_eq!(stage.end(), None);
            for _ in 0..3 {
                stage.hear(response("UP"));
            }
        }
    }

    /// L04: FreeSWITCH cuts a long reply to `userauth` together with its end.
    #[test]
    fn l04_a_login_reply_that_was_cut_does_not_hang_or_shift_replies() {
        let mut stage = Stage::new(EslEvents::new(credentials(Some("ops@pbx")), false));
        assert_eq!(stage.hear(GREETING), "userauth ops@pbx:ClueCon\n\n");
        let cut = format!("Content-Type: command/reply\nReply-Text: +OK accepted\nAllowed-Events: {}", "e".repeat(440));
        assert_eq!(stage.hear(cut), "");
        assert_eq!(stage.pass(2.0), "api status\n\n", "its reply brings the end of the frame");
        assert_eq!(stage.hear(response("UP")), FILTERS[0]);
        for _ in FILTERS {
            stage.hear(reply("+OK filter added."));
        }
        stage.hear(reply("+OK event listener enabled plain"));
        assert_eq!(stage.events(), [PbxEvent::Linked]);
        assert!(!stage.notes().contains(&Note::StrayAnswer));
    }

    #[test]
    fn a_login_reply_that_was_merely_slow_does_not_shift_replies_either() {
        let mut stage = Stage::new(EslCommands::new(credentials(Some("ops@pbx"))));
        stage.hear(GREETING);
        assert_eq!(stage.pass(3.0), "api status\n\n");
        let sent = stage.hear(format!("{}{}", reply("+OK accepted"), response("of the nudge")));
        assert_eq!(sent, "api global_getvar core_uuid\n\napi status\n\n");
        stage.hear(response("core-7"));
        assert_eq!(stage.events(), [PbxEvent::Incarnation("core-7".into())]);
    }

    #[test]
    fn notices_end_a_session_but_not_one_that_lingers() {
        let mut stage = linked();
        stage.hear("Content-Type: text/disconnect-notice\nContent-Disposition: linger\nContent-Length: 0\n\n");
        assert_eq!(stage.end(), None);
        stage.hear(
            "Content-Type: text/disconnect-notice\nContent-Length: 39\n\nkilled listener because of lost events\n",
        );
        let expected = "FreeSWITCH closed the session: killed listener because of lost events";
        assert_eq!(stage.end(), Some(End::Lost(expected.to_owned())));
    }

    #[test]
    fn an_event_that_cannot_be_read_is_counted_and_leads_to_a_list() {
        let mut stage = linked();
        stage.hear("Content-Length: 12\nContent-Type: text/event-plain\n\nno-event: 1\n");
        assert_eq!(stage.events(), [PbxEvent::Lost(1)]);
        assert_eq!(stage.notes(), [Note::Damaged, Note::WantList]);
        assert_eq!(stage.end(), None);
    }
}

mod asterisk {
    use super::*;

    fn ok(id: &str, lines: &str) -> String {
        format!("Response: Success\r\nActionID: {id}\r\n{lines}\r\n")
    }

    fn error(id: &str, message: &str) -> String {
        format!("Response: Error\r\nActionID: {id}\r\nMessage: {message}\r\n\r\n")
    }

    fn login_ok() -> String {
        ok("pm-1", "Message: Authentication accepted\r\n")
    }

    fn user() -> Credentials {
        Credentials::new(Some("pointsman".to_owned()), "s3cret".to_owned().into())
    }

    fn linked() -> Stage<AmiEvents> {
        let mut stage = Stage::new(AmiEvents::new(user(), Secrecy::Plain, false));
        stage.hear(BANNER);
        assert_eq!(stage.hear(login_ok()), "Action: CoreStatus\r\nActionID: pm-16\r\n\r\n");
        stage.hear("Event: FullyBooted\r\nPrivilege: system,all\r\nStatus: Fully Booted\r\n\r\n");
        stage.hear(ok("pm-16", "CoreStartupDate: 2026-11-30\r\nCoreStartupTime: 07:00:01\r\n"));
        assert_eq!(stage.events(), [PbxEvent::Linked, PbxEvent::Incarnation("2026-11-30 07:00:01".into())]);
        assert_eq!(stage.notes(), [Note::Ready]);
        stage
    }

    fn listing() -> Stage<AmiEvents> {
        let mut stage = linked();
        stage.session.list(stage.now, &mut stage.effects);
        assert_eq!(stage.sent(), "Action: CoreShowChannels\r\nActionID: pm-17\r\n\r\n");
        stage.hear(ok("pm-17", "EventList: start\r\nMessage: Channels will follow\r\n"));
        stage
    }

    fn row(id: &str, leg: &str) -> String {
        format!(
            "Event: CoreShowChannel\r\nActionID: {id}\r\nChannel: PJSIP/t-0000000a\r\nChannelState: 6\r\n\
             ChannelStateDesc: Up\r\nCallerIDNum: 1\r\nCallerIDName: x\r\nConnectedLineNum: 2\r\n\
             ConnectedLineName: y\r\nLanguage: en\r\nAccountCode: \r\nContext: c\r\nExten: 1\r\nPriority: 1\r\n\
             Uniqueid: {leg}\r\nLinkedid: {leg}\r\nDuration: 00:00:07\r\n\r\n"
        )
    }

    fn complete(id: &str, items: usize) -> String {
        format!(
            "Event: CoreShowChannelsComplete\r\nActionID: {id}\r\nEventList: Complete\r\nListItems: {items}\r\n\r\n"
        )
    }

    fn legs(events: &[PbxEvent]) -> Vec<Vec<String>> {
        let snapshots = events.iter().filter_map(|event| match event {
            PbxEvent::Snapshot(snapshot) => Some(snapshot.legs.iter().map(|leg| leg.leg.to_string()).collect()),
            _ => None,
        });
        snapshots.collect()
    }

    /// The load average is asked for with each keepalive request but the first.
    #[test]
    fn asterisk_tells_its_load_average_and_how_fast_it_answers() {
        let mut stage = asking();
        let answered = |took| PbxEvent::Vitals(Vitals { took: Some(took), ..Vitals::default() });
        assert_eq!(stage.vitals(), [answered(Duration::ZERO)]);
        let sent = stage.pass(5.0);
        assert!(sent.contains("Action: Ping\r\nActionID: pm-19\r\n"), "{sent}");
        assert!(sent.contains("Action: Getvar\r\nActionID: pm-20\r\nVariable: SYSINFO(loadavg)\r\n"), "{sent}");
        stage.pass(0.25);
        stage.hear(ok("pm-19", "Ping: Pong\r\nTimestamp: 1.5\r\n"));
        stage.hear(ok("pm-20", "Variable: SYSINFO(loadavg)\r\nValue: 0.85\r\n"));
        let load = PbxEvent::Vitals(Vitals { load_avg: Some(0.85), ..Vitals::default() });
        assert_eq!(stage.vitals(), [answered(Duration::from_millis(250)), load]);
        // An Asterisk without func_sysinfo.
        stage.pass(5.0);
        stage.hear(ok("pm-22", "Variable: SYSINFO(loadavg)\r\nValue: \r\n"));
        assert_eq!(stage.vitals(), []);
        stage.pass(5.0);
        assert_eq!(stage.vitals(), [PbxEvent::Silent], "the ping was not answered");
    }

    fn asking() -> Stage<AmiCommands<u32>> {
        let mut stage = Stage::new(AmiCommands::new(user(), Secrecy::Plain, false));
        let login = stage.hear(BANNER);
        assert!(login.ends_with("Events: off\r\n\r\n"), "{login}");
        let sent = stage.hear(login_ok());
        for action in ["ListCommands", "CoreSettings", "Ping"] {
            assert!(sent.contains(&format!("Action: {action}\r\n")), "{sent}");
        }
        stage.hear(ok("pm-16", "Ping: Keepalive command (Priv: <none>)\r\nSetvar: x\r\nGetvar: x\r\nCoreShowChannels: x\r\nCoreStatus: x\r\n"));
        stage.hear(ok("pm-17", "AsteriskVersion: 22.10.1\r\n"));
        stage.hear(ok("pm-18", "Ping: Pong\r\nTimestamp: 1.5\r\n"));
        assert_eq!(
            stage.notes(),
            [Note::Ready, Note::Software("Asterisk 22.10.1".to_owned()), Note::RoundTrip(Duration::ZERO)]
        );
        stage
    }

    /// A14: a fixed list of banners broke at every upgrade. A27: the mask is part of the login.
    #[test]
    fn a14_a27_any_banner_is_good_and_the_mask_goes_with_the_login() {
        for banner in [
            "Asterisk Call Manager/2.5.0\r\n",
            "Asterisk Call Manager/99.1\r\n",
            "Asterisk Call Manager Proxy/1.30.0\r\n",
        ] {
            let mut stage = Stage::new(AmiEvents::new(user(), Secrecy::Plain, false));
            assert_eq!(
                stage.hear(banner),
                "Action: Login\r\nActionID: pm-1\r\nUsername: pointsman\r\nSecret: s3cret\r\nEvents: system,call\r\n\r\n"
            );
        }
        let stage = Stage::new(AmiEvents::new(user(), Secrecy::Plain, false));
        let End::Lost(why) = Session::<u32>::eof(&stage.session) else { panic!() };
        assert!(why.contains("refused") && why.contains("authlimit"), "{why}");
    }

    #[test]
    fn a_password_that_would_be_readable_on_the_way_answers_a_challenge() {
        let mut stage = Stage::new(AmiEvents::new(user(), Secrecy::Challenge, false));
        assert_eq!(stage.hear(BANNER), "Action: Challenge\r\nActionID: pm-1\r\nAuthType: MD5\r\n\r\n");
        let login = stage.hear(ok("pm-1", "Challenge: 192718\r\n"));
        assert!(login.contains("ActionID: pm-2\r\n") && !login.contains("s3cret"), "{login}");
        // MD5("192718s3cret")
        assert!(login.contains("AuthType: MD5\r\nKey: a44860ebb8915c5fa518a18da5404e97\r\n"), "{login}");
        stage.hear(ok("pm-2", ""));
        assert_eq!(stage.events(), [PbxEvent::Linked]);

        let mut old = Stage::new(AmiEvents::new(user(), Secrecy::Challenge, false));
        old.hear(BANNER);
        assert!(old.hear(error("pm-1", "Invalid/unknown command")).contains("Secret: s3cret\r\n"));
    }

    #[test]
    fn an_account_that_may_lets_only_needed_events_through() {
        let mut stage = Stage::new(AmiEvents::new(user(), Secrecy::Plain, true));
        stage.hear(BANNER);
        let sent = stage.hear(login_ok());
        assert!(
            sent.starts_with("Action: Filter\r\nActionID: pm-16\r\nOperation: Add\r\nFilter: ^Event: (New"),
            "{sent}"
        );
        stage.hear(error("pm-16", "Permission denied"));
        assert_eq!((stage.end(), stage.notes()), (None, vec![Note::Ready]), "nor is it needed");
    }

    /// A18: a wrong password looked like a dropped line, and was tried again at once.
    #[test]
    fn a18_a_refused_login_is_told_from_a_lost_line() {
        let answer = |text: &str| {
            let mut stage = Stage::new(AmiEvents::new(user(), Secrecy::Plain, false));
            stage.hear(BANNER);
            stage.hear(text);
            stage.end()
        };
        for (message, hint) in
            [("Authentication failed", "wrong secret"), ("Login Already In Use", "allowmultiplelogin")]
        {
            let Some(End::Refused(why)) = answer(&error("pm-1", message)) else { panic!("{message}") };
            assert!(why.contains(message) && why.contains(hint), "{why}");
        }
        let without_id = "Response: Error\r\nMessage: Authentication failed\r\n\r\n";
        assert!(matches!(answer(without_id), Some(End::Refused(_))));
        assert!(matches!(answer(&error("pm-1", "Asterisk is shutting down")), Some(End::Lost(_))));
        assert_eq!(answer("Event: FullyBooted\r\nStatus: x\r\n\r\n"), None, "an event is no answer");
    }

    /// A22: one answer that never came shifted all later ones; A23: equal ids; both by construction.
    #[test]
    fn a22_a23_answers_are_matched_by_ids_that_are_used_once() {
        let mut stage = asking();
        let sent: Vec<_> = (1..=3).map(|n| stage.submit(get(), n)).collect();
        assert_eq!(sent[0], "Action: Getvar\r\nActionID: pm-19\r\nVariable: pm_x\r\n\r\n");
        stage.hear(ok("pm-20", "Variable: pm_x\r\nValue: two\r\n"));
        stage.hear(ok("pm-99", "Variable: pm_x\r\nValue: nobody\r\n"));
        stage.hear(ok("pm-21", "Variable: pm_x\r\nValue: \r\n"));
        assert_eq!(stage.answers(), [(2, Ok(Reply::Value(Some("two".into())))), (3, Ok(Reply::Value(None)))]);
        assert_eq!(stage.notes(), [Note::StrayAnswer]);
        stage.pass(5.0);
        assert_eq!(stage.answers(), [(1, Err(CommandError::TimedOut))]);
        stage.hear(ok("pm-19", "Variable: pm_x\r\nValue: late\r\n"));
        assert_eq!(stage.answers(), []);

        let ids: std::collections::BTreeSet<_> =
            (0..400).map(|n| stage.submit(set("v"), n).lines().nth(1).map(str::to_owned)).collect();
        assert_eq!(ids.len(), 400);
    }

    #[test]
    fn commands_of_asterisk_and_their_answers() {
        let mut stage = asking();
        assert_eq!(
            stage.submit(set("t-a,t-b"), 1),
            "Action: Setvar\r\nActionID: pm-19\r\nVariable: pm_x\r\nValue: t-a,t-b\r\n\r\n"
        );
        assert_eq!(
            stage.submit(Command::ClearVariable { name: "pm_x".into() }, 2),
            "Action: Setvar\r\nActionID: pm-20\r\nVariable: pm_x\r\nValue: \r\n\r\n"
        );
        stage.submit(Command::PutAstDb { family: "pm".into(), key: "k".into(), value: "v".into() }, 3);
        let delete = || Command::DeleteAstDb { family: "pm".into(), key: "k".into() };
        stage.submit(delete(), 4);
        stage.submit(delete(), 5);
        stage.submit(Command::Describe(LegId::new("1.1")), 6);
        stage.submit(Command::List, 7);
        stage.hear(ok("pm-19", "Message: Variable Set\r\n"));
        stage.hear(error("pm-20", "Permission denied"));
        stage.hear(ok("pm-21", "Message: Updated database successfully\r\n"));
        stage.hear(error("pm-22", "Database entry could not be deleted"));
        stage.hear(error("pm-23", "Permission denied"));
        let mut answers = stage.answers();
        answers.sort_by_key(|(to, _)| *to);
        let denied = || Err(CommandError::Refused("Permission denied".to_owned()));
        assert_eq!(
            answers,
            [
                (1, Ok(Reply::Done)),
                (2, denied()),
                (3, Ok(Reply::Done)),
                (4, Ok(Reply::Done)),
                (5, denied()),
                (6, Err(CommandError::Unsupported)),
                (7, Ok(Reply::Done)),
            ]
        );
        assert_eq!(stage.notes(), [Note::WantList], "the list is read by the session that hears the events");
    }

    /// A15: a line that Asterisk would refuse, or answer twice, never leaves. A28: an answer without an ActionID.
    #[test]
    fn a15_a28_odd_answers_confuse_nobody() {
        let mut stage = asking();
        assert_eq!(stage.submit(set(&"v".repeat(1016)), 1), "");
        assert!(matches!(stage.answers()[..], [(1, Err(CommandError::Illegal(_)))]));
        stage.submit(set("a"), 2);
        stage.submit(set("b"), 3);
        stage.hear("Response: Error\r\nMessage: Missing action in request\r\n\r\n");
        assert_eq!((stage.answers(), stage.notes()), (vec![], vec![Note::StrayAnswer]), "we send no empty messages");
        stage.hear("Response: Success\r\nMessage: Variable Set\r\n\r\n");
        assert_eq!(stage.answers(), [(2, Ok(Reply::Done))], "actions are performed in order");
        stage.hear(ok("pm-20", ""));
        assert_eq!(stage.answers(), [(3, Ok(Reply::Done))]);
    }

    /// A24: events behind a list were taken for its items, and items of other lists for ours.
    #[test]
    fn a24_a_list_holds_what_belongs_to_it() {
        let mut stage = listing();
        stage.hear("Event: Newchannel\r\nPrivilege: call,all\r\nChannel: PJSIP/t-9\r\nUniqueid: 9.9\r\n\r\n");
        stage.events();
        stage.hear(row("pm-17", "4.1"));
        stage.hear(row("pm-3", "4.2"));
        stage.hear(row("4", "4.3"));
        stage.hear(complete("pm-3", 1));
        assert_eq!(legs(&stage.events()), Vec::<Vec<String>>::new());
        stage.hear(complete("pm-17", 1));
        assert_eq!(legs(&stage.events()), [["4.1"]]);
        stage.hear(row("pm-17", "4.4"));
        stage.hear(complete("pm-17", 1));
        assert_eq!(legs(&stage.events()), Vec::<Vec<String>>::new(), "it is over");
    }

    #[test]
    fn nothing_is_concluded_from_a_list_that_is_not_whole() {
        let mut short = listing();
        short.hear(row("pm-17", "4.1"));
        short.hear(complete("pm-17", 2));
        assert_eq!(short.events(), []);
        assert!(short.notes().iter().any(|note| matches!(note, Note::ListFailed(_))));
        assert!(short.pass(5.0).contains("CoreShowChannels"), "and it is read again");

        let mut damaged = listing();
        damaged.hear("Event: CoreShowChannel\r\nActionID: pm-17\r\nChannel: PJSIP/t-1\r\n\r\n");
        damaged.hear(complete("pm-17", 1));
        assert_eq!(damaged.events(), []);

        let mut stalled = listing();
        stalled.hear(row("pm-17", "4.1"));
        for _ in 0..3 {
            stalled.pass(4.0);
            stalled.hear("Event: Newstate\r\nPrivilege: call,all\r\n\r\n");
        }
        stalled.hear(complete("pm-17", 1));
        assert_eq!(legs(&stalled.events()), Vec::<Vec<String>>::new());

        let mut forbidden = linked();
        forbidden.session.list(forbidden.now, &mut forbidden.effects);
        forbidden.hear(error("pm-17", "Permission denied"));
        assert_eq!(forbidden.notes(), [Note::ListRefused("Permission denied".to_owned())]);
    }

    /// A19: the line was dead for hours and nobody noticed.
    #[test]
    fn a19_silence_is_noticed() {
        let mut stage = linked();
        assert_eq!(stage.pass(19.9).matches("Action: Ping").count(), 3);
        assert_eq!(stage.end(), None);
        stage.pass(0.2);
        let Some(End::Lost(why)) = stage.end() else { panic!() };
        assert!(why.contains("no sign of life"), "{why}");
    }

    #[test]
    fn a_boot_that_ends_after_the_login_starts_the_picture_over() {
        let mut stage = listing();
        stage.hear(complete("pm-17", 0));
        stage.pass(3.0);
        let sent = stage.hear("Event: FullyBooted\r\nPrivilege: system,all\r\nUptime: 3\r\n\r\n");
        assert!(sent.contains("CoreStatus") && sent.contains("CoreShowChannels"), "{sent}");
        stage.hear("Event: Shutdown\r\nPrivilege: system,all\r\nShutdown: Cleanly\r\nRestart: False\r\n\r\n");
        assert_eq!(Session::<u32>::eof(&stage.session), End::Lost("Asterisk was shut down".to_owned()));
    }

    #[test]
    fn a_damaged_message_is_counted_and_leads_to_a_list() {
        let mut stage = linked();
        let sent = stage.hear("nel: PJSIP/t-1\r\nUniqueid: 1.1\r\n\r\n");
        let events = stage.events();
        assert!(crate::pbx::asterisk::is_damage(&events[0]), "{events:?}");
        assert_eq!(events[1..], [PbxEvent::Lost(1)]);
        assert!(stage.notes().contains(&Note::Damaged));
        assert!(sent.contains("CoreShowChannels"), "{sent}");
    }

    /// A59: an account that may do more than it needs is said aloud, and so is one that may do less.
    #[test]
    fn a59_the_account_is_checked() {
        let warnings = |commands: &str, astdb: bool| {
            let mut stage = Stage::new(AmiCommands::new(user(), Secrecy::Plain, astdb));
            stage.hear(BANNER);
            stage.hear(login_ok());
            let lines: String = commands.split(' ').map(|name| format!("{name}: text (Priv: x,all)\r\n")).collect();
            stage.hear(ok("pm-16", &lines));
            let texts = stage.notes().into_iter().filter_map(|note| match note {
                Note::Warning(text) => Some(text),
                _ => None,
            });
            texts.collect::<Vec<_>>()
        };
        let good = "Ping Events Setvar Getvar CoreShowChannels CoreStatus";
        assert_eq!(warnings(good, false), Vec::<String>::new());
        let much = warnings(&format!("{good} Originate Command"), false);
        assert!(much.len() == 2 && much[0].contains("Originate") && much[1].contains("Command"), "{much:?}");
        let little = warnings("Ping Getvar", false);
        assert!(little.len() == 3 && little[0].contains("Setvar") && little[0].contains("write = line"), "{little:?}");
        assert_eq!(warnings(good, true).len(), 1);
        assert_eq!(warnings("Something", false), Vec::<String>::new(), "no list of commands");
    }
}

/// Whatever a peer sends, a session goes on or ends; what it keeps stays bounded by what the codec lets through.
mod any_peer {
    use super::*;

    fn play<S: Session<u32>>(session: S, prefix: &str, chunks: &[Vec<u8>]) {
        let mut stage = Stage::new(session);
        stage.input.extend_from_slice(prefix.as_bytes());
        for (n, chunk) in chunks.iter().enumerate() {
            stage.input.extend_from_slice(chunk);
            stage.session.heard();
            loop {
                match stage.codec.decode(&mut stage.input) {
                    Ok(Some(frame)) => stage.session.frame(frame, stage.now, &mut stage.effects),
                    Ok(None) => break,
                    Err(_) => return,
                }
            }
            stage.submit(if n % 2 == 0 { get() } else { Command::List }, u32::try_from(n).unwrap());
            stage.session.list(stage.now, &mut stage.effects);
            stage.pass(1.5);
            assert!(stage.effects.send.len() < 64 * 1024);
        }
        stage.session.close(&mut stage.effects);
        let mut answered: Vec<_> = stage.answers().into_iter().map(|(to, _)| to).collect();
        answered.sort_unstable();
        let all: Vec<_> = (0..u32::try_from(chunks.len()).unwrap()).collect();
        assert_eq!(answered, all, "every command is answered exactly once");
    }

    fn esl_pieces() -> impl Strategy<Value = Vec<u8>> {
        prop_oneof![
            Just(GREETING.as_bytes().to_vec()),
            Just(reply("+OK accepted").into_bytes()),
            Just(reply("-ERR invalid").into_bytes()),
            Just(response("-ERR no reply\n").into_bytes()),
            Just(response("{\"row_count\":1,\"rows\":[{\"uuid\":\"u\",\"direction\":\"x\"}]}").into_bytes()),
            Just(response("{\"Unique-ID\":\"u-1\"}").into_bytes()),
            Just(GOODBYE.as_bytes().to_vec()),
            Just(event(&[("Event-Name", "HEARTBEAT"), ("Session-Count", "18446744073709551615")]).into_bytes()),
            Just(event(&[("Event-Name", "CHANNEL_DESTROY")]).into_bytes()),
            proptest::collection::vec(any::<u8>(), 0..64),
        ]
    }

    fn ami_pieces() -> impl Strategy<Value = Vec<u8>> {
        prop_oneof![
            Just(BANNER.as_bytes().to_vec()),
            (1u64..40)
                .prop_map(|id| format!("Response: Success\r\nActionID: pm-{id}\r\nChallenge: 1\r\n\r\n").into_bytes()),
            (1u64..40).prop_map(|id| format!("Response: Error\r\nActionID: pm-{id}\r\n\r\n").into_bytes()),
            (1u64..40).prop_map(|id| {
                format!("Event: CoreShowChannel\r\nActionID: pm-{id}\r\nUniqueid: 1\r\nChannel: x\r\n\r\n").into_bytes()
            }),
            (1u64..40)
                .prop_map(|id| format!("Event: CoreShowChannelsComplete\r\nActionID: pm-{id}\r\n\r\n").into_bytes()),
            Just(b"Response: Success\r\n\r\n".to_vec()),
            Just(b"Event: FullyBooted\r\n\r\n".to_vec()),
            Just(b"Uniqueid: 1\r\n\r\n".to_vec()),
            proptest::collection::vec(any::<u8>(), 0..64),
        ]
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(512))]

        #[test]
        fn of_freeswitch(chunks in proptest::collection::vec(esl_pieces(), 0..24), user in any::<bool>(), strict in any::<bool>()) {
            let login = if chunks.len() % 3 == 0 { String::new() } else { format!("{GREETING}{}", reply("+OK accepted")) };
            let who = credentials(user.then_some("ops@pbx"));
            play(EslEvents::new(who.clone(), strict), &login, &chunks);
            play(EslCommands::new(who), &login, &chunks);
        }

        #[test]
        fn of_asterisk(chunks in proptest::collection::vec(ami_pieces(), 0..24), challenge in any::<bool>()) {
            let secrecy = if challenge { Secrecy::Challenge } else { Secrecy::Plain };
            let login = if chunks.len() % 3 == 0 { "" } else { "Asterisk Call Manager/11.0.0\r\nResponse: Success\r\n\r\n" };
            play(AmiEvents::new(credentials(Some("pm")), secrecy, false), login, &chunks);
            play(AmiCommands::new(credentials(Some("pm")), secrecy, true), login, &chunks);
        }
    }
}
