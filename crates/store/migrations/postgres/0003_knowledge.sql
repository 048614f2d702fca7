-- What outlives tasks: memory, records, the audit, counters. All of it belongs to tenants, which are owners here.
-- Times are those that nodes give: by their clocks. Names are compared and ordered by bytes, as every other store does.

-- A tenant's bytes of memory, what has expired and is not swept yet included. Whoever changes its memory holds the
-- lock of this row, so that expectations, counts and caps are decided one after the other.
CREATE TABLE memory_tenant (tenant integer PRIMARY KEY, bytes bigint NOT NULL) WITH (fillfactor = 50);

-- A namespace that holds something, what has expired and is not swept yet included. It is gone with its last entry.
CREATE TABLE memory_space (
    tenant integer NOT NULL,
    namespace text COLLATE "C" NOT NULL,
    no bigint GENERATED ALWAYS AS IDENTITY,
    entries bigint NOT NULL,
    bytes bigint NOT NULL,
    PRIMARY KEY (tenant, namespace),
    UNIQUE (no)
) WITH (fillfactor = 50);

CREATE TABLE memory (
    tenant integer NOT NULL,
    space bigint NOT NULL,
    key text COLLATE "C" NOT NULL,
    version bigint NOT NULL,
    created_at bigint NOT NULL,
    updated_at bigint NOT NULL,
    accessed_at bigint NOT NULL,
    reads bigint NOT NULL,
    size bigint NOT NULL,           -- bytes of the value
    ttl bigint,
    expires_at bigint,              -- from then on it is gone, swept or not; NULL: never
    value text NOT NULL,            -- JSON as it was given
    text text NOT NULL,
    words tsvector NOT NULL,        -- each preceded by what stands for its namespace: a search reads its own
    PRIMARY KEY (tenant, space, key)
);
-- The oldest and the newest that have not expired. The condition is always true, and only they state it: while the
-- table is small the planner could take these indexes for the primary key, and keep to it when it has grown.
CREATE INDEX memory_created ON memory (tenant, space, created_at) WHERE version > 0;
CREATE INDEX memory_updated ON memory (tenant, space, updated_at) WHERE version > 0;
-- What has expired: in a namespace, to be left out of its counts, and anywhere, to be swept.
CREATE INDEX memory_over ON memory (tenant, space, expires_at) INCLUDE (size) WHERE expires_at IS NOT NULL;
CREATE INDEX memory_expiry ON memory (expires_at) WHERE expires_at IS NOT NULL;
CREATE INDEX memory_words ON memory USING gin (words);

-- The number of a tenant, which gets one if it has none.
CREATE FUNCTION tenant_no(a_name text) RETURNS integer LANGUAGE plpgsql AS $$
DECLARE
    found_no integer;
BEGIN
    SELECT o.no INTO found_no FROM owner o WHERE o.name = a_name;
    IF NOT FOUND THEN
        INSERT INTO owner (name) VALUES (a_name) ON CONFLICT DO NOTHING;
        SELECT o.no INTO found_no FROM owner o WHERE o.name = a_name;
    END IF;
    RETURN found_no;
END
$$;

-- Takes the locks of tenants' memory: first all that have to be made, by name, then all, by number, so that nobody
-- waits in a circle.
CREATE FUNCTION lock_memory(names text[]) RETURNS void LANGUAGE plpgsql AS $$
DECLARE
    a_name text;
    a_no integer;
    numbers integer[] := '{}';
BEGIN
    FOR a_name IN SELECT DISTINCT n COLLATE "C" FROM unnest(names) n ORDER BY 1 LOOP
        a_no := tenant_no(a_name);
        numbers := numbers || a_no;
        PERFORM 1 FROM memory_tenant m WHERE m.tenant = a_no;
        IF NOT FOUND THEN
            INSERT INTO memory_tenant (tenant, bytes) VALUES (a_no, 0) ON CONFLICT DO NOTHING;
        END IF;
    END LOOP;
    PERFORM 1 FROM memory_tenant m WHERE m.tenant = ANY (numbers) ORDER BY m.tenant FOR UPDATE;
END
$$;

