//! Vendors and callers: one SIPp each, with a scenario written from a few steps.

use std::time::Duration;

use super::folder::Folder;
use super::pbx::Pbx;
use super::process::Process;
use super::{SOON, eventually, ports};

/// What a vendor does with every call.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Behaviour {
    /// Rings after 100 ms and answers 200 ms later.
    Good,
    /// Early media after 100 ms, without ringing, and answers 200 ms later.
    Early,
    /// Answers at once.
    Instant,
    /// Answers at once and hangs up half a second later.
    HangsUp,
    /// Refuses with this status.
    Refuses(u16),
    /// Rings for a moment, then refuses with this status.
    RingsThenRefuses(u16),
    /// Rings until it is cancelled.
    RingsForEver,
    /// Takes the call and is silent until it is cancelled.
    Silent,
    /// Nobody listens on its port.
    Dead,
}

/// A vendor.
#[derive(Debug)]
pub(crate) struct Vendor {
    pub(crate) name: String,
    pub(crate) port: u16,
    folder: Folder,
    process: Option<Process>,
}

impl Vendor {
    pub(crate) fn start(name: &str, behaviour: Behaviour) -> Self {
        let mut vendor = Self { name: name.to_owned(), port: ports::kept(), folder: Folder::new(name), process: None };
        vendor.turn(behaviour);
        vendor
    }

    /// From now on it does this instead: the SIPp on its port is replaced. Calls that it holds end without a BYE.
    pub(crate) fn turn(&mut self, behaviour: Behaviour) {
        self.process = None;
        if behaviour == Behaviour::Dead {
            return;
        }
        self.folder.write("scenario.xml", &vendor_scenario(behaviour));
        let args = [
            common_args(self.port),
            ["-trace_logs", "-log_file", "log.new", "-trace_err", "-error_file", "errors"].map(str::to_owned).into(),
        ];
        self.keep_log();
        let mut process = Process::start("sipp", &args.concat(), &self.folder.join("out"));
        eventually("the vendor's port to open", SOON, || {
            assert!(process.runs(), "sipp ended: {}", self.folder.read("out"));
            std::net::UdpSocket::bind(("127.0.0.1", self.port)).is_err().then_some(())
        });
        self.process = Some(process);
    }

    /// The numbers of all calls that reached it, in order.
    pub(crate) fn calls(&self) -> Vec<String> {
        let log = self.folder.read("log") + &self.folder.read("log.new");
        log.lines().filter_map(|line| line.strip_prefix("INVITE ")).map(str::to_owned).collect()
    }

    /// Whether the call to this number reached it.
    pub(crate) fn got(&self, number: &str) -> bool {
        self.calls().iter().any(|call| call == number)
    }

    /// SIPp begins its log anew at every start.
    fn keep_log(&self) {
        let log = self.folder.read("log") + &self.folder.read("log.new");
        self.folder.write("log", &log);
        let _ = std::fs::remove_file(self.folder.join("log.new"));
    }
}

/// What a caller does.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Caller {
    /// Talks for that many milliseconds, once somebody answers.
    Talks(u64),
    /// Gives up that many milliseconds after it began to ring.
    CancelsRinging(u64),
    /// Gives up that many milliseconds after the switch took the call, where nothing rings.
    CancelsSilence(u64),
    /// Waits for the other side to hang up.
    Listens,
}

/// Calls under way.
#[derive(Debug)]
pub(crate) struct Calls {
    folder: Folder,
    process: Process,
    what: String,
}

impl Calls {
    /// Waits for the end of all calls and gives the final status of each, in the order in which they came.
    pub(crate) fn finals(mut self, within: Duration) -> Vec<u16> {
        let status = self.process.wait(within);
        let finals: Vec<u16> =
            self.folder.read("log").lines().filter_map(|line| line.strip_prefix("FINAL ")?.parse().ok()).collect();
        assert!(
            status.code().is_some_and(|code| code <= 1) && !finals.is_empty(),
            "{} went wrong ({status}): {}",
            self.what,
            self.folder.read("errors"),
        );
        finals
    }
}

