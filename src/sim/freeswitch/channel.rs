//! A FreeSWITCH channel: the profile and the variables that its events repeat.
//!
//! Variables are kept as FreeSWITCH keeps them, in a list where setting one again moves it to the end; so the order
//! of the fields of an event comes out by itself, from the order in which things happen to the channel.

use std::borrow::Cow;

use crate::sim::freeswitch::cause::{Cause, phrase};
use crate::sim::freeswitch::event::{Event, Value, date};
use crate::time::Timestamp;

/// Address of everything simulated.
pub(super) const HOST: &str = "127.0.0.1";
const CALLERS_PORT: u16 = 6270;
const INTERNAL_PORT: u16 = 5270;
const EXTERNAL_PORT: u16 = 5280;
const CODEC: &str = "CORE_PCM_MODULE.PCMA@8000h@20i@64000b";

/// The session description of a simulated party.
fn sdp(port: u16) -> String {
    format!(
        "v=0\r\no=- 1 1 IN IP4 {HOST}\r\ns=-\r\nc=IN IP4 {HOST}\r\nt=0 0\r\nm=audio {port} RTP/AVP 8\r\na=rtpmap:8 PCMA/8000\r\n"
    )
}

/// The channel variables, in FreeSWITCH's order.
#[derive(Clone, Debug, Default)]
pub(super) struct Variables(Vec<(Cow<'static, str>, Value)>);

impl Variables {
    pub(super) fn set(&mut self, name: impl Into<Cow<'static, str>>, value: impl Into<Value>) {
        let name = name.into();
        self.remove(&name);
        self.0.push((name, value.into()));
    }

    pub(super) fn remove(&mut self, name: &str) {
        self.0.retain(|(have, _)| have != name);
    }

    pub(super) fn get(&self, name: &str) -> Option<&Value> {
        self.0.iter().find(|(have, _)| have == name).map(|(_, value)| value)
    }

    /// Adds to a list.
    pub(super) fn append(&mut self, name: &'static str, item: String) {
        let mut items = match self.get(name) {
            Some(Value::List(items)) => items.clone(),
            _ => Vec::new(),
        };
        items.push(item);
        self.set(name, Value::List(items));
    }
}

/// Points in the life of a channel, 0 for what never happened, as FreeSWITCH writes them.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Times {
    pub(super) created: Timestamp,
    pub(super) answered: Timestamp,
    pub(super) progress: Timestamp,
    pub(super) progress_media: Timestamp,
    pub(super) hangup: Timestamp,
    pub(super) bridged: Timestamp,
}

/// Who calls whom: what stands in the `Caller-*` and `Other-Leg-*` fields.
#[derive(Clone, Debug)]
pub(super) struct Profile {
    pub(super) outbound: bool,
    pub(super) number: String,
    pub(super) name: Vec<u8>,
    pub(super) destination: String,
    /// The number called, once it is known on this channel.
    pub(super) callee: Option<String>,
    pub(super) uuid: String,
    pub(super) channel: String,
    pub(super) times: Times,
}

fn direction(outbound: bool) -> &'static str {
    if outbound { "outbound" } else { "inbound" }
}

impl Profile {
    fn write(&self, prefix: &'static str, own: bool, event: &mut Event) {
        let mut push = |name: &str, value: Value| event.push(format!("{prefix}-{name}"), value);
        push("Direction", direction(self.outbound).into());
        push("Logical-Direction", direction(self.outbound && own).into());
        push("Username", self.number.as_str().into());
        push("Dialplan", "XML".into());
        push("Caller-ID-Name", self.name.clone().into());
        push("Caller-ID-Number", self.number.as_str().into());
        push("Orig-Caller-ID-Name", self.name.clone().into());
        push("Orig-Caller-ID-Number", self.number.as_str().into());
        if let Some(callee) = &self.callee {
            push("Callee-ID-Name", "Outbound Call".into());
            push("Callee-ID-Number", callee.as_str().into());
        }
        push("Network-Addr", HOST.into());
        push("ANI", self.number.as_str().into());
        push("Destination-Number", self.destination.as_str().into());
        push("Unique-ID", self.uuid.as_str().into());
        push("Source", "mod_sofia".into());
        push("Context", "callers".into());
        push("Channel-Name", self.channel.as_str().into());
        if own {
            push("Profile-Index", "1".into());
        }
        let times = &self.times;
        for (name, at) in [
            ("Profile-Created-Time", times.created),
            ("Channel-Created-Time", times.created),
            ("Channel-Answered-Time", times.answered),
            ("Channel-Progress-Time", times.progress),
            ("Channel-Progress-Media-Time", times.progress_media),
            ("Channel-Hangup-Time", times.hangup),
            ("Channel-Transfer-Time", Timestamp::default()),
            ("Channel-Resurrect-Time", Timestamp::default()),
            ("Channel-Bridged-Time", times.bridged),
            ("Channel-Last-Hold", Timestamp::default()),
            ("Channel-Hold-Accum", Timestamp::default()),
        ] {
            push(name, at.as_micros().into());
        }
        push("Screen-Bit", "true".into());
        push("Privacy-Hide-Name", "false".into());
        push("Privacy-Hide-Number", "false".into());
    }
}

