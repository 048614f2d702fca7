-- Sessions of clients. They belong to an owner and to no task. Their times are by the clock of this database.

CREATE TABLE session (
    tenant integer NOT NULL,
    id text COLLATE "C" PRIMARY KEY, -- by bytes, as every other store orders them
    version bigint NOT NULL,
    used_at bigint NOT NULL,
    body bytea NOT NULL
);
-- How many an owner has.
CREATE INDEX session_tenant ON session (tenant);
-- Expiry.
CREATE INDEX session_used ON session (used_at);

-- Keeps a new session: 0 done, 1 the owner has as many as it may, 2 the id is taken.
CREATE FUNCTION create_session(a_owner text, a_id text, a_version bigint, a_used_at bigint, a_body bytea, cap bigint)
RETURNS smallint LANGUAGE plpgsql AS $$
DECLARE
    a_tenant integer;
BEGIN
    -- Under the lock of the owner's row, so that whoever counts sees all that were made before.
    SELECT o.no INTO a_tenant FROM owner o WHERE o.name = a_owner FOR UPDATE;
    IF NOT FOUND THEN
        INSERT INTO owner (name) VALUES (a_owner) ON CONFLICT DO NOTHING;
        SELECT o.no INTO a_tenant FROM owner o WHERE o.name = a_owner FOR UPDATE;
    END IF;
    IF (SELECT count(*) FROM session s WHERE s.tenant = a_tenant) >= cap THEN
        RETURN 1;
    END IF;
    INSERT INTO session (tenant, id, version, used_at, body) VALUES (a_tenant, a_id, a_version, a_used_at, a_body)
    ON CONFLICT DO NOTHING;
    RETURN CASE WHEN FOUND THEN 0 ELSE 2 END;
END
$$;

-- Notes that sessions were used. In the order of their ids, so that two nodes do not wait for each other's rows.
CREATE FUNCTION touch_sessions(now_at bigint, ids text[]) RETURNS void LANGUAGE sql AS $$
    WITH older AS (
        SELECT s.id FROM session s WHERE s.id = ANY (ids) AND s.used_at < now_at ORDER BY s.id FOR UPDATE
    )
    UPDATE session s SET used_at = greatest(s.used_at, now_at) FROM older o WHERE s.id = o.id
$$;

-- Forgets sessions that were last used before a time, oldest first; how many. One that somebody is about to change
-- or to touch is left for the next time.
CREATE FUNCTION expire_sessions(before_at bigint, at_most integer) RETURNS bigint LANGUAGE sql AS $$
    WITH picked AS (
        SELECT s.id FROM session s WHERE s.used_at < before_at
        ORDER BY s.used_at LIMIT at_most FOR UPDATE SKIP LOCKED
    ), gone AS (
        DELETE FROM session s USING picked p WHERE s.id = p.id RETURNING 1
    )
    SELECT count(*) FROM gone
$$;
