-- Claims go by owner, so that one owner's queue does not stand before another's, and apart for tasks that were called
-- by another task: those have slots of their own.
CREATE INDEX task_due_of ON task (node, tenant, (parent IS NOT NULL), due_at) WHERE due_at IS NOT NULL;

-- Leases due tasks of some owners to a node, so many of each: those of the dead first, then those of nobody.
CREATE FUNCTION claim_tasks_of(me uuid, given bigint, a_owner text[], a_called boolean[], a_limit integer[])
RETURNS SETOF task LANGUAGE plpgsql AS $$
DECLARE
    now_at bigint := time_or(given);
    dead uuid[] := ARRAY(SELECT dead_nodes(me, now_at));
    taken integer;
    c record;
BEGIN
    -- Always in the same order: two nodes that claim at once do not wait for each other in a circle.
    FOR c IN
        SELECT o.no AS tenant, w.called, w.at_most FROM unnest(a_owner, a_called, a_limit) AS w(owner, called, at_most)
        JOIN owner o ON o.name = w.owner ORDER BY 1, 2
    LOOP
        taken := 0;
        IF cardinality(dead) > 0 THEN
            RETURN QUERY
            WITH picked AS (
                SELECT t.tenant, t.no FROM task t
                WHERE t.node = ANY (dead) AND t.tenant = c.tenant AND (t.parent IS NOT NULL) = c.called
                    AND t.due_at <= now_at
                ORDER BY t.due_at, t.no LIMIT c.at_most FOR UPDATE SKIP LOCKED
            )
            UPDATE task t SET node = me, epoch = t.epoch + 1, version = t.version + 1, attempts = t.attempts + 1,
                stirred = false
            FROM picked p WHERE t.tenant = p.tenant AND t.no = p.no RETURNING t.*;
            GET DIAGNOSTICS taken = ROW_COUNT;
        END IF;
        RETURN QUERY
        WITH picked AS (
            SELECT t.tenant, t.no FROM task t
            WHERE t.node IS NULL AND t.tenant = c.tenant AND (t.parent IS NOT NULL) = c.called
                AND t.due_at <= now_at
            ORDER BY t.due_at, t.no LIMIT c.at_most - taken FOR UPDATE SKIP LOCKED
        )
        UPDATE task t SET node = me, epoch = t.epoch + 1, version = t.version + 1, stirred = false
        FROM picked p WHERE t.tenant = p.tenant AND t.no = p.no RETURNING t.*;
    END LOOP;
END
$$;
