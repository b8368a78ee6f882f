//! What operators and agents say: of nodes, of connections, and of the configuration.

use std::sync::Arc;

use super::Engine;
use crate::engine::effect::Effect;
use crate::engine::request::{By, NewConfig, Refused, Request};
use crate::ids::{MapId, NodeId, QualityKey};
use crate::quality::book::Seat;
use crate::quality::machine::{Change, Reason};
use crate::quality::pin::{self, Pin, Pinned};
use crate::quality::sentence::ChangeSentence;
use crate::score::{Admin, Source};
use crate::store::{AdminRow, POINTSMAN, StoreOp};
use crate::time::Timestamp;

impl Engine {
    /// Does what an operator or an agent asks.
    ///
    /// # Errors
    /// See [`Refused`]; nothing is changed then.
    pub fn request(&mut self, request: Request, now: Timestamp) -> Result<(), Refused> {
        match request {
            Request::SetAdmin { node, admin, by } => self.set_admin(node, admin, by, now),
            Request::PushLoad { node, load } => {
                let index = self.node_index(&node)?;
                self.nodes[index].health.load(&load, Source::Pushed, now);
                Ok(())
            }
            Request::Pin { key, pin, until, by } => self.pin(&key, pin, until, by, now),
            Request::Reset { key, by } => self.reset(&key, &by, now),
            Request::Configure(NewConfig(config)) => self.reconfigure(config, now),
        }
    }

    pub(super) fn node_index(&self, node: &NodeId) -> Result<usize, Refused> {
        let index = self.config.nodes.iter().position(|known| known.id == *node);
        index.ok_or_else(|| Refused::NoSuchNode(node.clone()))
    }

    /// The place of what an operator names.
    pub(super) fn named(&self, key: &QualityKey) -> Result<Seat, Refused> {
        self.book.seat(key).ok_or_else(|| {
            let judged = self.book.iter().filter(|(known, _)| known.connection == key.connection);
            let maps: Vec<Option<&str>> = judged.map(|(known, _)| known.map.as_ref().map(MapId::as_str)).collect();
            match maps.as_slice() {
                [] => Refused::NoSuchConnection(key.clone()),
                [None, ..] => Refused::Illegal(format!("{} is judged over all maps: name none", key.connection)),
                maps => Refused::Illegal(format!(
                    "{} is judged per map: name one of {}",
                    key.connection,
                    maps.iter().flatten().copied().collect::<Vec<_>>().join(", ")
                )),
            }
        })
    }

    pub(super) fn set_admin(&mut self, node: NodeId, admin: Admin, by: By, now: Timestamp) -> Result<(), Refused> {
        let index = self.node_index(&node)?;
        self.nodes[index].health.set_admin(admin);
        let row = AdminRow { admin, who: by.who, why: by.why, since: now };
        self.effects.push(Effect::NodeSet { node: index, row: row.clone() });
        self.effects.push(Effect::Store(StoreOp::Admin(node, row)));
        Ok(())
    }

    fn pin(
        &mut self,
        key: &QualityKey,
        pin: Option<Pin>,
        until: Option<Timestamp>,
        by: By,
        now: Timestamp,
    ) -> Result<(), Refused> {
        let seat = self.named(key)?;
        if until.is_some_and(|until| until <= now) {
            return Err(Refused::Illegal("a pin cannot end before it begins".to_owned()));
        }
        if until.is_some_and(|until| until.since(now) > pin::LONGEST) {
            return Err(Refused::Illegal(
                "a pin lasts ten years at most; without an end, until told otherwise".to_owned(),
            ));
        }
        let why = by.why.to_string();
        let said = match pin {
            Some(pin) => ChangeSentence::Pinned { pin, until, why },
            None if self.pins.contains_key(key) => ChangeSentence::Unpinned { why },
            None => return Ok(()),
        };
        let pinned = pin.map(|pin| Pinned { pin, who: by.who.clone(), why: by.why, since: now, until });
        self.set_pin(key, pinned);
        self.tell_operators_word(seat, &said, by.who, now);
        self.order_anew(now);
        Ok(())
    }

    fn reset(&mut self, key: &QualityKey, by: &By, now: Timestamp) -> Result<(), Refused> {
        let seat = self.named(key)?;
        if self.pins.contains_key(key) {
            self.set_pin(key, None);
        }
        let change = self.book.reset(seat, now);
        self.record_by(seat, &change, by);
        self.order_anew(now);
        Ok(())
    }

    pub(super) fn set_pin(&mut self, key: &QualityKey, pinned: Option<Pinned>) {
        match pinned.clone() {
            Some(pinned) => drop(self.pins.insert(key.clone(), pinned)),
            None => drop(self.pins.remove(key)),
        }
        self.routes.touch(&key.connection);
        self.effects.push(Effect::Store(StoreOp::Pin(key.clone(), pinned)));
    }

    /// Ends the pins whose time is over.
    pub(super) fn end_pins(&mut self, now: Timestamp) {
        let over = |pinned: &Pinned| pinned.until.is_some_and(|until| until <= now);
        let ended: Vec<QualityKey> =
            self.pins.iter().filter(|(_, pinned)| over(pinned)).map(|(key, _)| key.clone()).collect();
        for key in &ended {
            self.set_pin(key, None);
            if let Some(seat) = self.book.seat(key) {
                self.tell_operators_word(seat, &ChangeSentence::PinOver, POINTSMAN.into(), now);
            }
        }
        if !ended.is_empty() {
            self.order_anew(now);
        }
    }

    /// Keeps and tells what an operator said of a connection; its state is what it was.
    fn tell_operators_word(&mut self, seat: Seat, said: &ChangeSentence, who: Arc<str>, now: Timestamp) {
        let machine = self.book.machine(seat);
        let (state, epoch) = (machine.state(), machine.epoch());
        let change =
            Change { at: now, from: state, to: state, reason: Reason::Operator, epoch, figures: machine.figures() };
        self.publish(self.book.key(seat).clone(), &change, said.to_string().into(), who);
    }
}
