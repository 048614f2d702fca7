//! What a caller has to be allowed to do for a tool, so that a list shows only what the caller may use.
//!
//! The tools check the same when they are called, with the names of the call. Here it is enough that the caller may use a
//! tool for anything at all.

use nuncio_engine::{
    AccessKind::{self, A2a, Batchtools, Memory, Sparc},
    Action::{self, Execute, Read, Write},
    Caller,
    access::TASKS,
};

/// One permission that a tool needs.
#[derive(Clone, Copy)]
enum ToolPermission {
    /// For the resource of that name.
    Of(Action, AccessKind, &'static str),
    /// For at least one resource.
    Any(Action, AccessKind),
}

use ToolPermission::{Any, Of};

/// Whether the caller may use a tool for anything. Tools that are not built into this server are open to all
/// callers.
pub(super) fn may_use(caller: &Caller, tool: &str) -> bool {
    permissions(tool).iter().all(|permission| match *permission {
        Of(action, kind, name) => caller.may(action, kind, name),
        Any(action, kind) => caller.grants().allow_some(action, kind),
    })
}

/// All that a built-in tool needs. A tool that hands over to an agent, or begins its task, needs the scope of that agent.
fn permissions(tool: &str) -> &'static [ToolPermission] {
    const ENGINE: &str = "batchtools";
    const ORCHESTRATOR: &str = "orchestrator";
    const REGISTRY: &str = "registry";
    match tool {
        "task_send" => &[Any(Execute, A2a)],
        "task_get" | "task_list" | "task_events" => &[Of(Read, A2a, TASKS)],
        "task_reply" | "task_cancel" => &[Of(Write, A2a, TASKS)],
        "agents_list" => &[Of(Read, A2a, REGISTRY)],
        "agents_probe" => &[Of(Execute, A2a, REGISTRY)],
        "a2a_streams" => &[Of(Read, A2a, "streams")],
        "memory_get" | "memory_list" | "memory_search" | "memory_export" => &[Any(Read, Memory)],
        "memory_store" | "memory_delete" | "memory_clear" | "memory_import" => &[Any(Write, Memory)],
        "batch_submit" => &[Of(Execute, Batchtools, ENGINE), Of(Execute, A2a, "batch")],
        "batch_retry" => &[Of(Execute, Batchtools, ENGINE), Of(Read, A2a, TASKS), Of(Execute, A2a, "batch")],
        "batch_status" | "batch_list" => &[Of(Read, Batchtools, ENGINE), Of(Read, A2a, TASKS)],
        "batch_cancel" => &[Of(Write, Batchtools, ENGINE), Of(Read, A2a, TASKS), Of(Write, A2a, TASKS)],
        "batch_pause" | "batch_resume" => &[Of(Write, Batchtools, ENGINE), Of(Read, A2a, TASKS)],
        "batch_configure" => &[Of(Write, Batchtools, ENGINE)],
        "plan_make" | "plan_run" => &[Of(Execute, A2a, ORCHESTRATOR)],
        "plan_check" | "plan_show" => &[Of(Read, A2a, ORCHESTRATOR)],
        "plan_status" | "plan_list" => &[Of(Read, A2a, ORCHESTRATOR), Of(Read, A2a, TASKS)],
        "plan_cancel" => &[Of(Write, A2a, ORCHESTRATOR), Of(Read, A2a, TASKS), Of(Write, A2a, TASKS)],
        "sparc_status" | "sparc_list" | "sparc_history" => &[Any(Read, Sparc)],
        "sparc_start" | "sparc_submit" | "sparc_back" => &[Any(Write, Sparc)],
        "sparc_run" => &[Any(Execute, Sparc), Of(Execute, A2a, "coordinator")],
        _ => &[],
    }
}

#[cfg(test)]
mod tests {
    use nuncio_engine::Grants;

    use super::*;

    fn check(scopes: &str, tools: &[(&str, bool)]) {
        let grants = Grants::parse(scopes).unwrap_or_else(|why| panic!("{why}"));
        let caller = Caller::named("ada").limited_to(grants);
        for (tool, may) in tools {
            assert_eq!(may_use(&caller, tool), *may, "{scopes}: {tool}");
        }
    }

    #[test]
    fn a_caller_sees_the_tools_that_it_may_use_for_anything() {
        check(
            "read:memory:team-* execute:a2a:echo",
            &[
                ("memory_get", true),
                ("memory_store", false),
                ("batch_submit", false),
                ("sparc_start", false),
                ("task_send", true),
                // A caller that may call an agent may read and answer the resulting tasks.
                ("task_get", true),
                ("task_reply", true),
                ("plan_make", false),
                ("agents_list", false),
                ("greet", true),
            ],
        );
        check("execute:batchtools", &[("batch_submit", false), ("batch_list", false)]);
        check("execute:batchtools execute:a2a:batch", &[("batch_submit", true), ("batch_status", false)]);
        check("read:sparc", &[("sparc_status", true), ("sparc_submit", false), ("sparc_run", false)]);
        check("read:a2a", &[("plan_check", true), ("plan_run", false), ("task_cancel", false)]);
        check("", &[("task_list", false), ("plan_show", false), ("a2a_streams", false)]);
    }
}
