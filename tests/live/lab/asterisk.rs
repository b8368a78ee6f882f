//! A real Asterisk: its own folders, ports and mounts, the shipped dialplan and manager account.

use std::path::{Path, PathBuf};
use std::time::Duration;

use super::ami::Ami;
use super::folder::Folder;
use super::pbx::Pbx;
use super::pointsman::Node;
use super::process::Process;
use super::sipp::Vendor;
use super::{eventually, keys, ports};

/// Which Asterisk, and how it reaches its trunks.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Kind {
    /// A recent one; PJSIP is all it has.
    Recent,
    /// Asterisk 16 with PJSIP.
    Old,
    /// Asterisk 16 with its older channel driver, chan_sip.
    OldChanSip,
}

impl Kind {
    fn image(self) -> &'static str {
        match self {
            Self::Recent => "asterisk-22",
            Self::Old | Self::OldChanSip => "asterisk-16",
        }
    }
}

/// The password of the account that the shipped `manager-pointsman.conf` describes.
pub(crate) const SECRET: &str = "the-lab-secret";

/// How long a call rings before the dialplan gives up, in seconds.
pub(crate) const RING_SECONDS: u64 = 3;

/// An Asterisk.
#[derive(Debug)]
pub(crate) struct Asterisk {
    kind: Kind,
    folder: Folder,
    image: PathBuf,
    sip_port: u16,
    pub(crate) ami_port: u16,
    process: Option<Process>,
}

impl Asterisk {
    /// Writes the configuration and starts it; returns when it is fully booted.
    pub(crate) fn start(kind: Kind, vendors: &[&Vendor]) -> Self {
        Self::start_with(kind, vendors, "call,reporting")
    }

    /// The same with other rights for the account of pointsman.
    pub(crate) fn start_with(kind: Kind, vendors: &[&Vendor], rights: &str) -> Self {
        let image = super::cached(kind.image());
        assert!(image.join("usr/sbin/asterisk").exists(), "no {}: run scripts/live-setup first", image.display());
        let folder = Folder::new(kind.image());
        let mut asterisk =
            Self { kind, folder, image, sip_port: ports::kept(), ami_port: ports::kept(), process: None };
        asterisk.write_configuration(vendors, rights);
        asterisk.boot();
        asterisk
    }

    /// A session with every right.
    pub(crate) fn manager(&self) -> Ami {
        eventually("a manager session", super::SOON, || Ami::login(self.ami_port, "lab", "lab", "off"))
    }

    /// Stops it in its tracks: connections stay open, nothing is answered.
    pub(crate) fn freeze(&self) {
        self.process.as_ref().expect("it runs").signal("STOP");
    }

    /// Lets it go on.
    pub(crate) fn thaw(&self) {
        self.process.as_ref().expect("it runs").signal("CONT");
    }

    /// Lines of its log that contain `text`.
    pub(crate) fn log_lines(&self, text: &str) -> Vec<String> {
        self.folder.read("log/full").lines().filter(|line| line.contains(text)).map(str::to_owned).collect()
    }

    fn write_configuration(&self, vendors: &[&Vendor], rights: &str) {
        for folder in ["run", "log", "db", "spool", "keys"] {
            std::fs::create_dir_all(self.folder.join(folder)).unwrap();
        }
        let host = std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap();
        // Without its own name here, every call waits for a look-up.
        self.folder.write("hosts", &format!("127.0.0.1 localhost {host}\n"));
        let etc = |name: &str, text: &str| self.folder.write(Path::new("etc").join(name), text);
        etc("asterisk.conf", &self.asterisk_conf());
        etc("modules.conf", MODULES);
        etc("logger.conf", "[general]\n[logfiles]\nfull => notice,warning,error,verbose\n");
        etc("http.conf", "[general]\nenabled = no\n");
        etc("rtp.conf", "[general]\nrtpstart = 10000\nrtpend = 20000\n");
        etc("manager.conf", &manager(self.ami_port));
        // For the manager interface.
        keys::write(&self.folder, "ami", "pbx.test");
        etc("manager.d/pointsman.conf", &self.shipped_account(rights));
        etc("extensions-pointsman.conf", &self.shipped_dialplan());
        etc("extensions.conf", &format!("#include extensions-pointsman.conf\n{}", dialplan()));
        etc("pjsip.conf", &pjsip(self.sip_port, vendors));
        etc("sip.conf", &chan_sip(self.sip_port + 1, vendors));
    }

