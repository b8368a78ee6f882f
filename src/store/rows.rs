//! The statements: reading everything back, and writing a backlog as the difference to what the file holds.
//!
//! [`Content`] is what we know the file to hold. It is read from the file when that is opened and follows every commit,
//! so that a connection's state is written as a difference (a finished attempt: one row more, one row less), and so
//! that everything can be written again when somebody takes the file away.

use std::collections::{HashMap, VecDeque};

use serde::Serialize;
use serde::de::DeserializeOwned;
use serde::de::IntoDeserializer;
use serde::de::value::{Error as WordError, StrDeserializer};
use sqlx::sqlite::{SqliteConnection, SqliteRow};
use sqlx::{Connection, Row, SqliteTransaction};

use super::backlog::{LegKey, OnDisk, Pending};
use super::op::{AdminRow, ChangeRow, LegRow, Tally, Whose};
use super::{CHANGES_RESTORED, Restored};
use crate::ids::{ConnectionId, LegId, MapId, NodeId, QualityKey};
use crate::notify::kept::{Kept, KeptKey, KeptKind};
use crate::notify::notice::{FAILED_CALLS, FailedCall};
use crate::quality::machine::{Change, Saved};
use crate::quality::pin::Pinned;
use crate::quality::window::{Epoch, Figures, Sample};
use crate::routing::dynamic::Learnt;
use crate::time::Timestamp;

/// The two lists of attempts of a connection.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum List {
    Window,
    Batch,
}

impl List {
    const fn word(self) -> &'static str {
        match self {
            Self::Window => "window",
            Self::Batch => "batch",
        }
    }
}

/// What the file holds of a connection.
#[derive(Clone, Debug)]
struct Stored {
    id: i64,
    saved: Saved,
    window: Rows,
    batch: Rows,
}

/// Where the rows of a list are: they end before `end`, one position each; or in disorder (somebody else wrote them, or
/// one could not be read), to be written anew.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Rows {
    Before(i64),
    InDisorder,
}

/// What the file holds of everything that stands for a state.
#[derive(Debug, Default)]
pub(super) struct Content {
    quality: HashMap<QualityKey, Stored>,
    legs: HashMap<LegKey, LegRow>,
    generation: u64,
    mail: HashMap<KeptKey, Kept>,
    pins: HashMap<QualityKey, Pinned>,
    admins: HashMap<NodeId, AdminRow>,
    learnt: HashMap<MapId, Learnt>,
}

impl Content {
    /// What of it has to be deleted once it is gone.
    pub(super) fn on_disk(&self) -> OnDisk {
        OnDisk { legs: self.legs.keys().cloned().collect(), mail: self.mail.keys().cloned().collect() }
    }

    /// What must be written to a file that holds `found` so that it holds this.
    pub(super) fn missing_from(&self, found: &Self) -> Pending {
        let mut missing = Pending::default();
        for (key, stored) in &self.quality {
            if found.quality.get(key).is_none_or(|there| there.saved != stored.saved) {
                missing.quality.insert(key.clone(), Box::new(stored.saved.clone()));
            }
        }
        for (key, leg) in &self.legs {
            if found.legs.get(key) != Some(leg) {
                missing.legs.insert(key.clone(), Some(Box::new(leg.clone())));
            }
        }
        for key in found.legs.keys().filter(|key| !self.legs.contains_key(*key)) {
            missing.legs.insert(key.clone(), None);
        }
        // What a file holds of mail beyond ours is mail that nobody got yet: it stays for the next start.
        for (key, kept) in self.mail.iter().filter(|(key, kept)| found.mail.get(*key) != Some(*kept)) {
            missing.mail.insert(key.clone(), Some(kept.clone()));
        }
        for (key, pinned) in self.pins.iter().filter(|(key, pinned)| found.pins.get(*key) != Some(*pinned)) {
            missing.pins.insert(key.clone(), Some(pinned.clone()));
        }
        for (node, row) in self.admins.iter().filter(|(node, row)| found.admins.get(*node) != Some(*row)) {
            missing.admins.insert(node.clone(), row.clone());
        }
        for (map, learnt) in self.learnt.iter().filter(|(map, learnt)| found.learnt.get(*map) != Some(*learnt)) {
            missing.learnt.insert(map.clone(), Some(Box::new(learnt.clone())));
        }
        missing.generation = (self.generation > found.generation).then_some(self.generation);
        missing
    }
}

