//! An agent with one durable step and one question, served in every dialect at once:
//! `cargo run --example hello_agent`, then `nuncio send -a http://127.0.0.1:8080 Hi`. Stop the server while it
//! asks, start it again, then answer: it goes on.

use std::time::SystemTime;

use nuncio::prelude::*;

struct Hello;

#[async_trait]
impl Agent for Hello {
    fn profile(&self) -> Profile {
        Profile::new("hello", "Asks for your name, and greets you.")
    }

    async fn run(&self, cx: TaskContext) -> Result<Outcome, AgentError> {
        // `run` begins again after an answer and after a restart. A step is done once; its result is kept.
        let came = cx.step("look at the clock", async |_| Ok(SystemTime::now())).await?;

        let name = cx.ask_text("What is your name?").await?.unwrap_or_else(|| "stranger".to_owned());
        let waited = came.elapsed().unwrap_or_default().as_secs();
        let greeting = format!("Hello, {name}! It took you {waited} s to tell me.");
        cx.artifact(Chunk::text("greeting", greeting).complete()).await?;
        Ok(Outcome::done())
    }
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    Ok(nuncio::Nuncio::new().agent(Hello).data("hello-data").listen("127.0.0.1:8080").serve().await?)
}
