-- What the operator needs across owners: the credential behind a line of the audit, and the one change that a line may
-- see, the replacement of whom it names when a tenant is erased.

ALTER TABLE audit ADD COLUMN credential TEXT;

-- The tenant whose lines may be rewritten. Set for as long as an erasure writes, in its own transaction.
CREATE TABLE audit_erasure (one INTEGER PRIMARY KEY CHECK (one = 1), owner INTEGER) STRICT;
INSERT INTO audit_erasure (one, owner) VALUES (1, NULL);

DROP TRIGGER audit_stays;
CREATE TRIGGER audit_stays BEFORE UPDATE ON audit
WHEN NOT ifnull(old.owner = (SELECT owner FROM audit_erasure), 0)
  OR new.no <> old.no OR new.at <> old.at OR new.operation <> old.operation OR new.action <> old.action
  OR new.kind <> old.kind OR (new.refused IS NULL) <> (old.refused IS NULL)
BEGIN SELECT RAISE(ABORT, 'the audit is only appended to'); END;
