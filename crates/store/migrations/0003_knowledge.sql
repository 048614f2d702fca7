-- What outlives tasks: memory, records, the audit, counters. All of it belongs to tenants, which are owners here.

-- A tenant's bytes of memory, what has expired and is not swept yet included.
CREATE TABLE memory_tenant (owner INTEGER PRIMARY KEY, bytes INTEGER NOT NULL) STRICT;

-- A namespace that holds something, what has expired and is not swept yet included. It is gone with its last entry.
CREATE TABLE memory_space (
    no INTEGER PRIMARY KEY,
    owner INTEGER NOT NULL,
    namespace TEXT NOT NULL,
    entries INTEGER NOT NULL,
    bytes INTEGER NOT NULL,
    UNIQUE (owner, namespace)
) STRICT;

-- An entry, without what it holds: reads are counted here, and scans pass over many.
CREATE TABLE memory (
    no INTEGER PRIMARY KEY,
    space INTEGER NOT NULL,
    key TEXT NOT NULL,
    version INTEGER NOT NULL,
    created_at INTEGER NOT NULL,
    updated_at INTEGER NOT NULL,
    accessed_at INTEGER NOT NULL,
    reads INTEGER NOT NULL,
    size INTEGER NOT NULL,          -- bytes of the value
    ttl INTEGER,
    expires_at INTEGER              -- from then on it is gone, swept or not; NULL: never
) STRICT;
-- Names, pages and patterns.
CREATE UNIQUE INDEX memory_key ON memory (space, key);
-- The oldest and the newest that have not expired.
CREATE INDEX memory_created ON memory (space, created_at, expires_at);
CREATE INDEX memory_updated ON memory (space, updated_at, expires_at);
-- What has expired: in a namespace, to be left out of its counts, and anywhere, to be swept.
CREATE INDEX memory_over ON memory (space, expires_at, size) WHERE expires_at IS NOT NULL;
CREATE INDEX memory_expiry ON memory (expires_at) WHERE expires_at IS NOT NULL;

CREATE TABLE memory_value (no INTEGER PRIMARY KEY, value TEXT NOT NULL, text TEXT NOT NULL) STRICT;

-- Words, each preceded by the number of its namespace and a colon, so that a search reads no postings but its own.
-- They are cut and folded before they come here; the tokenizer only parts them at spaces.
CREATE VIRTUAL TABLE memory_words USING fts5 (
    words, content = '', contentless_delete = 1, tokenize = "ascii tokenchars ':'"
);

CREATE TABLE record (
    no INTEGER PRIMARY KEY,
    owner INTEGER NOT NULL,
    kind TEXT NOT NULL,
    id TEXT NOT NULL,
    version INTEGER NOT NULL,
    updated_at INTEGER NOT NULL,
    expires_at INTEGER,
    body BLOB NOT NULL
) STRICT;
CREATE UNIQUE INDEX record_id ON record (kind, owner, id);
CREATE INDEX record_expiry ON record (expires_at) WHERE expires_at IS NOT NULL;

-- Numbers are never used again.
CREATE TABLE audit (
    no INTEGER PRIMARY KEY AUTOINCREMENT,
    at INTEGER NOT NULL,
    owner INTEGER NOT NULL,
    caller TEXT NOT NULL,
    origin TEXT,
    operation TEXT NOT NULL,
    action TEXT NOT NULL,
    kind TEXT NOT NULL,
    resource TEXT NOT NULL,
    refused TEXT
) STRICT;
CREATE INDEX audit_owner ON audit (owner);
CREATE INDEX audit_at ON audit (at);
-- Lines before this time may go. Set for as long as a sweep deletes, in its own transaction.
CREATE TABLE audit_horizon (one INTEGER PRIMARY KEY CHECK (one = 1), before INTEGER) STRICT;
INSERT INTO audit_horizon (one, before) VALUES (1, NULL);
CREATE TRIGGER audit_stays BEFORE UPDATE ON audit
BEGIN SELECT RAISE(ABORT, 'the audit is only appended to'); END;
CREATE TRIGGER audit_goes_by_age BEFORE DELETE ON audit
WHEN NOT ifnull(old.at < (SELECT before FROM audit_horizon), 0)
BEGIN SELECT RAISE(ABORT, 'the audit is only appended to'); END;
-- A REPLACE would delete without asking the trigger above.
CREATE TRIGGER audit_is_not_replaced BEFORE INSERT ON audit
WHEN EXISTS (SELECT 1 FROM audit WHERE no = new.no)
BEGIN SELECT RAISE(ABORT, 'the audit is only appended to'); END;

CREATE TABLE usage (name TEXT PRIMARY KEY, uses INTEGER NOT NULL, at INTEGER NOT NULL) STRICT, WITHOUT ROWID;
CREATE INDEX usage_at ON usage (at);
