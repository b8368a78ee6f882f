//! Which configuration a command uses.

use std::path::{Path, PathBuf};

use crate::cli::WrongUsage;
use crate::config::{self, Loaded, Purpose};

/// The environment variable that names the configuration.
const VARIABLE: &str = "POINTSMAN_CONFIG";

/// Where a configuration is looked for when none is named, in this order.
pub const DEFAULT_PATHS: &[&str] = &["./pointsman.toml", "/etc/pointsman/pointsman.toml"];

/// The option that names the configuration; flatten it into the arguments of a command.
#[derive(Clone, Debug, Default, clap::Args)]
pub struct ConfigFile {
    /// Configuration: TOML, JSON or YAML, by its extension
    ///
    /// Without it: the file that POINTSMAN_CONFIG names, ./pointsman.toml, then /etc/pointsman/pointsman.toml. Single
    /// values can be overridden by environment variables: POINTSMAN__STORAGE__PATH,
    /// POINTSMAN__NODES__PBX_01__PASSWORD.
    // Not clap's `env`: a variable of the environment must not contradict another option.
    #[arg(short = 'c', long = "config", value_name = "FILE")]
    pub path: Option<PathBuf>,
}

impl ConfigFile {
    /// The file that is meant.
    ///
    /// # Errors
    /// [`WrongUsage`] where none was named and none of the default places has one.
    pub fn find(&self) -> anyhow::Result<PathBuf> {
        let named =
            self.path.clone().or_else(|| std::env::var_os(VARIABLE).filter(|path| !path.is_empty()).map(Into::into));
        if let Some(path) = named {
            return Ok(path);
        }
        let found = DEFAULT_PATHS.iter().map(Path::new).find(|path| path.exists());
        found.map(Path::to_owned).ok_or_else(|| {
            let places = DEFAULT_PATHS.join(", ");
            WrongUsage(format!("no configuration: name one with --config FILE or {VARIABLE} (looked for {places})"))
                .into()
        })
    }

    /// Reads and checks it, to connect to the PBXs. Its warnings are in the result, for the command to show.
    ///
    /// # Errors
    /// All problems of the configuration ([`config::Problems`], exit code 2), or [`WrongUsage`] where there is none.
    pub fn load(&self) -> anyhow::Result<Loaded> {
        Ok(config::load(&self.find()?)?)
    }

    /// Reads and checks it, to send mail: for commands that need the mail server's password and no other.
    ///
    /// # Errors
    /// All problems of the configuration ([`config::Problems`], exit code 2), or [`WrongUsage`] where there is none.
    pub fn load_to_mail(&self) -> anyhow::Result<Loaded> {
        Ok(config::load_with(&self.find()?, std::env::vars_os(), Purpose::Mail)?)
    }

    /// Reads and checks it, to look something up in it: for commands that need no password.
    ///
    /// # Errors
    /// All problems of the configuration ([`config::Problems`], exit code 2), or [`WrongUsage`] where there is none.
    pub fn load_to_look(&self) -> anyhow::Result<Loaded> {
        Ok(config::load_with(&self.find()?, std::env::vars_os(), Purpose::Look)?)
    }
}