/// A channel.
#[derive(Clone, Debug)]
pub(super) struct Channel {
    pub(super) profile: Profile,
    pub(super) call_uuid: String,
    pub(super) state: &'static str,
    pub(super) state_number: u8,
    pub(super) call_state: &'static str,
    pub(super) answer_state: &'static str,
    pub(super) cause: Option<Cause>,
    pub(super) other: Option<(&'static str, Profile)>,
    pub(super) variables: Variables,
    /// What ends up in `variable_sip_hangup_disposition`.
    pub(super) disposition: Option<&'static str>,
}

/// What tells two SIP dialogues apart.
#[derive(Clone, Debug)]
pub(super) struct Dialogue {
    /// Number of the session, as in `variable_session_id`.
    pub(super) session: u64,
    /// Random part of tags, branches and Call-IDs.
    pub(super) token: String,
}

impl Channel {
    /// The leg of a caller.
    pub(super) fn inbound(profile: Profile, dialogue: &Dialogue) -> Self {
        let Dialogue { session, token } = dialogue;
        let (number, destination) = (profile.number.clone(), profile.destination.clone());
        let (uuid, channel) = (profile.uuid.clone(), profile.channel.clone());
        let mut v = Variables::default();
        v.set("direction", "inbound");
        v.set("uuid", uuid.as_str());
        v.set("call_uuid", uuid.as_str());
        v.set("session_id", session.to_string());
        v.set("sip_from_user", number.as_str());
        v.set("sip_from_port", CALLERS_PORT.to_string());
        v.set("sip_from_uri", format!("{number}@{HOST}:{CALLERS_PORT}"));
        v.set("sip_from_host", HOST);
        for flow in ["video_media_flow", "audio_media_flow", "text_media_flow"] {
            v.set(flow, "disabled");
        }
        v.set("channel_name", channel);
        v.set("sip_call_id", format!("{session}-{token}@{HOST}"));
        v.set("sip_local_network_addr", HOST);
        v.set("sip_network_ip", HOST);
        v.set("sip_network_port", CALLERS_PORT.to_string());
        v.set("sip_invite_stamp", profile.times.created.as_micros());
        v.set("sip_received_ip", HOST);
        v.set("sip_received_port", CALLERS_PORT.to_string());
        v.set("sip_via_protocol", "udp");
        v.set("sip_from_user_stripped", number.as_str());
        v.set("sip_from_tag", format!("{token}u{session}"));
        v.set("sofia_profile_name", "internal");
        v.set("sofia_profile_url", format!("sip:mod_sofia@{HOST}:{INTERNAL_PORT}"));
        v.set("recovery_profile_name", "internal");
        v.set("sip_full_via", format!("SIP/2.0/UDP {HOST}:{CALLERS_PORT};branch=z9hG4bK-{token}-{session}-0"));
        v.set("sip_from_display", profile.name.clone());
        v.set("sip_full_from", full_address(&profile.name, &number, Some(CALLERS_PORT), &format!("{token}u{session}")));
        v.set("sip_full_to", format!("<sip:{destination}@{HOST}:{INTERNAL_PORT}>"));
        for part in ["sip_req", "sip_to"] {
            v.set(format!("{part}_user"), destination.as_str());
            v.set(format!("{part}_port"), INTERNAL_PORT.to_string());
            v.set(format!("{part}_uri"), format!("{destination}@{HOST}:{INTERNAL_PORT}"));
            v.set(format!("{part}_host"), HOST);
        }
        v.set("sip_contact_user", number.as_str());
        v.set("sip_contact_port", CALLERS_PORT.to_string());
        v.set("sip_contact_uri", format!("{number}@{HOST}:{CALLERS_PORT}"));
        v.set("sip_contact_host", HOST);
        v.set("rtp_use_codec_string", "PCMA");
        v.set("sip_via_host", HOST);
        v.set("sip_via_port", CALLERS_PORT.to_string());
        v.set("max_forwards", "70");
        v.set("switch_r_sdp", sdp(36_270));
        v.set("ep_codec_string", CODEC);
        v.set("endpoint_disposition", "RECEIVED_NOMEDIA");
        Self {
            call_uuid: uuid,
            profile,
            state: "CS_INIT",
            state_number: 2,
            call_state: "DOWN",
            answer_state: "ringing",
            cause: None,
            other: None,
            variables: v,
            disposition: None,
        }
    }

