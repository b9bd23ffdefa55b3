//! A pool that lives through one kill after another.

use std::collections::BTreeMap;
use std::fmt;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use fastness_history::{Clock, End, Finding, History, Operation, What};
use fastness_nbd::{Client, Endpoint};

use crate::connection::Connection;
use crate::plan::{Plan, Rng};
use crate::program::Program;
use crate::server::Server;

/// Portions in which a restart is looked at.
const LOOK_BYTES: u64 = 1 << 20;
/// Findings that are shown.
const FINDINGS_MAX: usize = 5;

/// What happened, over all pools: so that a run which tested nothing is noticed.
#[derive(Debug, Default)]
pub struct Met {
    pools: u64,
    kills: u64,
    exports: u64,
    reserved: u64,
    changes: u64,
    durable: u64,
    reads: u64,
    without_reply: u64,
    /// From the start of a process after a kill until it has the pool, and of this its steps.
    restarts: Times,
    steps: BTreeMap<String, Times>,
}

#[derive(Debug, Default)]
struct Times(Vec<Duration>);

impl fmt::Display for Times {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut sorted = self.0.clone();
        sorted.sort();
        let ms = |share: usize| sorted[(sorted.len() - 1) * share / 1000].as_secs_f64() * 1e3;
        write!(f, "{:.1} ms (median), {:.1} ms (p95), {:.1} ms (longest)", ms(500), ms(950), ms(1000))
    }
}

impl Met {
    fn count(&mut self, operations: &[Operation]) {
        for Operation { what, end, is_sync, .. } in operations {
            let is_acknowledged = matches!(end, End::Acknowledged(_));
            self.without_reply += u64::from(!is_acknowledged);
            match what {
                What::Read(_) => self.reads += 1,
                What::Flush => self.durable += u64::from(is_acknowledged),
                _ => {
                    self.changes += 1;
                    self.durable += u64::from(is_acknowledged && *is_sync);
                }
            }
        }
    }

    pub fn was_busy(&self) -> bool {
        let least = [self.changes / 20, self.durable / 2, self.reads, self.without_reply];
        least.iter().all(|count| *count >= self.kills)
    }
}

impl fmt::Display for Met {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Met { pools, kills, exports, reserved, changes, durable, reads, without_reply, .. } = self;
        write!(f, "{pools} pools, {kills} kills, {exports} exports, {reserved} volumes served again")?;
        write!(
            f,
            ", {changes} changes, {durable} FUA or flushes, {reads} reads, {without_reply} without reply"
        )?;
        if self.restarts.0.is_empty() {
            return Ok(());
        }
        write!(f, "\n  {} restarts after a kill: {}", self.restarts.0.len(), self.restarts)?;
        self.steps.iter().try_for_each(|(step, times)| write!(f, "\n    {step:8} {times}"))
    }
}

/// How the process ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Ending {
    Kill,
    Export,
    Terminate,
}

/// A pool, its process, and what is known of its volumes.
pub struct Life<'a> {
    plan: &'a Plan,
    rng: Rng,
    server: Server,
    histories: Vec<History>,
    clock: Arc<Clock>,
    next_connection: u32,
    round: u64,
    /// How the last process ended.
    is_killed: bool,
}