/// Writes all of `pending` in one transaction and notes it in `content`. On an error neither is changed.
pub(super) async fn write(
    conn: &mut SqliteConnection,
    content: &mut Content,
    pending: &Pending,
) -> Result<(), sqlx::Error> {
    let mut tx = conn.begin_with("BEGIN IMMEDIATE").await?;
    let mut stored = Vec::with_capacity(pending.quality.len());
    for (key, saved) in &pending.quality {
        let now = write_quality(&mut tx, content.quality.get(key), key, saved).await?;
        stored.push((key.clone(), now));
    }
    for row in &pending.changes {
        write_change(&mut tx, row).await?;
    }
    for (key, row) in &pending.legs {
        match row {
            Some(row) => write_leg(&mut tx, row).await?,
            None => delete_leg(&mut tx, key).await?,
        }
    }
    for ((minute, whose), tally) in &pending.minutes {
        write_minute(&mut tx, *minute, whose, tally).await?;
    }
    if let Some(generation) = pending.generation {
        write_generation(&mut tx, generation).await?;
    }
    for (key, calls) in &pending.failed {
        write_failed(&mut tx, key, calls).await?;
    }
    for (key, pinned) in &pending.pins {
        write_pin(&mut tx, key, pinned.as_ref()).await?;
    }
    for (node, row) in &pending.admins {
        write_admin(&mut tx, node, row).await?;
    }
    for (map, learnt) in &pending.learnt {
        write_learnt(&mut tx, map, learnt.as_deref()).await?;
    }
    for (key, kept) in &pending.mail {
        match kept {
            Some(kept) => write_mail(&mut tx, key, kept).await?,
            None => delete_mail(&mut tx, key).await?,
        }
    }
    tx.commit().await?;

    content.quality.extend(stored);
    for (key, row) in &pending.legs {
        match row {
            Some(row) => content.legs.insert(key.clone(), LegRow::clone(row)),
            None => content.legs.remove(key),
        };
    }
    content.generation = content.generation.max(pending.generation.unwrap_or(0));
    for (key, pinned) in &pending.pins {
        match pinned {
            Some(pinned) => content.pins.insert(key.clone(), pinned.clone()),
            None => content.pins.remove(key),
        };
    }
    content.admins.extend(pending.admins.clone());
    for (map, learnt) in &pending.learnt {
        match learnt {
            Some(learnt) => content.learnt.insert(map.clone(), Learnt::clone(learnt)),
            None => content.learnt.remove(map),
        };
    }
    for (key, kept) in &pending.mail {
        match kept {
            Some(kept) => content.mail.insert(key.clone(), kept.clone()),
            None => content.mail.remove(key),
        };
    }
    Ok(())
}

// ===== quality =====

async fn write_quality(
    tx: &mut SqliteTransaction<'_>,
    before: Option<&Stored>,
    key: &QualityKey,
    saved: &Saved,
) -> Result<Stored, sqlx::Error> {
    let Some(before) = before else {
        let id = upsert_quality(tx, key, saved).await?;
        let window = write_list(tx, id, List::Window, (&[], Rows::InDisorder), &saved.window).await?;
        let batch = write_list(tx, id, List::Batch, (&[], Rows::InDisorder), &saved.batch).await?;
        return Ok(Stored { id, saved: saved.clone(), window, batch });
    };
    if !same_but_for_samples(&before.saved, saved) {
        upsert_quality(tx, key, saved).await?;
    }
    let id = before.id;
    let window = write_list(tx, id, List::Window, (&before.saved.window, before.window), &saved.window).await?;
    let batch = write_list(tx, id, List::Batch, (&before.saved.batch, before.batch), &saved.batch).await?;
    Ok(Stored { id, saved: saved.clone(), window, batch })
}

/// Whether everything that stands in the connection's own row is equal. Names every field, so that a new one is not
/// forgotten here.
fn same_but_for_samples(a: &Saved, b: &Saved) -> bool {
    let Saved {
        settings,
        state,
        since,
        epochs,
        measured_from,
        window: _,
        batch: _,
        interval_from,
        bad_in_row,
        turned_bad_at,
    } = a;
    *settings == b.settings
        && *state == b.state
        && *since == b.since
        && *epochs == b.epochs
        && *measured_from == b.measured_from
        && *interval_from == b.interval_from
        && *bad_in_row == b.bad_in_row
        && *turned_bad_at == b.turned_bad_at
}

