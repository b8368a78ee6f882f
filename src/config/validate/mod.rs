//! Every rule that the structure alone does not give: what must be there, what goes together, what refers to what.
//!
//! A check notes what is wrong and goes on; a value that is broken or absent is left out of the checks that need it, so
//! that one mistake gives one message. The checked [`Config`] is only used where nothing was an error.

mod connections;
mod credentials;
mod edge;
mod extras;
mod http;
mod judged;
mod mail;
mod nodes;
mod quality;
mod routes;
mod rules;
mod scores;
mod tokens;
mod xds;

use std::collections::HashMap;
use std::fmt;
use std::hash::Hash;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};

use super::de::Located;
use super::model::{Config, Connection, Node};
use super::raw::{Raw, Tables, Texts};
use super::report::{Draft, Mark};
use super::secret::shown;
use super::suggest;
use super::tree::{Place, PlaceId};
use super::{Format, Purpose};

/// What the checks share.
pub(super) struct Check<'a> {
    raw: &'a Raw,
    places: &'a [Place],
    format: Format,
    /// Where relative paths begin.
    directory: &'a Path,
    /// Environment variables, for `password_env`.
    variables: &'a dyn Fn(&str) -> Option<String>,
    purpose: Purpose,
    drafts: Vec<Draft>,
}

/// Everything around the raw values that the checks need.
pub(super) struct Context<'a> {
    pub(super) places: &'a [Place],
    pub(super) format: Format,
    pub(super) file: &'a Path,
    pub(super) variables: &'a dyn Fn(&str) -> Option<String>,
    pub(super) purpose: Purpose,
}

/// Checks the values. The configuration is usable where none of the drafts is an error.
pub(super) fn validate(raw: &Raw, context: &Context<'_>) -> (Config, Vec<Draft>) {
    let directory = context.file.parent().unwrap_or(Path::new(""));
    let Context { places, format, variables, purpose, .. } = *context;
    let mut check = Check { raw, places, format, directory, variables, purpose, drafts: Vec::new() };
    let nodes = check.nodes();
    let customers = check.customers();
    let connections = check.connections(&nodes);
    let route_maps = check.route_maps(&nodes, &connections);
    check.routing_rules();
    check.judged_apart(&connections, &route_maps);
    let scoring = check.scoring();
    let balancing = check.balancing();
    let breaker = check.breaker();
    let http = check.http();
    let email = check.email();
    let operator = check.operator();
    let variables = check.variables();
    let storage = check.storage(context.file);
    let control_socket = check.control_socket(context.file);
    let log = check.log();
    let nodes: Vec<Node> = nodes.into_iter().map(|(node, _)| node).collect();
    let edge = check.edge(&nodes, http.as_ref());
    let connections: Vec<Connection> = connections.into_iter().map(|(connection, _)| connection).collect();
    let config = Config {
        nodes,
        customers,
        connections,
        route_maps,
        email,
        operator,
        scoring,
        balancing,
        breaker,
        http,
        edge,
        variables,
        storage,
        control_socket,
        log,
    };
    (config, check.drafts)
}

impl<'a> Check<'a> {
    /// Notes a problem, unless the same was said of the same place already.
    fn note(&mut self, draft: Draft) {
        if !self.drafts.iter().any(|known| known.repeats(&draft)) {
            self.drafts.push(draft);
        }
    }

