//! Who has a session where?

use clap::Args;
use usher_proto::v1;
use usher_proto::v1::directory_service_client::DirectoryServiceClient;

use crate::commands::Context;
use crate::failure::Failure;
use crate::output::table::{Grid, cell};
use crate::output::text::{clean, clean_or_dash, milliseconds};
use crate::output::{emit, json::emit_json, words};

/// Arguments of `sessions`.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  usherctl sessions --user alice            where is alice, and where would she return to?
  usherctl sessions --host app1             who is on app1?
  usherctl sessions --pool desk --json      for scripts

As hosts listed them last. RETURNS: a login of the user would be sent back there")]
pub(crate) struct Arguments {
    /// Only sessions of this user
    #[arg(long)]
    user: Option<String>,
    /// Only sessions on this host, by name or id
    #[arg(long)]
    host: Option<String>,
    /// Only sessions in this pool
    #[arg(long)]
    pool: Option<String>,
}

/// Lists the sessions.
pub(crate) async fn run(context: &Context, arguments: Arguments) -> Result<(), Failure> {
    let coordinators = context.coordinators()?;
    let Arguments { user, host, pool } = arguments;
    let request = v1::ListSessionsRequest { user: coordinators.user_as_sent(user)?, host, pool };
    let response = coordinators
        .call("listing the sessions", async |channel, call| {
            DirectoryServiceClient::new(channel).list_sessions(call.request(request.clone())).await
        })
        .await?;
    if context.json() { emit_json(&response) } else { emit(&table(&response)) }
}

fn table(response: &v1::ListSessionsResponse) -> String {
    if response.sessions.is_empty() {
        return "no sessions".to_owned();
    }
    let mut grid = Grid::new(&["USER", "HOST", "POOL", "STATE", "AGE", "RETURNS", "SESSION"], &[4]);
    for info in &response.sessions {
        let session = info.session.clone().unwrap_or_default();
        grid.row([
            cell(clean_or_dash(&session.user)),
            cell(clean(&info.host_name)),
            cell(clean_or_dash(&info.pool)),
            cell(words::word::<v1::SessionState>(session.state)),
            cell(milliseconds(session.age_ms)),
            cell(if info.returns_here { "yes" } else { "no" }),
            cell(clean_or_dash(&session.id)),
        ]);
    }
    let mut text = grid.render();
    if response.truncated {
        text += "\n\nthere are more; --user, --host or --pool narrows the list";
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_session_says_whose_it_is_and_whether_they_return_to_it() {
        let session = v1::Session {
            id: "c1".into(),
            user: "alice".into(),
            state: v1::SessionState::Disconnected.into(),
            age_ms: Some(90_000),
        };
        let info = v1::SessionInfo {
            host_name: "app1".into(),
            pool: "desk".into(),
            session: Some(session),
            returns_here: true,
            ..Default::default()
        };
        let text = table(&v1::ListSessionsResponse { sessions: vec![info], truncated: true });
        let row: Vec<&str> = text.lines().nth(1).unwrap().split_whitespace().collect();
        assert_eq!(row, ["alice", "app1", "desk", "DISCONNECTED", "1m30s", "yes", "c1"]);
        assert!(text.ends_with("narrows the list"));
        assert_eq!(table(&v1::ListSessionsResponse::default()), "no sessions");
    }
}
