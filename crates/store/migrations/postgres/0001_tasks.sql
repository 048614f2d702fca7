-- The layout of a store that many nodes share. Everything that belongs to a task begins with the tenant (its
-- owner's number) and the task's number, so that it can be distributed by the tenant; the tenant is also in the
-- upper bits of the number (tenant << 40 | serial), so that a number alone finds its shard.
-- Times are milliseconds since 1970 by the clock of this database.

CREATE TABLE owner (no integer GENERATED ALWAYS AS IDENTITY PRIMARY KEY, name text NOT NULL UNIQUE);
CREATE TABLE agent (no integer GENERATED ALWAYS AS IDENTITY PRIMARY KEY, name text NOT NULL UNIQUE);
-- A node without a row, or past its time, is dead.
CREATE TABLE node (id uuid PRIMARY KEY, alive_until bigint NOT NULL);
CREATE SEQUENCE task_serial;
-- What all nodes have to agree on, such as the key that webhooks are signed with.
CREATE TABLE secret (name text PRIMARY KEY, value text NOT NULL);

CREATE TABLE task (
    tenant integer NOT NULL,
    no bigint NOT NULL,
    id uuid NOT NULL,
    agent integer NOT NULL,
    state smallint NOT NULL,        -- State::code; from 4 on it has ended
    status_at bigint NOT NULL,
    created_at bigint NOT NULL,
    seq bigint NOT NULL,
    version bigint NOT NULL,
    epoch bigint NOT NULL,
    node uuid,                      -- who runs it; then due_at is set too, for whoever finds that node dead
    due_at bigint,                  -- when it may be claimed; NULL: it rests
    attempts integer NOT NULL,
    cancel boolean NOT NULL,
    stirred boolean NOT NULL,       -- somebody else wrote to it since its runner last did
    snap_seq bigint NOT NULL,       -- what the snapshot stands for; 0: there is none
    unfolded bigint NOT NULL,       -- bytes of log that a reader folds on top of the snapshot
    journaled bigint NOT NULL,      -- journal records so far
    hooks integer NOT NULL,         -- webhooks; 0 spares a commit the look into their table
    context text,                   -- NULL: its own (TaskId::own_context), which most tasks have
    client_id text,
    idempotency text,
    parent uuid,
    head bytea NOT NULL,
    PRIMARY KEY (tenant, no)
) WITH (fillfactor = 70);           -- room for the next version of a row beside it: a chunk touches no index

-- Callers name tasks by id. Ids are ordered by time, so inserts go to the right edge.
CREATE UNIQUE INDEX task_id ON task (id);
-- Lists.
CREATE INDEX task_list ON task (tenant, status_at, no);
-- Lists of what has not ended, without walking over all that has.
CREATE INDEX task_live ON task (tenant, state, status_at, no) WHERE state < 4;
-- Claims: those of nobody, then those of each dead node, by due time. Resting and ended tasks are not in it.
CREATE INDEX task_due ON task (node, due_at) WHERE due_at IS NOT NULL;
-- What a runner has to look at although nobody told it.
CREATE INDEX task_stirred ON task (node) WHERE stirred;
-- Lists of one conversation. Only tasks that joined one; its opener is found by its id.
CREATE INDEX task_context ON task (tenant, context, status_at, no) WHERE context IS NOT NULL;
-- Cancelling goes down to the children. Only tasks that have a parent.
CREATE INDEX task_parent ON task (parent) WHERE parent IS NOT NULL;
-- Expiry.
CREATE INDEX task_ended ON task (status_at) WHERE state >= 4;

-- How many tasks there are of each kind, so that totals need no counting. Each writer counts in a slot of its
-- own: one row for all of them would put their commits in a line.
CREATE TABLE tally (
    tenant integer NOT NULL,
    agent integer NOT NULL,
    state smallint NOT NULL,
    slot smallint NOT NULL,
    n bigint NOT NULL,
    PRIMARY KEY (tenant, agent, state, slot)
) WITH (fillfactor = 50);

-- A row per task and commit: the sequence number of the first event, and all of them.
CREATE TABLE log (
    tenant integer NOT NULL,
    task bigint NOT NULL,
    seq bigint NOT NULL,
    bytes bytea NOT NULL,
    PRIMARY KEY (tenant, task, seq)
);
CREATE TABLE journal (
    tenant integer NOT NULL,
    task bigint NOT NULL,
    n bigint NOT NULL,
    bytes bytea NOT NULL,
    PRIMARY KEY (tenant, task, n)
);
CREATE TABLE snapshot (
    tenant integer NOT NULL,
    task bigint NOT NULL,
    seq bigint NOT NULL,
    fold bytea NOT NULL,
    PRIMARY KEY (tenant, task)
);
CREATE TABLE client_id (
    tenant integer NOT NULL,
    id text NOT NULL,
    task bigint NOT NULL,
    PRIMARY KEY (tenant, id)
);
CREATE TABLE idempotency (
    tenant integer NOT NULL,
    key text NOT NULL,
    task bigint NOT NULL,
    digest bytea NOT NULL,
    PRIMARY KEY (tenant, key)
);

-- A durable follower. due_at NULL: nothing to deliver. While a node delivers, due_at is the end of its lease;
-- after a failure it is the time of the retry. Either way new events leave it alone.
CREATE TABLE webhook (
    tenant integer NOT NULL,
    task bigint NOT NULL,
    id text NOT NULL,
    cursor bigint NOT NULL,
    attempts integer NOT NULL,
    due_at bigint,
    node uuid,                      -- who delivers
    config bytea NOT NULL,
    PRIMARY KEY (tenant, task, id)
);
CREATE INDEX webhook_due ON webhook (due_at) WHERE due_at IS NOT NULL;

-- A delivery that was given up. due_at is set while it is to be tried once more.
CREATE TABLE dead_letter (
    tenant integer NOT NULL,
    task bigint NOT NULL,
    webhook text NOT NULL,
    seq bigint NOT NULL,
    delivery text NOT NULL,
    reason text NOT NULL,
    at bigint NOT NULL,
    due_at bigint,
    node uuid,
    PRIMARY KEY (tenant, task, webhook, seq)
);
CREATE INDEX dead_letter_at ON dead_letter (at);
CREATE INDEX dead_letter_delivery ON dead_letter (delivery);
CREATE INDEX dead_letter_due ON dead_letter (due_at) WHERE due_at IS NOT NULL;

-- What became of one change of a batch. See `commit_batch`.
CREATE TYPE outcome AS (
    ord integer,
    code smallint,                  -- 0 done, 1 exists, 2 moved, 3 fenced, 4 ended, 5 gone, 6 full
    no bigint,
    first_seq bigint,
    seq bigint,
    version bigint,
    epoch bigint,
    cancel boolean,
    unfolded bigint,
    other uuid,                     -- done: the task, where it existed before; exists: the one that is there
    digest bytea,
    hooked boolean                  -- whether webhooks have something to deliver
);

-- The last batch of each writer, and what became of it: a writer that lost its connection in the middle of a
-- commit sends the batch again, and is told instead of done twice.
CREATE TABLE writer (
    id uuid PRIMARY KEY,
    batch uuid NOT NULL,
    at bigint NOT NULL,
    outcomes outcome[]
) WITH (fillfactor = 50);

-- The time: the database's, unless a test gives one.
CREATE FUNCTION time_or(given bigint) RETURNS bigint LANGUAGE sql VOLATILE AS $$
    SELECT coalesce(given, (extract(epoch FROM clock_timestamp()) * 1000)::bigint)
$$;

-- Nodes that hold tasks and are past their time. Whoever claims is alive, whatever its last heartbeat said.
-- From one holder to the next in the index: they are few, their tasks may be many.
CREATE FUNCTION dead_nodes(claiming uuid, now bigint) RETURNS SETOF uuid LANGUAGE sql STABLE AS $$
    WITH RECURSIVE holder AS (
        (SELECT node FROM task WHERE due_at IS NOT NULL AND node IS NOT NULL ORDER BY node LIMIT 1)
        UNION ALL
        SELECT (SELECT t.node FROM task t WHERE t.due_at IS NOT NULL AND t.node > holder.node
                ORDER BY t.node LIMIT 1)
        FROM holder WHERE holder.node IS NOT NULL
    )
    SELECT holder.node FROM holder
    WHERE holder.node IS NOT NULL AND holder.node <> claiming
      AND NOT EXISTS (SELECT 1 FROM node WHERE node.id = holder.node AND node.alive_until >= now)
$$;

-- One batch of changes in one transaction and one round trip. Everything that can refuse a change is looked at
-- before its first write, under the lock of its row; the others are not concerned. Arrays of equal length
-- describe the changes, in the order of their tasks so that batches do not block each other in a circle;
-- `j_*` (journal) and `h_*` (webhooks) name the change that they belong to.
CREATE FUNCTION commit_batch(
    writer_id uuid, batch_id uuid, given bigint, slot_no smallint, max_seq bigint,
    a_tenant integer[], a_no bigint[], a_version bigint[], a_epoch bigint[],
    a_events bigint[], a_bytes bytea[], a_state smallint[], a_status_at bigint[], a_head bytea[],
    a_run smallint[], a_node uuid[], a_due_in bigint[], a_cancel boolean[], a_records integer[],
    a_id uuid[], a_agent integer[], a_created_at bigint[], a_context text[], a_client_id text[],
    a_key text[], a_digest bytea[], a_parent uuid[],
    j_ord integer[], j_bytes bytea[],
    h_ord integer[], h_id text[], h_cursor bigint[], h_config bytea[]
) RETURNS SETOF outcome LANGUAGE plpgsql AS $$
DECLARE
    now_at bigint := time_or(given);
    c record;
    t task%ROWTYPE;
    results outcome[] := '{}';
    new_no bigint;
    other_id uuid;
    other_digest bytea;
    new_state smallint;
    new_node uuid;
    new_due bigint;
    new_epoch bigint;
    new_cancel boolean;
    size bigint;
    t_tenant integer[] := '{}';
    t_agent integer[] := '{}';
    t_state smallint[] := '{}';
    t_by bigint[] := '{}';
BEGIN
    -- Waits for an earlier attempt at the same batch, if the database is still busy with it.
    INSERT INTO writer (id, batch, at) VALUES (writer_id, batch_id, now_at)
    ON CONFLICT (id) DO UPDATE SET batch = excluded.batch, at = excluded.at, outcomes = NULL
        WHERE writer.batch <> excluded.batch;
    IF NOT FOUND THEN
        RETURN QUERY SELECT (unnest(w.outcomes)).* FROM writer w WHERE w.id = writer_id;
        RETURN;
    END IF;

    FOR c IN
        SELECT * FROM unnest(a_tenant, a_no, a_version, a_epoch, a_events, a_bytes, a_state, a_status_at, a_head,
            a_run, a_node, a_due_in, a_cancel, a_records, a_id, a_agent, a_created_at, a_context, a_client_id,
            a_key, a_digest, a_parent)
        WITH ORDINALITY AS c(tenant, no, version, epoch, events, bytes, state, status_at, head, run, node,
            due_in, cancel, records, id, agent, created_at, context, client_id, key, digest, parent, ord)
    LOOP
        size := coalesce(length(c.bytes), 0);
        IF c.id IS NOT NULL THEN
            IF greatest(c.events, c.records) > max_seq THEN
                results := results || ROW(c.ord, 6, 0, 0, 0, 0, 0, false, 0, NULL, NULL, false)::outcome;
                CONTINUE;
            END IF;
            new_no := (c.tenant::bigint << 40) | nextval('task_serial');
            IF c.key IS NOT NULL THEN
                INSERT INTO idempotency (tenant, key, task, digest) VALUES (c.tenant, c.key, new_no, c.digest)
                ON CONFLICT DO NOTHING;
                IF NOT FOUND THEN
                    SELECT task.id, i.digest INTO other_id, other_digest
                    FROM idempotency i JOIN task ON task.tenant = i.tenant AND task.no = i.task
                    WHERE i.tenant = c.tenant AND i.key = c.key;
                    results := results || ROW(c.ord, 1, 0, 0, 0, 0, 0, false, 0, other_id, other_digest, false)::outcome;
                    CONTINUE;
                END IF;
            END IF;
            IF c.client_id IS NOT NULL THEN
                INSERT INTO client_id (tenant, id, task) VALUES (c.tenant, c.client_id, new_no)
                ON CONFLICT DO NOTHING;
                IF NOT FOUND THEN
                    DELETE FROM idempotency i WHERE i.tenant = c.tenant AND i.key = c.key AND i.task = new_no;
                    SELECT task.id INTO other_id
                    FROM client_id i JOIN task ON task.tenant = i.tenant AND task.no = i.task
                    WHERE i.tenant = c.tenant AND i.id = c.client_id;
                    results := results || ROW(c.ord, 1, 0, 0, 0, 0, 0, false, 0, other_id, NULL, false)::outcome;
                    CONTINUE;
                END IF;
            END IF;
            new_state := coalesce(c.state, 0);
            new_node := CASE WHEN new_state < 4 AND c.run = 1 THEN c.node END;
            new_due := CASE WHEN new_state < 4 THEN
                CASE c.run WHEN 1 THEN now_at WHEN 2 THEN now_at + c.due_in END END;
            new_epoch := CASE WHEN c.run = 1 THEN 1 ELSE 0 END;
            new_cancel := coalesce(c.cancel, false);
            INSERT INTO task (tenant, no, id, agent, state, status_at, created_at, seq, version, epoch, node,
                due_at, attempts, cancel, stirred, snap_seq, unfolded, journaled, hooks, context, client_id,
                idempotency, parent, head)
            VALUES (c.tenant, new_no, c.id, c.agent, new_state, coalesce(c.status_at, c.created_at), c.created_at,
                c.events, 1, new_epoch, new_node, new_due, 0, new_cancel, false, 0, size, c.records,
                (SELECT count(*) FROM unnest(h_ord) h WHERE h = c.ord), c.context, c.client_id, c.key, c.parent,
                coalesce(c.head, ''))
            ON CONFLICT (id) DO NOTHING;
            IF NOT FOUND THEN
                DELETE FROM idempotency i WHERE i.tenant = c.tenant AND i.key = c.key AND i.task = new_no;
                DELETE FROM client_id i WHERE i.tenant = c.tenant AND i.id = c.client_id AND i.task = new_no;
                results := results || ROW(c.ord, 1, 0, 0, 0, 0, 0, false, 0, c.id, NULL, false)::outcome;
                CONTINUE;
            END IF;
            IF c.events > 0 THEN
                INSERT INTO log (tenant, task, seq, bytes) VALUES (c.tenant, new_no, 1, c.bytes);
            END IF;
            IF c.records > 0 THEN
                INSERT INTO journal (tenant, task, n, bytes)
                SELECT c.tenant, new_no, row_number() OVER (ORDER BY j.place), j.bytes
                FROM unnest(j_ord, j_bytes) WITH ORDINALITY AS j(ord, bytes, place) WHERE j.ord = c.ord;
            END IF;
            INSERT INTO webhook (tenant, task, id, cursor, attempts, due_at, config)
            SELECT c.tenant, new_no, h.id, h.cursor, 0, CASE WHEN c.events > h.cursor THEN now_at END, h.config
            FROM unnest(h_ord, h_id, h_cursor, h_config) AS h(ord, id, cursor, config) WHERE h.ord = c.ord;
            t_tenant := t_tenant || c.tenant; t_agent := t_agent || c.agent;
            t_state := t_state || new_state; t_by := t_by || 1::bigint;
            results := results
                || ROW(c.ord, 0, new_no, 1, c.events, 1, new_epoch, new_cancel, size, NULL, NULL,
                    c.ord = ANY (h_ord))::outcome;
            CONTINUE;
        END IF;

        SELECT * INTO t FROM task WHERE task.tenant = c.tenant AND task.no = c.no FOR UPDATE;
        IF NOT FOUND THEN
            results := results || ROW(c.ord, 5, c.no, 0, 0, 0, 0, false, 0, NULL, NULL, false)::outcome;
            CONTINUE;
        END IF;
        IF t.version <> c.version THEN
            results := results || ROW(c.ord, 2, c.no, 0, 0, 0, 0, false, 0, NULL, NULL, false)::outcome;
            CONTINUE;
        END IF;
        IF c.epoch IS NOT NULL AND (t.epoch <> c.epoch OR t.state >= 4 OR t.node IS NULL) THEN
            results := results || ROW(c.ord, CASE WHEN t.epoch = c.epoch AND t.state >= 4 THEN 4 ELSE 3 END,
                c.no, 0, 0, 0, 0, false, 0, NULL, NULL, false)::outcome;
            CONTINUE;
        END IF;
        IF greatest(t.seq + c.events, t.journaled + c.records) > max_seq THEN
            results := results || ROW(c.ord, 6, c.no, 0, 0, 0, 0, false, 0, NULL, NULL, false)::outcome;
            CONTINUE;
        END IF;
        new_state := coalesce(c.state, t.state);
        new_node := CASE WHEN new_state < 4 THEN CASE c.run WHEN 0 THEN t.node WHEN 1 THEN c.node END END;
        new_due := CASE WHEN new_state < 4 THEN
            CASE c.run WHEN 0 THEN t.due_at WHEN 1 THEN now_at WHEN 2 THEN now_at + c.due_in END END;
        new_epoch := CASE WHEN c.run = 1 THEN t.epoch + 1 ELSE t.epoch END;
        new_cancel := coalesce(c.cancel, t.cancel);
        UPDATE task SET
            version = t.version + 1, seq = t.seq + c.events, unfolded = t.unfolded + size,
            attempts = CASE WHEN c.epoch IS NOT NULL AND (c.events > 0 OR c.records > 0) THEN 0
                ELSE t.attempts END,
            journaled = t.journaled + c.records, cancel = new_cancel, state = new_state,
            status_at = coalesce(c.status_at, t.status_at), head = coalesce(c.head, t.head),
            node = new_node, due_at = new_due, epoch = new_epoch,
            stirred = c.epoch IS NULL AND new_node IS NOT NULL
        WHERE task.tenant = c.tenant AND task.no = c.no;
        IF c.events > 0 THEN
            INSERT INTO log (tenant, task, seq, bytes) VALUES (c.tenant, c.no, t.seq + 1, c.bytes);
            IF t.hooks > 0 THEN
                UPDATE webhook SET due_at = now_at
                WHERE webhook.tenant = c.tenant AND webhook.task = c.no AND webhook.due_at IS NULL;
            END IF;
        END IF;
        IF c.records > 0 THEN
            INSERT INTO journal (tenant, task, n, bytes)
            SELECT c.tenant, c.no, t.journaled + row_number() OVER (ORDER BY j.place), j.bytes
            FROM unnest(j_ord, j_bytes) WITH ORDINALITY AS j(ord, bytes, place) WHERE j.ord = c.ord;
        END IF;
        IF new_state <> t.state THEN
            t_tenant := t_tenant || c.tenant || c.tenant; t_agent := t_agent || t.agent || t.agent;
            t_state := t_state || t.state || new_state; t_by := t_by || (-1)::bigint || 1::bigint;
        END IF;
        results := results || ROW(c.ord, 0, c.no, t.seq + 1, t.seq + c.events, t.version + 1, new_epoch, new_cancel,
            t.unfolded + size, t.id, NULL, t.hooks > 0 AND c.events > 0)::outcome;
    END LOOP;

    INSERT INTO tally (tenant, agent, state, slot, n)
    SELECT k.tenant, k.agent, k.state, slot_no, sum(k.by)
    FROM unnest(t_tenant, t_agent, t_state, t_by) AS k(tenant, agent, state, by)
    GROUP BY 1, 2, 3 HAVING sum(k.by) <> 0 ORDER BY 1, 2, 3
    ON CONFLICT (tenant, agent, state, slot) DO UPDATE SET n = tally.n + excluded.n;
    UPDATE writer SET outcomes = results WHERE id = writer_id;
    RETURN QUERY SELECT * FROM unnest(results);
END
$$;

-- Leases due tasks to a node: those of the dead first, then those of nobody, each oldest due first.
CREATE FUNCTION claim_tasks(me uuid, given bigint, at_most integer) RETURNS SETOF task LANGUAGE plpgsql AS $$
DECLARE
    now_at bigint := time_or(given);
    dead uuid[] := ARRAY(SELECT dead_nodes(me, now_at));
    taken integer := 0;
BEGIN
    IF cardinality(dead) > 0 THEN
        RETURN QUERY
        WITH picked AS (
            SELECT t.tenant, t.no FROM task t
            WHERE t.node = ANY (dead) AND t.due_at <= now_at
            ORDER BY t.due_at, t.no LIMIT at_most FOR UPDATE SKIP LOCKED
        )
        UPDATE task t SET node = me, epoch = t.epoch + 1, version = t.version + 1, attempts = t.attempts + 1,
            stirred = false
        FROM picked p WHERE t.tenant = p.tenant AND t.no = p.no RETURNING t.*;
        GET DIAGNOSTICS taken = ROW_COUNT;
    END IF;
    RETURN QUERY
    WITH picked AS (
        SELECT t.tenant, t.no FROM task t
        WHERE t.node IS NULL AND t.due_at <= now_at
        ORDER BY t.due_at, t.no LIMIT at_most - taken FOR UPDATE SKIP LOCKED
    )
    UPDATE task t SET node = me, epoch = t.epoch + 1, version = t.version + 1, stirred = false
    FROM picked p WHERE t.tenant = p.tenant AND t.no = p.no RETURNING t.*;
END
$$;

-- Keeps a fold, unless there is a newer one or the task is gone. What is left to fold on top of it is counted
-- again.
CREATE FUNCTION put_snapshot(a_tenant integer, a_task bigint, a_seq bigint, a_fold bytea) RETURNS void
LANGUAGE plpgsql AS $$
DECLARE
    t task%ROWTYPE;
BEGIN
    SELECT * INTO t FROM task WHERE task.tenant = a_tenant AND task.no = a_task FOR UPDATE;
    IF NOT FOUND OR t.snap_seq >= a_seq OR t.seq < a_seq THEN
        RETURN;
    END IF;
    INSERT INTO snapshot (tenant, task, seq, fold) VALUES (a_tenant, a_task, a_seq, a_fold)
    ON CONFLICT (tenant, task) DO UPDATE SET seq = excluded.seq, fold = excluded.fold;
    UPDATE task SET snap_seq = a_seq, unfolded = CASE WHEN t.seq = a_seq THEN 0 ELSE (
        SELECT coalesce(sum(length(g.bytes)), 0) FROM log g
        WHERE g.tenant = a_tenant AND g.task = a_task AND g.seq >= (
            SELECT max(f.seq) FROM log f
            WHERE f.tenant = a_tenant AND f.task = a_task AND f.seq <= a_seq + 1)) END
    WHERE task.tenant = a_tenant AND task.no = a_task;
END
$$;

-- Adds a webhook, or replaces the one with the same id: 0 done, 1 no such task, 2 too many.
CREATE FUNCTION put_webhook(given bigint, a_tenant integer, a_task bigint, a_id text, a_cursor bigint,
    a_config bytea, cap bigint) RETURNS smallint LANGUAGE plpgsql AS $$
DECLARE
    last_seq bigint;
BEGIN
    SELECT t.seq INTO last_seq FROM task t WHERE t.tenant = a_tenant AND t.no = a_task FOR UPDATE;
    IF NOT FOUND THEN
        RETURN 1;
    END IF;
    IF (SELECT count(*) FROM webhook w WHERE w.tenant = a_tenant AND w.task = a_task AND w.id <> a_id) >= cap THEN
        RETURN 2;
    END IF;
    INSERT INTO webhook (tenant, task, id, cursor, attempts, due_at, node, config)
    VALUES (a_tenant, a_task, a_id, a_cursor, 0, CASE WHEN last_seq > a_cursor THEN time_or(given) END, NULL,
        a_config)
    ON CONFLICT (tenant, task, id) DO UPDATE SET cursor = excluded.cursor, attempts = 0,
        due_at = excluded.due_at, node = NULL, config = excluded.config;
    UPDATE task SET hooks = (SELECT count(*) FROM webhook w WHERE w.tenant = a_tenant AND w.task = a_task)
    WHERE task.tenant = a_tenant AND task.no = a_task;
    RETURN 0;
END
$$;

CREATE FUNCTION delete_webhook(a_tenant integer, a_task bigint, a_id text) RETURNS boolean LANGUAGE plpgsql AS $$
BEGIN
    PERFORM 1 FROM task t WHERE t.tenant = a_tenant AND t.no = a_task FOR UPDATE;
    DELETE FROM webhook w WHERE w.tenant = a_tenant AND w.task = a_task AND w.id = a_id;
    IF NOT FOUND THEN
        RETURN false;
    END IF;
    DELETE FROM dead_letter d WHERE d.tenant = a_tenant AND d.task = a_task AND d.webhook = a_id;
    UPDATE task SET hooks = (SELECT count(*) FROM webhook w WHERE w.tenant = a_tenant AND w.task = a_task)
    WHERE task.tenant = a_tenant AND task.no = a_task;
    RETURN true;
END
$$;

-- Leases webhooks with something to deliver, and dead letters that are tried once more, oldest due first.
CREATE FUNCTION claim_deliveries(me uuid, given bigint, lease bigint, at_most integer)
RETURNS TABLE (due_at bigint, tenant integer, task bigint, hook text, cursor bigint, config bytea,
    attempts integer, replay bigint) LANGUAGE plpgsql AS $$
DECLARE
    now_at bigint := time_or(given);
    taken integer;
BEGIN
    RETURN QUERY
    WITH picked AS (
        SELECT w.tenant, w.task, w.id, w.due_at FROM webhook w WHERE w.due_at <= now_at
        ORDER BY w.due_at LIMIT at_most FOR UPDATE SKIP LOCKED
    )
    UPDATE webhook w SET due_at = now_at + lease, node = me FROM picked p
    WHERE w.tenant = p.tenant AND w.task = p.task AND w.id = p.id
    RETURNING p.due_at, w.tenant, w.task, w.id, w.cursor, w.config, w.attempts, NULL::bigint;
    GET DIAGNOSTICS taken = ROW_COUNT;
    RETURN QUERY
    WITH picked AS (
        SELECT d.tenant, d.task, d.webhook, d.seq, d.due_at FROM dead_letter d WHERE d.due_at <= now_at
        ORDER BY d.due_at LIMIT at_most - taken FOR UPDATE SKIP LOCKED
    ), done AS (
        UPDATE dead_letter d SET due_at = now_at + lease, node = me FROM picked p
        WHERE d.tenant = p.tenant AND d.task = p.task AND d.webhook = p.webhook AND d.seq = p.seq
        RETURNING p.due_at AS was_due, d.tenant, d.task, d.webhook, d.seq
    )
    -- The attempts are the webhook's own, not those of a letter that had died.
    SELECT x.was_due, x.tenant, x.task, w.id, w.cursor, w.config, 0, x.seq
    FROM done x JOIN webhook w ON w.tenant = x.tenant AND w.task = x.task AND w.id = x.webhook;
END
$$;

-- Records how a delivery went. The cursor never goes back, so a settlement that comes late (after the lease ran
-- out and somebody else delivered) does no harm.
CREATE FUNCTION advance_webhook(given bigint, a_tenant integer, a_task bigint, a_id text, up_to bigint)
RETURNS void LANGUAGE plpgsql AS $$
BEGIN
    -- Behind a commit that is under way: it took this webhook for a leased one and left it alone, so its events
    -- have to be seen here, or nobody would ever deliver them.
    PERFORM 1 FROM task t WHERE t.tenant = a_tenant AND t.no = a_task FOR SHARE;
    UPDATE webhook w SET cursor = greatest(w.cursor, up_to), attempts = 0, node = NULL,
        due_at = CASE WHEN (SELECT t.seq FROM task t WHERE t.tenant = a_tenant AND t.no = a_task)
            > greatest(w.cursor, up_to) THEN time_or(given) END
    WHERE w.tenant = a_tenant AND w.task = a_task AND w.id = a_id;
END
$$;

CREATE FUNCTION bury_delivery(given bigint, a_tenant integer, a_task bigint, a_id text, a_seq bigint,
    a_delivery text, a_reason text, died_at bigint) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
    UPDATE dead_letter d SET reason = a_reason, at = died_at, due_at = NULL, node = NULL
    WHERE d.tenant = a_tenant AND d.task = a_task AND d.webhook = a_id AND d.seq = a_seq;
    IF FOUND THEN
        -- A replay that failed. It was out of order and concerns no cursor.
        RETURN;
    END IF;
    INSERT INTO dead_letter (tenant, task, webhook, seq, delivery, reason, at)
    SELECT a_tenant, a_task, a_id, a_seq, a_delivery, a_reason, died_at
    WHERE EXISTS (SELECT 1 FROM webhook w WHERE w.tenant = a_tenant AND w.task = a_task AND w.id = a_id)
    ON CONFLICT DO NOTHING;
    PERFORM advance_webhook(given, a_tenant, a_task, a_id, a_seq);
END
$$;

-- Deletes tasks that ended before a time, with all that belongs to them; how many.
CREATE FUNCTION expire_tasks(before_at bigint, at_most integer) RETURNS bigint LANGUAGE plpgsql AS $$
DECLARE
    tenants integer[];
    nos bigint[];
BEGIN
    SELECT array_agg(p.tenant), array_agg(p.no) INTO tenants, nos FROM (
        SELECT t.tenant, t.no FROM task t WHERE t.state >= 4 AND t.status_at < before_at
        ORDER BY t.status_at, t.no LIMIT at_most FOR UPDATE SKIP LOCKED
    ) p;
    IF tenants IS NULL THEN
        RETURN 0;
    END IF;
    INSERT INTO tally (tenant, agent, state, slot, n)
    SELECT t.tenant, t.agent, t.state, 0, -count(*)
    FROM task t JOIN unnest(tenants, nos) g(tenant, no) ON t.tenant = g.tenant AND t.no = g.no
    GROUP BY 1, 2, 3 ORDER BY 1, 2, 3
    ON CONFLICT (tenant, agent, state, slot) DO UPDATE SET n = tally.n + excluded.n;
    DELETE FROM log x USING unnest(tenants, nos) g(tenant, no) WHERE x.tenant = g.tenant AND x.task = g.no;
    DELETE FROM journal x USING unnest(tenants, nos) g(tenant, no) WHERE x.tenant = g.tenant AND x.task = g.no;
    DELETE FROM snapshot x USING unnest(tenants, nos) g(tenant, no) WHERE x.tenant = g.tenant AND x.task = g.no;
    DELETE FROM webhook x USING unnest(tenants, nos) g(tenant, no) WHERE x.tenant = g.tenant AND x.task = g.no;
    DELETE FROM dead_letter x USING unnest(tenants, nos) g(tenant, no)
        WHERE x.tenant = g.tenant AND x.task = g.no;
    DELETE FROM client_id x USING unnest(tenants, nos) g(tenant, no), task t
        WHERE t.tenant = g.tenant AND t.no = g.no AND x.tenant = t.tenant AND x.id = t.client_id;
    DELETE FROM idempotency x USING unnest(tenants, nos) g(tenant, no), task t
        WHERE t.tenant = g.tenant AND t.no = g.no AND x.tenant = t.tenant AND x.key = t.idempotency;
    DELETE FROM task x USING unnest(tenants, nos) g(tenant, no) WHERE x.tenant = g.tenant AND x.no = g.no;
    RETURN cardinality(nos);
END
$$;

-- Puts a task there as it was in another store, held by nobody; false if it is there already.
CREATE FUNCTION restore_task(
    r_tenant integer, r_id uuid, r_agent integer, r_state smallint, r_status_at bigint, r_created_at bigint,
    r_seq bigint, r_version bigint, r_epoch bigint, r_due_at bigint, r_attempts integer, r_cancel boolean,
    r_context text, r_client_id text, r_key text, r_digest bytea, r_parent uuid, r_head bytea,
    l_seq bigint[], l_bytes bytea[], j_bytes bytea[],
    h_id text[], h_cursor bigint[], h_attempts integer[], h_due_at bigint[], h_config bytea[],
    d_webhook text[], d_seq bigint[], d_delivery text[], d_reason text[], d_at bigint[]
) RETURNS boolean LANGUAGE plpgsql AS $$
DECLARE
    new_no bigint := (r_tenant::bigint << 40) | nextval('task_serial');
BEGIN
    INSERT INTO task (tenant, no, id, agent, state, status_at, created_at, seq, version, epoch, node, due_at,
        attempts, cancel, stirred, snap_seq, unfolded, journaled, hooks, context, client_id, idempotency, parent,
        head)
    VALUES (r_tenant, new_no, r_id, r_agent, r_state, r_status_at, r_created_at, r_seq, r_version, r_epoch, NULL,
        r_due_at, r_attempts, r_cancel, false, 0,
        (SELECT coalesce(sum(length(b)), 0) FROM unnest(l_bytes) b), cardinality(j_bytes), cardinality(h_id),
        r_context, r_client_id, r_key, r_parent, r_head)
    ON CONFLICT (id) DO NOTHING;
    IF NOT FOUND THEN
        RETURN false;
    END IF;
    INSERT INTO log (tenant, task, seq, bytes)
    SELECT r_tenant, new_no, l.seq, l.bytes FROM unnest(l_seq, l_bytes) l(seq, bytes);
    INSERT INTO journal (tenant, task, n, bytes)
    SELECT r_tenant, new_no, j.n, j.bytes FROM unnest(j_bytes) WITH ORDINALITY j(bytes, n);
    INSERT INTO client_id (tenant, id, task) SELECT r_tenant, r_client_id, new_no WHERE r_client_id IS NOT NULL;
    INSERT INTO idempotency (tenant, key, task, digest)
    SELECT r_tenant, r_key, new_no, r_digest WHERE r_key IS NOT NULL;
    INSERT INTO webhook (tenant, task, id, cursor, attempts, due_at, config)
    SELECT r_tenant, new_no, h.* FROM unnest(h_id, h_cursor, h_attempts, h_due_at, h_config) h;
    INSERT INTO dead_letter (tenant, task, webhook, seq, delivery, reason, at)
    SELECT r_tenant, new_no, d.* FROM unnest(d_webhook, d_seq, d_delivery, d_reason, d_at) d;
    INSERT INTO tally (tenant, agent, state, slot, n) VALUES (r_tenant, r_agent, r_state, 0, 1)
    ON CONFLICT (tenant, agent, state, slot) DO UPDATE SET n = tally.n + 1;
    RETURN true;
END
$$;
