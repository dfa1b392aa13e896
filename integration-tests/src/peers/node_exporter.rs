//! What another program reads of this machine: Prometheus' node exporter.

use std::net::SocketAddr;
use std::process::Stdio;
use std::time::Duration;

use anyhow::{Context, bail};
use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader, Lines};
use tokio::net::TcpStream;
use tokio::process::{Child, ChildStderr, Command};
use tokio::time::timeout;

use super::program;

/// For its start, and for one answer: it takes some milliseconds for either.
const ANSWER_WITHIN: Duration = Duration::from_secs(10);

/// A node exporter that runs.
#[derive(Debug)]
pub struct NodeExporter {
    address: SocketAddr,
    _child: Child,
    // Closed, its next line of log would end it.
    _log: Lines<BufReader<ChildStderr>>,
}

/// What it says at one moment.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Figures {
    /// Time that all CPUs together were neither idle nor waiting for a disk, since boot, s.
    pub busy_s: f64,
    /// Time of all CPUs together since boot, s.
    pub total_s: f64,
    /// Memory that new work cannot get, 0..=100.
    pub memory_percent: f64,
    /// Processes, not threads.
    pub processes: f64,
}

impl NodeExporter {
    /// Starts one on a free port of the loopback.
    ///
    /// # Errors
    /// When it is not installed, or does not say where it listens.
    pub async fn start() -> anyhow::Result<Self> {
        let mut child = Command::new(program("prometheus-node-exporter")?)
            .args(["--collector.disable-defaults", "--collector.cpu", "--collector.meminfo"])
            .args(["--collector.processes", "--web.listen-address=127.0.0.1:0"])
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::piped())
            .kill_on_drop(true)
            .spawn()
            .context("starting the node exporter")?;
        let mut log = BufReader::new(child.stderr.take().context("the node exporter's log")?).lines();
        let address = timeout(ANSWER_WITHIN, async {
            while let Some(line) = log.next_line().await? {
                let address = line.split_once("msg=\"Listening on\" address=").map(|(_, address)| address);
                if let Some(address) = address {
                    return address.parse().with_context(|| format!("reading {line:?}"));
                }
            }
            bail!("the node exporter ended before it listened")
        });
        let address = address.await.context("the node exporter did not start")??;
        Ok(Self { address, _child: child, _log: log })
    }

    /// Its figures now.
    ///
    /// # Errors
    /// When it does not answer, or leaves one out.
    pub async fn figures(&self) -> anyhow::Result<Figures> {
        let page = timeout(ANSWER_WITHIN, self.page()).await.context("the node exporter is silent")??;
        Figures::read(&page)
    }

    async fn page(&self) -> anyhow::Result<String> {
        let mut connection = TcpStream::connect(self.address).await?;
        connection.write_all(b"GET /metrics HTTP/1.0\r\n\r\n").await?;
        let mut page = String::new();
        connection.read_to_string(&mut page).await?;
        Ok(page)
    }
}

impl Figures {
    fn read(page: &str) -> anyhow::Result<Self> {
        let series = |name: &str| {
            page.lines().filter_map(move |line| {
                let (labels, value) = line.strip_prefix(name)?.rsplit_once(' ')?;
                Some((labels.to_owned(), value.parse::<f64>().ok()?))
            })
        };
        let only = |name: &str| {
            series(name)
                .find(|(labels, _)| labels.is_empty())
                .map(|(_, value)| value)
                .with_context(|| format!("the node exporter tells no {name}"))
        };
        let (mut busy_s, mut total_s) = (0.0, 0.0);
        for (labels, seconds) in series("node_cpu_seconds_total") {
            total_s += seconds;
            if !labels.contains("mode=\"idle\"") && !labels.contains("mode=\"iowait\"") {
                busy_s += seconds;
            }
        }
        let (total, available) =
            (only("node_memory_MemTotal_bytes")?, only("node_memory_MemAvailable_bytes")?);
        Ok(Self {
            busy_s,
            total_s,
            memory_percent: 100.0 * (total - available) / total,
            processes: only("node_processes_pids")?,
        })
    }

    /// Busy share of all CPUs between an earlier look and this one, 0..=100.
    #[must_use]
    pub fn cpu_percent_since(&self, earlier: &Self) -> f64 {
        100.0 * (self.busy_s - earlier.busy_s) / (self.total_s - earlier.total_s)
    }
}
