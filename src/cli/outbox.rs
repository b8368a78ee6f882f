//! `pointsman outbox`: the mails of a running pointsman that wait, are dead, or were sent.

use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use comfy_table::{ContentArrangement, Table, presets};

use crate::cli::WrongUsage;
use crate::cli::config_file::ConfigFile;
use crate::cli::status::{duration, printable, socket_of, width};
use crate::clock::Clock;
use crate::control::{self, ControlError, Request, Response};
use crate::notify::letter::{Delivery, DeliveryState, Letter};
use crate::time::Timestamp;

/// Arguments of `pointsman outbox`.
#[derive(Debug, clap::Args)]
#[command(after_help = "Without a command: lists the mails that wait or are dead.

Exit codes: 0 done, 1 pointsman does not run, did not answer or has no such mail, 2 wrong usage or configuration.

Examples:
  pointsman outbox
  pointsman outbox --all --json | jq '.[].deliveries'
  pointsman outbox retry 42
  pointsman outbox retry --dead
  pointsman outbox drop 42")]
pub struct Args {
    #[command(subcommand)]
    command: Option<Command>,
    #[command(flatten)]
    place: Place,
    /// List also what was sent or dropped lately
    #[arg(long)]
    all: bool,
    /// Print the list as JSON
    #[arg(long)]
    json: bool,
}

#[derive(Debug, clap::Subcommand)]
enum Command {
    /// Try a mail now, whether it waits for its time or is dead
    Retry(Chosen),
    /// Never try a mail again
    Drop(Chosen),
}

/// Where the running pointsman is.
#[derive(Debug, clap::Args)]
struct Place {
    #[command(flatten)]
    config: ConfigFile,
    /// Control socket of the running pointsman, instead of the one in the configuration
    #[arg(long, value_name = "PATH", conflicts_with = "path")]
    socket: Option<PathBuf>,
}

/// Which mails.
#[derive(Debug, clap::Args)]
struct Chosen {
    /// Their numbers, as the list shows them
    #[arg(value_name = "NUMBER", required_unless_present = "dead")]
    numbers: Vec<u64>,
    /// All that are dead
    #[arg(long, conflicts_with = "numbers")]
    dead: bool,
    #[command(flatten)]
    place: Place,
}

/// Asks the running pointsman.
///
/// # Errors
/// Where it does not run or does not answer, where it has no such mail, or where the output is closed.
#[expect(clippy::needless_pass_by_value, reason = "every command takes its arguments")]
pub fn run(args: Args) -> anyhow::Result<ExitCode> {
    let Some(command) = &args.command else { return list(&args) };
    if args.all || args.json {
        return Err(WrongUsage("--all and --json are for the list: leave them out".to_owned()).into());
    }
    let nothing = "was sent or dropped already";
    match command {
        Command::Retry(chosen) => {
            let socket = chosen.place.within(&args.place).socket()?;
            each(chosen, &socket, |letter| Request::OutboxRetry { letter }, ("to be tried now", nothing))
        }
        Command::Drop(chosen) => {
            let socket = chosen.place.within(&args.place).socket()?;
            each(chosen, &socket, |letter| Request::OutboxDrop { letter }, ("dropped", nothing))
        }
    }
}

impl Place {
    /// This place where one is named, else that which was named before the command.
    fn within<'a>(&'a self, outer: &'a Self) -> &'a Self {
        if self.socket.is_none() && self.config.path.is_none() { outer } else { self }
    }

    fn socket(&self) -> anyhow::Result<PathBuf> {
        self.socket.clone().map_or_else(|| socket_of(&self.config), Ok)
    }
}

fn list(args: &Args) -> anyhow::Result<ExitCode> {
    let socket = args.place.socket()?;
    let letters = match control::request_blocking(&socket, &Request::Outbox { all: args.all })? {
        Response::Outbox(letters) => letters,
        other => return Err(unexpected(socket, &other).into()),
    };
    let mut out = io::stdout().lock();
    if args.json {
        serde_json::to_writer(&mut out, &letters).map_err(io::Error::from)?;
        writeln!(out)?;
    } else {
        write!(out, "{}", text(&letters, args.all, Clock::system().now(), width()))?;
    }
    out.flush()?;
    Ok(ExitCode::SUCCESS)
}

