//! From a file to a checked configuration.

use std::ffi::OsString;
use std::fs::File;
use std::io::Read;
use std::path::Path;

use config::{ConfigError, FileFormat, Map, Source, Value};

use super::environment::{self, Overrides};
use super::locate::{self, Inside, Span, Spot};
use super::report::{Draft, Reporter, Severity};
use super::tree::Tree;
use super::validate::{self, Context};
use super::{Loaded, Problems, de, schema, secret};

/// Longest configuration. A thousand connections with everything written out take half a megabyte.
const MAX_FILE: u64 = 8 * 1024 * 1024;

/// The language of a configuration file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Format {
    /// `.toml`
    Toml,
    /// `.json`
    Json,
    /// `.yaml`, `.yml`
    Yaml,
}

impl Format {
    /// The format that the extension of a file stands for; one without an extension is TOML.
    fn of(path: &Path) -> Option<Self> {
        let Some(extension) = path.extension() else { return Some(Self::Toml) };
        match extension.to_str()?.to_ascii_lowercase().as_str() {
            "toml" => Some(Self::Toml),
            "json" => Some(Self::Json),
            "yaml" | "yml" => Some(Self::Yaml),
            _ => None,
        }
    }

    fn parser(self) -> FileFormat {
        match self {
            Self::Toml => FileFormat::Toml,
            Self::Json => FileFormat::Json,
            Self::Yaml => FileFormat::Yaml,
        }
    }
}

/// What a configuration is read for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Purpose {
    /// To connect to the PBXs: everything must be there.
    Connect,
    /// To send mail alone: what that needs must be there, the passwords and certificates of nodes and the tokens of HTTP
    /// are left out.
    Mail,
    /// To look something up in it: passwords, tokens and certificates may be where only the running program finds them, in
    /// its environment or in files that only it can read. They are left out.
    Look,
}

/// Reads a configuration with the overrides of the environment and checks it, to connect to the PBXs.
///
/// # Errors
/// Everything that is wrong with it, warnings included.
pub fn load(path: &Path) -> Result<Loaded, Problems> {
    load_with(path, std::env::vars_os(), Purpose::Connect)
}

/// Reads a configuration with overrides from these variables and checks it.
///
/// # Errors
/// Everything that is wrong with it, warnings included.
pub fn load_with(
    path: &Path,
    environment: impl IntoIterator<Item = (OsString, OsString)>,
    purpose: Purpose,
) -> Result<Loaded, Problems> {
    let format = Format::of(path)
        .ok_or_else(|| Problems::unreadable(path, "its name must end in .toml, .json, .yaml or .yml"))?;
    let text = read(path).map_err(|why| Problems::unreadable(path, why))?;
    load_text(path, &text, format, environment, purpose)
}

fn read(path: &Path) -> Result<String, String> {
    let cannot = |error: std::io::Error| format!("cannot read the configuration: {error}");
    let mut bytes = Vec::new();
    File::open(path).and_then(|file| file.take(MAX_FILE + 1).read_to_end(&mut bytes)).map_err(cannot)?;
    if bytes.len() as u64 > MAX_FILE {
        return Err(format!("the configuration is larger than {MAX_FILE} bytes"));
    }
    let text = String::from_utf8(bytes).map_err(|error| {
        let (before, _) = error.as_bytes().split_at(error.utf8_error().valid_up_to());
        let line = before.iter().filter(|byte| **byte == b'\n').count() + 1;
        format!("the configuration is not UTF-8: line {line} has other bytes")
    })?;
    Ok(text.strip_prefix('\u{feff}').map(str::to_owned).unwrap_or(text))
}

