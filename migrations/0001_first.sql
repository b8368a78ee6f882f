PRAGMA application_id = 1886678382; -- "ptmn": how pointsman knows its own files

-- What survives a restart, and the history.
--
-- All times are microseconds since the Unix epoch (UTC) unless a column says otherwise. A map is '' where a connection
-- is judged over all maps. Words (states, outcomes, reasons) are those of the JSON output. Optional figures are NULL.

-- Single values.
CREATE TABLE meta (
    name  TEXT PRIMARY KEY,
    value ANY NOT NULL
) STRICT, WITHOUT ROWID;

-- How each connection stands.
CREATE TABLE quality (
    id            INTEGER PRIMARY KEY,
    connection    TEXT NOT NULL,
    map           TEXT NOT NULL,
    state         TEXT NOT NULL,
    since         INTEGER NOT NULL,
    epochs        TEXT NOT NULL CHECK (json_valid(epochs)),    -- beginnings of the latest epochs: [[epoch, time], ..]
    measured_from INTEGER NOT NULL,                            -- epoch
    interval_from INTEGER NOT NULL,
    bad_in_row    INTEGER NOT NULL,
    settings      TEXT NOT NULL CHECK (json_valid(settings)),  -- what it was judged by, to notice a change of it
    UNIQUE (connection, map)
) STRICT;

-- The attempts that a connection is judged by, one row each, oldest end first.
CREATE TABLE sample (
    quality     INTEGER NOT NULL REFERENCES quality (id) ON DELETE CASCADE,
    list        TEXT NOT NULL CHECK (list IN ('window', 'batch')),
    position    INTEGER NOT NULL,
    epoch       INTEGER NOT NULL,
    placed_at   INTEGER NOT NULL,
    ended_at    INTEGER NOT NULL,
    outcome     TEXT NOT NULL,
    duration_ms INTEGER,
    pdd_ms      INTEGER,
    cause       INTEGER,
    sip_status  INTEGER,
    PRIMARY KEY (quality, list, position)
) STRICT, WITHOUT ROWID;

-- The legs that are up: a call that outlives a restart of pointsman keeps its epoch and its times.
CREATE TABLE leg (
    node        TEXT NOT NULL,
    leg         TEXT NOT NULL,
    trunk       TEXT NOT NULL,
    map         TEXT,
    number      TEXT,
    placed_at   INTEGER NOT NULL,
    ringing_at  INTEGER,
    answered_at INTEGER,
    epoch       INTEGER,
    PRIMARY KEY (node, leg)
) STRICT, WITHOUT ROWID;

-- What changed, when, why, by which figures and by whom.
CREATE TABLE change (
    id         INTEGER PRIMARY KEY,
    at         INTEGER NOT NULL,
    connection TEXT NOT NULL,
    map        TEXT NOT NULL,
    from_state TEXT NOT NULL,
    to_state   TEXT NOT NULL,
    reason     TEXT NOT NULL,
    epoch      INTEGER NOT NULL,
    calls      INTEGER NOT NULL,
    asr        REAL,
    acd        REAL,
    pdd        REAL,
    ner        REAL,
    words      TEXT NOT NULL,
    who        TEXT NOT NULL
) STRICT;

CREATE INDEX change_at ON change (at);

-- Sums over the attempts that ended in one minute, per connection and per node. ASR = successes / calls,
-- ACD = talk_ms / talks, PDD = delay_ms / delays, NER = effective / (effective + ineffective).
CREATE TABLE minute (
    kind           TEXT NOT NULL CHECK (kind IN ('connection', 'node')),
    name           TEXT NOT NULL,
    map            TEXT NOT NULL,
    minute         INTEGER NOT NULL,     -- minutes since the Unix epoch
    calls          INTEGER NOT NULL,     -- attempts that count as calls sent
    successes      INTEGER NOT NULL,
    talks          INTEGER NOT NULL,     -- attempts with a known duration that is not zero
    talk_ms        INTEGER NOT NULL,
    delays         INTEGER NOT NULL,     -- attempts with a post-dial delay
    delay_ms       INTEGER NOT NULL,
    effective      INTEGER NOT NULL,
    ineffective    INTEGER NOT NULL,
    answered       INTEGER NOT NULL,
    busy           INTEGER NOT NULL,
    no_answer      INTEGER NOT NULL,
    rejected       INTEGER NOT NULL,
    number_invalid INTEGER NOT NULL,
    vendor_failed  INTEGER NOT NULL,
    caller_gone    INTEGER NOT NULL,
    lost_race      INTEGER NOT NULL,
    not_sent       INTEGER NOT NULL,
    lost           INTEGER NOT NULL,
    max_active     INTEGER NOT NULL,     -- most legs up at a time
    PRIMARY KEY (kind, name, map, minute)
) STRICT, WITHOUT ROWID;