    /// The leg to a gateway, on behalf of a caller's channel.
    pub(super) fn outbound(profile: Profile, caller: &Self, gateway: &str, port: u16, dialogue: &Dialogue) -> Self {
        let a = caller.profile.uuid.as_str();
        let number = profile.destination.clone();
        let channel = profile.channel.clone();
        let mut v = Variables::default();
        v.set("direction", "outbound");
        v.set("is_outbound", "true");
        v.set("uuid", profile.uuid.as_str());
        v.set("session_id", dialogue.session.to_string());
        v.set("sip_gateway_name", gateway);
        v.set("sip_local_network_addr", HOST);
        v.set("sip_profile_name", "gateway");
        if let Some(map) = caller.variables.get("pm_map") {
            v.set("pm_map", map.clone());
        }
        v.set("text_media_flow", "disabled");
        v.set("channel_name", channel);
        v.set("sip_destination_url", format!("sip:{number}@{HOST}:{port}"));
        v.set("max_forwards", "69");
        v.set("originator_codec", CODEC);
        v.set("originator", a);
        v.set("signal_bond", a);
        v.set("switch_m_sdp", sdp(36_270));
        v.set("call_uuid", a);
        v.set("originate_early_media", "true");
        v.set("originating_leg_uuid", a);
        v.set("originate_endpoint", "sofia");
        v.set("rtp_local_sdp_str", sdp(36_270));
        v.set("audio_media_flow", "sendrecv");
        v.set("video_media_flow", "sendrecv");
        let contact = format!("<sip:gw+{gateway}@{HOST}:{EXTERNAL_PORT};transport=udp;gw={gateway}>");
        v.set("sip_outgoing_contact_uri", contact);
        v.set("sip_req_uri", format!("{number}@{HOST}:{port}"));
        v.set("sip_to_host", format!("{HOST}:{port}"));
        v.set("sip_from_host", HOST);
        v.set("sofia_profile_name", "external");
        v.set("recovery_profile_name", "external");
        v.set("sofia_profile_url", format!("sip:mod_sofia@{HOST}:{EXTERNAL_PORT}"));
        // The caller's profile as it was when it dialled, without its times.
        let mut originator = caller.profile.clone();
        (originator.times, originator.callee) = (Times::default(), None);
        Self {
            call_uuid: a.to_owned(),
            profile,
            state: "CS_INIT",
            state_number: 2,
            call_state: "DOWN",
            answer_state: "ringing",
            cause: None,
            other: Some(("originator", originator)),
            variables: v,
            disposition: None,
        }
    }

