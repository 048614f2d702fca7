-- What a tenant's memory weighs beside its values, and how many namespaces it has. Counted where rows come and go:
-- names never change.
ALTER TABLE memory_tenant ADD COLUMN names INTEGER NOT NULL DEFAULT 0;
ALTER TABLE memory_tenant ADD COLUMN spaces INTEGER NOT NULL DEFAULT 0;

INSERT INTO memory_tenant (owner, bytes) SELECT DISTINCT owner, 0 FROM memory_space WHERE true ON CONFLICT DO NOTHING;
UPDATE memory_tenant SET
    names = (
        SELECT ifnull(sum(octet_length(key) + octet_length(namespace) + 200), 0)
        FROM memory_space JOIN memory ON memory.space = memory_space.no WHERE owner = memory_tenant.owner
    ),
    spaces = (SELECT count(*) FROM memory_space WHERE owner = memory_tenant.owner);

CREATE TRIGGER memory_comes AFTER INSERT ON memory BEGIN
    UPDATE memory_tenant SET names = names + octet_length(new.key) + octet_length(namespace) + 200
    FROM memory_space WHERE memory_space.no = new.space AND memory_tenant.owner = memory_space.owner;
END;
CREATE TRIGGER memory_goes AFTER DELETE ON memory BEGIN
    UPDATE memory_tenant SET names = names - octet_length(old.key) - octet_length(namespace) - 200
    FROM memory_space WHERE memory_space.no = old.space AND memory_tenant.owner = memory_space.owner;
END;
CREATE TRIGGER memory_space_comes AFTER INSERT ON memory_space BEGIN
    INSERT INTO memory_tenant (owner, bytes, spaces) VALUES (new.owner, 0, 1)
    ON CONFLICT DO UPDATE SET spaces = spaces + 1;
END;
CREATE TRIGGER memory_space_goes AFTER DELETE ON memory_space BEGIN
    UPDATE memory_tenant SET spaces = spaces - 1 WHERE owner = old.owner;
END;
