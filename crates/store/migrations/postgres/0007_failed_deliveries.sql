-- Why a delivery fails, and since when (0: before this was recorded); how often a dead letter was attempted (0: not
-- counted).
ALTER TABLE webhook ADD COLUMN reason text;
ALTER TABLE webhook ADD COLUMN failing_since bigint;
ALTER TABLE dead_letter ADD COLUMN attempts integer NOT NULL DEFAULT 0;
UPDATE webhook SET failing_since = 0 WHERE attempts > 0;
-- Lists of what fails, newest first. A webhook whose deliveries succeed never enters it.
CREATE INDEX webhook_failing ON webhook (failing_since, task, id COLLATE "C") WHERE failing_since IS NOT NULL;

CREATE OR REPLACE FUNCTION put_webhook(given bigint, a_tenant integer, a_task bigint, a_id text, a_cursor bigint,
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
        due_at = excluded.due_at, node = NULL, config = excluded.config, reason = NULL, failing_since = NULL;
    UPDATE task SET hooks = (SELECT count(*) FROM webhook w WHERE w.tenant = a_tenant AND w.task = a_task)
    WHERE task.tenant = a_tenant AND task.no = a_task;
    RETURN 0;
END
$$;

CREATE OR REPLACE FUNCTION advance_webhook(given bigint, a_tenant integer, a_task bigint, a_id text, up_to bigint)
RETURNS void LANGUAGE plpgsql AS $$
BEGIN
    -- Behind a commit that is under way: it took this webhook for a leased one and left it alone, so its events
    -- have to be seen here, or nobody would ever deliver them.
    PERFORM 1 FROM task t WHERE t.tenant = a_tenant AND t.no = a_task FOR SHARE;
    UPDATE webhook w SET cursor = greatest(w.cursor, up_to), attempts = 0, node = NULL,
        reason = NULL, failing_since = NULL,
        due_at = CASE WHEN (SELECT t.seq FROM task t WHERE t.tenant = a_tenant AND t.no = a_task)
            > greatest(w.cursor, up_to) THEN time_or(given) END
    WHERE w.tenant = a_tenant AND w.task = a_task AND w.id = a_id;
END
$$;

CREATE OR REPLACE FUNCTION bury_delivery(given bigint, a_tenant integer, a_task bigint, a_id text, a_seq bigint,
    a_delivery text, a_reason text, died_at bigint) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
    UPDATE dead_letter d SET reason = a_reason, at = died_at, due_at = NULL, node = NULL,
        attempts = d.attempts + 1
    WHERE d.tenant = a_tenant AND d.task = a_task AND d.webhook = a_id AND d.seq = a_seq;
    IF FOUND THEN
        -- A replay that failed. It was out of order and concerns no cursor.
        RETURN;
    END IF;
    -- The webhook counts the attempts at the event after its cursor.
    INSERT INTO dead_letter (tenant, task, webhook, seq, delivery, reason, at, attempts)
    SELECT a_tenant, a_task, a_id, a_seq, a_delivery, a_reason, died_at,
        CASE WHEN a_seq > w.cursor + 1 THEN 1 ELSE w.attempts + 1 END
    FROM webhook w WHERE w.tenant = a_tenant AND w.task = a_task AND w.id = a_id
    ON CONFLICT DO NOTHING;
    PERFORM advance_webhook(given, a_tenant, a_task, a_id, a_seq);
END
$$;

-- As the function of that name with fewer parameters, and with what was added since.
CREATE FUNCTION restore_task(
    r_tenant integer, r_id uuid, r_agent integer, r_state smallint, r_status_at bigint, r_created_at bigint,
    r_seq bigint, r_version bigint, r_epoch bigint, r_due_at bigint, r_attempts integer, r_cancel boolean,
    r_context text, r_client_id text, r_key text, r_digest bytea, r_parent uuid, r_head bytea,
    l_seq bigint[], l_bytes bytea[], j_bytes bytea[],
    h_id text[], h_cursor bigint[], h_attempts integer[], h_due_at bigint[], h_config bytea[],
    d_webhook text[], d_seq bigint[], d_delivery text[], d_reason text[], d_at bigint[],
    h_reason text[], h_since bigint[], d_attempts integer[]
) RETURNS boolean LANGUAGE plpgsql AS $$
BEGIN
    IF NOT restore_task(r_tenant, r_id, r_agent, r_state, r_status_at, r_created_at, r_seq, r_version, r_epoch, r_due_at,
        r_attempts, r_cancel, r_context, r_client_id, r_key, r_digest, r_parent, r_head, l_seq, l_bytes,
        j_bytes, h_id, h_cursor, h_attempts, h_due_at, h_config, d_webhook, d_seq, d_delivery, d_reason,
        d_at) THEN
        RETURN false;
    END IF;
    UPDATE webhook w SET reason = h.reason, failing_since = h.since
    FROM task t, unnest(h_id, h_reason, h_since) h(id, reason, since)
    WHERE t.id = r_id AND w.tenant = t.tenant AND w.task = t.no AND w.id = h.id;
    UPDATE dead_letter x SET attempts = d.attempts
    FROM task t, unnest(d_webhook, d_seq, d_attempts) d(webhook, seq, attempts)
    WHERE t.id = r_id AND x.tenant = t.tenant AND x.task = t.no AND x.webhook = d.webhook AND x.seq = d.seq;
    RETURN true;
END
$$;

-- Gives one failed delivery up without a trace; whether there was one that no node was delivering.
CREATE FUNCTION discard_delivery(given bigint, a_tenant integer, a_task bigint, a_id text, a_seq bigint)
RETURNS boolean LANGUAGE plpgsql AS $$
DECLARE
    deleted boolean;
BEGIN
    DELETE FROM dead_letter d
    WHERE d.tenant = a_tenant AND d.task = a_task AND d.webhook = a_id AND d.seq = a_seq AND d.node IS NULL;
    deleted := FOUND;
    -- Locked as `advance_webhook` locks it, the task first.
    PERFORM 1 FROM task t WHERE t.tenant = a_tenant AND t.no = a_task FOR SHARE;
    PERFORM 1 FROM webhook w WHERE w.tenant = a_tenant AND w.task = a_task AND w.id = a_id AND w.cursor = a_seq - 1
        AND w.failing_since IS NOT NULL AND w.node IS NULL FOR UPDATE;
    IF FOUND THEN
        PERFORM advance_webhook(given, a_tenant, a_task, a_id, a_seq);
        RETURN true;
    END IF;
    RETURN deleted;
END
$$;