    /// A reply other than a refusal came from the vendor: the SIP dialogue is known now.
    pub(super) fn heard_of(&mut self, port: u16, dialogue: &Dialogue, media_port: Option<u16>) {
        let Dialogue { session, token } = dialogue;
        let (number, destination) = (self.profile.number.clone(), self.profile.destination.clone());
        let v = &mut self.variables;
        v.remove("sip_to_host");
        v.remove("sip_from_host");
        v.set("sip_local_network_addr", HOST);
        v.set("sip_reply_host", HOST);
        v.set("sip_reply_port", port.to_string());
        v.set("sip_network_ip", HOST);
        v.set("sip_network_port", port.to_string());
        if media_port.is_some() {
            v.set("ep_codec_string", CODEC);
        }
        v.set("sip_recover_contact", format!("<sip:{HOST}:{port};transport=UDP>"));
        let via = format!("SIP/2.0/UDP {HOST}:{EXTERNAL_PORT};rport;branch=z9hG4bK{token}S0");
        v.set("sip_full_via", via.as_str());
        v.set("sip_recover_via", via);
        v.set("sip_from_display", self.profile.name.clone());
        v.set("sip_full_from", full_address(&self.profile.name, &number, None, token));
        v.set("sip_full_to", format!("<sip:{destination}@{HOST}:{port}>;tag={session}"));
        v.set("sip_from_user", number.as_str());
        v.set("sip_from_uri", format!("{number}@{HOST}"));
        v.set("sip_from_host", HOST);
        v.set("sip_to_user", destination.as_str());
        v.set("sip_to_port", port.to_string());
        v.set("sip_to_uri", format!("{destination}@{HOST}:{port}"));
        v.set("sip_to_host", HOST);
        v.set("sip_contact_params", "transport=UDP");
        v.set("sip_contact_user", "nobody");
        v.set("sip_contact_port", port.to_string());
        v.set("sip_contact_uri", format!("nobody@{HOST}:{port}"));
        v.set("sip_contact_host", HOST);
        v.set("sip_to_tag", session.to_string());
        v.set("sip_from_tag", token.as_str());
        v.set("sip_cseq", (123_450_000 + session).to_string());
        v.set("sip_call_id", format!("{token}-671f-1240-808a-0e5431606ac7"));
        if let Some(media_port) = media_port {
            v.set("switch_r_sdp", sdp(media_port));
        }
    }

    /// The vendor's description of its media came with the answer.
    pub(super) fn media_agreed(&mut self, media_port: u16) {
        self.variables.set("switch_r_sdp", sdp(media_port));
        self.variables.set("ep_codec_string", CODEC);
    }

    /// The caller gets the far end's media.
    pub(super) fn media_passed_on(&mut self, media_port: u16) {
        let v = &mut self.variables;
        v.set("switch_m_sdp", sdp(media_port));
        v.set("originate_disposition", "SUCCESS");
        v.set("DIALSTATUS", "SUCCESS");
        v.set("rtp_local_sdp_str", sdp(media_port));
    }

    /// This side sent BYE, and with it the head of a SIP request.
    pub(super) fn heard_bye(&mut self, role: &'static str) {
        let v = &mut self.variables;
        if v.get("sip_to_tag").is_none() {
            v.set("sip_to_tag", "3KHS05a7Q3ZUB");
        }
        v.set("sip_cseq", "1");
        let head = ["sip_to_tag", "sip_from_tag", "sip_cseq", "sip_call_id", "sip_full_via", "sip_from_display"];
        for name in head.into_iter().chain(["sip_full_from", "sip_full_to"]) {
            if let Some(value) = v.get(name).cloned() {
                v.set(name, value);
            }
        }
        v.set("sip_term_status", "200");
        v.set("proto_specific_hangup_cause", "sip:200");
        v.set("sip_term_cause", "16");
        v.set("last_bridge_role", role);
    }

    /// Bridged with another channel; where media flow before the answer, from that port of the far end.
    pub(super) fn bridged(&mut self, at: Timestamp, peer: &Profile, shown: (&[u8], &str), remote_media: Option<u16>) {
        self.profile.times.bridged = at;
        let uuid = peer.uuid.as_str();
        let v = &mut self.variables;
        if let Some(port) = remote_media {
            v.set("remote_media_ip", HOST);
            v.set("remote_media_port", port.to_string());
        }
        v.set("signal_bridge_to", uuid);
        if self.profile.outbound {
            v.set("call_uuid", self.call_uuid.as_str());
        }
        v.set("signal_bridge", "true");
        v.set("last_sent_callee_id_name", shown.0.to_vec());
        v.set("last_sent_callee_id_number", shown.1);
        v.set("bridge_to", uuid);
        v.set("last_bridge_to", uuid);
    }

