//! A batch of changes as the arguments of `commit_batch`, and its outcomes.

use bytes::Bytes;
use nuncio_engine::{
    store::{
        AddedWebhooks, Change, CommitError, CommitReceipt, Precondition, RunChange, StoreError,
        StoreNotification, TaskNo, Webhook,
    },
    task::TaskId,
};
use tokio_postgres::{Client, Row, Statement, types::ToSql};
use uuid::Uuid;

use super::{
    clock::DatabaseClock,
    names::{NameKind, PostgresNameCache},
    tenant,
};

/// The last sequence number of a task's log and journal.
pub(super) const MAX_SEQ: i64 = (1 << 20) - 1;

/// The statement that commits a batch.
pub(super) const COMMIT: &str = "SELECT ord, code, no, first_seq, seq, version, epoch, cancel, unfolded, other, digest, hooked \
     FROM commit_batch($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15, $16, $17, $18, $19, $20, \
     $21, $22, $23, $24, $25, $26, $27, $28, $29, $30, $31, $32, $33)";

/// The statement that adds webhooks to an existing task, or replaces those with the same ids. It skips a webhook that
/// is there already, because a batch that is sent again finds its own.
pub(super) const ADD_WEBHOOKS: &str = "SELECT put_webhook($1, $2, $3, h.id, h.cursor, h.config, $7) \
     FROM unnest($4::text[], $5::bigint[], $6::bytea[]) AS h(id, cursor, config) WHERE NOT EXISTS \
     (SELECT 1 FROM webhook w WHERE w.tenant = $2 AND w.task = $3 AND w.id = h.id AND w.config = h.config \
      AND w.cursor >= h.cursor)";

/// The name under which the database remembers a batch, and the slot of its totals.
pub(super) struct BatchName {
    pub(super) writer: Uuid,
    pub(super) batch: Uuid,
    pub(super) slot: i16,
}

/// The changes of a batch, column by column.
#[derive(Default)]
pub(super) struct ChangeColumns<'a> {
    given: Option<i64>,
    tenant: Vec<i32>,
    no: Vec<Option<i64>>,
    version: Vec<Option<i64>>,
    epoch: Vec<Option<i64>>,
    events: Vec<i64>,
    bytes: Vec<Option<&'a [u8]>>,
    state: Vec<Option<i16>>,
    status_at: Vec<Option<i64>>,
    head: Vec<Option<&'a [u8]>>,
    run: Vec<i16>,
    node: Vec<Option<Uuid>>,
    due_in: Vec<Option<i64>>,
    cancel: Vec<Option<bool>>,
    records: Vec<i32>,
    id: Vec<Option<Uuid>>,
    agent: Vec<Option<i32>>,
    created_at: Vec<Option<i64>>,
    context: Vec<Option<&'a str>>,
    client_id: Vec<Option<&'a str>>,
    key: Vec<Option<&'a str>>,
    digest: Vec<Option<&'a [u8]>>,
    parent: Vec<Option<Uuid>>,
    journal: (Vec<i32>, Vec<&'a [u8]>),
    hooks: WebhookColumns<'a>,
}

/// Webhooks, column by column, each with the position of its change.
#[derive(Default)]
struct WebhookColumns<'a> {
    ord: Vec<i32>,
    id: Vec<&'a str>,
    cursor: Vec<i64>,
    config: Vec<&'a [u8]>,
}

impl<'a> ChangeColumns<'a> {
    /// Collects changes into columns. Resolves names to numbers on the way.
    pub(super) async fn of(
        changes: impl Iterator<Item = &'a Change> + Clone,
        client: &Client,
        names: &PostgresNameCache,
        clock: &DatabaseClock,
    ) -> Result<Self, StoreError> {
        let mut columns = Self::default();
        for (_, at) in changes.clone().filter_map(|change| change.state) {
            clock.record_time(at);
        }
        columns.given = clock.test_time();
        for (ord, change) in (1..).zip(changes) {
            columns.push_guard(change, client, names).await?;
            columns.push_change(ord, change, clock);
        }
        Ok(columns)
    }

