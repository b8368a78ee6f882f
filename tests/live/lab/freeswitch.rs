//! A real FreeSWITCH, for whoever has one: `POINTSMAN_FREESWITCH` names the folder that it is installed in.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::path::PathBuf;
use std::time::Duration;

use super::folder::Folder;
use super::pbx::Pbx;
use super::process::Process;
use super::sipp::Vendor;
use super::{SOON, eventually, ports};

/// Password of its event socket.
pub(crate) const PASSWORD: &str = "the-lab-secret";

/// A FreeSWITCH.
#[derive(Debug)]
pub(crate) struct FreeSwitch {
    folder: Folder,
    program: PathBuf,
    sip_port: u16,
    esl_port: u16,
    process: Option<Process>,
}

impl FreeSwitch {
    /// Writes the configuration and starts it; returns when it takes calls.
    pub(crate) fn start(vendors: &[&Vendor]) -> Self {
        let home = std::env::var_os("POINTSMAN_FREESWITCH");
        let home = PathBuf::from(home.expect("POINTSMAN_FREESWITCH names the folder of a FreeSWITCH"));
        let folder = Folder::new("freeswitch");
        let (sip_port, esl_port) = (ports::kept(), ports::kept());
        let mut freeswitch = Self { folder, program: home.join("bin/freeswitch"), sip_port, esl_port, process: None };
        freeswitch.folder.write("conf/freeswitch.xml", &configuration(sip_port, esl_port, vendors));
        let shipped = include_str!("../../../config/dialplan/freeswitch/pointsman.xml");
        let hurried =
            shipped.replace("call_timeout=60", "call_timeout=3").replace("hunt_progress=15", "hunt_progress=2");
        assert_ne!(hurried, shipped);
        freeswitch.folder.write("conf/pointsman.xml", &hurried);
        for folder in ["log", "db", "run"] {
            std::fs::create_dir_all(freeswitch.folder.join(folder)).unwrap();
        }
        freeswitch.boot();
        freeswitch
    }

    /// Runs a command of its own command line and gives its output.
    pub(crate) fn api(&self, command: &str) -> String {
        eventually("FreeSWITCH's event socket", SOON, || api(self.esl_port, command))
    }
}

impl Pbx for FreeSwitch {
    fn node(&self, id: &str) -> String {
        format!(
            "[[nodes]]\nid = \"{id}\"\nkind = \"freeswitch\"\naddress = \"127.0.0.1:{}\"\npassword = \"{PASSWORD}\"\n",
            self.esl_port
        )
    }

    fn sip_port(&self) -> u16 {
        self.sip_port
    }

    fn hunted(&self, number: &str) -> String {
        number.to_owned()
    }

    fn forked(&self, number: &str) -> String {
        format!("2{number}")
    }

    fn subscription(&self) -> (u16, &'static [u8], &'static str) {
        (self.esl_port, b"auth the-lab-secret\n\nevent plain ALL\n\n", "esl")
    }

    fn order(&self, map: &str) -> String {
        self.global(&format!("pm_route_{map}"))
    }

    fn set_order(&self, map: &str, names: &[&str]) {
        let slots = names.iter().copied().chain(std::iter::repeat("")).take(9).enumerate();
        for (i, name) in slots {
            self.api(&format!("global_setvar pm_route_{map}_{}={name}", i + 1));
        }
        self.api(&format!("global_setvar pm_route_{map}_count={}", names.len()));
    }

    fn global(&self, name: &str) -> String {
        let answer = self.api(&format!("global_getvar {name}"));
        if answer.starts_with("-ERR") { String::new() } else { answer.trim().to_owned() }
    }

    fn tried(&self, number: &str) -> Vec<String> {
        let end = format!("/{number})");
        let log = self.folder.read("log/freeswitch.log");
        let lines = log.lines().filter(|line| line.contains("EXECUTE") && line.ends_with(&end));
        let gateway = |line: &str| Some(line.split_once("sofia/gateway/")?.1.strip_suffix(&end)?.to_owned());
        // An empty slot is no gateway.
        lines.filter_map(gateway).filter(|gateway| !gateway.is_empty()).collect()
    }

    fn stop(&mut self) {
        let mut process = self.process.take().expect("it runs");
        api(self.esl_port, "fsctl shutdown now");
        process.wait(SOON);
    }

    fn crash(&mut self) {
        self.process.take().expect("it runs").kill();
    }

    fn boot(&mut self) {
        let path = |name: &str| self.folder.join(name).display().to_string();
        let args = ["-nonat", "-nf", "-nc", "-np", "-conf", &path("conf"), "-log", &path("log"), "-db", &path("db")];
        let args =
            [args.as_slice(), &["-run", &path("run")]].concat().iter().map(|arg| (*arg).to_owned()).collect::<Vec<_>>();
        let mut process = Process::start(self.program.to_str().unwrap(), &args, &self.folder.join("out"));
        eventually("FreeSWITCH to take calls", Duration::from_secs(90), || {
            assert!(process.runs(), "FreeSWITCH ended: {}", self.folder.read("out"));
            let status = api(self.esl_port, "sofia status")?;
            (status.matches("RUNNING").count() == 2).then_some(())
        });
        self.process = Some(process);
    }
}

