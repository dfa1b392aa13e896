//! The door of one host: where users come in once their gateway knows where to send them.
//!
//! It knows nothing of places: whoever comes is let in, as an SSH server does. It runs beside the agent and outlives it, and
//! goes with its machine.

use std::sync::Arc;
use std::time::Duration;

use rand::RngExt;
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader};
use turmoil::net::TcpStream;

use crate::network::{DOOR_PORT, listen};
use crate::plan::{host, rng};
use crate::world::{TrueSession, World, now};

/// How long nobody need wait for a door.
const PATIENCE: Duration = Duration::from_secs(3);
/// A session that does not end while the run lasts.
pub const FOREVER: Duration = Duration::from_secs(1_000_000);

/// Opens the door of host number `index`.
///
/// # Errors
/// When it cannot be opened.
pub async fn run(world: Arc<World>, index: usize) -> turmoil::Result {
    let listener = listen(DOOR_PORT).await?;
    loop {
        let (stream, _) = listener.accept().await?;
        let world = world.clone();
        tokio::spawn(async move {
            // Whoever hangs up, or says nothing, was only trying the door.
            let _ = tokio::time::timeout(PATIENCE, let_in(world, index, stream)).await;
        });
    }
}

async fn let_in(world: Arc<World>, index: usize, stream: TcpStream) -> std::io::Result<()> {
    let mut stream = BufReader::new(stream);
    let mut user = String::new();
    if stream.read_line(&mut user).await? == 0 {
        return Ok(());
    }
    let user = user.trim().to_owned();
    {
        let mut state = world.state();
        let number = state.next_session;
        state.next_session += 1;
        let began = now();
        let stays = rng(world.plan.seed, &format!("session {number}")).random_range(8.0..45.0);
        let ends = if state.is_quiet { FOREVER } else { began + Duration::from_secs_f64(stays) };
        state.event(format!("{user} logs in on {}", host(index)));
        state.count("logins");
        let sits = state.machines[index].users(began).contains(&user);
        state.limits.came(index, &user, sits, began);
        let machine = &mut state.machines[index];
        machine.sessions.push(TrueSession { id: number.to_string(), user, began, ends });
        machine.is_changed = true;
    }
    stream.write_all(b"welcome\n").await?;
    stream.flush().await
}

/// A user comes to the door of `node`: whether they were let in.
pub async fn log_in(node: String, user: &str) -> bool {
    let coming = async {
        let mut stream = BufReader::new(TcpStream::connect((node, DOOR_PORT)).await?);
        stream.write_all(format!("{user}\n").as_bytes()).await?;
        stream.flush().await?;
        let mut answer = String::new();
        stream.read_line(&mut answer).await
    };
    matches!(tokio::time::timeout(PATIENCE, coming).await, Ok(Ok(read)) if read > 0)
}