async fn upsert_quality(tx: &mut SqliteTransaction<'_>, key: &QualityKey, saved: &Saved) -> Result<i64, sqlx::Error> {
    let Saved {
        settings,
        state,
        since,
        epochs,
        measured_from,
        window: _,
        batch: _,
        interval_from,
        bad_in_row,
        turned_bad_at,
    } = saved;
    sqlx::query_scalar(
        "INSERT INTO quality (connection, map, state, since, epochs, measured_from, interval_from, bad_in_row, settings,
             turned_bad_at)
         VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?)
         ON CONFLICT (connection, map) DO UPDATE SET
             state = excluded.state, since = excluded.since, epochs = excluded.epochs,
             measured_from = excluded.measured_from, interval_from = excluded.interval_from,
             bad_in_row = excluded.bad_in_row, settings = excluded.settings,
             turned_bad_at = excluded.turned_bad_at
         RETURNING id",
    )
    .bind(key.connection.as_str())
    .bind(map_text(key))
    .bind(word(state))
    .bind(since.as_micros())
    .bind(json(epochs))
    .bind(int(measured_from.0))
    .bind(interval_from.as_micros())
    .bind(bad_in_row)
    .bind(json(settings))
    .bind(turned_bad_at.map(Timestamp::as_micros))
    .fetch_one(&mut **tx)
    .await
}

/// Makes a list of the file, which holds `before`, hold `after`.
async fn write_list(
    tx: &mut SqliteTransaction<'_>,
    id: i64,
    list: List,
    (before, rows): (&[Sample], Rows),
    after: &[Sample],
) -> Result<Rows, sqlx::Error> {
    let (mut end, new) = match rows {
        Rows::Before(end) => {
            let kept = kept(before, after);
            if kept < before.len() {
                delete_samples(tx, id, list, end.saturating_sub_unsigned(kept as u64)).await?;
            }
            (end, &after[kept..])
        }
        Rows::InDisorder => {
            delete_samples(tx, id, list, i64::MAX).await?;
            (0, after)
        }
    };
    for sample in new {
        insert_sample(tx, (id, list, end), sample).await?;
        end += 1;
    }
    Ok(Rows::Before(end))
}

/// How many of the last samples of `before` are the first ones of `after`: a list drops from its front and grows at its
/// end.
fn kept(before: &[Sample], after: &[Sample]) -> usize {
    let tail = (0..=before.len()).map(|dropped| &before[dropped..]).find(|tail| after.starts_with(tail));
    tail.map_or(0, <[Sample]>::len)
}

async fn delete_samples(
    tx: &mut SqliteTransaction<'_>,
    id: i64,
    list: List,
    before_position: i64,
) -> Result<(), sqlx::Error> {
    sqlx::query("DELETE FROM sample WHERE quality = ? AND list = ? AND position < ?")
        .bind(id)
        .bind(list.word())
        .bind(before_position)
        .execute(&mut **tx)
        .await?;
    Ok(())
}

async fn insert_sample(
    tx: &mut SqliteTransaction<'_>,
    (id, list, position): (i64, List, i64),
    sample: &Sample,
) -> Result<(), sqlx::Error> {
    let Sample { epoch, placed_at, ended_at, outcome, duration_ms, pdd_ms, cause, sip_status } = sample;
    sqlx::query(
        "INSERT INTO sample (quality, list, position, epoch, placed_at, ended_at, outcome, duration_ms, pdd_ms, cause, sip_status)
         VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
    )
    .bind(id)
    .bind(list.word())
    .bind(position)
    .bind(int(epoch.0))
    .bind(placed_at.as_micros())
    .bind(ended_at.as_micros())
    .bind(word(outcome))
    .bind(duration_ms.map(int))
    .bind(pdd_ms.map(int))
    .bind(*cause)
    .bind(*sip_status)
    .execute(&mut **tx)
    .await?;
    Ok(())
}

// ===== history, legs, sums, generation =====

async fn write_change(tx: &mut SqliteTransaction<'_>, row: &ChangeRow) -> Result<(), sqlx::Error> {
    let Change { at, from, to, reason, epoch, figures } = &row.change;
    let Figures { calls, asr, acd, pdd, ner } = *figures;
    sqlx::query(
        "INSERT INTO change (at, connection, map, from_state, to_state, reason, epoch, calls, asr, acd, pdd, ner, words, who)
         VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
    )
    .bind(at.as_micros())
    .bind(row.key.connection.as_str())
    .bind(map_text(&row.key))
    .bind(word(from))
    .bind(word(to))
    .bind(word(reason))
    .bind(int(epoch.0))
    .bind(int(calls as u64))
    .bind(asr)
    .bind(acd)
    .bind(pdd)
    .bind(ner)
    .bind(&*row.words)
    .bind(&*row.who)
    .execute(&mut **tx)
    .await?;
    Ok(())
}

