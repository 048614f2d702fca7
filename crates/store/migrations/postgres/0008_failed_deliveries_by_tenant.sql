-- Lists of failed deliveries begin at the task's owner (`tenant`), or at the owner's tenant: those of others are not read.
-- The tenant's name is written when a delivery fails, which few do; until then it is NULL.
ALTER TABLE dead_letter ADD COLUMN tenant_name text;
ALTER TABLE webhook ADD COLUMN tenant_name text;

CREATE FUNCTION tenant_name_of(owner_no integer) RETURNS text LANGUAGE sql STABLE AS $$
    SELECT CASE strpos(o.name, '/') WHEN 0 THEN 'home' ELSE split_part(o.name, '/', 1) END
    FROM owner o WHERE o.no = owner_no
$$;

UPDATE dead_letter SET tenant_name = tenant_name_of(tenant);
UPDATE webhook SET tenant_name = tenant_name_of(tenant) WHERE failing_since IS NOT NULL;

CREATE FUNCTION write_tenant_name() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    new.tenant_name := tenant_name_of(new.tenant);
    RETURN new;
END
$$;
-- A trigger, so that it is written by nodes of the version before as well.
CREATE TRIGGER dead_letter_comes BEFORE INSERT ON dead_letter FOR EACH ROW EXECUTE FUNCTION write_tenant_name();
CREATE TRIGGER webhook_fails BEFORE INSERT OR UPDATE OF failing_since ON webhook FOR EACH ROW
    WHEN (new.failing_since IS NOT NULL AND new.tenant_name IS NULL) EXECUTE FUNCTION write_tenant_name();

CREATE INDEX dead_letter_owner ON dead_letter (tenant, at, task, webhook COLLATE "C", seq);
CREATE INDEX dead_letter_tenant ON dead_letter (tenant_name, at, task, webhook COLLATE "C", seq);
CREATE INDEX webhook_failing_owner ON webhook (tenant, failing_since, task, id COLLATE "C")
    WHERE failing_since IS NOT NULL;
CREATE INDEX webhook_failing_tenant ON webhook (tenant_name, failing_since, task, id COLLATE "C")
    WHERE failing_since IS NOT NULL;
