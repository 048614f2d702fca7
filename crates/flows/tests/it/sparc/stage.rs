//! An engine with SPARC on it, calls of its tools and resources, and somebody who answers what its agents ask. What
//! waits here has a deadline.

use std::{collections::HashSet, path::Path, sync::Arc, time::Duration};

use nuncio_engine::{
    Caller, Catalog, Content, Engine, EngineParts, Message, Part, Reply, Role as Speaker, Sampler, State,
    Submit, Task,
    question::{Ask, Question},
    surface::{
        CompiledSchema, HandlerError, HandlerReply, HandlerRequest, ResourceBody, ResourceContent,
        ToolOutput, matches,
    },
};
use nuncio_flows::{
    batch::BatchEngine,
    memory::{MemoryBank, MemoryOptions},
    sparc::{PhaseTemplate, SparcEngine, SparcOptions, SparcPhase, Workflows},
};
use nuncio_store::SqliteOptions;
use nuncio_testkit::open_in;
use serde_json::{Map, Value, json};
use uuid::Uuid;

/// Far more than anything here takes.
pub(crate) const DEADLINE: Duration = Duration::from_secs(90);

pub(crate) struct Stage {
    pub(crate) engine: Engine,
    pub(crate) workflows: Workflows,
}

impl Stage {
    /// An engine on a folder; waits until whoever had it before has let go of it.
    pub(crate) async fn open(folder: &Path, options: SparcOptions) -> Self {
        Self::open_beside(folder, options, None, None).await
    }

    /// The same, beside the batch engine where one is given, and with a model of the server's own.
    pub(crate) async fn open_beside(
        folder: &Path,
        options: SparcOptions,
        batch: Option<Arc<BatchEngine>>,
        sampler: Option<Arc<dyn Sampler>>,
    ) -> Self {
        let store = open_in(folder, SqliteOptions { readers: 1, ..SqliteOptions::default() }).await;
        let sparc = Arc::new(SparcEngine::new(options));
        let mut catalog = Catalog::default();
        for agent in sparc.agents().into_iter().chain(batch.iter().flat_map(|batch| batch.agents())) {
            catalog.add(agent).unwrap();
        }
        let engine =
            Engine::start(EngineParts { sampler, ..EngineParts::new(store, catalog) }).await.unwrap();
        engine.catalog().surface().set_base_url("http://here.example");
        sparc.install(&engine, engine.catalog().surface()).unwrap();
        if let Some(batch) = batch {
            let bank = MemoryBank::new(engine.clone(), MemoryOptions::default());
            batch.install(&engine, &bank, engine.catalog().surface()).unwrap();
        }
        Self { workflows: sparc.workflows(&engine), engine }
    }

    /// Calls a tool and holds what it takes and says against its schemas. A call that is handed over is a task, whose
    /// one structured result counts.
    pub(crate) async fn call(
        &self,
        caller: &Caller,
        tool: &str,
        given: Value,
    ) -> Result<Value, HandlerError> {
        let tool = self.engine.catalog().surface().tool(tool).expect("a tool");
        if let Some(why) = tool.input.refuse(&given) {
            return Err(HandlerError::Invalid(why));
        }
        let request = HandlerRequest::new(caller.clone(), members(given));
        let structured = match tool.handler.call(request).await? {
            HandlerReply::Done(ToolOutput { structured, content, .. }) => {
                assert!(!content.is_empty(), "no words");
                structured.expect("a structured result")
            }
            HandlerReply::HandOver { agent, arguments } => {
                let message = Message::of(id(), Speaker::User, vec![Part::data(Value::Object(arguments))]);
                let task = self.engine.submit(caller, Submit::new(agent, message)).await?;
                let task = within(self.engine.wait_until_idle(caller, task)).await?;
                if task.state != State::Completed {
                    return Err(HandlerError::Failed(words(&task)));
                }
                result(&task)
            }
            HandlerReply::Ask(_) => panic!("it asks"),
        };
        assert_eq!(tool.output.as_ref().expect("an output schema").refuse(&structured), None, "{structured}");
        Ok(structured)
    }

