-- A line of the audit costs less to append. Its number is no longer counted in a table of SQLite's own, which each append
-- writes: it is one more than the highest line's, and than `audit_horizon.last`, which a sweep writes before it deletes. So
-- a number is never used again, also after all lines are gone. And the lines of the home tenant, which are all of them where
-- there is no other, are in no index of tenants: a list of that tenant reads those of others on its way.

ALTER TABLE audit_horizon ADD COLUMN last INTEGER NOT NULL DEFAULT 0;
UPDATE audit_horizon SET last = ifnull((SELECT seq FROM sqlite_sequence WHERE name = 'audit'), 0);

DROP TRIGGER audit_stays;
DROP TRIGGER audit_goes_by_age;
DROP TRIGGER audit_is_not_replaced;
DROP INDEX audit_owner;
DROP INDEX audit_at;
ALTER TABLE audit RENAME TO audit_numbered;

CREATE TABLE audit (
    no INTEGER PRIMARY KEY,
    at INTEGER NOT NULL,
    owner INTEGER NOT NULL,
    caller TEXT NOT NULL,
    origin TEXT,
    operation TEXT NOT NULL,
    action TEXT NOT NULL,
    kind TEXT NOT NULL,
    resource TEXT NOT NULL,
    refused TEXT,
    credential TEXT,
    tenant INTEGER                  -- the owner; NULL: it is the home tenant
) STRICT;
INSERT INTO audit
SELECT no, at, owner, caller, origin, operation, action, kind, resource, refused, credential,
  CASE WHEN owner IS NOT (SELECT owner.no FROM owner WHERE owner.name = 'home') THEN owner END
FROM audit_numbered ORDER BY no;
DROP TABLE audit_numbered;

CREATE INDEX audit_tenant ON audit (tenant) WHERE tenant IS NOT NULL;
CREATE INDEX audit_at ON audit (at);
CREATE TRIGGER audit_stays BEFORE UPDATE ON audit
WHEN NOT ifnull(old.owner = (SELECT owner FROM audit_erasure), 0)
  OR new.no <> old.no OR new.at <> old.at OR new.operation <> old.operation OR new.action <> old.action
  OR new.kind <> old.kind OR (new.refused IS NULL) <> (old.refused IS NULL)
BEGIN SELECT RAISE(ABORT, 'the audit is only appended to'); END;
CREATE TRIGGER audit_goes_by_age BEFORE DELETE ON audit
WHEN NOT ifnull(old.at < (SELECT before FROM audit_horizon), 0)
BEGIN SELECT RAISE(ABORT, 'the audit is only appended to'); END;
-- A REPLACE would delete without asking the trigger above.
CREATE TRIGGER audit_is_not_replaced BEFORE INSERT ON audit
WHEN EXISTS (SELECT 1 FROM audit WHERE no = new.no)
BEGIN SELECT RAISE(ABORT, 'the audit is only appended to'); END;
