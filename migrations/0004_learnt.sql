-- What the dynamic routing rule of a map learnt of its routes. One row a map: it changes with every call, all of it
-- belongs together, and it is only ever read and written whole.
CREATE TABLE learnt (
    map         TEXT PRIMARY KEY,
    body        TEXT NOT NULL CHECK (json_valid(body))  -- fingerprint of the maps and rules; values of each route
) STRICT, WITHOUT ROWID;
