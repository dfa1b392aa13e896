//! A logind that python-dbusmock plays: the same D-Bus interface by people who do not share our code.

use std::path::Path;
use std::process::Command;

use zbus::Connection;

use super::MessageBus;
use crate::process::Process;
use crate::wait::{LONG, wait_for};

/// Where Debian's package puts it; it is for Debian's own Python.
const MODULE: &str = "/usr/lib/python3/dist-packages/dbusmock/__main__.py";

/// Debian's own.
const PYTHON: &str = "/usr/bin/python3";

/// It, until it is dropped.
#[derive(Debug)]
pub struct MockLogind {
    connection: Connection,
    process: Process,
}

impl MockLogind {
    /// Starts one on `bus`, with nobody logged in.
    ///
    /// # Panics
    /// If it is not installed, or does not come onto the bus.
    pub async fn start(bus: &MessageBus, folder: &Path) -> Self {
        assert!(
            Path::new(MODULE).exists(),
            "python3-dbusmock is not installed; `cargo xtask peers` installs it"
        );
        let mut command = Command::new(PYTHON);
        command
            .args(["-m", "dbusmock", "--template", "logind"])
            .env("DBUS_SYSTEM_BUS_ADDRESS", bus.address());
        let process = Process::start("dbusmock", &mut command, &folder.join("dbusmock.log"));
        let address = bus.address();
        let connection: Connection =
            zbus::connection::Builder::address(address.as_str()).build().await.unwrap();
        let mock = Self { connection, process };
        wait_for("dbusmock to play logind", LONG, async || {
            let asked = mock.ask("AddSeat", &("seat0",)).await;
            match asked {
                Err(error) if !error.to_string().contains("SeatExists") => {
                    Err(format!("{error}: {}", mock.process.log()))
                }
                _ => Ok(()),
            }
        })
        .await;
        mock
    }

    /// Logs `user` in.
    ///
    /// # Panics
    /// If the mock does not take it.
    pub async fn add_session(&self, id: &str, uid: u32, user: &str) {
        self.ask("AddSession", &(id, "seat0", uid, user, true)).await.unwrap();
    }

    /// A call of what only a mock has.
    async fn ask<B>(&self, method: &str, body: &B) -> zbus::Result<()>
    where
        B: serde::Serialize + zbus::zvariant::DynamicType,
    {
        let (name, path) = ("org.freedesktop.login1", "/org/freedesktop/login1");
        let interface = Some("org.freedesktop.DBus.Mock");
        self.connection.call_method(Some(name), path, interface, method, body).await.map(drop)
    }
}