async fn write_leg(tx: &mut SqliteTransaction<'_>, row: &LegRow) -> Result<(), sqlx::Error> {
    let LegRow { node, leg, trunk, map, number, placed_at, ringing_at, answered_at, epoch } = row;
    sqlx::query(
        "INSERT OR REPLACE INTO leg (node, leg, trunk, map, number, placed_at, ringing_at, answered_at, epoch)
         VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)",
    )
    .bind(node.as_str())
    .bind(leg.as_str())
    .bind(&**trunk)
    .bind(map.as_deref())
    .bind(number.as_deref())
    .bind(placed_at.as_micros())
    .bind(ringing_at.map(Timestamp::as_micros))
    .bind(answered_at.map(Timestamp::as_micros))
    .bind(epoch.map(|epoch| int(epoch.0)))
    .execute(&mut **tx)
    .await?;
    Ok(())
}

async fn delete_leg(tx: &mut SqliteTransaction<'_>, (node, leg): &LegKey) -> Result<(), sqlx::Error> {
    let delete = sqlx::query("DELETE FROM leg WHERE node = ? AND leg = ?");
    delete.bind(node.as_str()).bind(leg.as_str()).execute(&mut **tx).await?;
    Ok(())
}

async fn write_minute(
    tx: &mut SqliteTransaction<'_>,
    minute: i64,
    whose: &Whose,
    tally: &Tally,
) -> Result<(), sqlx::Error> {
    let (kind, name, map) = match whose {
        Whose::Connection(key) => ("connection", key.connection.as_str(), map_text(key)),
        Whose::Node(node) => ("node", node.as_str(), ""),
    };
    let Tally { calls, successes, talks, talk_ms, delays, delay_ms, effective, ineffective, outcomes, max_active } =
        *tally;
    let mut upsert = sqlx::query(
        "INSERT INTO minute (kind, name, map, minute, calls, successes, talks, talk_ms, delays, delay_ms, effective,
             ineffective, answered, busy, no_answer, rejected, number_invalid, vendor_failed, caller_gone, lost_race,
             not_sent, lost, max_active)
         VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)
         ON CONFLICT (kind, name, map, minute) DO UPDATE SET
             calls = calls + excluded.calls, successes = successes + excluded.successes,
             talks = talks + excluded.talks, talk_ms = talk_ms + excluded.talk_ms,
             delays = delays + excluded.delays, delay_ms = delay_ms + excluded.delay_ms,
             effective = effective + excluded.effective, ineffective = ineffective + excluded.ineffective,
             answered = answered + excluded.answered, busy = busy + excluded.busy,
             no_answer = no_answer + excluded.no_answer, rejected = rejected + excluded.rejected,
             number_invalid = number_invalid + excluded.number_invalid,
             vendor_failed = vendor_failed + excluded.vendor_failed, caller_gone = caller_gone + excluded.caller_gone,
             lost_race = lost_race + excluded.lost_race, not_sent = not_sent + excluded.not_sent,
             lost = lost + excluded.lost, max_active = max(max_active, excluded.max_active)",
    )
    .bind(kind)
    .bind(name)
    .bind(map)
    .bind(minute);
    let sums = [calls, successes, talks, talk_ms, delays, delay_ms, effective, ineffective];
    for sum in sums.into_iter().chain(outcomes).chain([max_active]) {
        upsert = upsert.bind(int(sum));
    }
    upsert.execute(&mut **tx).await?;
    Ok(())
}

async fn write_generation(tx: &mut SqliteTransaction<'_>, generation: u64) -> Result<(), sqlx::Error> {
    sqlx::query(
        "INSERT INTO meta (name, value) VALUES ('generation', ?)
         ON CONFLICT (name) DO UPDATE SET value = max(value, excluded.value)",
    )
    .bind(int(generation))
    .execute(&mut **tx)
    .await?;
    Ok(())
}

// ===== failed calls, mail =====

async fn write_failed(
    tx: &mut SqliteTransaction<'_>,
    key: &QualityKey,
    calls: &VecDeque<FailedCall>,
) -> Result<(), sqlx::Error> {
    for FailedCall { at, node, number, outcome, cause, sip_status } in calls {
        sqlx::query(
            "INSERT INTO failed_call (connection, map, at, node, number, outcome, cause, sip_status)
             VALUES (?, ?, ?, ?, ?, ?, ?, ?)",
        )
        .bind(key.connection.as_str())
        .bind(map_text(key))
        .bind(at.as_micros())
        .bind(node.as_str())
        .bind(number.as_deref())
        .bind(word(outcome))
        .bind(*cause)
        .bind(*sip_status)
        .execute(&mut **tx)
        .await?;
    }
    sqlx::query(
        "DELETE FROM failed_call WHERE connection = ?1 AND map = ?2 AND id <= (
             SELECT id FROM failed_call WHERE connection = ?1 AND map = ?2 ORDER BY id DESC LIMIT 1 OFFSET ?3)",
    )
    .bind(key.connection.as_str())
    .bind(map_text(key))
    .bind(int(FAILED_CALLS as u64))
    .execute(&mut **tx)
    .await?;
    Ok(())
}