-- Counts entries and bytes up or down. A namespace without entries is forgotten.
CREATE FUNCTION count_memory(a_tenant integer, a_space bigint, more_entries bigint, more_bytes bigint) RETURNS void
LANGUAGE plpgsql AS $$
DECLARE
    left_over bigint;
BEGIN
    UPDATE memory_space s SET entries = s.entries + more_entries, bytes = s.bytes + more_bytes
    WHERE s.no = a_space RETURNING s.entries INTO left_over;
    IF left_over = 0 THEN
        DELETE FROM memory_space s WHERE s.no = a_space;
    END IF;
    IF more_bytes <> 0 THEN
        UPDATE memory_tenant m SET bytes = m.bytes + more_bytes WHERE m.tenant = a_tenant;
    END IF;
END
$$;

-- Writes entries, each if it is as expected and there is room; the others are not concerned. What is expected: a
-- version, 0 for none, -1 for anything. The outcome: 0 done, with version and time of creation; 1 moved, with the
-- version that is there; 2 too many entries, 3 too many bytes, with how many there are.
CREATE FUNCTION put_memory(
    a_tenant text[], a_namespace text[], a_key text[], a_value text[], a_text text[], a_words text[], a_size bigint[],
    a_ttl bigint[], a_expires bigint[], a_expected bigint[], a_now bigint[], a_max_entries bigint[],
    a_max_bytes bigint[]
) RETURNS TABLE (place integer, code smallint, figure bigint, created bigint) LANGUAGE plpgsql AS $$
DECLARE
    c record;
    t integer;
    s memory_space%ROWTYPE;
    m record;
    there boolean;
    live boolean;
    held bigint;
    old_size bigint;
    live_size bigint;
BEGIN
    PERFORM lock_memory(a_tenant);
    FOR c IN
        SELECT * FROM unnest(a_tenant, a_namespace, a_key, a_value, a_text, a_words, a_size, a_ttl, a_expires,
            a_expected, a_now, a_max_entries, a_max_bytes)
        WITH ORDINALITY AS c(tenant, namespace, key, value, text, words, size, ttl, expires, expected, now,
            max_entries, max_bytes, ord)
    LOOP
        t := tenant_no(c.tenant);
        SELECT * INTO s FROM memory_space x WHERE x.tenant = t AND x.namespace = c.namespace;
        SELECT x.version, x.created_at, x.size, x.expires_at INTO m FROM memory x
        WHERE x.tenant = t AND x.space = s.no AND x.key = c.key;
        there := FOUND;
        live := there AND (m.expires_at IS NULL OR m.expires_at > c.now);
        place := c.ord;
        created := 0;
        IF (c.expected = 0 AND live) OR (c.expected > 0 AND (NOT live OR m.version <> c.expected)) THEN
            code := 1; figure := CASE WHEN live THEN m.version END;
            RETURN NEXT; CONTINUE;
        END IF;
        old_size := CASE WHEN there THEN m.size ELSE 0 END;
        live_size := CASE WHEN live THEN m.size ELSE 0 END;
        IF NOT live AND s.no IS NOT NULL
            AND s.entries + (CASE WHEN there THEN 0 ELSE 1 END) > c.max_entries THEN
            SELECT s.entries - count(*) INTO held FROM memory x
            WHERE x.tenant = t AND x.space = s.no AND x.expires_at <= c.now;
            IF held >= c.max_entries THEN
                code := 2; figure := held;
                RETURN NEXT; CONTINUE;
            END IF;
        END IF;
        IF c.size > live_size THEN
            SELECT x.bytes INTO held FROM memory_tenant x WHERE x.tenant = t;
            IF held - old_size + c.size > c.max_bytes THEN
                SELECT held - coalesce(sum(x.size), 0) INTO held FROM memory x
                WHERE x.tenant = t AND x.expires_at <= c.now;
                IF held - live_size + c.size > c.max_bytes THEN
                    code := 3; figure := held;
                    RETURN NEXT; CONTINUE;
                END IF;
            END IF;
        END IF;
        IF s.no IS NULL THEN
            INSERT INTO memory_space (tenant, namespace, entries, bytes) VALUES (t, c.namespace, 0, 0)
            RETURNING * INTO s;
        END IF;
        code := 0;
        figure := CASE WHEN live THEN m.version + 1 ELSE 1 END;
        created := CASE WHEN live THEN m.created_at ELSE c.now END;
        INSERT INTO memory AS x (tenant, space, key, version, created_at, updated_at, accessed_at, reads, size, ttl,
            expires_at, value, text, words)
        VALUES (t, s.no, c.key, figure, created, c.now, c.now, 0, c.size, c.ttl, c.expires, c.value, c.text,
            c.words::tsvector)
        ON CONFLICT ON CONSTRAINT memory_pkey DO UPDATE SET version = excluded.version,
            created_at = excluded.created_at, updated_at = excluded.updated_at, accessed_at = excluded.accessed_at,
            reads = CASE WHEN live THEN x.reads ELSE 0 END, size = excluded.size, ttl = excluded.ttl,
            expires_at = excluded.expires_at, value = excluded.value, text = excluded.text, words = excluded.words;
        PERFORM count_memory(t, s.no, CASE WHEN there THEN 0 ELSE 1 END, c.size - old_size);
        RETURN NEXT;
    END LOOP;