impl<'a> Life<'a> {
    /// Makes the pool and the volumes.
    pub fn new(plan: &'a Plan) -> Life<'a> {
        let volume = |(volume, of): (usize, &crate::plan::VolumePlan)| {
            History::new(plan.seed as u32, volume as u8, of.len_bytes)
        };
        let mut rng = Rng::of(&[plan.seed, 1]);
        let mut server = Server::new(plan);
        server.start(&mut rng);
        for volume in 0..plan.volumes.len() {
            server.bench.ok(&plan.create_volume(volume));
        }
        let histories = plan.volumes.iter().enumerate().map(volume).collect();
        let clock = Arc::default();
        let mut life =
            Life { plan, rng, server, histories, clock, next_connection: 0, round: 0, is_killed: false };
        (0..plan.volumes.len()).for_each(|volume| life.serve(volume));
        life
    }

    /// Works and dies so many times; then all has to be there, and the pool in order.
    pub fn live(mut self, rounds: u64, met: &mut Met) {
        for round in 0..rounds {
            self.round = round;
            self.work(met);
            self.restart(met);
            if self.rng.percent(10) {
                // Nothing was written: the same has to be there again.
                self.kill(met);
                self.restart(met);
            }
        }
        assert_eq!(self.server.bench.json("pool check tank")["is_clean"], true, "{}", self.plan);
        self.server.bench.ok("pool export tank");
        assert!(self.server.wait());
        self.restart(met);
        self.server.bench.ok("pool export tank");
        met.pools += 1;
    }

    fn address(&self, volume: usize) -> (PathBuf, String) {
        (self.server.socket(volume), format!("tank/v{volume}"))
    }

    fn client(&self, volume: usize) -> Option<Client> {
        let (socket, name) = self.address(volume);
        Client::connect(&Endpoint::Unix(socket), &name).ok()
    }

    /// Serves a volume that is not served.
    fn serve(&mut self, volume: usize) {
        let (socket, name) = self.address(volume);
        let once = if self.plan.volumes[volume].is_kept { "" } else { "--once" };
        self.command(&format!("volume serve {name} --socket {} {once}", socket.display()));
    }

    /// A command that succeeds, or fails because the process was killed; whether it succeeded.
    fn command(&self, line: &str) -> bool {
        let output = self.server.bench.run(line);
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        match output.status.code() {
            Some(0) => true,
            // It was killed meanwhile, or before the command reached it.
            Some(8 | 11) => false,
            code => panic!("{line}: {code:?}: {said}\n{}", self.server.log()),
        }
    }

    /// Starts the process and looks at everything, with kills in between.
    fn restart(&mut self, met: &mut Met) {
        loop {
            while self.rng.percent(20) {
                let after = self.rng.time(100, 100_000);
                self.server.start_and_kill(&mut self.rng, after);
                self.is_killed = true;
                met.kills += 1;
            }
            let took = self.server.start(&mut self.rng);
            if self.is_killed {
                met.restarts.0.push(took);
                for (step, took) in self.server.steps() {
                    met.steps.entry(step).or_default().0.push(took);
                }
            }
            for volume in 0..self.plan.volumes.len() {
                if self.client(volume).is_none() {
                    self.serve(volume);
                }
            }
            self.histories.iter_mut().for_each(History::restart);
            let all: u64 = self.plan.volumes.iter().map(|volume| volume.len_bytes.div_ceil(LOOK_BYTES)).sum();
            let portions = if self.rng.percent(10) { self.rng.below(all) } else { all };
            self.look(portions);
            if portions == all {
                return;
            }
            self.kill(met);
        }
    }

    fn kill(&mut self, met: &mut Met) {
        self.server.kill();
        self.is_killed = true;
        met.kills += 1;
    }

    /// Looks at so many portions of all volumes.
    fn look(&mut self, mut portions: u64) {
        for volume in 0..self.histories.len() {
            let mut client = self.client(volume).expect("it is served");
            let len_bytes = self.histories[volume].len_bytes();
            for offset in (0..len_bytes).step_by(LOOK_BYTES as usize) {
                if portions == 0 {
                    return;
                }
                portions -= 1;
                let bytes = client.read(offset, LOOK_BYTES.min(len_bytes - offset) as u32).unwrap();
                let findings = self.histories[volume].look((offset / 512) as u32, &bytes);
                self.judge(&findings);
            }
        }
    }

    fn judge(&self, findings: &[Finding]) {
        if findings.is_empty() {
            return;
        }
        let shown: Vec<_> = findings.iter().take(FINDINGS_MAX).map(ToString::to_string).collect();
        let (seed, round, plan) = (self.plan.seed, self.round, self.plan);
        panic!(
            "seed {seed}, round {round}: {} findings\n{plan}\n{}\nserver:\n{}\n\
             again: FASTNESS_KILL_SEED={seed} and the same test",
            findings.len(),
            shown.join("\n"),
            self.server.log(),
        );
    }

    /// Clients work on all volumes until the process has ended.
    fn work(&mut self, met: &mut Met) {
        let ending = match self.rng.below(100) {
            0..80 => Ending::Kill,
            80..92 => Ending::Export,
            _ => Ending::Terminate,
        };
        let mut connections: Vec<Vec<Connection>> =
            (0..self.histories.len()).map(|volume| self.connect(volume)).collect();
        let mut operations: Vec<Vec<Operation>> = connections.iter().map(|_| Vec::new()).collect();
        let pid = self.server.pid();
        // An export may be killed, too.
        let killer = (ending == Ending::Kill || self.rng.percent(30))
            .then(|| crate::server::kill_later(pid, self.rng.time(500, 600_000)));
        for _ in 0..self.rng.below(3) {
            std::thread::sleep(self.rng.time(100, 300_000));
            let volume = self.rng.below(connections.len() as u64) as usize;
            if self.rng.percent(25) {
                let now = self.clock.tick();
                if self.command("pool sync tank") {
                    self.histories.iter_mut().for_each(|history| history.make_durable(now));
                }
                continue;
            }
            let is_over = self.command(&format!("volume unserve tank/v{volume} --force"));
            let joined = std::mem::take(&mut connections[volume]);
            operations[volume].extend(self.join(joined, is_over));
            if !is_over {
                break;
            }
            self.serve(volume);
            connections[volume] = self.connect(volume);
            met.reserved += 1;
        }
        let is_clean = self.end(ending, killer);
        for (volume, joined) in connections.into_iter().enumerate() {
            let joined = self.join(joined, true);
            operations[volume].extend(joined);
        }
        if is_clean {
            let now = self.clock.tick();
            self.histories.iter_mut().for_each(|history| history.make_durable(now));
        }
        self.is_killed = !is_clean;
        met.kills += u64::from(!is_clean);
        met.exports += u64::from(is_clean);
        for (volume, mut operations) in operations.into_iter().enumerate() {
            // A read without a reply says nothing.
            let is_told = |operation: &Operation| {
                !matches!(operation.what, What::Read(_)) || matches!(operation.end, End::Acknowledged(_))
            };
            met.count(&operations);
            operations.retain(is_told);
            let findings = self.histories[volume].add(operations);
            self.judge(&findings);
        }
    }

    /// Waits for the end of the process; whether it was a clean one.
    fn end(&mut self, ending: Ending, killer: Option<std::thread::JoinHandle<()>>) -> bool {
        let is_exported = match ending {
            Ending::Kill => false,
            Ending::Export => {
                std::thread::sleep(self.rng.time(500, 300_000));
                self.command("pool export tank --force")
            }
            Ending::Terminate => {
                crate::server::terminate_later(self.server.pid(), self.rng.time(500, 300_000));
                false
            }
        };
        if let Some(killer) = killer {
            killer.join().unwrap();
        }
        let is_success = self.server.wait();
        is_exported || is_success
    }

    fn connect(&mut self, volume: usize) -> Vec<Connection> {
        let (socket, name) = self.address(volume);
        let of = &self.plan.volumes[volume];
        let place = self.histories[volume].place(0);
        let mut connections = Vec::new();
        for _ in 0..1 + self.rng.below(4) {
            let connection = self.next_connection;
            self.next_connection += 1;
            let rng = Rng::of(&[self.plan.seed, 2, u64::from(connection)]);
            let program = Program::new(rng, of.len_bytes, of.block_bytes);
            let clock = (&self.clock, place);
            connections.extend(Connection::start(
                &socket,
                &name,
                clock,
                connection,
                program,
                of.is_sync_always,
            ));
        }
        connections
    }

    /// What these connections did, which have ended or do so now; `is_over`: nothing of it can happen later.
    fn join(&self, connections: Vec<Connection>, is_over: bool) -> Vec<Operation> {
        let mut operations: Vec<_> = connections.into_iter().flat_map(Connection::join).collect();
        let now = self.clock.tick();
        for operation in &mut operations {
            if is_over && operation.end == End::Open {
                operation.end = End::Over(now);
            }
        }
        operations
    }
}
