//! `nuncio agents …`: the agents and servers in the registry, and their health.

mod login;

use clap::{Args, Subcommand};
use serde_json::{Value, json};

use super::{
    error::CliError,
    output,
    server_connection::{ServerConnection, ServerFlags},
    table::{Table, age, cell, millis},
    text::TextOutput,
};

#[derive(Args)]
#[command(args_conflicts_with_subcommands = false)]
pub(crate) struct AgentListFlags {
    #[command(flatten)]
    pub(crate) server: ServerFlags,
    /// Only those that are unhealthy
    #[arg(long)]
    unhealthy: bool,
    #[command(subcommand)]
    command: Option<Command>,
}

#[derive(Subcommand)]
enum Command {
    /// List agents and servers, and their health
    List {
        /// Only those that are unhealthy
        #[arg(long)]
        unhealthy: bool,
    },
    /// Sign in for an agent of nuncio.toml whose server requires authentication
    Login {
        /// The agent's name
        #[arg(value_name = "NAME")]
        name: String,
        /// Open the link (xdg-open) as well as showing it
        #[arg(long)]
        open_link: bool,
    },
    /// Delete the access that was granted to an agent of nuncio.toml
    Logout {
        /// The agent's name
        #[arg(value_name = "NAME")]
        name: String,
    },
    /// Check the health of an agent or server now
    Probe {
        /// Its name
        #[arg(value_name = "NAME")]
        name: String,
    },
}

impl AgentListFlags {
    pub(crate) async fn run(self) -> Result<(), CliError> {
        let unhealthy = self.unhealthy || matches!(self.command, Some(Command::List { unhealthy: true }));
        match self.command {
            Some(Command::Login { name, open_link }) => {
                login::login(self.server.data.as_deref(), &name, open_link, self.server.format).await
            }
            Some(Command::Logout { name }) => {
                login::logout(self.server.data.as_deref(), &name, self.server.format)
            }
            Some(Command::Probe { name }) => {
                self.server.run_with_server(async |shared| probe(shared, &name).await).await
            }
            None | Some(Command::List { .. }) => {
                self.server.run_with_server(async |shared| list(shared, unhealthy).await).await
            }
        }
    }
}

async fn list(shared: &ServerConnection, unhealthy: bool) -> Result<(), CliError> {
    let arguments = if unhealthy { json!({ "status": "unhealthy" }) } else { json!({}) };
    let found = shared.call("agents_list", arguments).await?;
    if shared.is_json() {
        return output::json_text(&found.to_string());
    }
    let agents = found["agents"].as_array().map(Vec::as_slice).unwrap_or_default();
    let mut text = TextOutput(if agents.is_empty() {
        if unhealthy { "All are well.\n".to_owned() } else { "There are no agents.\n".to_owned() }
    } else {
        table(agents)
    });
    let discovery = &found["discovery"];
    text.gap();
    text.field("Total", &cell(&discovery["totalAgents"]));
    text.field("Healthy", &cell(&discovery["healthyAgents"]));
    text.field("Last scan", &age(&discovery["lastScan"]));
    output::text(&text.0)
}

async fn probe(shared: &ServerConnection, name: &str) -> Result<(), CliError> {
    let found = shared.call("agents_probe", json!({ "name": name })).await?;
    shared.print(&found, |found| {
        let mut text = TextOutput(table(std::slice::from_ref(found)));
        if let Some(why) = found["lastError"].as_str() {
            text.gap();
            text.field("Last error", why);
        }
        text.0
    })
}

fn table(agents: &[Value]) -> String {
    let mut table = Table::new(&["NAME", "KIND", "STATUS", "BREAKER", "LAST SEEN", "LATENCY ", "URL"]);
    for agent in agents {
        table.row([
            cell(&agent["agentType"]),
            cell(&agent["kind"]),
            cell(&agent["status"]),
            cell(&agent["breaker"]),
            age(&agent["lastSeen"]),
            millis(&agent["latencyMs"]),
            cell(&agent["url"]),
        ]);
    }
    table.show()
}