async fn write_pin(
    tx: &mut SqliteTransaction<'_>,
    key: &QualityKey,
    pinned: Option<&Pinned>,
) -> Result<(), sqlx::Error> {
    let query = match pinned {
        None => sqlx::query("DELETE FROM pin WHERE connection = ? AND map = ?")
            .bind(key.connection.as_str())
            .bind(map_text(key)),
        Some(Pinned { pin, who, why, since, until }) => sqlx::query(
            "INSERT OR REPLACE INTO pin (connection, map, pin, who, why, since, until) VALUES (?, ?, ?, ?, ?, ?, ?)",
        )
        .bind(key.connection.as_str())
        .bind(map_text(key))
        .bind(word(pin))
        .bind(&**who)
        .bind(&**why)
        .bind(since.as_micros())
        .bind(until.map(Timestamp::as_micros)),
    };
    query.execute(&mut **tx).await?;
    Ok(())
}

async fn write_admin(tx: &mut SqliteTransaction<'_>, node: &NodeId, row: &AdminRow) -> Result<(), sqlx::Error> {
    let AdminRow { admin, who, why, since } = row;
    sqlx::query("INSERT OR REPLACE INTO node_admin (node, admin, who, why, since) VALUES (?, ?, ?, ?, ?)")
        .bind(node.as_str())
        .bind(word(admin))
        .bind(&**who)
        .bind(&**why)
        .bind(since.as_micros())
        .execute(&mut **tx)
        .await?;
    Ok(())
}

async fn write_learnt(tx: &mut SqliteTransaction<'_>, map: &MapId, learnt: Option<&Learnt>) -> Result<(), sqlx::Error> {
    let query = match learnt {
        None => sqlx::query("DELETE FROM learnt WHERE map = ?").bind(map.as_str()),
        Some(learnt) => {
            let body = serde_json::to_string(learnt).map_err(|error| sqlx::Error::Encode(Box::new(error)))?;
            sqlx::query("INSERT OR REPLACE INTO learnt (map, body) VALUES (?, ?)").bind(map.as_str()).bind(body)
        }
    };
    query.execute(&mut **tx).await?;
    Ok(())
}

async fn write_mail(tx: &mut SqliteTransaction<'_>, key: &KeptKey, kept: &Kept) -> Result<(), sqlx::Error> {
    let body = kept.body().map_err(|error| sqlx::Error::Encode(Box::new(error)))?;
    sqlx::query("INSERT OR REPLACE INTO outbox (kind, name, body) VALUES (?, ?, ?)")
        .bind(key.kind.word())
        .bind(&key.name)
        .bind(body)
        .execute(&mut **tx)
        .await?;
    Ok(())
}

async fn delete_mail(tx: &mut SqliteTransaction<'_>, key: &KeptKey) -> Result<(), sqlx::Error> {
    let delete = sqlx::query("DELETE FROM outbox WHERE kind = ? AND name = ?");
    delete.bind(key.kind.word()).bind(&key.name).execute(&mut **tx).await?;
    Ok(())
}

// ===== reading back =====

/// Reads everything that stands for a state, and the latest changes.
pub(super) async fn read(conn: &mut SqliteConnection) -> Result<(Content, Restored), sqlx::Error> {
    let mut tx = conn.begin().await?;
    let mut restored = Restored::default();
    let content = Content {
        quality: read_quality(&mut tx, &mut restored.unreadable).await?,
        legs: read_legs(&mut tx, &mut restored.unreadable).await?,
        generation: read_generation(&mut tx).await?,
        mail: read_mail(&mut tx, &mut restored.unreadable).await?,
        pins: read_pins(&mut tx, &mut restored.unreadable).await?,
        admins: read_admins(&mut tx, &mut restored.unreadable).await?,
        learnt: read_learnt(&mut tx, &mut restored.unreadable).await?,
    };
    restored.failed = read_failed(&mut tx, &mut restored.unreadable).await?;
    restored.changes = read_changes(&mut tx, CHANGES_RESTORED, &mut restored.unreadable).await?;
    tx.rollback().await?;
    restored.generation = content.generation;
    restored.machines = content.quality.iter().map(|(key, stored)| (key.clone(), stored.saved.clone())).collect();
    restored.pins = content.pins.clone().into_iter().collect();
    restored.admins = content.admins.clone().into_iter().collect();
    restored.learnt = content.learnt.clone().into_iter().collect();
    restored.mail = content.mail.values().cloned().collect();
    restored.machines.sort_by(|(a, _), (b, _)| a.cmp(b));
    restored.legs = content.legs.values().cloned().collect();
    restored.legs.sort_by(|a, b| (a.placed_at, &a.node, &a.leg).cmp(&(b.placed_at, &b.node, &b.leg)));
    Ok((content, restored))
}