END
$$;

-- Forgets an entry: 0 done or nothing to do, 1 moved; and the version that was there.
CREATE FUNCTION delete_memory(a_tenant text, a_namespace text, a_key text, a_expected bigint, a_now bigint)
RETURNS TABLE (code smallint, figure bigint) LANGUAGE plpgsql AS $$
DECLARE
    m record;
BEGIN
    PERFORM 1 FROM memory_tenant x JOIN owner o ON o.no = x.tenant WHERE o.name = a_tenant FOR UPDATE OF x;
    SELECT x.tenant, x.space, x.version, x.size, x.expires_at INTO m
    FROM owner o JOIN memory_space s ON s.tenant = o.no AND s.namespace = a_namespace
    JOIN memory x ON x.tenant = s.tenant AND x.space = s.no AND x.key = a_key
    WHERE o.name = a_tenant;
    figure := CASE WHEN FOUND AND (m.expires_at IS NULL OR m.expires_at > a_now) THEN m.version END;
    code := CASE WHEN a_expected IS NOT NULL AND figure IS DISTINCT FROM a_expected THEN 1 ELSE 0 END;
    IF code = 0 AND m.space IS NOT NULL THEN
        DELETE FROM memory x WHERE x.tenant = m.tenant AND x.space = m.space AND x.key = a_key;
        PERFORM count_memory(m.tenant, m.space, -1, -m.size);
    END IF;
    RETURN NEXT;
END
$$;

-- Forgets some entries of a namespace; how many.
CREATE FUNCTION clear_memory(a_tenant text, a_namespace text, at_most integer) RETURNS bigint LANGUAGE plpgsql AS $$
DECLARE
    s record;
    keys text[];
    gone bigint;
    bytes bigint;
BEGIN
    PERFORM 1 FROM memory_tenant x JOIN owner o ON o.no = x.tenant WHERE o.name = a_tenant FOR UPDATE OF x;
    SELECT x.tenant, x.no INTO s FROM memory_space x JOIN owner o ON o.no = x.tenant
    WHERE o.name = a_tenant AND x.namespace = a_namespace;
    IF NOT FOUND THEN
        RETURN 0;
    END IF;
    SELECT array_agg(p.key) INTO keys FROM (
        SELECT x.key FROM memory x WHERE x.tenant = s.tenant AND x.space = s.no ORDER BY x.key LIMIT at_most
    ) p;
    WITH deleted AS (
        DELETE FROM memory x WHERE x.tenant = s.tenant AND x.space = s.no AND x.key = ANY (keys) RETURNING x.size
    )
    SELECT count(*), coalesce(sum(d.size), 0) INTO gone, bytes FROM deleted d;
    PERFORM count_memory(s.tenant, s.no, -gone, -bytes);
    RETURN gone;
END
$$;