    fn place(&self, id: PlaceId) -> Option<&'a Place> {
        self.places.get(id.0 as usize)
    }

    /// An assignment in the language of the file.
    fn write(&self, key: &str, value: &str) -> String {
        match self.format {
            Format::Toml => format!("{key} = {value}"),
            Format::Json => format!("\"{key}\": {value}"),
            Format::Yaml => format!("{key}: {value}"),
        }
    }

    /// The value of a key that must be there.
    fn required<T>(
        &mut self,
        value: &'a Located<T>,
        around: PlaceId,
        key: &str,
        whose: &str,
        example: &str,
    ) -> Option<&'a T> {
        if value.is_absent() {
            let help = format!("write {}", self.write(key, example));
            self.note(Draft::error(Mark::Value(around), format!("{whose} has no `{key}`")).help(help));
        }
        value.get()
    }

    /// A number within bounds; notes it where it is not, and gives it all the same.
    fn bounded(&mut self, value: &Located<u64>, key: &str, bounds: std::ops::RangeInclusive<u64>) -> Option<u64> {
        let (number, place) = value.placed()?;
        if !bounds.contains(number) {
            let message = format!("`{key}` must be from {} to {}", bounds.start(), bounds.end());
            self.note(Draft::error(Mark::Value(place), message));
        }
        Some(*number)
    }

    /// A number with decimals within bounds; notes it where it is not, and gives it all the same.
    fn within(&mut self, value: &Located<f64>, key: &str, bounds: std::ops::RangeInclusive<f64>) -> Option<f64> {
        let (number, place) = value.placed()?;
        if !bounds.contains(number) {
            let message = format!("`{key}` must be from {} to {}", bounds.start(), bounds.end());
            self.note(Draft::error(Mark::Value(place), message));
        }
        Some(*number)
    }

    /// A number with decimals that must be over `over` and at most `most`.
    fn above(&mut self, value: &Located<f64>, key: &str, over: f64, most: f64) -> Option<f64> {
        let (number, place) = value.placed()?;
        if *number <= over || *number > most {
            let message = format!("`{key}` must be greater than {over} and at most {most}");
            self.note(Draft::error(Mark::Value(place), message));
        }
        Some(*number)
    }

    /// Text that goes into a command or a header: without control characters, and not empty. The text itself is not
    /// in the message: it may be a secret.
    fn plain_text(&mut self, text: &str, place: PlaceId, key: &str) -> bool {
        let problem = if text.is_empty() {
            "must not be empty"
        } else if text.chars().any(char::is_control) {
            "must not contain line breaks or other control characters"
        } else {
            return true;
        };
        self.note(Draft::error(Mark::Value(place), format!("`{key}` {problem}")));
        false
    }

    /// Notes ids that are there twice.
    fn unique<T>(&mut self, what: &str, ids: impl Iterator<Item = (&'a T, PlaceId)>)
    where
        T: Eq + Hash + fmt::Display + 'a,
    {
        self.once(ids, |id| format!("two {what} have the id `{id}`"));
    }

    /// Notes what is there twice, with the place of the first.
    fn once<'t, T>(&mut self, things: impl Iterator<Item = (&'t T, PlaceId)>, message: impl Fn(&T) -> String)
    where
        T: Eq + Hash + ?Sized + 't,
    {
        let mut seen: HashMap<&T, PlaceId> = HashMap::new();
        for (thing, place) in things {
            match seen.get(thing) {
                None => {
                    seen.insert(thing, place);
                }
                Some(first) => self.note(
                    Draft::error(Mark::Value(place), message(thing))
                        .label("used again here")
                        .also(Mark::Value(*first), "first used here"),
                ),
            }
        }
    }

    /// An address to listen on; `port` is that of the examples.
    fn socket_address(&mut self, text: &str, place: PlaceId, port: u16) -> Option<SocketAddr> {
        let address = text.parse().ok();
        if address.is_none() {
            let draft = Draft::error(Mark::Value(place), format!("`listen` cannot be {:?}", shown(text)));
            self.note(draft.label("expected ADDRESS:PORT").help(format!(
                "write an IP address and a port: \"127.0.0.1:{port}\" or \"[::1]:{port}\", for all addresses of the machine \"0.0.0.0:{port}\" or \"[::]:{port}\"",
            )));
        }
        address
    }

    /// Notes a reference to something that is not there.
    fn unknown<'k>(&mut self, what: &str, name: &str, mark: Mark, known: impl Iterator<Item = &'k str> + Clone) {
        self.note(not_there(what, name, mark, known));
    }

    /// A path of the file: relative ones begin where the file is.
    fn path(&self, path: &Path) -> PathBuf {
        self.directory.join(path)
    }
}

/// A reference to something that is not there, with what was probably meant.
fn not_there<'k>(what: &str, name: &str, mark: Mark, known: impl Iterator<Item = &'k str> + Clone) -> Draft {
    let shown: String = name.chars().take(80).collect();
    let draft = Draft::error(mark, format!("there is no {what} `{shown}`"));
    match suggest::closest(name, known.clone()) {
        Some(close) => draft.help(format!("did you mean \"{close}\"?")),
        None => match known.take(8).collect::<Vec<_>>() {
            known if known.is_empty() => draft.help(format!("no {what} is configured")),
            known => draft.help(format!("there are {}", known.join(", "))),
        },
    }
}

/// Whether others than this machine reach it.
fn beyond_loopback(address: SocketAddr) -> bool {
    !address.ip().to_canonical().is_loopback()
}

/// The tables that could be read as tables, with their places.
fn tables<T>(list: &Tables<T>) -> impl Iterator<Item = (&T, PlaceId)> + Clone {
    list.get().into_iter().flatten().filter_map(Located::placed)
}

/// Texts with their places.
fn texts(list: &Located<Texts>) -> impl Iterator<Item = (&str, PlaceId)> {
    let whole = list.place;
    let texts = list.get().into_iter().flat_map(|texts| &texts.0);
    texts.filter_map(move |text| Some((text.get()?.as_str(), text.place.or(whole)?)))
}