    /// The vendor refused, or the SIP stack says so in its place (`synthetic`).
    pub(super) fn refused(&mut self, status: u16, cause: Cause, port: u16, synthetic: bool, dialogue: &Dialogue) {
        self.disposition = Some("recv_refuse");
        let v = &mut self.variables;
        if v.get("sip_call_id").is_none() {
            v.set("sip_call_id", format!("{}-671f-1240-808a-0e5431606ac7", dialogue.token));
        }
        v.set("sip_local_network_addr", HOST);
        if !synthetic {
            v.set("sip_reply_host", HOST);
        }
        let port = if synthetic { "0".to_owned() } else { port.to_string() };
        v.set("sip_reply_port", port.as_str());
        if !synthetic {
            v.set("sip_network_ip", HOST);
        }
        v.set("sip_network_port", port);
        v.set("sip_hangup_disposition", "recv_refuse");
        v.set("sip_invite_failure_status", status.to_string());
        v.set("sip_invite_failure_phrase", phrase(status));
        v.set("sip_term_status", status.to_string());
        v.set("proto_specific_hangup_cause", format!("sip:{status}"));
        v.set("sip_term_cause", cause.q850.to_string());
    }

    /// A leg that this caller's channel had dialled failed.
    pub(super) fn leg_failed(&mut self, leg: &str, cause: Cause, status: Option<u16>) {
        let v = &mut self.variables;
        if let Some(status) = status {
            v.set("sip_invite_failure_status", status.to_string());
            v.set("sip_invite_failure_phrase", phrase(status));
            v.set("sip_hangup_phrase", phrase(status));
        }
        v.set("last_bridge_hangup_cause", cause.name);
        if let Some(status) = status {
            v.set("last_bridge_proto_specific_hangup_cause", format!("sip:{status}"));
        }
        v.set("originate_disposition", cause.name);
        let dial_status = match cause.name {
            "USER_BUSY" => "BUSY",
            "NO_ANSWER" => "NOANSWER",
            other => other,
        };
        v.set("DIALSTATUS", dial_status);
        v.append("originate_causes", format!("{leg};{}", cause.name));
        v.set("originate_failed_cause", cause.name);
    }

    /// The other side of the bridge hung up first.
    pub(super) fn peer_hung_up(&mut self) {
        let v = &mut self.variables;
        v.set("sip_hangup_phrase", "OK");
        v.set("last_bridge_hangup_cause", "NORMAL_CLEARING");
        v.set("last_bridge_proto_specific_hangup_cause", "sip:200");
        v.set("call_uuid", self.profile.uuid.as_str());
    }

    /// No longer bridged.
    pub(super) fn unbridged(&mut self) {
        self.variables.remove("signal_bridge_to");
        self.variables.remove("bridge_to");
    }

    /// Hung up, not yet accounted for.
    pub(super) fn hung_up(&mut self, cause: Cause) {
        (self.cause, self.answer_state, self.state_number) = (Some(cause), "hangup", 10);
    }

    /// The account at the end: everything that CHANNEL_HANGUP_COMPLETE adds.
    pub(super) fn completed(&mut self, at: Timestamp) {
        let cause = self.cause.unwrap_or(super::cause::NORMAL_CLEARING);
        self.profile.times.hangup = at;
        (self.state, self.call_state, self.state_number) = ("CS_REPORTING", "HANGUP", 11);
        let times = self.profile.times;
        let never = Timestamp::default();
        if self.disposition == Some("recv_bye") {
            self.variables.set("sip_hangup_disposition", "recv_bye");
        }
        let v = &mut self.variables;
        v.set("hangup_cause", cause.name);
        v.set("hangup_cause_q850", cause.q850.to_string());
        v.set("digits_dialed", "none");
        v.set("start_stamp", date(times.created));
        v.set("profile_start_stamp", date(times.created));
        for (name, at) in [
            ("answer_stamp", times.answered),
            ("bridge_stamp", times.bridged),
            ("progress_stamp", times.progress),
            ("progress_media_stamp", times.progress_media),
            ("end_stamp", at),
        ] {
            if at != never {
                v.set(name, date(at));
            }
        }
        let mut epoch = |name: &str, at: Timestamp| {
            v.set(format!("{name}_epoch"), at.as_micros() / 1_000_000);
            v.set(format!("{name}_uepoch"), at.as_micros());
        };
        epoch("start", times.created);
        epoch("profile_start", times.created);
        epoch("answer", times.answered);
        epoch("bridge", times.bridged);
        epoch("last_hold", never);
        for name in ["hold_accum_seconds", "hold_accum_usec", "hold_accum_ms"] {
            self.variables.set(name, 0_i64);
        }
        let v = &mut self.variables;
        let mut epoch = |name: &str, at: Timestamp| {
            v.set(format!("{name}_epoch"), at.as_micros() / 1_000_000);
            v.set(format!("{name}_uepoch"), at.as_micros());
        };
        epoch("resurrect", never);
        epoch("progress", times.progress);
        epoch("progress_media", times.progress_media);
        epoch("end", at);
        if !self.profile.outbound
            && let Some(data) = v.get("current_application_data").cloned()
        {
            v.set("last_app", "bridge");
            v.set("last_arg", data);
        }
        let mut caller_id = b"\"".to_vec();
        caller_id.extend_from_slice(&self.profile.name);
        caller_id.extend_from_slice(format!("\" <{}>", self.profile.number).as_bytes());
        v.set("caller_id", caller_id);
        self.durations(at);
        if let Some(disposition) = self.disposition
            && self.variables.get("sip_hangup_disposition").is_none()
        {
            self.variables.set("sip_hangup_disposition", disposition);
        }
    }

