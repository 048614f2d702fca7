-- Lists of failed deliveries begin at the task's owner, or at its tenant: those of others are not read. Both are written
-- when a delivery fails, which few do; until then they are NULL.
ALTER TABLE dead_letter ADD COLUMN owner INTEGER;
ALTER TABLE dead_letter ADD COLUMN tenant TEXT;
ALTER TABLE webhook ADD COLUMN owner INTEGER;
ALTER TABLE webhook ADD COLUMN tenant TEXT;

CREATE VIEW task_owner (task, owner, tenant) AS
SELECT task.no, owner.no,
  CASE instr(owner.name, '/') WHEN 0 THEN 'home' ELSE substr(owner.name, 1, instr(owner.name, '/') - 1) END
FROM task JOIN owner ON owner.no = task.owner;

UPDATE dead_letter SET (owner, tenant) =
  (SELECT named.owner, named.tenant FROM task_owner AS named WHERE named.task = dead_letter.task);
UPDATE webhook SET (owner, tenant) =
  (SELECT named.owner, named.tenant FROM task_owner AS named WHERE named.task = webhook.task)
WHERE failing_since IS NOT NULL;

CREATE TRIGGER dead_letter_comes AFTER INSERT ON dead_letter BEGIN
    UPDATE dead_letter SET (owner, tenant) =
      (SELECT named.owner, named.tenant FROM task_owner AS named WHERE named.task = new.task)
    WHERE task = new.task AND webhook = new.webhook AND seq = new.seq;
END;
CREATE TRIGGER webhook_fails AFTER UPDATE OF failing_since ON webhook
WHEN new.failing_since IS NOT NULL AND new.owner IS NULL BEGIN
    UPDATE webhook SET (owner, tenant) =
      (SELECT named.owner, named.tenant FROM task_owner AS named WHERE named.task = new.task)
    WHERE task = new.task AND id = new.id;
END;
-- One that is restored from an archive.
CREATE TRIGGER webhook_comes_failing AFTER INSERT ON webhook WHEN new.failing_since IS NOT NULL BEGIN
    UPDATE webhook SET (owner, tenant) =
      (SELECT named.owner, named.tenant FROM task_owner AS named WHERE named.task = new.task)
    WHERE task = new.task AND id = new.id;
END;

CREATE INDEX dead_letter_owner ON dead_letter (owner, at, task, webhook, seq);
CREATE INDEX dead_letter_tenant ON dead_letter (tenant, at, task, webhook, seq);
CREATE INDEX webhook_failing_owner ON webhook (owner, failing_since, task, id) WHERE failing_since IS NOT NULL;
CREATE INDEX webhook_failing_tenant ON webhook (tenant, failing_since, task, id) WHERE failing_since IS NOT NULL;
