//! Connections that each ask, wait for the answer, check it and ask again, until the count or the time is
//! used up.

use std::{
    cell::RefCell,
    rc::Rc,
    time::{Duration, Instant},
};

use anyhow::Context;

use crate::{
    Flags, Workload,
    connection::Connection,
    endpoint::Endpoint,
    figures::{Figures, Tally},
    plan::Plan,
    process,
};

struct Run {
    plan: Plan,
    end: Instant,
    left: usize,
    tally: Tally,
}

pub(crate) async fn run(flags: &Flags, endpoint: &Endpoint) -> anyhow::Result<Figures> {
    let plan = Plan::prepare(flags, endpoint).await?;
    let mut connections = Vec::with_capacity(flags.conns);
    for _ in 0..flags.conns {
        let mut connection = Connection::open(endpoint).await?;
        plan.begin_session(&mut connection).await?;
        connections.push(connection);
    }

    let server = process::usage(flags.pid);
    let client = process::usage(std::process::id());
    let start = Instant::now();
    let run = Rc::new(RefCell::new(Run {
        plan,
        end: start + Duration::from_secs_f64(flags.secs),
        left: flags.count,
        tally: Tally::default(),
    }));
    let mut loops = Vec::with_capacity(flags.conns);
    for connection in connections {
        loops.push(tokio::task::spawn_local(ask(Rc::clone(&run), connection)));
    }
    for one in loops {
        one.await?;
    }
    let took = start.elapsed();
    let server = (server, process::usage(flags.pid));
    let client = (client, process::usage(std::process::id()));

    let run = Rc::into_inner(run).context("a connection is still at work")?.into_inner();
    if let (Workload::Fill, Some(path)) = (flags.workload, &flags.ids) {
        std::fs::write(path, run.plan.into_ids().join("\n"))?;
    }
    Ok(run.tally.figures(took, server, client))
}

async fn ask(run: Rc<RefCell<Run>>, mut connection: Connection) {
    loop {
        let (request, sent) = {
            let mut run = run.borrow_mut();
            let now = Instant::now();
            if run.left == 0 || now >= run.end {
                return;
            }
            run.left -= 1;
            (run.plan.next(), now)
        };
        let answer = connection.call(request).await;
        let broken = answer.is_err();
        {
            let run = &mut *run.borrow_mut();
            match answer.and_then(|answer| run.plan.check(&answer)) {
                Ok(events) => run.tally.good(sent.elapsed(), events),
                Err(error) => run.tally.bad(&error),
            }
        }
        if broken && connection.reopen().await.is_err() {
            return;
        }
    }
}
