//! Lists that read many rows: how many of them one caller and one tenant may have in progress.

use std::time::Duration;

use nuncio_engine::{
    Caller, Engine, Error, Grants, MeteredResource, Outcome, TaskContext,
    admin::{AdminList, DeliveryList},
    engine::OverviewQuery,
    knowledge::AuditQuery,
};

use crate::world::World;

/// Each list, as this caller.
async fn all_lists(engine: &Engine, caller: &Caller) -> Vec<(&'static str, Result<(), Error>)> {
    let overview = OverviewQuery { limit: 10, ..OverviewQuery::default() };
    let deliveries = DeliveryList { limit: 10, ..DeliveryList::default() };
    let audit = AuditQuery { limit: 10, ..AuditQuery::default() };
    let tasks = AdminList { page_size: 10, ..AdminList::default() };
    vec![
        ("overview", engine.overview(caller, &overview).await.map(drop)),
        ("selection", engine.create_selection(caller, &overview).await.map(drop)),
        ("deliveries", engine.failed_deliveries(caller, deliveries).await.map(drop)),
        ("audit", engine.audit_log(caller, audit).await.map(drop)),
        ("tasks", engine.admin_list(caller, tasks).await.map(drop)),
    ]
}

/// One caller cannot occupy all connections that lists are read on, nor can the callers of one tenant.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_caller_waits_for_its_own_list_and_for_no_other_callers() {
    let world = World::new().agent("quick", async |_: TaskContext| Ok(Outcome::done()));
    let engine = world.options(|options| options.limits.list_wait = Duration::from_millis(50)).start().await;
    let caller = |owner: &str| Caller::named(owner).limited_to(Grants::parse("*:* read:admin").unwrap());
    let (ada, bob, eve) = (caller("acme/ada"), caller("acme/bob"), caller("evil/eve"));
    let list = |caller: &Caller| engine.usage().take(caller, MeteredResource::Lists).unwrap();
    let refused = async |who: &Caller, limit: &str| {
        for (name, result) in all_lists(&engine, who).await {
            let error = result.expect_err(name);
            assert!(matches!(&error, Error::TooFast { why, .. } if why.contains(limit)), "{name}: {error}");
        }
    };
    let served = async |who: &Caller| {
        for (name, result) in all_lists(&engine, who).await {
            result.unwrap_or_else(|error| panic!("{name}: {error}"));
        }
    };
    let of_ada = list(&ada);
    refused(&ada, "lists-per-owner").await;
    served(&bob).await;
    let of_bob = list(&bob);
    refused(&caller("acme/carol"), "lists-per-tenant").await;
    served(&eve).await;
    drop(of_ada);
    served(&ada).await;
    drop(of_bob);
    assert_eq!(engine.usage().used("", MeteredResource::Lists).total, 0, "a list gives its permit back");
}
