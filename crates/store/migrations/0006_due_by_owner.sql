-- Claims go by owner, so that one owner's queue does not stand before another's, and apart for tasks that were called
-- by another task: those have slots of their own. `queue` is both in one number: twice the owner's, and one more for
-- called tasks.
ALTER TABLE task ADD COLUMN queue INTEGER GENERATED ALWAYS AS (owner * 2 + (parent IS NOT NULL)) VIRTUAL;
DROP INDEX task_due;
CREATE INDEX task_due ON task (node, queue, due_at) WHERE due_at IS NOT NULL;
