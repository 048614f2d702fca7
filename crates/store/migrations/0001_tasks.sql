-- The layout. Every index on `task` costs a fifth to a half of the commit rate, so each says why it is there.
-- Times are milliseconds since 1970. Names that repeat in every row are numbers into the first two tables.

CREATE TABLE owner (no INTEGER PRIMARY KEY, name TEXT NOT NULL UNIQUE) STRICT;
CREATE TABLE agent (no INTEGER PRIMARY KEY, name TEXT NOT NULL UNIQUE) STRICT;
-- A node without a row, or past its time, is dead.
CREATE TABLE node (id BLOB PRIMARY KEY, alive_until INTEGER NOT NULL) STRICT, WITHOUT ROWID;

CREATE TABLE task (
    no INTEGER PRIMARY KEY,
    id BLOB NOT NULL,
    owner INTEGER NOT NULL,
    agent INTEGER NOT NULL,
    state INTEGER NOT NULL,         -- State::code; from 4 on it has ended
    status_at INTEGER NOT NULL,
    created_at INTEGER NOT NULL,
    seq INTEGER NOT NULL,
    version INTEGER NOT NULL,
    epoch INTEGER NOT NULL,
    node BLOB,                      -- who runs it; then due_at is set too, for whoever finds that node dead
    due_at INTEGER,                 -- when it may be claimed; NULL: it rests
    attempts INTEGER NOT NULL,
    cancel INTEGER NOT NULL,
    snap_seq INTEGER NOT NULL,      -- what the snapshot stands for; 0: there is none
    unfolded INTEGER NOT NULL,      -- bytes of log that a reader folds on top of the snapshot
    journaled INTEGER NOT NULL,     -- journal records so far
    hooks INTEGER NOT NULL,         -- webhooks; 0 spares a commit the look into their table
    context TEXT,                   -- NULL: its own (TaskId::own_context), which most tasks have
    client_id TEXT,
    idempotency TEXT,
    parent BLOB,
    head BLOB NOT NULL
) STRICT;

-- Callers name tasks by id. Ids are ordered by time, so inserts go to the right edge.
CREATE UNIQUE INDEX task_id ON task (id);
-- Lists. State and agent are in it so that filters are decided without touching a row; chunks never touch it.
CREATE INDEX task_list ON task (owner, status_at, no, state, agent);
-- Lists of what has not ended, without walking over all that has. A task born completed never enters it.
CREATE INDEX task_live ON task (owner, state, status_at, no, agent) WHERE state < 4;
-- Claims: those of nobody, then those of each dead node, by due time. Resting and ended tasks are not in it.
CREATE INDEX task_due ON task (node, due_at) WHERE due_at IS NOT NULL;
-- Lists of one conversation. Only tasks that joined one; its opener is found by its id.
CREATE INDEX task_context ON task (owner, context, status_at, no, state, agent) WHERE context IS NOT NULL;
-- Cancelling goes down to the children. Only tasks that have a parent.
CREATE INDEX task_parent ON task (parent) WHERE parent IS NOT NULL;

-- How many tasks there are of each kind, so that totals need no counting. Written once per batch and kind.
CREATE TABLE tally (
    owner INTEGER NOT NULL,
    agent INTEGER NOT NULL,
    state INTEGER NOT NULL,
    n INTEGER NOT NULL,
    PRIMARY KEY (owner, agent, state)
) STRICT, WITHOUT ROWID;

-- key = task number << 20 | first sequence number (log) or ordinal (journal): a row per task and commit,
-- next to its neighbours, without an index.
CREATE TABLE log (key INTEGER PRIMARY KEY, bytes BLOB NOT NULL) STRICT;
CREATE TABLE journal (key INTEGER PRIMARY KEY, bytes BLOB NOT NULL) STRICT;
CREATE TABLE snapshot (task INTEGER PRIMARY KEY, seq INTEGER NOT NULL, fold BLOB NOT NULL) STRICT;

CREATE TABLE client_id (
    owner INTEGER NOT NULL,
    id TEXT NOT NULL,
    task INTEGER NOT NULL,
    PRIMARY KEY (owner, id)
) STRICT, WITHOUT ROWID;

CREATE TABLE idempotency (
    owner INTEGER NOT NULL,
    key TEXT NOT NULL,
    task INTEGER NOT NULL,
    digest BLOB NOT NULL,
    PRIMARY KEY (owner, key)
) STRICT, WITHOUT ROWID;

-- A durable follower. due_at NULL: nothing to deliver. While a node delivers, due_at is the end of its lease;
-- after a failure it is the time of the retry. Either way new events leave it alone.
CREATE TABLE webhook (
    task INTEGER NOT NULL,
    id TEXT NOT NULL,
    cursor INTEGER NOT NULL,
    attempts INTEGER NOT NULL,
    due_at INTEGER,
    node BLOB,                      -- who delivers
    config BLOB NOT NULL,
    PRIMARY KEY (task, id)
) STRICT, WITHOUT ROWID;
CREATE INDEX webhook_due ON webhook (due_at) WHERE due_at IS NOT NULL;

-- A delivery that was given up. due_at is set while it is to be tried once more.
CREATE TABLE dead_letter (
    task INTEGER NOT NULL,
    webhook TEXT NOT NULL,
    seq INTEGER NOT NULL,
    delivery TEXT NOT NULL,
    reason TEXT NOT NULL,
    at INTEGER NOT NULL,
    due_at INTEGER,
    node BLOB,
    PRIMARY KEY (task, webhook, seq)
) STRICT, WITHOUT ROWID;
CREATE INDEX dead_letter_at ON dead_letter (at);
CREATE INDEX dead_letter_delivery ON dead_letter (delivery);
CREATE INDEX dead_letter_due ON dead_letter (due_at) WHERE due_at IS NOT NULL;

-- A row comes and goes here to see whether a full disk has room again.
CREATE TABLE probe (bytes BLOB NOT NULL) STRICT;
