//! `nuncio store check`: reads everything in a store. Each task's log has to be whole, readable, and come to the state
//! that the task's row has.

use std::process::ExitCode;

use nuncio::StoreLocation;
use nuncio_engine::{
    event,
    task::{Origin, Task},
};
use nuncio_store::{
    SqliteOpenError, StoreOpenError,
    archive::{Archive, ArchiveItem, ArchiveKey, ArchiveKind, TaskDump},
};
use serde_json::json;

use super::failed;
use crate::{
    error::CliError,
    output::{self, Format},
    text::TextOutput,
};

/// Items whose keys are read at once.
const PAGE: usize = 256;
/// The most problems that are listed; all are counted.
const SHOWN: usize = 100;

#[derive(Debug, Default)]
struct StoreFindings {
    tasks: u64,
    events: u64,
    others: u64,
    problems: Vec<String>,
    count: usize,
}

impl StoreFindings {
    fn add(&mut self, problem: String) {
        self.count += 1;
        if self.problems.len() < SHOWN {
            self.problems.push(problem);
        }
    }
}

pub(super) async fn run(place: &StoreLocation, format: Format) -> Result<ExitCode, CliError> {
    let statistics = place.statistics().await.map_err(failed)?;
    if statistics.schema < statistics.known_schema {
        return Err(CliError::Store(format!(
            "the store has schema {} and this version {}: a check would migrate it; check a backup of it, which may be \
             migrated",
            statistics.schema, statistics.known_schema
        )));
    }
    let mut found = StoreFindings::default();
    place
        .file_problems()
        .map_err(failed)?
        .into_iter()
        .for_each(|problem| found.add(format!("file: {problem}")));
    let store = match place.open().await {
        Ok(store) => store,
        Err(StoreOpenError::Sqlite(SqliteOpenError::Locked { .. })) if found.count == 0 => {
            return Err(CliError::Store(
                "the database file is sound, and a server uses it: to check its tasks as well, stop the server, or check \
                 a backup (nuncio store backup COPY; nuncio store check --data COPY)"
                    .into(),
            ));
        }
        // A file that is damaged may not open, and that is what was to be found.
        Err(error) if found.count > 0 => {
            found.add(format!("it does not open: {error}"));
            return report(&found, format);
        }
        Err(error) => return Err(failed(error)),
    };
    let checked = check_items(&*store, &mut found).await;
    let _ = store.close().await;
    if let Err(error) = checked {
        found.add(error);
    }
    report(&found, format)
}

/// Reads every item. An error is one of the whole store, after which no more can be read.
async fn check_items(store: &dyn Archive, found: &mut StoreFindings) -> Result<(), String> {
    for kind in ArchiveKind::ALL {
        let mut after: Option<ArchiveKey> = None;
        loop {
            let keys = store.keys(kind, after.as_ref(), PAGE).await;
            let keys = keys.map_err(|error| format!("the list of {}: {error}", name_of(kind)))?;
            let Some(last) = keys.last() else { break };
            after = Some(last.clone());
            for key in &keys {
                match store.read_item(key).await {
                    Ok(Some(item)) => check_item(&item, found),
                    // Deleted since its key was read.
                    Ok(None) => {}
                    Err(error) => found.add(format!("{}: {error}", label_of(key))),
                }
            }
        }
    }
    Ok(())
}

fn check_item(item: &ArchiveItem, found: &mut StoreFindings) {
    let ArchiveItem::Task(dump) = item else {
        found.others += 1;
        return;
    };
    found.tasks += 1;
    found.events += dump.row.seq;
    if let Err(why) = check_task(dump) {
        found.add(format!("task {}: {why}", dump.row.id));
    }
}

/// Whether a task's log comes to its row.
fn check_task(dump: &TaskDump) -> Result<(), String> {
    let row = &dump.row;
    let mut task = Task::new(Origin {
        id: row.id,
        client_id: row.client_id.clone(),
        context: row.context.clone(),
        agent: row.agent.clone(),
        owner: row.owner.clone(),
        dialect: String::new(),
        metadata: None,
        trace: None,
        accepts_reply: false,
    });
    for batch in &dump.log {
        if batch.first_seq != task.seq + 1 {
            return Err(format!("its log goes on with event {} after event {}", batch.first_seq, task.seq));
        }
        let entries = event::decode(&batch.bytes)
            .map_err(|error| format!("the events from {} on cannot be read: {error}", batch.first_seq))?;
        task = task.fold(&entries);
    }
    if task.seq != row.seq {
        return Err(format!("its log has {} events, and its row says {}", task.seq, row.seq));
    }
    if task.state != row.state {
        return Err(format!("its log ends {}, and its row says {}", task.state.name(), row.state.name()));
    }
    Ok(())
}

fn name_of(kind: ArchiveKind) -> &'static str {
    match kind {
        ArchiveKind::Tasks => "tasks",
        ArchiveKind::Sessions => "sessions",
        ArchiveKind::Memory => "memory entries",
        ArchiveKind::Records => "records",
        ArchiveKind::Audit => "audit lines",
    }
}

/// What an item is called. A session's id grants access to it, so it is not shown.
fn label_of(key: &ArchiveKey) -> String {
    match key {
        ArchiveKey::Task(id) => format!("task {id}"),
        ArchiveKey::Session(_) => "a session".to_owned(),
        ArchiveKey::Memory(key) => format!("memory {key:?}"),
        ArchiveKey::Record(key) => format!("record {key:?}"),
        ArchiveKey::Audit(number) => format!("audit line {number}"),
    }
}

fn report(found: &StoreFindings, format: Format) -> Result<ExitCode, CliError> {
    let StoreFindings { tasks, events, others, problems, count } = found;
    if format == Format::Json {
        let document = json!({
            "tasks": tasks, "events": events, "others": others, "problems": problems, "problemCount": count,
        });
        output::json_text(&document.to_string())?;
    } else {
        let mut text = TextOutput::default();
        text.field("Checked", &format!("{tasks} tasks with {events} events, {others} other items"));
        for problem in problems {
            text.field("Problem", problem);
        }
        text.field("Problems", &count.to_string());
        output::text(&text.0)?;
    }
    Ok(if *count == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}
