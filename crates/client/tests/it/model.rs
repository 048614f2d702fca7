//! Models over the wires of four providers, against a stand-in: see `nuncio_testkit::model_provider`.

use std::time::{Duration, Instant};

use nuncio_client::model::{
    Model, ModelError, ModelEvent, ModelOptions, ModelReply, ModelRequest, ModelTool, ModelTurn, ModelUsage,
    Provider, StopReason,
};
use nuncio_testkit::model_provider::{StandIn, StandInReply};
use serde_json::{Value, json};

const KEY: &str = "k-very-secret";

/// Far more than anything here takes.
const DEADLINE: Duration = Duration::from_secs(20);

fn options(provider: Provider, server: &StandIn) -> ModelOptions {
    let url = Some(server.url.clone());
    ModelOptions { url, key: Some(KEY.into()), ..ModelOptions::of(provider, "small") }
}

fn model(provider: Provider, server: &StandIn) -> Model {
    Model::new(&options(provider, server)).unwrap()
}

fn request() -> ModelRequest {
    let schema = json!({ "type": "object", "properties": { "n": { "type": "integer" } } });
    let tool = ModelTool { name: "add".into(), description: "Adds.".into(), schema };
    ModelRequest { turns: vec![ModelTurn::User("1+1?".into())], tools: vec![tool], ..ModelRequest::default() }
}

/// Everything that happens until the answer, or the error.
async fn everything(model: &Model) -> (Vec<ModelEvent>, Result<ModelReply, ModelError>) {
    let all = async {
        let (mut asking, mut happened) = (model.ask(&request()), vec![]);
        loop {
            match asking.next().await {
                Ok(ModelEvent::Reply(said)) => return (happened, Ok(said)),
                Ok(happening) => happened.push(happening),
                Err(error) => return (happened, Err(error)),
            }
        }
    };
    tokio::time::timeout(DEADLINE, all).await.expect("this should have ended long ago")
}

/// The text that a reader who begins anew when told so has in the end.
fn shown(happened: &[ModelEvent]) -> String {
    happened.iter().fold(String::new(), |shown, happening| match happening {
        ModelEvent::Text(text) => shown + text,
        ModelEvent::Retry { .. } => String::new(),
        ModelEvent::Reply(_) => shown,
    })
}

fn texts(happened: &[ModelEvent]) -> Vec<&str> {
    let texts = happened.iter().filter_map(|happening| match happening {
        ModelEvent::Text(text) => Some(text.as_str()),
        _ => None,
    });
    texts.collect()
}

/// The same answer, "I add." and a call of `add`, as each provider says it.
fn adding(provider: Provider) -> StandInReply {
    match provider {
        Provider::OpenAi | Provider::Gemini | Provider::Ollama => {
            StandInReply::calls("I add.", &[("c1", "add", "{\"n\":1}")], (12, 7))
        }
        Provider::Anthropic => StandInReply::events([
            json!({ "type": "message_start", "message": { "usage": { "input_tokens": 12, "output_tokens": 1 } } }),
            json!({ "type": "content_block_start", "index": 0, "content_block": { "type": "text", "text": "" } }),
            json!({ "type": "content_block_delta", "index": 0, "delta": { "type": "text_delta", "text": "I add." } }),
            json!({ "type": "content_block_stop", "index": 0 }),
            json!({ "type": "content_block_start", "index": 1,
                "content_block": { "type": "tool_use", "id": "c1", "name": "add", "input": {} } }),
            json!({ "type": "content_block_delta", "index": 1,
                "delta": { "type": "input_json_delta", "partial_json": "{\"n\"" } }),
            json!({ "type": "content_block_delta", "index": 1,
                "delta": { "type": "input_json_delta", "partial_json": ":1}" } }),
            json!({ "type": "message_delta", "delta": { "stop_reason": "tool_use" }, "usage": { "output_tokens": 7 } }),
            json!({ "type": "message_stop" }),
        ]),
    }
}

const ALL: [Provider; 4] = [Provider::OpenAi, Provider::Anthropic, Provider::Gemini, Provider::Ollama];

