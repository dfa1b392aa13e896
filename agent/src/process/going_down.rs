//! Does only the agent stop, or the whole host?
//!
//! The service manager knows. A host that goes down is taken out at once; an agent that stops may be back in a moment,
//! so nothing is taken from its host before its last report is too old. Whoever does not answer at once is taken for
//! "only the agent", which is the safe side.

use std::time::Duration;

use usher_types::Goodbye;
use zbus::Connection;
use zbus::OwnedVariant;

const WAIT: Duration = Duration::from_millis(300);

/// Why the agent stops, as far as systemd says.
pub(super) async fn reason() -> Goodbye {
    match tokio::time::timeout(WAIT, system_state()).await {
        Ok(Ok(state)) if state == "stopping" => Goodbye::HostShutdown,
        Ok(Ok(_)) | Err(_) => Goodbye::AgentStop,
        Ok(Err(error)) => {
            tracing::debug!(%error, "cannot ask systemd whether the host goes down");
            Goodbye::AgentStop
        }
    }
}

async fn system_state() -> zbus::Result<String> {
    let bus = Connection::system().await?;
    let reply = bus
        .call_method(
            Some("org.freedesktop.systemd1"),
            "/org/freedesktop/systemd1",
            Some("org.freedesktop.DBus.Properties"),
            "Get",
            &("org.freedesktop.systemd1.Manager", "SystemState"),
        )
        .await?;
    let value: OwnedVariant = reply.body().deserialize()?;
    String::try_from(value)
}