-- Adds to the counts of reads of what is still there.
CREATE FUNCTION count_reads(a_tenant text[], a_namespace text[], a_key text[], a_reads bigint[], a_at bigint[])
RETURNS void LANGUAGE plpgsql AS $$
BEGIN
    PERFORM 1 FROM memory_tenant x JOIN owner o ON o.no = x.tenant WHERE o.name = ANY (a_tenant)
    ORDER BY x.tenant FOR UPDATE OF x;
    UPDATE memory x SET reads = x.reads + r.reads, accessed_at = greatest(x.accessed_at, r.at)
    FROM (
        SELECT s.tenant, s.no, c.key, sum(c.reads)::bigint AS reads, max(c.at) AS at
        FROM unnest(a_tenant, a_namespace, a_key, a_reads, a_at) AS c(tenant, namespace, key, reads, at)
        JOIN owner o ON o.name = c.tenant
        JOIN memory_space s ON s.tenant = o.no AND s.namespace = c.namespace
        GROUP BY s.tenant, s.no, c.key
    ) r
    WHERE x.tenant = r.tenant AND x.space = r.no AND x.key = r.key;
END
$$;

-- Deletes entries whose time has come, oldest first; which. They are looked for before the locks are taken, and
-- looked at again under them.
CREATE FUNCTION expire_memory(a_now bigint, at_most integer)
RETURNS TABLE (tenant text, namespace text, key text) LANGUAGE plpgsql AS $$
DECLARE
    p_tenant integer[];
    p_space bigint[];
    p_key text[];
    c record;
    d record;
BEGIN
    SELECT array_agg(p.tenant), array_agg(p.space), array_agg(p.key) INTO p_tenant, p_space, p_key FROM (
        SELECT x.tenant, x.space, x.key FROM memory x WHERE x.expires_at <= a_now ORDER BY x.expires_at LIMIT at_most
    ) p;
    PERFORM 1 FROM memory_tenant x WHERE x.tenant = ANY (p_tenant) ORDER BY x.tenant FOR UPDATE;
    FOR c IN SELECT * FROM unnest(p_tenant, p_space, p_key) AS c(tenant, space, key) LOOP
        DELETE FROM memory x
        WHERE x.tenant = c.tenant AND x.space = c.space AND x.key = c.key AND x.expires_at <= a_now
        RETURNING x.size INTO d;
        IF FOUND THEN
            SELECT o.name, s.namespace INTO tenant, namespace FROM owner o
            JOIN memory_space s ON s.no = c.space WHERE o.no = c.tenant;
            key := c.key;
            PERFORM count_memory(c.tenant, c.space, -1, -d.size);
            RETURN NEXT;
        END IF;
    END LOOP;
END
$$;

-- Writes an entry as it was elsewhere; false if there is one of that key.
CREATE FUNCTION restore_memory(
    a_tenant text, a_namespace text, a_key text, a_version bigint, a_created bigint, a_updated bigint, a_accessed bigint,
    a_reads bigint, a_size bigint, a_ttl bigint, a_expires bigint, a_value text, a_text text, a_words text
) RETURNS boolean LANGUAGE plpgsql AS $$
DECLARE
    t integer;
    a_space bigint;
BEGIN
    PERFORM lock_memory(ARRAY[a_tenant]);
    t := tenant_no(a_tenant);
    SELECT s.no INTO a_space FROM memory_space s WHERE s.tenant = t AND s.namespace = a_namespace;
    IF NOT FOUND THEN
        INSERT INTO memory_space AS s (tenant, namespace, entries, bytes) VALUES (t, a_namespace, 0, 0)
        RETURNING s.no INTO a_space;
    END IF;
    INSERT INTO memory (tenant, space, key, version, created_at, updated_at, accessed_at, reads, size, ttl, expires_at,
        value, text, words)
    VALUES (t, a_space, a_key, a_version, a_created, a_updated, a_accessed, a_reads, a_size, a_ttl, a_expires, a_value,
        a_text, a_words::tsvector)
    ON CONFLICT DO NOTHING;
    IF NOT FOUND THEN
        RETURN false;
    END IF;
    PERFORM count_memory(t, a_space, 1, a_size);
    RETURN true;
END
$$;