/// Checks a configuration whose text is at hand; `path` is what it is called in reports, and where relative paths begin.
///
/// # Errors
/// Everything that is wrong with it, warnings included.
pub fn load_text(
    path: &Path,
    text: &str,
    format: Format,
    environment: impl IntoIterator<Item = (OsString, OsString)>,
    purpose: Purpose,
) -> Result<Loaded, Problems> {
    let environment: Vec<_> = environment.into_iter().collect();
    let bare = Reporter { file: path, text, places: &[] };
    let spots = locate::locate(text, format).map_err(|errors| syntax_problems(&bare, text, &errors))?;
    let secrets = secret::spans(text, &spots);
    let file = values(text, format, &spots).map_err(|problem| match problem {
        Some(why) => Problems::unreadable(path, why),
        None => bare
            .with(vec![bare.at(&spots.value, "the configuration must be a table of keys and values", None)], &secrets),
    })?;
    let (overrides, bad) = environment::overrides(environment.iter().cloned(), &file);
    let merged = merge(file, overrides).map_err(|error| Problems::unreadable(path, error))?;
    let tree = Tree::new(merged, &spots);
    let mut drafts = Vec::new();
    let raw = de::read(&tree.root, &tree.places, &schema::homes(), &mut drafts);
    let variable = |name: &str| {
        let found = environment.iter().find(|(known, _)| known == name)?;
        found.1.clone().into_string().ok()
    };
    let context = Context { places: &tree.places, format, file: path, variables: &variable, purpose };
    let (config, mut found) = validate::validate(&raw, &context);
    drafts.append(&mut found);
    report(path, text, &tree, drafts, bad, &secrets).map(|warnings| Loaded { config, warnings })
}

/// The warnings, or everything where something is an error.
fn report(
    file: &Path,
    text: &str,
    tree: &Tree,
    drafts: Vec<Draft>,
    bad: Vec<environment::BadVariable>,
    secrets: &[Span],
) -> Result<Problems, Problems> {
    let reporter = Reporter { file, text, places: &tree.places };
    let mut problems = reporter.problems(drafts, secrets);
    problems.prepend(bad.into_iter().map(|bad| Reporter::of_variable(&bad.variable, &bad.message, bad.help)).collect());
    if problems.iter().any(|problem| problem.severity == Severity::Error) { Err(problems) } else { Ok(problems) }
}

fn syntax_problems(reporter: &Reporter<'_>, text: &str, errors: &[locate::SyntaxError]) -> Problems {
    let problems = errors.iter().map(|error| reporter.at(&error.at, &error.message, error.before.as_ref()));
    reporter.with(problems.collect(), &secret::likely_spans(text, &schema::homes()))
}

/// The values of a file; `None` where it holds something else than a table.
fn values(text: &str, format: Format, spots: &Spot) -> Result<Map<String, Value>, Option<String>> {
    let Inside::Table(fields) = &spots.inside else { return Err(None) };
    if fields.is_empty() {
        return Ok(Map::new());
    }
    config::Format::parse(&format.parser(), None, text).map_err(|error| Some(error.to_string()))
}

/// The layers, the file at the bottom.
fn merge(file: Map<String, Value>, overrides: Vec<environment::Override>) -> Result<Value, ConfigError> {
    // At the top `config` takes a key such as `a[9]` for an order to make a list of ten. No key of ours looks like
    // that: these are put back as they are, to be found unknown.
    let plain = |key: &String| key.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_') && !key.is_empty();
    let (file, odd): (Map<_, _>, Map<_, _>) = file.into_iter().partition(|(key, _)| plain(key));
    let layers = config::Config::builder().add_source(FileLayer(file)).add_source(Overrides(overrides));
    let mut values = layers.build()?.collect()?;
    values.extend(odd);
    Ok(Value::new(None, values))
}

/// The values of the file as a layer.
#[derive(Clone, Debug)]
struct FileLayer(Map<String, Value>);

impl Source for FileLayer {
    fn clone_into_box(&self) -> Box<dyn Source + Send + Sync> {
        Box::new(self.clone())
    }

    fn collect(&self) -> Result<Map<String, Value>, ConfigError> {
        Ok(self.0.clone())
    }
}