    async fn push_guard(
        &mut self,
        change: &'a Change,
        client: &Client,
        names: &PostgresNameCache,
    ) -> Result<(), StoreError> {
        let (task, version, epoch) = match &change.guard {
            Precondition::Create(new) => {
                self.tenant.push(names.number(client, NameKind::Owner, &new.owner).await?);
                self.agent.push(Some(names.number(client, NameKind::Agent, &new.agent).await?));
                let own = |context: &&str| TaskId::of_own_context(context) == Some(new.id);
                self.context.push(new.context.as_deref().filter(|context| !own(context)));
                self.client_id.push(new.client_id.as_deref());
                self.key.push(new.idempotency.as_ref().map(|(key, _)| key.as_str()));
                self.digest.push(new.idempotency.as_ref().map(|(_, digest)| &digest[..]));
                self.parent.push(new.parent.map(|parent| parent.0));
                self.id.push(Some(new.id.0));
                self.created_at.push(Some(new.created_at.0));
                let ord = self.tenant.len() as i32;
                for hook in &new.webhooks {
                    self.hooks.push(ord, hook);
                }
                self.no.push(None);
                self.version.push(None);
                self.epoch.push(None);
                return Ok(());
            }
            Precondition::Version { task, version } => (*task, Some(*version as i64), None),
            Precondition::Runner { task, epoch } => (*task, None, Some(*epoch as i64)),
        };
        self.tenant.push(tenant(task));
        self.no.push(Some(task.0));
        self.version.push(version);
        self.epoch.push(epoch);
        self.id.push(None);
        self.agent.push(None);
        self.created_at.push(None);
        self.context.push(None);
        self.client_id.push(None);
        self.key.push(None);
        self.digest.push(None);
        self.parent.push(None);
        Ok(())
    }

    fn push_change(&mut self, ord: i32, change: &'a Change, clock: &DatabaseClock) {
        let events = change.events.as_ref().filter(|events| events.count > 0);
        self.events.push(events.map_or(0, |events| events.count.into()));
        self.bytes.push(events.map(|events| &*events.bytes));
        self.state.push(change.state.map(|(state, _)| state.code().into()));
        self.status_at.push(change.state.map(|(_, at)| at.0));
        self.head.push(change.head.as_deref());
        let (run, node, due_in) = match change.run {
            RunChange::Keep => (0, None, None),
            RunChange::Lease(node) => (1, Some(node.0), None),
            // A time in the past is due now: a node whose clock is behind must not keep others from the task.
            RunChange::Due(at) => (2, None, Some(clock.distance(at))),
            RunChange::Rest => (3, None, None),
        };
        self.run.push(run);
        self.node.push(node);
        self.due_in.push(due_in);
        self.cancel.push(change.cancel);
        self.records.push(change.journal.len() as i32);
        for record in &change.journal {
            self.journal.0.push(ord);
            self.journal.1.push(&record.0);
        }
    }

    /// Commits the batch.
    pub(super) async fn commit(
        &self,
        client: &Client,
        statement: &Statement,
        name: &BatchName,
    ) -> Result<Vec<ChangeOutcome>, tokio_postgres::Error> {
        Ok(client.query(statement, &self.parameters(name)).await?.iter().map(outcome).collect())
    }

    /// Commits a batch of one change that adds webhooks, in one transaction with them.
    pub(super) async fn commit_with_webhooks(
        &self,
        client: &mut Client,
        statement: &Statement,
        add: &Statement,
        name: &BatchName,
        added: &AddedWebhooks,
    ) -> Result<Vec<ChangeOutcome>, tokio_postgres::Error> {
        let transaction = client.transaction().await?;
        let rows = transaction.query(statement, &self.parameters(name)).await?;
        let mut outcomes: Vec<ChangeOutcome> = rows.iter().map(outcome).collect();
        for outcome in &mut outcomes {
            let Ok(CommitReceipt { task, .. }) = outcome.result else { continue };
            let hooks = WebhookColumns::of(&added.hooks);
            let cap = i64::try_from(added.cap).unwrap_or(i64::MAX);
            let (id, cursor, config) = (&hooks.id, &hooks.cursor, &hooks.config);
            let put = transaction
                .query(add, &[&self.given, &tenant(task), &task.0, id, cursor, config, &cap])
                .await?;
            if put.iter().any(|row| row.get::<_, i16>(0) != 0) {
                outcome.result = Err(CommitError::TooManyWebhooks(added.cap));
                transaction.rollback().await?;
                return Ok(outcomes);
            }
        }
        transaction.commit().await?;
        Ok(outcomes)
    }