/// The rows that say something to us; the others are counted and left alone.
fn readable<'a, T>(
    rows: &'a [SqliteRow],
    read: impl Fn(&SqliteRow) -> Result<T, BadRow> + 'a,
    unreadable: &'a mut usize,
) -> impl Iterator<Item = T> + 'a {
    rows.iter().filter_map(move |row| read(row).inspect_err(|_| *unreadable += 1).ok())
}

async fn read_generation(tx: &mut SqliteTransaction<'_>) -> Result<u64, sqlx::Error> {
    let value: Option<i64> = sqlx::query_scalar("SELECT CAST(value AS INTEGER) FROM meta WHERE name = 'generation'")
        .fetch_optional(&mut **tx)
        .await?;
    Ok(uint(value.unwrap_or(0)))
}

async fn read_quality(
    tx: &mut SqliteTransaction<'_>,
    unreadable: &mut usize,
) -> Result<HashMap<QualityKey, Stored>, sqlx::Error> {
    let rows = sqlx::query("SELECT * FROM quality").fetch_all(&mut **tx).await?;
    let mut stored: HashMap<i64, (QualityKey, Stored)> = HashMap::with_capacity(rows.len());
    for row in &rows {
        match quality_of(row) {
            Ok((key, quality)) => {
                stored.insert(quality.id, (key, quality));
            }
            Err(_) => *unreadable += 1,
        }
    }
    let samples = sqlx::query("SELECT * FROM sample ORDER BY quality, list, position").fetch_all(&mut **tx).await?;
    for row in &samples {
        let Some((_, quality)) = stored.get_mut(&row.try_get("quality")?) else { continue };
        let batch = row.try_get::<&str, _>("list")? == List::Batch.word();
        let (samples, rows) = if batch {
            (&mut quality.saved.batch, &mut quality.batch)
        } else {
            (&mut quality.saved.window, &mut quality.window)
        };
        let position: i64 = row.try_get("position")?;
        *rows = match (*rows, samples.is_empty()) {
            (Rows::Before(_), true) => Rows::Before(position.saturating_add(1)),
            (Rows::Before(end), false) if end == position => Rows::Before(position.saturating_add(1)),
            _ => Rows::InDisorder,
        };
        match sample_of(row) {
            Ok(sample) => samples.push(sample),
            Err(_) => {
                *unreadable += 1;
                *rows = Rows::InDisorder;
            }
        }
    }
    Ok(stored.into_values().collect())
}

fn quality_of(row: &SqliteRow) -> Result<(QualityKey, Stored), BadRow> {
    let saved = Saved {
        settings: serde_json::from_str(row.try_get("settings")?)?,
        state: from_word(row.try_get("state")?)?,
        since: Timestamp::from_micros(row.try_get("since")?),
        epochs: serde_json::from_str(row.try_get("epochs")?)?,
        measured_from: Epoch(uint(row.try_get("measured_from")?)),
        window: Vec::new(),
        batch: Vec::new(),
        interval_from: Timestamp::from_micros(row.try_get("interval_from")?),
        bad_in_row: row.try_get("bad_in_row")?,
        turned_bad_at: row.try_get::<Option<i64>, _>("turned_bad_at")?.map(Timestamp::from_micros),
    };
    let stored = Stored { id: row.try_get("id")?, saved, window: Rows::Before(0), batch: Rows::Before(0) };
    Ok((key_of(row)?, stored))
}

fn sample_of(row: &SqliteRow) -> Result<Sample, BadRow> {
    Ok(Sample {
        epoch: Epoch(uint(row.try_get("epoch")?)),
        placed_at: Timestamp::from_micros(row.try_get("placed_at")?),
        ended_at: Timestamp::from_micros(row.try_get("ended_at")?),
        outcome: from_word(row.try_get("outcome")?)?,
        duration_ms: row.try_get::<Option<i64>, _>("duration_ms")?.map(uint),
        pdd_ms: row.try_get::<Option<i64>, _>("pdd_ms")?.map(uint),
        cause: row.try_get("cause")?,
        sip_status: row.try_get("sip_status")?,
    })
}

async fn read_legs(
    tx: &mut SqliteTransaction<'_>,
    unreadable: &mut usize,
) -> Result<HashMap<LegKey, LegRow>, sqlx::Error> {
    let rows = sqlx::query("SELECT * FROM leg").fetch_all(&mut **tx).await?;
    let legs = readable(&rows, leg_of, unreadable);
    Ok(legs.map(|leg| ((leg.node.clone(), leg.leg.clone()), leg)).collect())
}

