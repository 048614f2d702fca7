-- What the operator needs across owners: the credential behind a line of the audit, the one change that a line may see
-- (the replacement of whom it names when a tenant is erased), and the deletion of single tasks.

ALTER TABLE audit ADD COLUMN credential text;

-- Lines go by age, where a sweep has set the horizon in its transaction. They are rewritten where an erasure has named
-- the tenant in its transaction, and only in what identifies somebody.
CREATE OR REPLACE FUNCTION audit_stays() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF TG_OP = 'DELETE' AND old.at < nullif(current_setting('nuncio.audit_horizon', true), '')::bigint THEN
        RETURN old;
    END IF;
    IF TG_OP = 'UPDATE' AND old.tenant = nullif(current_setting('nuncio.audit_erasure', true), '')::integer
        AND new.no = old.no AND new.at = old.at AND new.operation = old.operation AND new.action = old.action
        AND new.kind = old.kind AND (new.refused IS NULL) = (old.refused IS NULL) THEN
        RETURN new;
    END IF;
    RAISE EXCEPTION 'the audit is only appended to';
END
$$;

-- As the function of 0003, with the credentials.
CREATE FUNCTION append_audit(
    a_at bigint[], a_tenant text[], a_caller text[], a_origin text[], a_operation text[], a_action text[],
    a_kind text[], a_resource text[], a_refused text[], a_credential text[]
) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
    PERFORM tenant_no(n.name) FROM (SELECT DISTINCT u COLLATE "C" AS name FROM unnest(a_tenant) u ORDER BY 1) n;
    INSERT INTO audit (at, tenant, caller, origin, operation, action, kind, resource, refused, credential)
    SELECT c.at, o.no, c.caller, c.origin, c.operation, c.action, c.kind, c.resource, c.refused, c.credential
    FROM unnest(a_at, a_tenant, a_caller, a_origin, a_operation, a_action, a_kind, a_resource, a_refused, a_credential)
        WITH ORDINALITY
        AS c(at, tenant, caller, origin, operation, action, kind, resource, refused, credential, ord)
    JOIN owner o ON o.name = c.tenant ORDER BY c.ord;
END
$$;

-- Replaces whom lines of a tenant name.
CREATE FUNCTION rewrite_audit(
    a_erased text, a_no bigint[], a_tenant text[], a_caller text[], a_origin text[], a_resource text[],
    a_refused text[], a_credential text[]
) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
    PERFORM tenant_no(n.name) FROM (SELECT DISTINCT u COLLATE "C" AS name FROM unnest(a_tenant) u ORDER BY 1) n;
    PERFORM set_config('nuncio.audit_erasure', coalesce((SELECT o.no FROM owner o WHERE o.name = a_erased)::text, ''), true);
    UPDATE audit a SET tenant = o.no, caller = c.caller, origin = c.origin, resource = c.resource,
        refused = c.refused, credential = c.credential
    FROM unnest(a_no, a_tenant, a_caller, a_origin, a_resource, a_refused, a_credential)
        AS c(no, tenant, caller, origin, resource, refused, credential)
    JOIN owner o ON o.name = c.tenant
    WHERE a.no = c.no AND a.tenant = (SELECT x.no FROM owner x WHERE x.name = a_erased);
    PERFORM set_config('nuncio.audit_erasure', '', true);
END
$$;

-- Deletes these tasks with all that belongs to them, whatever their state; how many there were.
CREATE FUNCTION delete_tasks(a_nos bigint[]) RETURNS bigint LANGUAGE plpgsql AS $$
DECLARE
    tenants integer[];
    nos bigint[];
BEGIN
    SELECT array_agg(p.tenant), array_agg(p.no) INTO tenants, nos FROM (
        SELECT t.tenant, t.no FROM task t JOIN unnest(a_nos) n ON t.tenant = (n >> 40)::integer AND t.no = n
        ORDER BY t.tenant, t.no FOR UPDATE OF t
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