/// Places `count` calls to `number` (as the dialplan sees it), `rate` a second.
pub(crate) fn place(pbx: &dyn Pbx, number: &str, caller: Caller, count: u32, rate: u32) -> Calls {
    let folder = Folder::new("caller");
    folder.write("scenario.xml", &caller_scenario(caller));
    let count = count.to_string();
    let rate = rate.to_string();
    let address = format!("127.0.0.1:{}", pbx.sip_port());
    let args = [
        common_args(ports::passing()),
        ["-trace_logs", "-log_file", "log", "-trace_err", "-error_file", "errors"].map(str::to_owned).into(),
        ["-s", number, "-m", &count, "-r", &rate, "-l", "2000", &address].map(str::to_owned).into(),
    ];
    let process = Process::start("sipp", &args.concat(), &folder.join("out"));
    Calls { folder, process, what: format!("a call to {number} ({caller:?})") }
}

/// Places one call and waits for its end; gives the final status.
pub(crate) fn call(pbx: &dyn Pbx, number: &str, caller: Caller) -> u16 {
    place(pbx, number, caller, 1, 10).finals(Duration::from_secs(60))[0]
}

fn common_args(port: u16) -> Vec<String> {
    let (port, media) = (port.to_string(), ports::passing().to_string());
    ["-sf", "scenario.xml", "-i", "127.0.0.1", "-p", &port, "-mp", &media, "-nostdin"].map(str::to_owned).into()
}

// === Scenarios ===

const SDP: &str = "
v=0
o=lab 1 1 IN IP4 [local_ip]
s=-
c=IN IP4 [media_ip]
t=0 0
m=audio [media_port] RTP/AVP 0
a=rtpmap:0 PCMU/8000
";

/// The final answers that a caller understands.
const REFUSALS: [u16; 27] = [
    400, 401, 403, 404, 405, 406, 408, 410, 415, 416, 420, 480, 481, 482, 483, 484, 485, 486, 487, 488, 500, 502, 503,
    504, 600, 603, 604,
];

fn scenario(steps: &str) -> String {
    format!("<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n<scenario name=\"lab\">\n{steps}</scenario>\n")
}

fn send(lines: &str, sdp: bool, again: bool) -> String {
    let again = if again { " retrans=\"500\"" } else { "" };
    let (kind, body) = if sdp { ("Content-Type: application/sdp\n", SDP) } else { ("", "\n") };
    format!("<send{again}><![CDATA[\n{lines}{kind}Content-Length: [len]\n{body}\n]]></send>\n")
}

fn pause(ms: u64) -> String {
    format!("<pause milliseconds=\"{ms}\"/>\n")
}

fn vendor_scenario(behaviour: Behaviour) -> String {
    // The switch's contact and name, for whoever hangs up on it: its ACK may not tell them.
    const INVITED: &str = r#"<recv request="INVITE" rrs="true"><action>
  <ereg regexp=".*" search_in="hdr" header="From:" assign_to="peer"/>
  <ereg regexp="sip:([^@;]*)" search_in="hdr" header="To:" assign_to="to,number"/>
  <log message="INVITE [$number]"/>
</action></recv>
<Reference variables="to,peer"/>
"#;
    const ACK: &str = "<recv request=\"ACK\"/>\n";
    let answer = |status: u16| {
        let lines = format!(
            "SIP/2.0 {status} {}\n[last_Via:]\n[last_From:]\n[last_To:];tag=[pid]v[call_number]\n[last_Call-ID:]\n\
             [last_CSeq:]\nContact: <sip:[local_ip]:[local_port]>\n",
            reason(status)
        );
        send(&lines, status == 183 || status == 200, status >= 200)
    };
    let hung_up = ["<recv request=\"BYE\"/>\n", &simple_ok()].concat();
    // The answer to the INVITE needs the INVITE's own Via and CSeq again, not those of the CANCEL.
    let cancelled = [
        "<recv request=\"CANCEL\"/>\n",
        &simple_ok(),
        &send(
            "SIP/2.0 487 Request Terminated\n[last_Via:]\n[last_From:]\n[last_To:];tag=[pid]v[call_number]\n\
             [last_Call-ID:]\nCSeq: [last_cseq_number] INVITE\n",
            false,
            true,
        ),
        ACK,
    ]
    .concat();
    let steps = match behaviour {
        Behaviour::Good => [pause(100), answer(180), pause(200), answer(200), ACK.to_owned(), hung_up].concat(),
        Behaviour::Early => [pause(100), answer(183), pause(200), answer(200), ACK.to_owned(), hung_up].concat(),
        Behaviour::Instant => [answer(200), ACK.to_owned(), hung_up].concat(),
        Behaviour::HangsUp => {
            let bye = send(
                "BYE [next_url] SIP/2.0\nVia: SIP/2.0/[transport] [local_ip]:[local_port];branch=[branch]\n\
                 From: <sip:[$number]@[local_ip]:[local_port]>;tag=[pid]v[call_number]\nTo: [$peer]\n[last_Call-ID:]\n\
                 CSeq: 1 BYE\nMax-Forwards: 70\n",
                false,
                true,
            );
            [answer(200), ACK.to_owned(), pause(500), bye, "<recv response=\"200\"/>\n".to_owned()].concat()
        }
        Behaviour::Refuses(status) => [answer(status), ACK.to_owned()].concat(),
        Behaviour::RingsThenRefuses(status) => {
            [pause(100), answer(180), pause(300), answer(status), ACK.to_owned()].concat()
        }
        Behaviour::RingsForEver => [pause(100), answer(180), cancelled].concat(),
        Behaviour::Silent => [answer(100), cancelled].concat(),
        Behaviour::Dead => String::new(),
    };
    scenario(&[INVITED, &steps].concat())
}