fn leg_of(row: &SqliteRow) -> Result<LegRow, BadRow> {
    Ok(LegRow {
        node: NodeId::new(row.try_get("node")?)?,
        leg: LegId::new(row.try_get("leg")?),
        trunk: row.try_get::<&str, _>("trunk")?.into(),
        map: row.try_get::<Option<&str>, _>("map")?.map(Into::into),
        number: row.try_get::<Option<&str>, _>("number")?.map(Into::into),
        placed_at: Timestamp::from_micros(row.try_get("placed_at")?),
        ringing_at: row.try_get::<Option<i64>, _>("ringing_at")?.map(Timestamp::from_micros),
        answered_at: row.try_get::<Option<i64>, _>("answered_at")?.map(Timestamp::from_micros),
        epoch: row.try_get::<Option<i64>, _>("epoch")?.map(|epoch| Epoch(uint(epoch))),
    })
}

async fn read_changes(
    tx: &mut SqliteTransaction<'_>,
    limit: u32,
    unreadable: &mut usize,
) -> Result<Vec<ChangeRow>, sqlx::Error> {
    let rows = sqlx::query("SELECT * FROM change ORDER BY id DESC LIMIT ?").bind(limit).fetch_all(&mut **tx).await?;
    Ok(readable(&rows, change_of, unreadable).collect())
}

pub(super) fn change_of(row: &SqliteRow) -> Result<ChangeRow, BadRow> {
    let figures = Figures {
        calls: usize::try_from(row.try_get::<i64, _>("calls")?).unwrap_or(0),
        asr: row.try_get("asr")?,
        acd: row.try_get("acd")?,
        pdd: row.try_get("pdd")?,
        ner: row.try_get("ner")?,
    };
    let change = Change {
        at: Timestamp::from_micros(row.try_get("at")?),
        from: from_word(row.try_get("from_state")?)?,
        to: from_word(row.try_get("to_state")?)?,
        reason: from_word(row.try_get("reason")?)?,
        epoch: Epoch(uint(row.try_get("epoch")?)),
        figures,
    };
    let words = row.try_get::<&str, _>("words")?.into();
    let who = row.try_get::<&str, _>("who")?.into();
    Ok(ChangeRow { key: key_of(row)?, change, words, who })
}

async fn read_failed(
    tx: &mut SqliteTransaction<'_>,
    unreadable: &mut usize,
) -> Result<Vec<(QualityKey, FailedCall)>, sqlx::Error> {
    let rows = sqlx::query("SELECT * FROM failed_call ORDER BY id DESC").fetch_all(&mut **tx).await?;
    Ok(readable(&rows, failed_of, unreadable).collect())
}

fn failed_of(row: &SqliteRow) -> Result<(QualityKey, FailedCall), BadRow> {
    let call = FailedCall {
        at: Timestamp::from_micros(row.try_get("at")?),
        node: NodeId::new(row.try_get("node")?)?,
        number: row.try_get::<Option<&str>, _>("number")?.map(Into::into),
        outcome: from_word(row.try_get("outcome")?)?,
        cause: row.try_get("cause")?,
        sip_status: row.try_get("sip_status")?,
    };
    Ok((key_of(row)?, call))
}

async fn read_pins(
    tx: &mut SqliteTransaction<'_>,
    unreadable: &mut usize,
) -> Result<HashMap<QualityKey, Pinned>, sqlx::Error> {
    let rows = sqlx::query("SELECT * FROM pin").fetch_all(&mut **tx).await?;
    Ok(readable(&rows, pin_of, unreadable).collect())
}

fn pin_of(row: &SqliteRow) -> Result<(QualityKey, Pinned), BadRow> {
    let pinned = Pinned {
        pin: from_word(row.try_get("pin")?)?,
        who: row.try_get::<&str, _>("who")?.into(),
        why: row.try_get::<&str, _>("why")?.into(),
        since: Timestamp::from_micros(row.try_get("since")?),
        until: row.try_get::<Option<i64>, _>("until")?.map(Timestamp::from_micros),
    };
    Ok((key_of(row)?, pinned))
}

async fn read_admins(
    tx: &mut SqliteTransaction<'_>,
    unreadable: &mut usize,
) -> Result<HashMap<NodeId, AdminRow>, sqlx::Error> {
    let rows = sqlx::query("SELECT * FROM node_admin").fetch_all(&mut **tx).await?;
    Ok(readable(&rows, admin_of, unreadable).collect())
}

