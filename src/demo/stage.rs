//! The simulated switches, their callers, a mail server, and the plot's progress.

use std::io;
use std::net::SocketAddr;
use std::time::Duration;

use super::script::{self, Cue, Event};
use crate::clock::Clock;
use crate::sim::mail::{self, MailServer};
use crate::sim::traffic::Callers;
use crate::sim::{Behaviour, Handle, asterisk, freeswitch, handle};
use crate::tasks::Tasks;
use crate::time::Timestamp;

/// How long a restarted switch is away, on the demo clock.
const DOWNTIME: Duration = Duration::from_secs(20);

/// What became of a cue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Played {
    /// It happened on the stage.
    Here,
    /// The program over it is to be stopped and started again.
    ProgramMustRestart,
}

/// Everything that is simulated.
pub(super) struct Stage {
    clock: Clock,
    seed: u64,
    tasks: Tasks,
    freeswitch: Handle,
    asterisk: Handle,
    mail: MailServer,
    plot: Vec<Cue>,
    /// When the plot began, and how many cues were played since; at its end it begins anew.
    began: Timestamp,
    played: usize,
}

impl Stage {
    pub(super) async fn start(clock: Clock, seed: u64, tasks: &Tasks) -> io::Result<Self> {
        let pbx = |seed| handle::Options { seed, ..handle::Options::default() };
        let mut options = freeswitch::Options { pbx: pbx(seed), ..freeswitch::Options::default() };
        let mut other = asterisk::Options { pbx: pbx(!seed), ..asterisk::Options::default() };
        for (map, _, vendors) in script::MAPS {
            let there = vendors.map(script::name_on_asterisk);
            options.pbx = options.pbx.route(map, &vendors);
            other.pbx = other.pbx.route(map, &there.each_ref().map(String::as_str));
        }
        let freeswitch = freeswitch::Server::start(options, clock, tasks).await?;
        let asterisk = asterisk::Server::start(other, clock, tasks).await?;
        let mail = MailServer::start(mail::Options::default(), tasks).await?;
        let stage = Self {
            clock,
            seed,
            tasks: tasks.clone(),
            freeswitch,
            asterisk,
            mail,
            plot: script::plot(),
            began: clock.now(),
            played: 0,
        };
        for vendor in script::VENDORS {
            stage.set_vendor(vendor, &script::usual());
        }
        Ok(stage)
    }

    pub(super) fn freeswitch(&self) -> SocketAddr {
        self.freeswitch.address()
    }

    pub(super) fn asterisk(&self) -> SocketAddr {
        self.asterisk.address()
    }

    /// Where mail is taken.
    pub(super) fn mail(&self) -> SocketAddr {
        self.mail.address()
    }

    /// Calls placed since the start, on both switches.
    pub(super) fn calls_placed(&self) -> u64 {
        self.freeswitch.calls_placed() + self.asterisk.calls_placed()
    }

    fn set_vendor(&self, vendor: &str, behaviour: &Behaviour) {
        self.freeswitch.set_vendor(vendor, behaviour.clone());
        self.asterisk.set_vendor(&script::name_on_asterisk(vendor), behaviour.clone());
    }

    /// Lets the callers in; the plot begins.
    pub(super) fn raise_the_curtain(&mut self) {
        self.began = self.clock.now();
        let switches = [&self.freeswitch, &self.asterisk];
        for (place, (map, prefix, _)) in script::MAPS.into_iter().enumerate() {
            for (node, switch) in switches.into_iter().enumerate() {
                let seed = self.seed.wrapping_mul(31).wrapping_add((place * 2 + node) as u64);
                Callers {
                    calls_per_minute: script::CALLS_PER_MINUTE,
                    prefix: prefix.into(),
                    ..Callers::of_map(map, seed)
                }
                .start(switch, self.clock, &self.tasks);
            }
        }
    }

    /// Waits for the next cue of the plot.
    pub(super) async fn next_cue(&self) -> Cue {
        let (round, place) = (self.played / self.plot.len(), self.played % self.plot.len());
        let cue = self.plot[place].clone();
        let rounds = script::PLOT * u32::try_from(round).unwrap_or(u32::MAX);
        tokio::time::sleep(self.clock.real_time_until(self.began.after(rounds).after(cue.at))).await;
        cue
    }

    /// Plays a cue.
    pub(super) fn play(&mut self, cue: &Cue) -> Played {
        self.played += 1;
        match &cue.event {
            Event::Vendor(vendor, behaviour) => self.set_vendor(vendor, behaviour),
            Event::RestartAsterisk => {
                let (switch, downtime) = (self.asterisk.clone(), DOWNTIME / self.clock.rate());
                self.tasks.spawn(async move { switch.restart(downtime).await });
            }
            Event::RestartProgram => return Played::ProgramMustRestart,
        }
        Played::Here
    }
}
