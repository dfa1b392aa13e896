//! How are modelled hosts put together?

use std::sync::Arc;

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use usher_placement::host::{CoreSettings, NameSettings};
use usher_runtime::clock::Clock;
use usher_types::{
    BootId, Endpoint, Hello, HostId, HostName, IdError, OperationName, PoolName, Replica, ResourceId, Zone,
};

use super::machine::incarnation_ms;
use super::{AgentError, Tasks, place_news};
use crate::config::AgentConfig;
use crate::host::{BaselineSource, HostHandle, HostSetup, Listing, OpenHost, open};
use crate::standing::StandingBoard;
use crate::virtual_hosts::{
    CORES, FIXED_BASELINE_US, MEMORY_BYTES, ModelHost, ModelKind, OPERATION, Slot, Source, Ticker,
    VirtualOptions,
};

/// Starts everything of the modelled hosts but their streams.
pub(super) fn start(
    config: &AgentConfig,
    coordinators: &[String],
    options: &VirtualOptions,
    boot: &BootId,
    clock: &Arc<dyn Clock>,
    names: &NameSettings,
    tasks: &mut Tasks,
) -> Result<Vec<HostHandle>, AgentError> {
    allow_many_connections(options.count * coordinators.len().max(config.coordinators.len()));
    let (places_in, places) = place_news();
    let mut slots = Vec::with_capacity(options.count);
    let mut handles = Vec::with_capacity(options.count);
    for index in 0..options.count {
        let name = HostName::new(options.name(index))?;
        let setup = HostSetup {
            occupancy_log: options.log.clone(),
            state_folder: config.state_dir.join(format!("virtual-{}", options.number(index))),
            runtime_folder: config.runtime_dir.join(format!("virtual-{}", options.number(index))),
            boot_id: boot.clone(),
            baselines: baselines(options, index)?,
            placed: (options.kind == ModelKind::Model).then(|| (index, places_in.clone())),
            refreshable: false,
            // A model says nothing of itself beside its values, but that it is drained.
            board: StandingBoard::default(),
        };
        let core = core_settings(config, coordinators, &**clock, names)?;
        let hello = hello(config, options, index, boot, &core, &name)?;
        let opened = open(setup, core, clock.clone(), hello)
            .map_err(|source| AgentError::Open { name: name.to_string(), source })?;
        let OpenHost { task, handle, events, inventory, .. } = opened;
        let replicas = options.replicas(index).map(replica).collect::<Result<Vec<_>, _>>()?;
        inventory.send_replace(Some(Arc::new(Listing::after(None, replicas, 0, clock.now()))));
        let source = match options.kind {
            ModelKind::Fixed => Source::Fixed(options.values(index)),
            ModelKind::Model => {
                Source::Model(Box::new(ModelHost::new(name.as_str(), options.host_seed(index))))
            }
        };
        let (interval, period) = (config.report_interval.get(), config.latency.period.get());
        slots.push(Slot::new(source, events, index, interval, period));
        let stop = tasks.stop.clone();
        tasks.spawn("a modelled host's task", task.run(stop));
        handles.push(handle);
    }
    let ticker = Ticker::new(slots, places, clock.clone());
    let stop = tasks.stop.clone();
    tasks.spawn("the models' task", ticker.run(stop));
    Ok(handles)
}

/// A model's baselines come back within a period; a thousand files would cost more than they save.
fn baselines(options: &VirtualOptions, index: usize) -> Result<BaselineSource, AgentError> {
    let fixed = options.kind == ModelKind::Fixed && options.values(index).expansion_factor.is_some();
    let known = if fixed { vec![(OperationName::new(OPERATION)?, FIXED_BASELINE_US)] } else { Vec::new() };
    Ok(BaselineSource::NotKept { known })
}

fn core_settings(
    config: &AgentConfig,
    coordinators: &[String],
    clock: &dyn Clock,
    names: &NameSettings,
) -> Result<CoreSettings, AgentError> {
    Ok(CoreSettings {
        pool: PoolName::new(&config.pool)?,
        overrides: config.host_overrides(),
        incarnation_ms: incarnation_ms(clock),
        latency_period: config.latency.period.get(),
        periods: config.latency.periods,
        max_names: config.latency.max_names,
        names: names.clone(),
        coordinators: coordinators.to_vec(),
        report_interval: config.report_interval.get(),
    })
}

fn hello(
    config: &AgentConfig,
    options: &VirtualOptions,
    index: usize,
    boot: &BootId,
    core: &CoreSettings,
    name: &HostName,
) -> Result<impl FnOnce(HostId) -> Hello + use<>, IdError> {
    let zone = config.zone.as_ref().map(Zone::new).transpose()?;
    let mut labels = config.labels.clone();
    labels.insert("virtual".into(), "true".into());
    let (pool, incarnation_ms) = (core.pool.clone(), core.incarnation_ms);
    let endpoint = Endpoint { kind: "ssh".into(), address: "127.0.0.1".into(), port: options.port(index) };
    let (boot_id, host_name) = (boot.clone(), name.clone());
    let (report_interval, latency_period) = (config.report_interval.get(), config.latency.period.get());
    Ok(move |host_id| Hello {
        agent_version: env!("CARGO_PKG_VERSION").to_owned(),
        host_id,
        boot_id,
        stream_epoch: 0,
        incarnation_ms,
        host_name,
        endpoints: vec![endpoint],
        labels,
        pool,
        zone,
        cores: Some(CORES),
        memory_bytes: Some(MEMORY_BYTES),
        cpu_model: Some("model".into()),
        report_interval,
        latency_period,
        is_virtual: true,
        is_reporter: false,
    })
}

fn replica(resource: &str) -> Result<Replica, AgentError> {
    Ok(Replica { resource_id: ResourceId::new(resource)?, path: None, title: None })
}

/// Each modelled host has connections of its own; the usual limit of open files is below a thousand of them.
fn allow_many_connections(connections: usize) {
    let needed = connections as u64 + 256;
    let limit = getrlimit(Resource::Nofile);
    if limit.current.is_none_or(|current| current >= needed) {
        return;
    }
    let current = limit.maximum.map_or(needed, |maximum| maximum.min(needed));
    let raised = setrlimit(Resource::Nofile, Rlimit { current: Some(current), maximum: limit.maximum });
    if raised.is_err() || current < needed {
        tracing::warn!(
            needed,
            allowed = current,
            "too few open files are allowed for so many modelled hosts"
        );
    }
}
