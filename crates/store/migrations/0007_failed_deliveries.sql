-- Why a delivery fails, and since when (0: before this was recorded); how often a dead letter was attempted (0: not
-- counted).
ALTER TABLE webhook ADD COLUMN reason TEXT;
ALTER TABLE webhook ADD COLUMN failing_since INTEGER;
ALTER TABLE dead_letter ADD COLUMN attempts INTEGER NOT NULL DEFAULT 0;
UPDATE webhook SET failing_since = 0 WHERE attempts > 0;
-- Lists of what fails, newest first. A webhook whose deliveries succeed never enters it.
CREATE INDEX webhook_failing ON webhook (failing_since, task, id) WHERE failing_since IS NOT NULL;