#[tokio::test]
async fn the_same_answer_comes_over_all_wires() {
    for provider in ALL {
        let server = StandIn::start([adding(provider)]).await;
        let (happened, said) = everything(&model(provider, &server)).await;
        let said = said.unwrap();
        assert_eq!(texts(&happened), ["I add."], "{provider:?}");
        assert_eq!((&*said.text, &said.stop), ("I add.", &StopReason::Tools), "{provider:?}");
        assert_eq!(said.usage, ModelUsage { input: Some(12), output: Some(7) }, "{provider:?}");
        assert_eq!(said.calls[0].name, "add");
        assert_eq!(said.calls[0].arguments().unwrap()["n"], 1, "{provider:?}");
        let [asked] = &server.asked()[..] else { panic!("asked once") };
        let (place, header, value) = match provider {
            Provider::OpenAi => ("/chat/completions", "authorization", format!("Bearer {KEY}")),
            Provider::Gemini => ("/openai/chat/completions", "authorization", format!("Bearer {KEY}")),
            Provider::Anthropic => ("/v1/messages", "x-api-key", KEY.to_owned()),
            Provider::Ollama => ("/v1/chat/completions", "authorization", format!("Bearer {KEY}")),
        };
        assert_eq!(asked.place, place);
        assert_eq!(asked.headers[header], *value, "{provider:?}");
        assert_eq!(asked.headers.contains_key("anthropic-version"), provider == Provider::Anthropic);
    }
}

#[tokio::test]
async fn an_answer_that_is_cut_anywhere_is_asked_for_again_from_its_start() {
    let mut tries = vec![];
    for provider in ALL {
        let pieces = match provider {
            Provider::Anthropic => 9,
            Provider::OpenAi | Provider::Gemini | Provider::Ollama => 7,
        };
        // OpenAI's usage and end marker come after it has said why it stopped, which is an end as well.
        let end = if provider == Provider::Anthropic { pieces } else { pieces - 2 };
        for at in 0..end {
            for cut in [StandInReply::cut_after, StandInReply::ended_after] {
                tries.push(async move {
                    let server = StandIn::start([cut(adding(provider), at), adding(provider)]).await;
                    let (happened, said) = everything(&model(provider, &server)).await;
                    let said = said.unwrap_or_else(|error| panic!("{provider:?}, cut after {at}: {error}"));
                    assert_eq!(said.calls.len(), 1, "{provider:?}, cut after {at}");
                    assert_eq!(shown(&happened), "I add.", "{provider:?}, cut after {at}");
                    assert_eq!(server.asked().len(), 2, "{provider:?}, cut after {at}");
                });
            }
        }
    }
    futures_util::future::join_all(tries).await;
}

#[tokio::test]
async fn a_provider_that_says_when_is_asked_then() {
    let waits = [
        StandInReply::refusal(429, "slow down").header("retry-after-ms", "700"),
        StandInReply::refusal(429, "slow down").header("retry-after", "0.7"),
        StandInReply::refusal(429, "slow down")
            .header("x-ratelimit-remaining-requests", "0")
            .header("x-ratelimit-reset-requests", "700ms"),
        StandInReply::new(
            429,
            "application/json",
            json!({ "error": { "code": 429, "message": "slow down", "details": [
                { "@type": "type.googleapis.com/google.rpc.RetryInfo", "retryDelay": "0.7s" }] } })
            .to_string(),
        ),
    ];
    for refused in waits {
        let server = StandIn::start([refused, StandInReply::text("Two.", (1, 1))]).await;
        let (happened, said) = everything(&model(Provider::OpenAi, &server)).await;
        assert_eq!(said.unwrap().text, "Two.");
        let ModelEvent::Retry { why, wait } = &happened[0] else { panic!("{happened:?}") };
        assert!(why.contains("429 Too Many Requests: slow down"), "{why}");
        assert_eq!(*wait, Duration::from_millis(700));
        let asked = server.asked();
        let waited = asked[1].at - asked[0].at;
        assert!(waited >= Duration::from_millis(700), "{waited:?}");
    }
}

#[tokio::test]
async fn a_provider_that_fails_is_asked_again() {
    for status in [500, 502, 503, 529, 408] {
        let server =
            StandIn::start([StandInReply::refusal(status, "oh"), StandInReply::text("Two.", (1, 1))]).await;
        let (_, said) = everything(&model(Provider::OpenAi, &server)).await;
        assert_eq!(said.unwrap().text, "Two.");
        assert_eq!(server.asked().len(), 2, "{status}");
    }
    // In the middle of an answer, too.
    let broken = StandInReply::events([
        json!({ "choices": [{ "delta": { "content": "One" } }] }),
        json!({ "error": { "message": "The server had an error", "type": "server_error" } }),
    ]);
    let server = StandIn::start([broken, StandInReply::text("Two.", (1, 1))]).await;
    let (happened, said) = everything(&model(Provider::OpenAi, &server)).await;
    assert_eq!((said.unwrap().text.as_str(), shown(&happened).as_str()), ("Two.", "Two."));
}