CREATE TABLE record (
    tenant integer NOT NULL,
    kind text COLLATE "C" NOT NULL,
    id text COLLATE "C" NOT NULL,
    version bigint NOT NULL,
    updated_at bigint NOT NULL,
    expires_at bigint,
    body bytea NOT NULL,
    PRIMARY KEY (tenant, kind, id)
);
CREATE INDEX record_expiry ON record (expires_at) WHERE expires_at IS NOT NULL;

-- Writes records, all or none. A body that is NULL deletes. What is expected: a version, 0 for none, -1 for anything.
-- Returns a place and the version there for the first that is not as expected, or every place with its new version.
CREATE FUNCTION write_records(
    a_tenant text[], a_kind text[], a_id text[], a_body bytea[], a_expected bigint[], a_expires bigint[], a_now bigint[]
) RETURNS TABLE (place integer, moved boolean, figure bigint) LANGUAGE plpgsql AS $$
DECLARE
    c record;
    t integer;
BEGIN
    -- A lock for each name, whether there is a record or not, in the order of their numbers: two that want the same
    -- ones do not wait in a circle.
    PERFORM pg_advisory_xact_lock(l.no) FROM (
        SELECT DISTINCT hashtextextended(w.kind || chr(10) || w.tenant || chr(10) || w.id, 0) AS no
        FROM unnest(a_tenant, a_kind, a_id) AS w(tenant, kind, id) ORDER BY 1
    ) l;
    FOR c IN
        SELECT * FROM unnest(a_tenant, a_kind, a_id, a_expected, a_now)
        WITH ORDINALITY AS c(tenant, kind, id, expected, now, ord)
    LOOP
        SELECT r.version INTO figure FROM record r JOIN owner o ON o.no = r.tenant
        WHERE o.name = c.tenant AND r.kind = c.kind AND r.id = c.id
          AND (r.expires_at IS NULL OR r.expires_at > c.now);
        IF (c.expected = 0 AND FOUND) OR (c.expected > 0 AND figure IS DISTINCT FROM c.expected) THEN
            place := c.ord; moved := true;
            RETURN NEXT;
            RETURN;
        END IF;
    END LOOP;
    moved := false;
    -- Tenants that are new come first, by name.
    PERFORM tenant_no(n.name) FROM (SELECT DISTINCT u COLLATE "C" AS name FROM unnest(a_tenant) u ORDER BY 1) n;
    FOR c IN
        SELECT * FROM unnest(a_tenant, a_kind, a_id, a_body, a_expires, a_now)
        WITH ORDINALITY AS c(tenant, kind, id, body, expires, now, ord)
    LOOP
        t := tenant_no(c.tenant);
        place := c.ord;
        IF c.body IS NULL THEN
            DELETE FROM record r WHERE r.tenant = t AND r.kind = c.kind AND r.id = c.id;
            figure := 0;
        ELSE
            SELECT r.version INTO figure FROM record r WHERE r.tenant = t AND r.kind = c.kind AND r.id = c.id
              AND (r.expires_at IS NULL OR r.expires_at > c.now);
            figure := coalesce(figure, 0) + 1;
            INSERT INTO record (tenant, kind, id, version, updated_at, expires_at, body)
            VALUES (t, c.kind, c.id, figure, c.now, c.expires, c.body)
            ON CONFLICT (tenant, kind, id) DO UPDATE SET version = excluded.version,
                updated_at = excluded.updated_at, expires_at = excluded.expires_at, body = excluded.body;
        END IF;
        RETURN NEXT;
    END LOOP;
END
$$;

-- Deletes records whose time has come; how many. One that somebody writes is left for the next time.
CREATE FUNCTION expire_records(a_now bigint, at_most integer) RETURNS bigint LANGUAGE sql AS $$
    WITH picked AS (
        SELECT r.tenant, r.kind, r.id FROM record r WHERE r.expires_at <= a_now
        ORDER BY r.expires_at LIMIT at_most FOR UPDATE SKIP LOCKED
    ), gone AS (
        DELETE FROM record r USING picked p WHERE r.tenant = p.tenant AND r.kind = p.kind AND r.id = p.id RETURNING 1
    )
    SELECT count(*) FROM gone
$$;

