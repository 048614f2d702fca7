-- Sessions of clients. They belong to an owner and to no task.

CREATE TABLE session (
    id TEXT NOT NULL PRIMARY KEY,
    owner INTEGER NOT NULL,
    version INTEGER NOT NULL,
    used_at INTEGER NOT NULL,
    body BLOB NOT NULL              -- its binding's; last, since it can be long
) STRICT;
-- How many an owner has.
CREATE INDEX session_owner ON session (owner);
-- Expiry.
CREATE INDEX session_used ON session (used_at);