#[tokio::test]
async fn what_does_not_pass_is_said_once_and_without_the_key() {
    for status in [400, 401, 403, 404, 422] {
        let server = StandIn::start([StandInReply::refusal(status, &format!("not with {KEY}"))]).await;
        let (happened, said) = everything(&model(Provider::OpenAi, &server)).await;
        let error = said.unwrap_err();
        assert!(happened.is_empty());
        assert!(error.to_string().contains("not with [key] (some_error)"), "{error}");
        assert!(!format!("{error:?}").contains(KEY), "{error:?}");
        assert_eq!(server.asked().len(), 1, "{status}");
    }
    let server = StandIn::start([StandInReply::events([json!({ "error": {
        "message": format!("bad {KEY}"), "type": "invalid_request_error" } })])])
    .await;
    let error = everything(&model(Provider::OpenAi, &server)).await.1.unwrap_err();
    assert!(!format!("{error} {error:?}").contains(KEY), "{error:?}");
}

#[tokio::test]
async fn tries_come_to_an_end() {
    let again = || StandInReply::refusal(503, "busy").header("retry-after-ms", "1");
    let server = StandIn::start([again(), again(), again(), again()]).await;
    let two = ModelOptions { retries: 2, ..options(Provider::OpenAi, &server) };
    let (happened, said) = everything(&Model::new(&two).unwrap()).await;
    assert_eq!(happened.len(), 2);
    assert_eq!(
        said.unwrap_err().to_string(),
        "the model answered 503 Service Unavailable: busy (some_error)"
    );
    assert_eq!(server.asked().len(), 3);

    let server =
        StandIn::start([StandInReply::refusal(429, "tomorrow").header("retry-after", "86400")]).await;
    let error = everything(&model(Provider::OpenAi, &server)).await.1.unwrap_err().to_string();
    assert!(error.contains("tomorrow") && error.contains("86400 s") && error.contains("max_wait"), "{error}");
    assert_eq!(server.asked().len(), 1);
}

#[tokio::test]
async fn an_answer_has_a_longest_length_and_a_longest_time() {
    let server = StandIn::start([StandInReply::text(&"word ".repeat(100), (1, 1))]).await;
    let short = ModelOptions { max_answer: 1000, ..options(Provider::OpenAi, &server) };
    let error = everything(&Model::new(&short).unwrap()).await.1.unwrap_err().to_string();
    assert_eq!(error, "the model's answer cannot be used: it is longer than 1000 bytes (max_answer)");
    assert_eq!(server.asked().len(), 1, "another try would be as long");

    let server = StandIn::start([StandInReply::text("One two", (1, 1)).open_after(1)]).await;
    let hasty = ModelOptions {
        timeout: Duration::from_millis(300),
        retries: 0,
        ..options(Provider::OpenAi, &server)
    };
    let (happened, said) = everything(&Model::new(&hasty).unwrap()).await;
    assert_eq!(texts(&happened), ["One "]);
    let error = said.unwrap_err().to_string();
    assert!(error.starts_with("the model at http://127.0.0.1"), "{error}");
    assert!(
        error.contains("gave no whole reply within 0.3 s: check that it is up, or raise its timeout"),
        "{error}"
    );
}

#[tokio::test]
async fn a_question_that_is_dropped_is_not_answered_further() {
    let server = StandIn::start([StandInReply::text("One two", (1, 1)).open_after(1)]).await;
    let mut asking = model(Provider::OpenAi, &server).ask(&request());
    assert_eq!(asking.next().await.unwrap(), ModelEvent::Text("One ".into()));
    assert_eq!(server.left(), 0);
    drop(asking);
    let begun = Instant::now();
    while server.left() == 0 {
        assert!(begun.elapsed() < DEADLINE, "the connection is still held");
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}

#[tokio::test]
async fn a_server_that_does_not_stream_is_understood() {
    let whole = json!({ "choices": [{ "message": { "content": "Two." }, "finish_reason": "stop" }] });
    let server = StandIn::start([StandInReply::new(200, "application/json", whole.to_string())]).await;
    let text = model(Provider::OpenAi, &server).complete(Some("Be short."), "1+1?", 9).await.unwrap();
    assert_eq!(text, "Two.");
    let body = &server.asked()[0].body;
    assert_eq!((&body["max_tokens"], &body["messages"][0]["content"]), (&json!(9), &json!("Be short.")));
    assert!(server.is_done());

    let server = StandIn::start([StandInReply::new(200, "text/html", "<html>")]).await;
    let error = model(Provider::Anthropic, &server).complete(None, "1+1?", 9).await.unwrap_err().to_string();
    assert!(error.contains("expected a stream of events, not text/html"), "{error}");
    assert_eq!(Value::from(error.contains(KEY)), json!(false));
}