impl Drop for FreeSwitch {
    fn drop(&mut self) {
        self.process = None;
    }
}

/// One command over a connection of its own; `None` where the PBX does not answer (yet).
fn api(port: u16, command: &str) -> Option<String> {
    let stream = TcpStream::connect(("127.0.0.1", port)).ok()?;
    stream.set_read_timeout(Some(Duration::from_secs(10))).ok()?;
    let mut stream = BufReader::new(stream);
    let mut ask = |text: &str| {
        stream.get_mut().write_all(text.as_bytes()).ok()?;
        let mut length = 0;
        loop {
            let mut line = String::new();
            if stream.read_line(&mut line).ok()? == 0 {
                return None;
            }
            match line.trim_end().split_once(": ") {
                Some(("Content-Length", value)) => length = value.parse().ok()?,
                None if line.trim_end().is_empty() => break,
                _ => {}
            }
        }
        let mut body = vec![0; length];
        stream.read_exact(&mut body).ok()?;
        Some(String::from_utf8_lossy(&body).into_owned())
    };
    ask("")?;
    ask(&format!("auth {PASSWORD}\n\n"))?;
    ask(&format!("api {command}\n\n"))
}

fn configuration(sip_port: u16, esl_port: u16, vendors: &[&Vendor]) -> String {
    let gateways: String = vendors
        .iter()
        .map(|vendor| {
            format!(
                "<gateway name=\"{}\"><param name=\"realm\" value=\"127.0.0.1:{}\"/>\
                 <param name=\"username\" value=\"lab\"/><param name=\"password\" value=\"lab\"/>\
                 <param name=\"register\" value=\"false\"/></gateway>\n",
                vendor.name, vendor.port
            )
        })
        .collect();
    let modules: String = ["logfile", "event_socket", "commands", "dptools", "dialplan_xml", "loopback", "sofia"]
        .map(|name| format!("<load module=\"mod_{name}\"/>\n"))
        .concat();
    let vendor_port = sip_port + 1;
    format!(
        r#"<?xml version="1.0"?>
<document type="freeswitch/xml">
<section name="configuration">
<configuration name="switch.conf"><settings>
  <param name="max-sessions" value="2000"/><param name="sessions-per-second" value="500"/>
  <param name="event-heartbeat-interval" value="20"/><param name="loglevel" value="debug"/>
  <param name="rtp-start-port" value="10000"/><param name="rtp-end-port" value="20000"/>
  <param name="cpu-idle-smoothing-depth" value="2"/>
</settings></configuration>
<configuration name="modules.conf"><modules>
{modules}</modules></configuration>
<configuration name="logfile.conf"><profiles><profile name="default">
  <settings><param name="rollover" value="0"/></settings>
  <mappings><map name="all" value="debug,info,notice,warning,err,crit,alert"/></mappings>
</profile></profiles></configuration>
<configuration name="event_socket.conf"><settings>
  <param name="nat-map" value="false"/><param name="listen-ip" value="127.0.0.1"/>
  <param name="listen-port" value="{esl_port}"/><param name="password" value="{PASSWORD}"/>
</settings></configuration>
<configuration name="sofia.conf"><global_settings/><profiles>
<profile name="callers"><settings>
  <param name="sip-ip" value="127.0.0.1"/><param name="rtp-ip" value="127.0.0.1"/>
  <param name="sip-port" value="{sip_port}"/><param name="context" value="lab"/>
  <param name="dialplan" value="XML"/><param name="auth-calls" value="false"/>
  <param name="inbound-codec-prefs" value="PCMU"/><param name="outbound-codec-prefs" value="PCMU"/>
  <param name="inbound-bypass-media" value="true"/>
</settings></profile>
<profile name="vendors"><settings>
  <param name="sip-ip" value="127.0.0.1"/><param name="rtp-ip" value="127.0.0.1"/>
  <param name="sip-port" value="{vendor_port}"/><param name="context" value="none"/>
  <param name="dialplan" value="XML"/><param name="auth-calls" value="false"/>
  <param name="inbound-codec-prefs" value="PCMU"/><param name="outbound-codec-prefs" value="PCMU"/>
</settings><gateways>
{gateways}</gateways></profile>
</profiles></configuration>
</section>
<section name="dialplan"><context name="lab">
<X-PRE-PROCESS cmd="include" data="pointsman.xml"/>
<extension name="fork"><condition field="destination_number" expression="^2(\d+)$">
  <action application="set" data="hangup_after_bridge=true"/>
  <action application="set" data="call_timeout=3"/>
  <action application="bridge" data="sofia/gateway/vendor-a/$1,sofia/gateway/vendor-b/$1"/>
</condition></extension>
</context></section>
<section name="directory"/>
</document>
"#
    )
}
