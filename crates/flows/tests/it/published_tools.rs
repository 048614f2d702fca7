//! Golden files of everything that the flows publish about themselves: each tool as `tools/list` shows it, and
//! each schema under `/schemas`. A client generates code from these, so a change has to be meant. After a meant
//! change, run this test with `NUNCIO_BLESS=1`; before, it prints each difference by its path.
//!
//! The comparison ignores what does not change the meaning of a schema: the order of keys, of `required`, of an
//! `enum` and of a list of types, a `required` that is empty, and the type `string` beside an `enum` of strings.

use std::{fs, path::PathBuf};

use nuncio_engine::{TaskUse, surface::ToolProfile};
use nuncio_flows::{Flows, FlowsOptions};
use serde_json::{Value, json};

use crate::test_engine::TestEngine;

const SCHEMAS: [&str; 12] = [
    "a2a-registry",
    "batchtools-performance",
    "batchtools-queue",
    "batchtools-settings",
    "memory-data",
    "memory-keys",
    "memory-search",
    "sparc-artifact",
    "sparc-capabilities",
    "sparc-history",
    "sparc-template",
    "sparc-workflow",
];

#[tokio::test]
async fn tools_and_schemas_are_published_as_the_golden_files_say() {
    let flows = Flows::new(FlowsOptions::default());
    let here = TestEngine::start(flows.agents()).await;
    flows.install(&here.engine).unwrap();
    let surface = here.engine.catalog().surface();
    let tools = surface.tools();
    let mut wrong: Vec<String> = tools
        .iter()
        .filter_map(|tool| compare("tools", &tool.profile.name, &listed(&tool.profile)))
        .collect();
    for name in SCHEMAS {
        let schema = surface.schema(name).unwrap_or_else(|| panic!("there is no schema {name}"));
        wrong.extend(compare("schemas", name, &schema));
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    let files = fs::read_dir(folder("tools")).unwrap().count();
    assert_eq!(tools.len(), files, "a golden file without its tool");
}

/// The agents of the flows are tools as well: their schemas are part of the contract.
#[test]
fn agents_take_what_the_golden_files_say() {
    let agents = Flows::new(FlowsOptions::default()).agents();
    let wrong: Vec<String> = agents
        .iter()
        .filter_map(|agent| {
            let profile = agent.profile();
            let schemas =
                json!({ "inputSchema": profile.input_schema, "outputSchema": profile.output_schema });
            compare("agents", &profile.name, &schemas)
        })
        .collect();
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

fn listed(profile: &ToolProfile) -> Value {
    let ToolProfile { name, title, description, input_schema, output_schema, tasks, annotations, group } =
        profile;
    assert!(group.is_some(), "{name} belongs to no group, so it could not be left out of a list");
    let tasks = match tasks {
        TaskUse::Never => "never",
        TaskUse::Offered => "offered",
        TaskUse::Required => "required",
    };
    json!({
        "name": name,
        "title": title,
        "description": description,
        "inputSchema": input_schema,
        "outputSchema": output_schema,
        "tasks": tasks,
        "annotations": annotations,
    })
}

fn folder(kind: &str) -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/it/golden").join(kind)
}

/// The difference between what is published and its golden file.
fn compare(kind: &str, name: &str, published: &Value) -> Option<String> {
    let path = folder(kind).join(format!("{name}.json"));
    if std::env::var_os("NUNCIO_BLESS").is_some() {
        fs::create_dir_all(folder(kind)).unwrap();
        fs::write(&path, format!("{published}\n")).unwrap();
        return None;
    }
    let golden = fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    let golden: Value = serde_json::from_str(&golden).unwrap();
    let mut found = vec![];
    differences("", &normal(golden), &normal(published.clone()), &mut found);
    (!found.is_empty()).then(|| format!("{kind}/{name}:\n{}", found.join("\n")))
}

fn differences(at: &str, golden: &Value, published: &Value, found: &mut Vec<String>) {
    if golden == published {
        return;
    }
    let (Value::Object(golden), Value::Object(published)) = (golden, published) else {
        found.push(format!("  {at}: {published}, and the golden file says {golden}"));
        return;
    };
    for (key, value) in golden {
        match published.get(key) {
            Some(other) => differences(&format!("{at}/{key}"), value, other, found),
            None => found.push(format!("  {at}/{key}: missing; the golden file says {value}")),
        }
    }
    for (key, value) in published.iter().filter(|(key, _)| !golden.contains_key(*key)) {
        found.push(format!("  {at}/{key}: {value}, which the golden file does not have"));
    }
}

fn normal(value: Value) -> Value {
    match value {
        Value::Object(mut members) => {
            if members.get("required").is_some_and(|names| names.as_array().is_some_and(Vec::is_empty)) {
                members.shift_remove("required");
            }
            if members.get("enum").is_some_and(Value::is_array)
                && members.get("type") == Some(&json!("string"))
            {
                members.shift_remove("type");
            }
            members.into_iter().map(normal_member).collect()
        }
        Value::Array(items) => items.into_iter().map(normal).collect(),
        other => other,
    }
}

fn normal_member((key, value): (String, Value)) -> (String, Value) {
    match (key.as_str(), normal(value)) {
        ("required" | "type" | "enum", Value::Array(mut names)) => {
            names.sort_by_key(ToString::to_string);
            (key, Value::Array(names))
        }
        (_, value) => (key, value),
    }
}