fn each(
    chosen: &Chosen,
    socket: &Path,
    request: impl Fn(Option<u64>) -> Request,
    (done, nothing): (&str, &str),
) -> anyhow::Result<ExitCode> {
    let which: Vec<Option<u64>> =
        if chosen.dead { vec![None] } else { chosen.numbers.iter().copied().map(Some).collect() };
    let mut out = io::stdout().lock();
    for letter in which {
        let count = match control::request_blocking(socket, &request(letter))? {
            Response::Deliveries(count) => count,
            other => return Err(unexpected(socket.to_owned(), &other).into()),
        };
        let whose = letter.map_or_else(|| "all dead mails".to_owned(), |number| format!("mail {number}"));
        match (count, letter) {
            (0, Some(_)) => writeln!(out, "{whose}: {nothing}")?,
            (0, None) => writeln!(out, "no mail is dead")?,
            (1, _) => writeln!(out, "{whose}: 1 delivery {done}")?,
            _ => writeln!(out, "{whose}: {count} deliveries {done}")?,
        }
    }
    out.flush()?;
    Ok(ExitCode::SUCCESS)
}

fn unexpected(path: PathBuf, response: &Response) -> ControlError {
    ControlError::NotUnderstood { path, problem: format!("not about the outbox: {response:?}") }
}

/// The list for people, one line per delivery.
fn text(letters: &[Letter], all: bool, now: Timestamp, width: u16) -> String {
    if letters.is_empty() {
        return if all { "The outbox is empty.\n".to_owned() } else { "No mail waits, and none is dead.\n".to_owned() };
    }
    let mut table = Table::new();
    table.load_style(presets::NOTHING).set_content_arrangement(ContentArrangement::Dynamic).set_width(width);
    table.set_header(["No.", "Age", "To", "Subject", "How it is"]);
    for letter in letters {
        for delivery in &letter.deliveries {
            table.add_row([
                letter.number.to_string(),
                duration(now.since(letter.made_at)),
                printable(&delivery.address),
                printable(&letter.subject),
                printable(&how(delivery, now)),
            ]);
        }
    }
    format!("{}\n", table.trim_fmt())
}

fn how(delivery: &Delivery, now: Timestamp) -> String {
    let tries = match delivery.tries {
        1 => "1 try".to_owned(),
        tries => format!("{tries} tries"),
    };
    let ago = || duration(now.since(delivery.settled_at.unwrap_or(now)));
    let problem = &delivery.problem;
    match delivery.state {
        DeliveryState::Waiting if delivery.tries == 0 => "waits".to_owned(),
        DeliveryState::Waiting => {
            let next = duration(delivery.next_try_at.since(now));
            format!("waits, {tries}, next in {next}: {problem}")
        }
        DeliveryState::Sent => format!("sent {} ago", ago()),
        DeliveryState::Dead => format!("DEAD, {tries}: {problem}"),
        DeliveryState::Dropped => format!("dropped {} ago: {problem}", ago()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::notify::letter::Kind;

    fn second(n: i64) -> Timestamp {
        Timestamp::from_secs(1_700_000_000 + n)
    }

    fn letter(number: u64, deliveries: Vec<Delivery>) -> Letter {
        Letter {
            number,
            message_id: format!("{number}@operator.example"),
            replies_to: Vec::new(),
            made_at: second(0),
            customer: None,
            kind: Kind::Alarm,
            about: Vec::new(),
            subject: "vendor-a: quality is bad\u{1b}[2J".to_owned(),
            text: String::new(),
            html: String::new(),
            deliveries,
        }
    }

    #[test]
    fn the_list_says_how_each_delivery_is_and_fits_the_terminal() {
        let waiting = Delivery {
            tries: 2,
            problem: "mail.example.net:25 refused the recipient noc@acme.example: 451 4.7.1 try again later".to_owned(),
            next_try_at: second(150),
            ..Delivery::new("noc@acme.example", second(0))
        };
        let mut dead = Delivery { tries: 1, ..Delivery::new("duty@acme.example", second(0)) };
        dead.settle(DeliveryState::Dead, "550 no such user", second(5));
        let mut sent = Delivery::new("ops@acme.example", second(0));
        sent.settle(DeliveryState::Sent, "", second(60));
        let letters = [letter(41, vec![sent]), letter(42, vec![waiting, dead])];
        let text = text(&letters, true, second(90), 80);
        assert!(text.lines().all(|line| line.chars().count() <= 80), "{text}");
        assert!(!text.contains('\u{1b}'));
        let words = text.split_whitespace().collect::<Vec<_>>().join(" ");
        for part in ["1 min 30 s", "sent 30 s ago", "DEAD, 1 try"] {
            assert!(words.contains(part), "{part}: {text}");
        }
    }

    #[test]
    fn an_empty_list_says_so() {
        assert_eq!(text(&[], false, second(0), 80), "No mail waits, and none is dead.\n");
    }
}
