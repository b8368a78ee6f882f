-- What operators said: it holds over a restart. All times are microseconds since the Unix epoch (UTC).

-- How a connection is routed whatever its figures are.
CREATE TABLE pin (
    connection TEXT NOT NULL,
    map        TEXT NOT NULL,
    pin        TEXT NOT NULL,
    who        TEXT NOT NULL,
    why        TEXT NOT NULL,
    since      INTEGER NOT NULL,
    until      INTEGER,            -- NULL: until somebody says otherwise
    PRIMARY KEY (connection, map)
) STRICT, WITHOUT ROWID;

-- Whether a node takes calls; no row: it does.
CREATE TABLE node_admin (
    node  TEXT PRIMARY KEY,
    admin TEXT NOT NULL,
    who   TEXT NOT NULL,
    why   TEXT NOT NULL,
    since INTEGER NOT NULL
) STRICT, WITHOUT ROWID;