    /// Reads a resource and holds it against the schema that its metadata names; with that metadata.
    pub(crate) async fn read(
        &self,
        caller: &Caller,
        uri: &str,
    ) -> Result<(Value, Map<String, Value>), HandlerError> {
        let surface = self.engine.catalog().surface();
        let mut request = HandlerRequest::new(caller.clone(), Map::new());
        let said = match surface.resource(uri) {
            Some(resource) => resource.handler.read(request).await?,
            None => {
                let found = surface.templates().into_iter().find_map(|template| {
                    let variables = matches(&template.profile.uri, uri)?;
                    Some((template, variables))
                });
                let Some((template, variables)) = found else {
                    return Err(HandlerError::NotFound(uri.into()));
                };
                request.arguments = variables.into_iter().map(|(name, value)| (name, value.into())).collect();
                template.handler.read(uri, request).await?
            }
        };
        let HandlerReply::Done(contents) = said else { panic!("it asks") };
        let [ResourceContent { body: ResourceBody::Text(text), meta: Some(meta), .. }] = &contents[..] else {
            panic!("{contents:?}")
        };
        let value: Value = serde_json::from_str(text).unwrap();
        let schema = meta["schema"].as_str().unwrap();
        let schema = schema.trim_start_matches("http://here.example/schemas/").trim_end_matches(".json");
        let schema = surface.schema(schema).expect("a schema");
        assert_eq!(CompiledSchema::compile(&schema).unwrap().refuse(&value), None, "{value}");
        Ok((value, meta.clone()))
    }

    /// Starts a workflow and brings it to a phase with the worked examples.
    pub(crate) async fn workflow_at(&self, context_id: &str, phase: SparcPhase) {
        let goal = json!({ "contextId": context_id, "goal": "Links that expire" });
        self.call(&me(), "sparc_start", goal).await.unwrap();
        for phase in phase.earlier() {
            let passed = self.submit(context_id, *phase, example(*phase)).await.unwrap();
            assert_eq!(passed["passed"], true, "{passed}");
        }
    }

    pub(crate) async fn submit(
        &self,
        context_id: &str,
        phase: SparcPhase,
        artifact: Value,
    ) -> Result<Value, HandlerError> {
        let given = json!({ "contextId": context_id, "phase": phase, "artifact": artifact });
        self.call(&me(), "sparc_submit", given).await
    }

    pub(crate) async fn status(&self, context_id: &str) -> Value {
        self.call(&me(), "sparc_status", json!({ "contextId": context_id })).await.unwrap()
    }

    /// Has an agent begin, for a caller that has a model where `samples`.
    pub(crate) async fn begin(&self, agent: &str, given: Value, samples: bool) -> Task {
        self.begin_as(&me(), agent, given, samples).await
    }

    pub(crate) async fn begin_as(&self, caller: &Caller, agent: &str, given: Value, samples: bool) -> Task {
        let message = Message::of(id(), Speaker::User, vec![Part::data(given)]);
        let mut submit = Submit::new(agent, message);
        submit.abilities.sample = samples;
        within(self.engine.submit(caller, submit)).await.unwrap()
    }

    /// Follows a task to its end and answers what it asks. Where `answer` says `None`, that is as far as it goes.
    pub(crate) async fn drive(&self, task: &Task, mut answer: impl FnMut(&Question) -> Option<Part>) -> Task {
        let (name, mut answered) = (task.origin.id.to_string(), HashSet::new());
        within(async {
            loop {
                let task = self.engine.get(&me(), &name).await.unwrap();
                if task.state.is_terminal() {
                    return Arc::unwrap_or_clone(task);
                }
                let open = task.questions.iter().find(|(seq, _)| !answered.contains(seq));
                let Some((seq, question)) = open else {
                    tokio::time::sleep(Duration::from_millis(2)).await;
                    continue;
                };
                let Some(part) = answer(question) else { return Arc::unwrap_or_clone(task) };
                answered.insert(*seq);
                let message = Message::of(id(), Speaker::User, vec![part]);
                let reply = Reply {
                    task: name.clone(),
                    context: None,
                    message,
                    idempotency_key: None,
                    webhooks: vec![],
                };
                self.engine.reply(&me(), reply).await.unwrap();
            }
        })
        .await
    }

    pub(crate) async fn stop(self) {
        within(self.engine.stop()).await;
    }
}

/// An engine with these options on a folder of its own.
pub(crate) async fn stage(options: SparcOptions) -> (Stage, tempfile::TempDir) {
    let folder = tempfile::tempdir().unwrap();
    (Stage::open(folder.path(), options).await, folder)
}