    fn durations(&mut self, at: Timestamp) {
        let times = self.profile.times;
        let never = Timestamp::default();
        let span = |from: Timestamp, to: Timestamp| if from == never || to == never { 0 } else { micros(from, to) };
        let secs = |from: Timestamp, to: Timestamp| {
            if from == never || to == never { 0 } else { to.as_micros() / 1_000_000 - from.as_micros() / 1_000_000 }
        };
        let billed_from = if times.answered == never { never } else { times.created };
        let spans = [
            ("duration", times.created, at),
            ("bill", times.answered, at),
            ("progress", times.created, times.progress),
            ("answer", times.created, times.answered),
            ("wait", times.created, times.bridged),
            ("progress_media", times.created, times.progress_media),
            ("flow_bill", billed_from, at),
        ];
        for unit in ["sec", "msec", "usec"] {
            for (name, from, to) in spans {
                let value = match unit {
                    "sec" => secs(from, to),
                    "msec" => span(from, to) / 1000,
                    _ => span(from, to),
                };
                let name = match (name, unit) {
                    ("duration", "sec") => "duration".to_owned(),
                    ("duration", "msec") => "mduration".to_owned(),
                    ("duration", _) => "uduration".to_owned(),
                    _ => format!("{name}{unit}"),
                };
                self.variables.set(name, value);
            }
        }
    }

    /// The part that every channel event has.
    pub(super) fn write_basics(&self, event: &mut Event) {
        event.push("Channel-State", self.state);
        event.push("Channel-Call-State", self.call_state);
        event.push("Channel-State-Number", self.state_number.to_string());
        event.push("Channel-Name", self.profile.channel.as_str());
        event.push("Unique-ID", self.profile.uuid.as_str());
        event.push("Call-Direction", direction(self.profile.outbound));
        event.push("Presence-Call-Direction", direction(self.profile.outbound));
        event.push("Channel-HIT-Dialplan", if self.profile.outbound { "false" } else { "true" });
        event.push("Channel-Call-UUID", self.call_uuid.as_str());
        event.push("Answer-State", self.answer_state);
        if let Some(cause) = self.cause {
            event.push("Hangup-Cause", cause.name);
        }
        self.profile.write("Caller", true, event);
        if let Some((role, other)) = &self.other {
            event.push("Other-Type", *role);
            other.write("Other-Leg", false, event);
        }
    }

    /// The variables, as most channel events repeat them.
    pub(super) fn write_variables(&self, event: &mut Event) {
        for (name, value) in &self.variables.0 {
            event.push(format!("variable_{name}"), value.clone());
        }
    }
}

fn micros(from: Timestamp, to: Timestamp) -> i64 {
    to.as_micros().saturating_sub(from.as_micros())
}

/// `"Name" <sip:number@host:port>;tag=x`, with a name of any bytes.
fn full_address(name: &[u8], number: &str, port: Option<u16>, tag: &str) -> Vec<u8> {
    let port = port.map_or_else(String::new, |port| format!(":{port}"));
    let mut out = b"\"".to_vec();
    out.extend_from_slice(name);
    out.extend_from_slice(format!("\" <sip:{number}@{HOST}{port}>;tag={tag}").as_bytes());
    out
}
