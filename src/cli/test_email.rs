//! `pointsman test-email`: a mail to a customer, at once and past the outbox, to see whether it arrives and how it looks.

use std::io::{self, Write};
use std::process::ExitCode;

use lettre::Address;
use serde::Serialize;

use crate::cli::WrongUsage;
use crate::cli::config_file::ConfigFile;
use crate::clock::Clock;
use crate::config::model::{Config, Email};
use crate::config::suggest;
use crate::notify::letter::{Failure, Letter};
use crate::notify::render::{Example, Templates};
use crate::notify::transport::Transport;
use crate::notify::{compose, message};

/// Who stands for the operator on the command line.
const OPERATOR: &str = "operator";

/// Arguments of `pointsman test-email`.
#[derive(Debug, clap::Args)]
#[command(
    after_help = "The mail goes to every address of the customer, through the configured server, in the customer's
language and with the templates in use. Works whether pointsman runs or not.

Exit codes: 0 the server took all of it, 1 it did not (it says why), 2 wrong usage or configuration.

Examples:
  pointsman test-email acme
  pointsman test-email acme --example alarm --to me@operator.example
  pointsman test-email acme --example digest --print > digest.eml
  pointsman test-email operator"
)]
pub struct Args {
    /// The customer's id, or \"operator\"
    customer: String,
    /// What kind of mail, with invented facts
    #[arg(long, value_enum, default_value_t = Example::Test)]
    example: Example,
    /// Send it to this address instead
    #[arg(long, value_name = "ADDRESS")]
    to: Option<Address>,
    /// Print the mail as it would be sent (.eml) and send nothing
    #[arg(long)]
    print: bool,
    /// Print the result as JSON
    #[arg(long, conflicts_with = "print")]
    json: bool,
    #[command(flatten)]
    config: ConfigFile,
}

/// How it went with one address.
#[derive(Debug, Serialize)]
struct Delivered {
    to: String,
    ok: bool,
    /// What the server said, or what went wrong.
    answer: String,
}

/// Sends the mail.
///
/// # Errors
/// Where the configuration has errors or no `[email]`, where there is no such customer or they have no address, or where
/// stdout cannot be written.
#[expect(clippy::needless_pass_by_value, reason = "every command takes its arguments")]
pub fn run(args: Args) -> anyhow::Result<ExitCode> {
    let config = if args.print { args.config.load_to_look()?.config } else { args.config.load_to_mail()?.config };
    let Some(email) = &config.email else {
        return Err(WrongUsage("no mail can be sent: the configuration has no [email]".to_owned()).into());
    };
    let letter = letter(&args, &config, email)?;
    let mut out = io::stdout().lock();
    if args.print {
        out.write_all(&message::compose(&letter, email)?)?;
        return Ok(ExitCode::SUCCESS);
    }
    let delivered = super::runtime()?.block_on(send(&letter, email))?;
    if args.json {
        serde_json::to_writer_pretty(&mut out, &delivered).map_err(io::Error::from)?;
        writeln!(out)?;
    } else {
        for Delivered { to, ok, answer } in &delivered {
            writeln!(out, "{to}: {}{answer}", if *ok { "taken: " } else { "NOT sent: " })?;
        }
    }
    out.flush()?;
    Ok(if delivered.iter().all(|one| one.ok) { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

fn letter(args: &Args, config: &Config, email: &Email) -> Result<Letter, WrongUsage> {
    let customer = match config.customers.iter().find(|customer| customer.id.as_str() == args.customer) {
        Some(customer) => Some(customer),
        None if args.customer == OPERATOR => None,
        None => return Err(unknown(&args.customer, config)),
    };
    let addresses = match (&args.to, customer) {
        (Some(to), _) => vec![to.clone()],
        (None, Some(customer)) => customer.email.clone(),
        (None, None) => config.operator.email.clone(),
    };
    if addresses.is_empty() {
        let whose = if customer.is_some() { "this customer" } else { "the operator" };
        return Err(WrongUsage(format!("{whose} has no email in the configuration; name an address with --to")));
    }
    let templates = match &email.templates {
        None => Templates::built_in(),
        Some(folder) => Templates::load(folder)
            .map_err(|problems| WrongUsage(problems.iter().map(ToString::to_string).collect::<Vec<_>>().join("\n")))?,
    };
    Ok(compose::example(&templates, args.example, (customer, &addresses), (config, email), Clock::system().now()))
}

fn unknown(name: &str, config: &Config) -> WrongUsage {
    let known = || config.customers.iter().map(|customer| customer.id.as_str()).chain([OPERATOR]);
    let hint = match suggest::closest(name, known()) {
        Some(close) => format!("did you mean {close}?"),
        None => format!("there are {}", known().collect::<Vec<_>>().join(", ")),
    };
    WrongUsage(format!("there is no customer {name:?}; {hint}"))
}

async fn send(letter: &Letter, email: &Email) -> anyhow::Result<Vec<Delivered>> {
    let message = message::compose(letter, email)?;
    let transport = Transport::new(email)?;
    let mut delivered = Vec::new();
    for delivery in &letter.deliveries {
        let result = match delivery.address.parse::<Address>() {
            Ok(to) => transport.deliver(&message, &to).await,
            Err(error) => Err(Failure::Permanent(error.to_string())),
        };
        let ok = result.is_ok();
        let answer = result.unwrap_or_else(|failure| failure.to_string());
        delivered.push(Delivered { to: delivery.address.clone(), ok, answer });
    }
    Ok(delivered)
}