fn admin_of(row: &SqliteRow) -> Result<(NodeId, AdminRow), BadRow> {
    let admin = AdminRow {
        admin: from_word(row.try_get("admin")?)?,
        who: row.try_get::<&str, _>("who")?.into(),
        why: row.try_get::<&str, _>("why")?.into(),
        since: Timestamp::from_micros(row.try_get("since")?),
    };
    Ok((NodeId::new(row.try_get("node")?)?, admin))
}

async fn read_learnt(
    tx: &mut SqliteTransaction<'_>,
    unreadable: &mut usize,
) -> Result<HashMap<MapId, Learnt>, sqlx::Error> {
    let rows = sqlx::query("SELECT * FROM learnt").fetch_all(&mut **tx).await?;
    Ok(readable(&rows, learnt_of, unreadable).collect())
}

fn learnt_of(row: &SqliteRow) -> Result<(MapId, Learnt), BadRow> {
    let learnt = serde_json::from_str(row.try_get("body")?)?;
    Ok((MapId::new(row.try_get("map")?)?, learnt))
}

async fn read_mail(
    tx: &mut SqliteTransaction<'_>,
    unreadable: &mut usize,
) -> Result<HashMap<KeptKey, Kept>, sqlx::Error> {
    let rows = sqlx::query("SELECT * FROM outbox").fetch_all(&mut **tx).await?;
    Ok(readable(&rows, mail_of, unreadable).collect())
}

fn mail_of(row: &SqliteRow) -> Result<(KeptKey, Kept), BadRow> {
    let word: &str = row.try_get("kind")?;
    let kind = KeptKind::ALL.into_iter().find(|kind| kind.word() == word).ok_or(BadRow)?;
    let name = row.try_get("name")?;
    Ok((KeptKey { kind, name }, Kept::read(kind, row.try_get("body")?)?))
}

fn key_of(row: &SqliteRow) -> Result<QualityKey, BadRow> {
    let map: &str = row.try_get("map")?;
    let map = if map.is_empty() { None } else { Some(MapId::new(map)?) };
    Ok(QualityKey { connection: ConnectionId::new(row.try_get("connection")?)?, map })
}

// ===== pruning =====

/// Deletes changes older than `oldest`.
pub(super) async fn prune_changes(conn: &mut SqliteConnection, oldest: Timestamp) -> Result<(), sqlx::Error> {
    sqlx::query("DELETE FROM change WHERE at < ?").bind(oldest.as_micros()).execute(conn).await?;
    Ok(())
}

/// The owner of sums that follows `after` in the order of the table.
pub(super) async fn next_owner(conn: &mut SqliteConnection, after: &Owner) -> Result<Option<Owner>, sqlx::Error> {
    sqlx::query_as(
        "SELECT kind, name, map FROM minute WHERE (kind, name, map) > (?, ?, ?) ORDER BY kind, name, map LIMIT 1",
    )
    .bind(&after.0)
    .bind(&after.1)
    .bind(&after.2)
    .fetch_optional(conn)
    .await
}

/// Kind, name and map of an owner of sums.
pub(super) type Owner = (String, String, String);

/// Deletes the owner's sums of minutes before `oldest`.
pub(super) async fn prune_minutes(conn: &mut SqliteConnection, owner: &Owner, oldest: i64) -> Result<(), sqlx::Error> {
    sqlx::query("DELETE FROM minute WHERE kind = ? AND name = ? AND map = ? AND minute < ?")
        .bind(&owner.0)
        .bind(&owner.1)
        .bind(&owner.2)
        .bind(oldest)
        .execute(conn)
        .await?;
    Ok(())
}

// ===== values =====

/// Why a row does not say anything to us.
#[derive(Debug)]
pub(super) struct BadRow;

impl<E: std::error::Error> From<E> for BadRow {
    fn from(_: E) -> Self {
        Self
    }
}

pub(super) fn map_text(key: &QualityKey) -> &str {
    key.map.as_ref().map_or("", MapId::as_str)
}

/// SQLite's integers end at 2^63.
fn int(value: u64) -> i64 {
    i64::try_from(value).unwrap_or(i64::MAX)
}

pub(super) fn uint(value: i64) -> u64 {
    u64::try_from(value).unwrap_or(0)
}

/// The word of an enum, as in JSON.
pub(super) fn word<T: Serialize>(value: &T) -> String {
    match serde_json::to_value(value) {
        Ok(serde_json::Value::String(word)) => word,
        _ => String::new(),
    }
}

fn from_word<T: DeserializeOwned>(word: &str) -> Result<T, WordError> {
    let deserializer: StrDeserializer<'_, WordError> = word.into_deserializer();
    T::deserialize(deserializer)
}

fn json<T: Serialize>(value: &T) -> String {
    serde_json::to_string(value).unwrap_or_default()
}
