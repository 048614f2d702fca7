-- Most changes create a task that nobody can name twice: no key, no id of the client's, nothing in its journal, no webhook.
-- `commit_batch` writes all of those of a batch in one statement, where it wrote each by several.
CREATE FUNCTION is_plain_creation(id uuid, client_id text, key text, records integer, events bigint, max_seq bigint,
    h_ord integer[], ord bigint) RETURNS boolean LANGUAGE sql IMMUTABLE AS $$
    SELECT id IS NOT NULL AND client_id IS NULL AND key IS NULL AND records = 0 AND events <= max_seq
        AND NOT ord = ANY (h_ord)
$$;

-- As before, but for the plain creations.
CREATE OR REPLACE FUNCTION commit_batch(
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
    p_results outcome[];
    p_tenant integer[];
    p_agent integer[];
    p_state smallint[];
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
        WITH ORDINALITY AS g(tenant, no, version, epoch, events, bytes, state, status_at, head, run, node,
            due_in, cancel, records, id, agent, created_at, context, client_id, key, digest, parent, ord)
        WHERE NOT is_plain_creation(g.id, g.client_id, g.key, g.records, g.events, max_seq, h_ord, g.ord)
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

    -- The plain creations, in one statement. Behind the loop, as creations always were: no lock of a row is waited for with
    -- their ids inserted.
    WITH plain AS (
        SELECT g.*, (g.tenant::bigint << 40) | nextval('task_serial') AS no,
            coalesce(g.state, 0::smallint) AS first_state, coalesce(length(g.bytes), 0) AS size
        FROM unnest(a_tenant, a_events, a_bytes, a_state, a_status_at, a_head, a_run, a_node, a_due_in, a_cancel,
            a_records, a_id, a_agent, a_created_at, a_context, a_client_id, a_key, a_parent)
        WITH ORDINALITY AS g(tenant, events, bytes, state, status_at, head, run, node, due_in, cancel,
            records, id, agent, created_at, context, client_id, key, parent, ord)
        WHERE is_plain_creation(g.id, g.client_id, g.key, g.records, g.events, max_seq, h_ord, g.ord)
    ), made AS (
        INSERT INTO task (tenant, no, id, agent, state, status_at, created_at, seq, version, epoch, node,
            due_at, attempts, cancel, stirred, snap_seq, unfolded, journaled, hooks, context, parent, head)
        SELECT p.tenant, p.no, p.id, p.agent, p.first_state, coalesce(p.status_at, p.created_at), p.created_at,
            p.events, 1, CASE WHEN p.run = 1 THEN 1 ELSE 0 END,
            CASE WHEN p.first_state < 4 AND p.run = 1 THEN p.node END,
            CASE WHEN p.first_state < 4 THEN CASE p.run WHEN 1 THEN now_at WHEN 2 THEN now_at + p.due_in END END,
            0, coalesce(p.cancel, false), false, 0, p.size, 0, 0, p.context, p.parent, coalesce(p.head, '')
        FROM plain p
        ON CONFLICT (id) DO NOTHING
        RETURNING task.no
    ), logged AS (
        INSERT INTO log (tenant, task, seq, bytes)
        SELECT p.tenant, p.no, 1, p.bytes FROM plain p JOIN made USING (no) WHERE p.events > 0
    )
    SELECT array_agg(CASE WHEN m.no IS NULL
            THEN ROW(p.ord, 1, 0, 0, 0, 0, 0, false, 0, p.id, NULL, false)::outcome
            ELSE ROW(p.ord, 0, p.no, 1, p.events, 1, CASE WHEN p.run = 1 THEN 1 ELSE 0 END,
                coalesce(p.cancel, false), p.size, NULL, NULL, false)::outcome END),
        array_agg(p.tenant) FILTER (WHERE m.no IS NOT NULL), array_agg(p.agent) FILTER (WHERE m.no IS NOT NULL),
        array_agg(p.first_state) FILTER (WHERE m.no IS NOT NULL)
    INTO p_results, p_tenant, p_agent, p_state
    FROM plain p LEFT JOIN made m USING (no);
    IF p_results IS NOT NULL THEN
        results := results || p_results;
    END IF;
    IF p_tenant IS NOT NULL THEN
        t_tenant := t_tenant || p_tenant; t_agent := t_agent || p_agent; t_state := t_state || p_state;
        t_by := t_by || array_fill(1::bigint, ARRAY[cardinality(p_tenant)]);
    END IF;

    INSERT INTO tally (tenant, agent, state, slot, n)
    SELECT k.tenant, k.agent, k.state, slot_no, sum(k.by)
    FROM unnest(t_tenant, t_agent, t_state, t_by) AS k(tenant, agent, state, by)
    GROUP BY 1, 2, 3 HAVING sum(k.by) <> 0 ORDER BY 1, 2, 3
    ON CONFLICT (tenant, agent, state, slot) DO UPDATE SET n = tally.n + excluded.n;
    UPDATE writer SET outcomes = results WHERE id = writer_id;
    RETURN QUERY SELECT * FROM unnest(results);
END
$$;
