//! `nuncio agents …`: the agents and servers in the registry, and their health.

mod login;

use clap::{Args, Subcommand};
use nuncio_flows::registry::api::{
    AgentDetails, AgentHealth, AgentSummary, AgentsListAnswer, AgentsListRequest, AgentsProbeRequest,
};

use super::{
    error::CliError,
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
                self.server.run_to_read(async |shared| probe(shared, &name).await).await
            }
            None | Some(Command::List { .. }) => {
                self.server.run_to_read(async |shared| list(shared, unhealthy).await).await
            }
        }
    }
}

async fn list(shared: &ServerConnection, unhealthy: bool) -> Result<(), CliError> {
    let status = unhealthy.then_some(AgentHealth::Unhealthy);
    let request = AgentsListRequest { status, skill: None };
    let found = shared.call_typed::<AgentsListAnswer>("agents_list", &request).await?;
    shared.print_typed(&found, |AgentsListAnswer { agents, discovery }| {
        let mut text = TextOutput(match (agents.is_empty(), unhealthy) {
            (true, true) => "All are well.\n".to_owned(),
            (true, false) => "There are no agents.\n".to_owned(),
            (false, _) => table(agents),
        });
        text.gap();
        text.field("Total", &discovery.total_agents.to_string());
        text.field("Healthy", &discovery.healthy_agents.to_string());
        text.field("Last scan", &age(&discovery.last_scan));
        text.0
    })
}

async fn probe(shared: &ServerConnection, name: &str) -> Result<(), CliError> {
    let request = AgentsProbeRequest { name: name.to_owned() };
    let found = shared.call_typed::<AgentDetails>("agents_probe", &request).await?;
    shared.print_typed(&found, |AgentDetails { summary, .. }| {
        let mut text = TextOutput(table(std::slice::from_ref(summary)));
        if let Some(why) = &summary.last_error {
            text.gap();
            text.field("Last error", why);
        }
        text.0
    })
}

fn table(agents: &[AgentSummary]) -> String {
    let mut table = Table::new(&["NAME", "KIND", "STATUS", "BREAKER", "LAST SEEN", "LATENCY ", "URL"])
        .whole(&["NAME", "STATUS"])
        .optional(&["BREAKER", "LATENCY", "KIND", "LAST SEEN", "URL"]);
    for agent in agents {
        table.row([
            agent.agent_type.clone(),
            cell(&agent.kind),
            cell(&agent.status),
            cell(&agent.breaker),
            age(&agent.last_seen),
            millis(&agent.latency_ms),
            cell(&agent.url),
        ]);
    }
    table.show()
}