    fn parameters<'b>(&'b self, name: &'b BatchName) -> [&'b (dyn ToSql + Sync); 33] {
        let (journal, hooks) = (&self.journal, &self.hooks);
        [
            &name.writer,
            &name.batch,
            &self.given,
            &name.slot,
            &MAX_SEQ,
            &self.tenant,
            &self.no,
            &self.version,
            &self.epoch,
            &self.events,
            &self.bytes,
            &self.state,
            &self.status_at,
            &self.head,
            &self.run,
            &self.node,
            &self.due_in,
            &self.cancel,
            &self.records,
            &self.id,
            &self.agent,
            &self.created_at,
            &self.context,
            &self.client_id,
            &self.key,
            &self.digest,
            &self.parent,
            &journal.0,
            &journal.1,
            &hooks.ord,
            &hooks.id,
            &hooks.cursor,
            &hooks.config,
        ]
    }
}

impl<'a> WebhookColumns<'a> {
    /// The webhooks of the only change of a batch.
    fn of(hooks: &'a [Webhook]) -> Self {
        let mut columns = Self::default();
        hooks.iter().for_each(|hook| columns.push(1, hook));
        columns
    }

    fn push(&mut self, ord: i32, hook: &'a Webhook) {
        self.ord.push(ord);
        self.id.push(&hook.id);
        self.cursor.push(hook.cursor as i64);
        self.config.push(&hook.config);
    }
}

/// The outcome of one change.
pub(super) struct ChangeOutcome {
    /// The position of the change in the batch.
    pub(super) place: usize,
    pub(super) result: Result<CommitReceipt, CommitError>,
    /// The task, if it existed before.
    task: Option<TaskId>,
    /// Whether webhooks have something to deliver.
    hooked: bool,
}

fn outcome(row: &Row) -> ChangeOutcome {
    let number = |column: usize| row.get::<_, i64>(column).cast_unsigned();
    let ord: i32 = row.get(0);
    let result = match row.get::<_, i16>(1) {
        0 => Ok(CommitReceipt {
            task: TaskNo(row.get(2)),
            first_seq: number(3),
            seq: number(4),
            version: number(5),
            epoch: number(6),
            cancel: row.get(7),
            unfolded: number(8),
        }),
        1 => match row.get::<_, Option<Uuid>>(9) {
            Some(task) => {
                let digest: Option<Vec<u8>> = row.get(10);
                let digest = digest.and_then(|digest| digest.try_into().ok());
                Err(CommitError::Exists { task: TaskId(task), digest })
            }
            // The task was deleted between the two reads.
            None => Err(StoreError::Unavailable("a task of that name is being deleted".into()).into()),
        },
        2 => Err(CommitError::Moved),
        3 => Err(CommitError::Fenced),
        4 => Err(CommitError::Ended),
        5 => Err(CommitError::Gone),
        _ => Err(CommitError::LogFull(MAX_SEQ as u64)),
    };
    let task = row.get::<_, Option<Uuid>>(9).map(TaskId);
    ChangeOutcome { place: ord as usize - 1, result, task, hooked: row.get(11) }
}

impl ChangeOutcome {
    /// The notifications for other nodes. A new task has no followers yet.
    pub(super) fn news(&self, change: &Change) -> impl Iterator<Item = StoreNotification> {
        let done = self.result.as_ref().ok();
        let task = done.zip(self.task).map(|(done, id)| StoreNotification::Task {
            no: done.task,
            id,
            seq: done.seq,
        });
        let due = done.filter(|_| matches!(change.run, RunChange::Due(_))).map(|_| StoreNotification::Due);
        let hooked = self.hooked || change.webhooks.is_some();
        let deliveries = done.filter(|_| hooked).map(|_| StoreNotification::Deliveries);
        task.into_iter().chain(due).chain(deliveries)
    }
}

/// The approximate size of a change, in bytes.
pub(super) fn weight(change: &Change) -> usize {
    let events = change.events.as_ref().map_or(0, |events| events.bytes.len());
    let journal: usize = change.journal.iter().map(|record| record.0.len()).sum();
    let hooks = change.webhooks.iter().flat_map(|added| &added.hooks);
    let hooks: usize = hooks.map(|hook| hook.config.len()).sum();
    events + journal + hooks + change.head.as_ref().map_or(0, Bytes::len)
}
