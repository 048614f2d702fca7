//! What a selection may read.

use futures_util::{StreamExt, stream};
use nuncio_engine::{Error, Outcome, TaskContext, engine::OverviewQuery};

use crate::world::{EngineExt, World, me, to};

/// More than one read finds.
const TASKS: usize = 1_001;

/// `console.selection-reads`: a filter for which too much has to be read is refused, and the message names the limit.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_selection_reads_so_often_and_no_more() {
    let quick = |reads: usize| {
        let world = World::new().agent("quick", async |_: TaskContext| Ok(Outcome::done()));
        world.options(move |options| options.limits.selection_reads = reads)
    };
    for (reads, expected) in [(1, None), (2, Some(TASKS))] {
        let world = quick(reads);
        let engine = world.start().await;
        stream::iter(0..TASKS)
            .for_each_concurrent(64, async |n| drop(engine.send(to("quick", &n.to_string())).await))
            .await;
        let query = OverviewQuery { limit: 1, ..OverviewQuery::default() };
        match (engine.create_selection(&me(), &query).await, expected) {
            (Ok((selection, _)), Some(count)) => assert_eq!(selection.tasks.len(), count),
            (Err(Error::Limit(why)), None) => assert!(why.contains("console.selection-reads"), "{why}"),
            (other, _) => panic!("{reads}: {:?}", other.map(|(selection, _)| selection.tasks.len())),
        }
        engine.stop().await;
    }
}