    fn asterisk_conf(&self) -> String {
        let modules = ["usr/lib/x86_64-linux-gnu/asterisk/modules", "usr/lib/aarch64-linux-gnu/asterisk/modules"];
        let modules = modules.into_iter().find(|path| self.image.join(path).join("app_dial.so").exists());
        format!(
            "[directories]\nastetcdir => /lab/etc\nastmoddir => /{}\nastvarlibdir => /var/lib/asterisk\n\
             astdbdir => /lab/db\nastkeydir => /lab/keys\nastdatadir => /usr/share/asterisk\n\
             astspooldir => /lab/spool\nastrundir => /lab/run\nastlogdir => /lab/log\n[options]\nverbose = 3\n",
            modules.unwrap_or("usr/lib/asterisk/modules"),
        )
    }

    /// The shipped account, with the changes that its comments tell to make.
    fn shipped_account(&self, rights: &str) -> String {
        let text = include_str!("../../../config/dialplan/asterisk/manager-pointsman.conf");
        let change = |text: String, from: &str, to: &str| {
            assert!(text.contains(from), "the shipped account has no {from}");
            text.replace(from, to)
        };
        let text = change(text.to_owned(), "change-this-secret", SECRET);
        let text = change(text, "write = call,reporting\n", &format!("write = {rights}\n"));
        if self.kind == Kind::Recent { change(text, "\n;eventfilter(", "\neventfilter(") } else { text }
    }

    /// Where the manager interface speaks TLS.
    pub(crate) fn tls_port(&self) -> u16 {
        self.ami_port + 1
    }

    /// The authority that its certificate is from.
    pub(crate) fn authority(&self) -> PathBuf {
        self.folder.join("keys/authority.pem")
    }

    /// The shipped dialplan, with the change for chan_sip that its header tells to make.
    fn shipped_dialplan(&self) -> String {
        let text = include_str!("../../../config/dialplan/asterisk/extensions-pointsman.conf").to_owned();
        if self.kind != Kind::OldChanSip {
            return text;
        }
        let changed = text
            .replace("\nexten => s,1,Return(PJSIP/", "\n;exten => s,1,Return(PJSIP/")
            .replace("\n;exten => s,1,Return(SIP/", "\nexten => s,1,Return(SIP/");
        assert_ne!(changed, text);
        changed
    }
}

impl Pbx for Asterisk {
    fn node(&self, id: &str) -> String {
        Node::of(id, self).text()
    }

    fn sip_port(&self) -> u16 {
        self.sip_port
    }

    fn hunted(&self, number: &str) -> String {
        format!("1{number}")
    }

    fn forked(&self, number: &str) -> String {
        format!("2{number}")
    }

    fn subscription(&self) -> (u16, &'static [u8], &'static str) {
        let login = b"Action: Login\r\nUsername: lab\r\nSecret: lab\r\nEvents: call,system\r\n\r\n";
        (self.ami_port, login, "ami")
    }

    fn order(&self, map: &str) -> String {
        self.global(&format!("pm_route_{map}"))
    }

    fn set_order(&self, map: &str, names: &[&str]) {
        let mut manager = self.manager();
        manager.set_global(&format!("pm_route_{map}_count"), &names.len().to_string());
        manager.set_global(&format!("pm_route_{map}"), &names.join(","));
    }

    fn global(&self, name: &str) -> String {
        self.manager().global(name)
    }

    fn tried(&self, number: &str) -> Vec<String> {
        let trunk = |line: &str| {
            let dialled = line.split_once(" Dial(")?.1.split_once("\", \"")?.1;
            let target = dialled.split([',', '"']).next()?.split_once('/')?.1;
            let (one, other) = target.split_once(['/', '@'])?;
            (one == number || other == number).then(|| if one == number { other } else { one }.to_owned())
        };
        self.log_lines(number).iter().filter_map(|line| trunk(line)).collect()
    }

    fn stop(&mut self) {
        let mut process = self.process.take().expect("it runs");
        self.manager().command("core stop now");
        process.wait(super::SOON);
    }

    fn crash(&mut self) {
        self.process.take().expect("it runs").kill();
    }

    fn boot(&mut self) {
        let script = format!(
            "mount -t proc proc {image}/proc && mount --rbind /dev {image}/dev && mount --bind {folder} {image}/lab && \
             mount --bind {folder}/hosts {image}/etc/hosts && \
             exec chroot {image} /usr/sbin/asterisk -f -C /lab/etc/asterisk.conf",
            image = self.image.display(),
            folder = self.folder.path().display(),
        );
        // The mounts are seen by this process alone and vanish with it.
        let args = ["--mount", "--propagation", "private", "bash", "-c", &script].map(str::to_owned);
        let mut process = Process::start("unshare", &args, &self.folder.join("out"));
        let mut session = eventually("Asterisk's manager interface", Duration::from_secs(90), || {
            assert!(process.runs(), "Asterisk ended: {}", self.folder.read("out"));
            Ami::login(self.ami_port, "lab", "lab", "system")
        });
        session.wait_for("FullyBooted").expect("Asterisk boots");
        self.process = Some(process);
    }
}