/// With tests that end with this code.
pub(crate) fn tests_that(script: &str) -> SparcOptions {
    let test_command = Some(["sh", "-c", script].map(str::to_owned).to_vec());
    SparcOptions { test_command, ..SparcOptions::default() }
}

pub(crate) fn me() -> Caller {
    Caller::local()
}

pub(crate) fn example(phase: SparcPhase) -> Value {
    PhaseTemplate::of(phase).example().clone()
}

pub(crate) async fn within<T>(work: impl Future<Output = T>) -> T {
    tokio::time::timeout(DEADLINE, work).await.expect("this should have come long ago")
}

fn id() -> String {
    Uuid::now_v7().to_string()
}

fn members(value: Value) -> Map<String, Value> {
    match value {
        Value::Object(members) => members,
        other => panic!("{other}"),
    }
}

/// The last words of a task.
pub(crate) fn words(task: &Task) -> String {
    task.status_message.as_ref().map(Message::joined_text).unwrap_or_default()
}

/// The one structured result of a task.
pub(crate) fn result(task: &Task) -> Value {
    let parts = task.artifacts.iter().flat_map(|artifact| &artifact.parts);
    let data: Vec<&Value> = parts
        .filter_map(|part| match &part.content {
            Content::Data(value) => Some(value),
            _ => None,
        })
        .collect();
    let [data] = data[..] else { panic!("one structured result, not {data:?}") };
    data.clone()
}

/// The phase that a question is about.
pub(crate) fn phase_of(question: &Question) -> SparcPhase {
    let asked = |phase: &SparcPhase| match &question.ask {
        Ask::Sample { .. } => question.text.contains(&format!("the artifact of the {phase} phase")),
        _ => question.text.contains(&format!("{phase}, section")),
    };
    SparcPhase::ALL.into_iter().find(asked).unwrap_or_else(|| panic!("{}", question.text))
}

/// What a model says: the worked example of the phase, in a fence.
pub(crate) fn by_model(question: &Question) -> Part {
    assert!(matches!(question.ask, Ask::Sample { .. }), "{question:?}");
    in_fence(&example(phase_of(question)))
}

pub(crate) fn in_fence(artifact: &Value) -> Part {
    Part::text(format!("Here it is:\n```json\n{artifact:#}\n```\nShall I go on?"))
}

/// What a person fills in: the next piece of the worked example.
pub(crate) fn by_person(question: &Question) -> Part {
    by_person_of(question, &example(phase_of(question)))
}

/// The same, of another artifact.
pub(crate) fn by_person_of(question: &Question, artifact: &Value) -> Part {
    let Ask::Form { schema } = &question.ask else { panic!("{question:?}") };
    let place = question.text.lines().find(|line| line.contains(", section ")).unwrap();
    let section = place.rsplit(": ").next().unwrap();
    let value = &artifact[section];
    let fields = schema["properties"].as_object().unwrap();
    for (name, field) in fields {
        assert!(
            matches!(field["type"].as_str(), Some("string" | "boolean" | "integer" | "number")),
            "{name}"
        );
    }
    let Some(items) = value.as_array() else {
        return Part::data(match fields.keys().eq(["addAnother"]) {
            true => json!({ "addAnother": false }),
            false => json!({ section: value }),
        });
    };
    if fields.keys().eq(["addAnother"]) {
        return Part::data(json!({ "addAnother": !items.is_empty() }));
    }
    let at = question.text.rsplit("Item ").next().unwrap().trim_end_matches('.').parse::<usize>().unwrap();
    let mut form = match &items[at - 1] {
        Value::Object(item) => item.clone(),
        text => members(json!({ "item": text })),
    };
    for field in form.values_mut() {
        if let Value::Array(texts) = field {
            *field = texts.iter().filter_map(Value::as_str).collect::<Vec<_>>().join("\n").into();
        }
    }
    form.insert("addAnother".into(), (at < items.len()).into());
    Part::data(Value::Object(form))
}

/// Whether a person is asked what to do next.
pub(crate) fn is_decision(question: &Question) -> bool {
    matches!(&question.ask, Ask::Form { schema } if schema["properties"].get("action").is_some())
}
