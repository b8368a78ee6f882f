//! A route map as it would stand after attempts of the past: the same book, the same rule and the same picture as the
//! engine's, without a PBX.
//!
//! A list of attempts has neither the calls that they belong to nor the state of that time. So a placement goes past every
//! better route behind it, wherever that stood by its quality; the picture's states, and the order that follows from them,
//! are those that the attempts give.

use std::collections::HashMap;
use std::convert::Infallible;

use crate::config::model::{Config, RouteMap};
use crate::engine::explain::{self, Pins};
use crate::ids::MapId;
use crate::quality::book::{Book, Seat};
use crate::quality::history::{self, Attempt, Event};
use crate::routing::dynamic::{self, MapState};
use crate::routing::picture::MapView;
use crate::routing::{Route, RouteNow};
use crate::time::Timestamp;

/// A route map and what is judged in it.
#[derive(Debug)]
pub struct Past<'a> {
    configured: &'a RouteMap,
    state: MapState,
    book: Book,
    /// Where the map's calls over each of its connections are judged.
    seats: HashMap<String, Seat>,
    /// The index of the route that is judged there.
    routes: HashMap<Seat, usize>,
}

impl<'a> Past<'a> {
    /// A route map with nothing known of it; `None` where there is none of that name.
    #[must_use]
    pub fn of(config: &'a Config, map: &MapId) -> Option<Self> {
        let book = Book::new(config.judged(), Timestamp::default());
        let states = dynamic::maps(config).into_iter();
        let (configured, state) = config.route_maps.iter().zip(states).find(|(configured, _)| configured.id == *map)?;
        let (mut seats, mut routes) = (HashMap::new(), HashMap::new());
        for (index, Route { connection, .. }) in state.static_order().routes.iter().enumerate() {
            if let Some(seat) = explain::key_in(&book, map, connection).and_then(|key| book.seat(&key)) {
                seats.insert(connection.to_string(), seat);
                routes.insert(seat, index);
            }
        }
        Some(Self { configured, state, book, seats, routes })
    }

    /// The name of the map.
    #[must_use]
    pub fn map(&self) -> &MapId {
        &self.configured.id
    }

    /// Where the map's calls over a connection are judged; `None` where it has no such connection.
    #[must_use]
    pub fn seat(&self, connection: &str) -> Option<Seat> {
        self.seats.get(connection).copied()
    }

    /// Plays the attempts, all of them calls of this map, up to the last end.
    pub fn play(&mut self, attempts: &[Attempt]) {
        let Self { state, book, routes, .. } = self;
        let Some(until) = attempts.iter().map(|attempt| attempt.ended_at).max() else { return };
        let Ok(()) = history::follow::<Infallible>(book, attempts, until, |_, event| {
            match event {
                Event::Placed(seat) => {
                    if let Some(&route) = routes.get(&seat) {
                        state.placed(route, &[], |_| RouteNow::default());
                    }
                }
                Event::Ended(seat, attempt) => {
                    if let Some(&route) = routes.get(&seat) {
                        state.ended(route, attempt);
                    }
                }
                Event::Changed(..) => {}
            }
            Ok(())
        });
    }

    /// The map explained.
    #[must_use]
    pub fn picture(&self) -> MapView {
        explain::map(self.configured, &self.state, &self.book, &Pins::new())
    }
}
