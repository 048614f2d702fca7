-- What a tenant's memory weighs beside its values, and how many namespaces it has. Counted where rows come and go:
-- names never change. Whoever changes rows holds the tenant's lock.
ALTER TABLE memory_tenant ADD COLUMN names bigint NOT NULL DEFAULT 0;
ALTER TABLE memory_tenant ADD COLUMN spaces bigint NOT NULL DEFAULT 0;

-- What an entry counts for beside its value.
CREATE FUNCTION memory_weight(namespace text, key text) RETURNS bigint LANGUAGE sql IMMUTABLE AS $$
    SELECT (octet_length(namespace) + octet_length(key) + 200)::bigint
$$;

UPDATE memory_tenant m SET
    names = (
        SELECT coalesce(sum(memory_weight(s.namespace, x.key)), 0) FROM memory_space s
        JOIN memory x ON x.tenant = s.tenant AND x.space = s.no WHERE s.tenant = m.tenant
    ),
    spaces = (SELECT count(*) FROM memory_space s WHERE s.tenant = m.tenant);

CREATE FUNCTION memory_comes() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    UPDATE memory_tenant m SET names = m.names + memory_weight(s.namespace, new.key)
    FROM memory_space s WHERE s.no = new.space AND m.tenant = new.tenant;
    RETURN NULL;
END
$$;
CREATE TRIGGER memory_comes AFTER INSERT ON memory FOR EACH ROW EXECUTE FUNCTION memory_comes();

CREATE FUNCTION memory_goes() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    UPDATE memory_tenant m SET names = m.names - memory_weight(s.namespace, old.key)
    FROM memory_space s WHERE s.no = old.space AND m.tenant = old.tenant;
    RETURN NULL;
END
$$;
CREATE TRIGGER memory_goes AFTER DELETE ON memory FOR EACH ROW EXECUTE FUNCTION memory_goes();

CREATE FUNCTION memory_space_changes() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF TG_OP = 'INSERT' THEN
        UPDATE memory_tenant m SET spaces = m.spaces + 1 WHERE m.tenant = new.tenant;
    ELSE
        UPDATE memory_tenant m SET spaces = m.spaces - 1 WHERE m.tenant = old.tenant;
    END IF;
    RETURN NULL;
END
$$;
CREATE TRIGGER memory_space_changes AFTER INSERT OR DELETE ON memory_space
FOR EACH ROW EXECUTE FUNCTION memory_space_changes();

-- As before, with one more outcome: 4 too many namespaces. The one before stays for nodes that do not know this one.
CREATE FUNCTION put_memory(
    a_tenant text[], a_namespace text[], a_key text[], a_value text[], a_text text[], a_words text[], a_size bigint[],
    a_ttl bigint[], a_expires bigint[], a_expected bigint[], a_now bigint[], a_max_entries bigint[],
    a_max_bytes bigint[], a_max_spaces bigint[]
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
    spaces bigint;
    weight bigint;
BEGIN
    PERFORM lock_memory(a_tenant);
    FOR c IN
        SELECT * FROM unnest(a_tenant, a_namespace, a_key, a_value, a_text, a_words, a_size, a_ttl, a_expires,
            a_expected, a_now, a_max_entries, a_max_bytes, a_max_spaces)
        WITH ORDINALITY AS c(tenant, namespace, key, value, text, words, size, ttl, expires, expected, now,
            max_entries, max_bytes, max_spaces, ord)
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
        IF NOT live OR c.size > live_size THEN
            SELECT x.bytes + x.names, x.spaces INTO held, spaces FROM memory_tenant x WHERE x.tenant = t;
            IF s.no IS NULL AND spaces >= c.max_spaces THEN
                code := 4; figure := spaces;
                RETURN NEXT; CONTINUE;
            END IF;
            weight := memory_weight(c.namespace, c.key);
            IF held - old_size - (CASE WHEN there THEN weight ELSE 0 END) + c.size + weight > c.max_bytes THEN
                SELECT held - coalesce(sum(x.size + memory_weight(y.namespace, x.key)), 0) INTO held
                FROM memory x JOIN memory_space y ON y.no = x.space
                WHERE x.tenant = t AND x.expires_at <= c.now;
                IF held - live_size - (CASE WHEN live THEN weight ELSE 0 END) + c.size + weight > c.max_bytes THEN
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