CREATE TABLE audit (
    no bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    at bigint NOT NULL,
    tenant integer NOT NULL,
    caller text NOT NULL,
    origin text,
    operation text NOT NULL,
    action text NOT NULL,
    kind text NOT NULL,
    resource text NOT NULL,
    refused text
);
CREATE INDEX audit_tenant ON audit (tenant, no);
CREATE INDEX audit_at ON audit (at);

-- Lines stay as they are. They go by age, and only where a sweep has said in its transaction how old is old enough.
CREATE FUNCTION audit_stays() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF TG_OP = 'DELETE' AND old.at < nullif(current_setting('nuncio.audit_horizon', true), '')::bigint THEN
        RETURN old;
    END IF;
    RAISE EXCEPTION 'the audit is only appended to';
END
$$;
CREATE TRIGGER audit_stays BEFORE UPDATE OR DELETE ON audit FOR EACH ROW EXECUTE FUNCTION audit_stays();
CREATE TRIGGER audit_is_not_emptied BEFORE TRUNCATE ON audit FOR EACH STATEMENT EXECUTE FUNCTION audit_stays();

CREATE FUNCTION append_audit(
    a_at bigint[], a_tenant text[], a_caller text[], a_origin text[], a_operation text[], a_action text[],
    a_kind text[], a_resource text[], a_refused text[]
) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
    PERFORM tenant_no(n.name) FROM (SELECT DISTINCT u COLLATE "C" AS name FROM unnest(a_tenant) u ORDER BY 1) n;
    INSERT INTO audit (at, tenant, caller, origin, operation, action, kind, resource, refused)
    SELECT c.at, o.no, c.caller, c.origin, c.operation, c.action, c.kind, c.resource, c.refused
    FROM unnest(a_at, a_tenant, a_caller, a_origin, a_operation, a_action, a_kind, a_resource, a_refused)
        WITH ORDINALITY AS c(at, tenant, caller, origin, operation, action, kind, resource, refused, ord)
    JOIN owner o ON o.name = c.tenant ORDER BY c.ord;
END
$$;

-- Deletes lines older than that, oldest first; how many.
CREATE FUNCTION expire_audit(before_at bigint, at_most integer) RETURNS bigint LANGUAGE plpgsql AS $$
DECLARE
    gone bigint;
BEGIN
    PERFORM set_config('nuncio.audit_horizon', before_at::text, true);
    WITH picked AS (
        SELECT a.no FROM audit a WHERE a.at < before_at ORDER BY a.at LIMIT at_most FOR UPDATE SKIP LOCKED
    ), deleted AS (
        DELETE FROM audit a USING picked p WHERE a.no = p.no RETURNING 1
    )
    SELECT count(*) INTO gone FROM deleted;
    PERFORM set_config('nuncio.audit_horizon', '', true);
    RETURN gone;
END
$$;

CREATE TABLE usage (
    name text COLLATE "C" PRIMARY KEY,
    uses bigint NOT NULL,
    at bigint NOT NULL
) WITH (fillfactor = 50);

-- Adds to counters, in the order of their names so that two nodes do not wait for each other's rows; what they stand
-- at. Those that nobody added to for long are forgotten.
CREATE FUNCTION add_usage(names text[], more bigint[], a_now bigint, forget_before bigint)
RETURNS TABLE (place integer, total bigint) LANGUAGE plpgsql AS $$
DECLARE
    c record;
BEGIN
    FOR c IN
        SELECT * FROM unnest(names, more) WITH ORDINALITY AS u(name, more, ord) ORDER BY u.name COLLATE "C", u.ord
    LOOP
        place := c.ord;
        INSERT INTO usage AS u (name, uses, at) VALUES (c.name, c.more, a_now)
        ON CONFLICT (name) DO UPDATE SET uses = u.uses + excluded.uses, at = greatest(u.at, excluded.at)
        RETURNING u.uses INTO total;
        RETURN NEXT;
    END LOOP;
    -- Last, and without waiting for anybody. Now and then is enough: no index on the time makes every count dearer.
    IF random() < 0.01 THEN
        DELETE FROM usage u WHERE u.name IN (
            SELECT x.name FROM usage x WHERE x.at < forget_before LIMIT 256 FOR UPDATE SKIP LOCKED);
    END IF;
END
$$;
