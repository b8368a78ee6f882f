-- Mail: what is to be told, what is being delivered, and what answers what. All times are microseconds since the Unix
-- epoch (UTC), also within `body`.

-- When a connection last turned from good to bad: a recovery tells how long it lasted.
ALTER TABLE quality ADD COLUMN turned_bad_at INTEGER;

-- The last failed calls of each connection, oldest first, at most 10. The numbers are not masked.
CREATE TABLE failed_call (
    id         INTEGER PRIMARY KEY,
    connection TEXT NOT NULL,
    map        TEXT NOT NULL,
    at         INTEGER NOT NULL,
    node       TEXT NOT NULL,
    number     TEXT,
    outcome    TEXT NOT NULL,
    cause      INTEGER,
    sip_status INTEGER
) STRICT;

CREATE INDEX failed_call_of ON failed_call (connection, map, id);

-- The outbox. `kind` says what `body` (JSON) is:
--   notice   a change that its owner is to hear of, not in a letter yet
--   letter   a mail, with each of its deliveries; the name is its Message-ID
--   thread   the Message-ID of the alarm that the next mail about its subject answers
CREATE TABLE outbox (
    kind TEXT NOT NULL CHECK (kind IN ('notice', 'letter', 'thread')),
    name TEXT NOT NULL,
    body TEXT NOT NULL CHECK (json_valid(body)),
    PRIMARY KEY (kind, name)
) STRICT, WITHOUT ROWID;