fn simple_ok() -> String {
    send("SIP/2.0 200 OK\n[last_Via:]\n[last_From:]\n[last_To:]\n[last_Call-ID:]\n[last_CSeq:]\n", false, false)
}

fn reason(status: u16) -> &'static str {
    match status {
        100 => "Trying",
        180 => "Ringing",
        183 => "Session Progress",
        200 => "OK",
        404 => "Not Found",
        486 => "Busy Here",
        503 => "Service Unavailable",
        603 => "Decline",
        _ => "No",
    }
}

fn caller_scenario(caller: Caller) -> String {
    let request = |method: &str, cseq: u32, via: &str, to: &str, sdp: bool, again: bool| {
        let lines = format!(
            "{method} sip:[service]@[remote_ip]:[remote_port] SIP/2.0\n{via}\n\
             From: <sip:caller@[local_ip]:[local_port]>;tag=[pid]c[call_number]\n{to}\nCall-ID: [call_id]\n\
             CSeq: {cseq} {method}\nContact: <sip:caller@[local_ip]:[local_port]>\nMax-Forwards: 70\n"
        );
        send(&lines, sdp, again)
    };
    const VIA: &str = "Via: SIP/2.0/[transport] [local_ip]:[local_port];branch=[branch]";
    const TO: &str = "To: <sip:[service]@[remote_ip]:[remote_port]>";
    let invite = request("INVITE", 1, VIA, TO, true, true);
    let ack_of_refusal = request("ACK", 1, "[last_Via:]", "[last_To:]", false, false);
    let optional = |status: u16| format!("<recv response=\"{status}\" optional=\"true\"/>\n");
    let refused: String = REFUSALS
        .iter()
        .map(|status| {
            format!(
                "<recv response=\"{status}\" optional=\"true\" next=\"refused\"><action>\
                 <log message=\"FINAL {status}\"/></action></recv>\n"
            )
        })
        .collect();
    let answered = "<recv response=\"200\"><action><log message=\"FINAL 200\"/></action></recv>\n";
    let refusal = format!("<label id=\"refused\"/>\n{ack_of_refusal}<label id=\"end\"/>\n");
    let give_up = |first: &str, ms: u64| {
        [
            invite.as_str(),
            first,
            &pause(ms),
            &request("CANCEL", 1, "[last_Via:]", TO, false, true),
            "<recv response=\"200\"/>\n",
            "<recv response=\"487\"><action><log message=\"FINAL 487\"/></action></recv>\n",
            &ack_of_refusal,
        ]
        .concat()
    };
    let steps = match caller {
        Caller::Talks(_) | Caller::Listens => {
            let ack = request("ACK", 1, VIA, "[last_To:]", false, false);
            let end = match caller {
                Caller::Talks(ms) => [
                    pause(ms),
                    request("BYE", 2, VIA, "[last_To:]", false, true),
                    "<recv response=\"200\" next=\"end\"/>\n".to_owned(),
                ]
                .concat(),
                _ => ["<recv request=\"BYE\"/>\n", &simple_ok().replacen("<send", "<send next=\"end\"", 1)].concat(),
            };
            let provisional = [100, 180, 181, 182, 183].map(optional).concat();
            [invite, provisional, refused, answered.to_owned(), ack, end, refusal].concat()
        }
        Caller::CancelsRinging(ms) => give_up(&[optional(100), "<recv response=\"180\"/>\n".to_owned()].concat(), ms),
        Caller::CancelsSilence(ms) => give_up("<recv response=\"100\"/>\n", ms),
    };
    scenario(&steps)
}