impl Drop for Asterisk {
    fn drop(&mut self) {
        if std::thread::panicking() {
            let log = self.folder.read("log/full");
            let last: Vec<&str> = log.lines().rev().take(40).collect();
            eprintln!("the end of {:?}'s log:", self.kind);
            last.iter().rev().for_each(|line| eprintln!("  {line}"));
        }
        self.process = None;
    }
}

/// Nothing that listens or asks beyond what the tests use.
const MODULES: &str = "[modules]
autoload = yes
noload = chan_iax2.so
noload = chan_mgcp.so
noload = chan_skinny.so
noload = chan_unistim.so
noload = chan_ooh323.so
noload = chan_motif.so
noload = chan_dahdi.so
noload = chan_alsa.so
noload = chan_console.so
noload = pbx_dundi.so
noload = pbx_ael.so
noload = pbx_lua.so
noload = res_xmpp.so
noload = res_snmp.so
noload = res_ari.so
noload = res_prometheus.so
noload = res_phoneprov.so
noload = app_voicemail.so
noload = app_voicemail_imap.so
noload = app_voicemail_odbc.so
";

fn manager(port: u16) -> String {
    format!(
        "[general]
enabled = yes
bindaddr = 127.0.0.1
port = {port}
tlsenable = yes
tlsbindaddr = 127.0.0.1:{}
tlscertfile = /lab/keys/ami.crt
tlsprivatekey = /lab/keys/ami.key
#include \"manager.d/*.conf\"
[lab]
secret = lab
read = all
write = all
",
        port + 1
    )
}

/// How calls come in: the first digit says what the dialplan does with the rest.
fn dialplan() -> String {
    format!(
        "[lab]
; 1: the shipped hunt over the route map \"intl\".
exten => _1X.,1,Gosub(pointsman,hunt,1(intl,${{FILTER(0-9+*#,${{EXTEN:1}})}},{RING_SECONDS}))
 same => n,Hangup(${{GOSUB_RETVAL}})
; 2: two vendors at once, the first to answer wins.
exten => _2X.,1,Gosub(pointsman-trunk,s,1(vendor-a,${{EXTEN:1}}))
 same => n,Set(first=${{GOSUB_RETVAL}})
 same => n,Gosub(pointsman-trunk,s,1(vendor-b,${{EXTEN:1}}))
 same => n,Dial(${{first}}&${{GOSUB_RETVAL}},{RING_SECONDS})
 same => n,Hangup(${{HANGUPCAUSE}})
; 3: the hunt over the route map \"none\", of which nobody has ever heard.
exten => _3X.,1,Gosub(pointsman,hunt,1(none,${{EXTEN:1}},{RING_SECONDS}))
 same => n,Hangup(${{GOSUB_RETVAL}})
"
    )
}

fn pjsip(port: u16, vendors: &[&Vendor]) -> String {
    let mut text = format!(
        "[udp]\ntype=transport\nprotocol=udp\nbind=127.0.0.1:{port}\n\
         [caller]\ntype=endpoint\ncontext=lab\ndisallow=all\nallow=ulaw\ndirect_media=no\n\
         [caller]\ntype=identify\nendpoint=caller\nmatch=127.0.0.1\n"
    );
    for vendor in vendors {
        text += &format!(
            "[{name}]\ntype=endpoint\ncontext=none\ndisallow=all\nallow=ulaw\ndirect_media=no\naors={name}\n\
             [{name}]\ntype=aor\ncontact=sip:127.0.0.1:{port}\n",
            name = vendor.name,
            port = vendor.port,
        );
    }
    text
}

fn chan_sip(port: u16, vendors: &[&Vendor]) -> String {
    let mut text = format!("[general]\nudpbindaddr=127.0.0.1:{port}\ncontext=none\n");
    for vendor in vendors {
        text += &format!(
            "[{}]\ntype=peer\nhost=127.0.0.1\nport={}\nqualify=no\ninsecure=port,invite\ndirectmedia=no\n\
             disallow=all\nallow=ulaw\n",
            vendor.name, vendor.port,
        );
    }
    text
}
