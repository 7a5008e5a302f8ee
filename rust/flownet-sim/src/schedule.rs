//! A seed's run: a plan and a schedule by chance, carried out, then everything to its end.

use fastrand::Rng;
use flownet_core::FillLimit;

use crate::action::{Action, Side, Turn};
use crate::guard::{Failure, in_world};
use crate::plan::{Bug, Plan};
use crate::world::World;

/// A run of one seed.
#[derive(Clone, Debug)]
pub struct SeedRun {
    /// Where it ran.
    pub plan: Plan,
    /// What was decided, in order.
    pub schedule: Vec<Action>,
    /// Actions that happened, those that brought everything to its end included.
    pub actions: u64,
    /// What was wrong, if anything was.
    pub failure: Option<Failure>,
}

/// Runs one seed, with a bug if one is to be found.
#[must_use]
pub fn run_seed(seed: u64, bug: Option<Bug>) -> SeedRun {
    let mut rng = Rng::with_seed(seed);
    let plan = Plan { bug, ..Plan::random(&mut rng) };
    let mut schedule = Vec::new();
    let outcome = in_world(&plan, |world| {
        let mut chance = Chance::new(rng, world);
        for _ in 0..chance.decisions {
            let action = chance.decide(world);
            schedule.push(action);
            world.apply(action);
        }
        world.finish_all();
        world.actions()
    });
    let (actions, failure) = match outcome {
        Ok(actions) => (actions, None),
        Err(failure) => (schedule.len() as u64, Some(failure)),
    };
    SeedRun { plan, schedule, actions, failure }
}

/// Carries out a schedule and brings everything to its end.
pub fn replay(plan: &Plan, schedule: &[Action]) -> Result<(), Failure> {
    in_world(plan, |world| {
        for &action in schedule {
            world.apply(action);
        }
        world.finish_all();
    })
}

/// Decides by chance. Now and then somebody is stalled for a while: a consumer, or an end of a connection.
pub struct Chance {
    rng: Rng,
    decisions: usize,
    breaks_at: Option<usize>,
    made: usize,
    stalled: Vec<Turn>,
    /// The consumers of each partition that a source writes.
    sources: Vec<Vec<usize>>,
    producers: usize,
    consumers: usize,
    connections: usize,
    segment_bytes: usize,
    is_debloated: bool,
}

impl Chance {
    /// For this world. Half of all runs see something break.
    #[must_use]
    pub fn new(mut rng: Rng, world: &World) -> Self {
        let decisions = rng.usize(20..600);
        let (producers, consumers) = world.ends();
        let breaks_at = rng.bool().then(|| rng.usize(..decisions));
        Self {
            decisions,
            breaks_at,
            made: 0,
            stalled: Vec::new(),
            sources: world.sources(),
            producers,
            consumers,
            connections: world.connections(),
            segment_bytes: world.plan().segment_bytes,
            is_debloated: world.plan().is_debloated,
            rng,
        }
    }

    /// A run in which nothing breaks.
    #[must_use]
    pub fn unbroken(self) -> Self {
        Self { breaks_at: None, ..self }
    }

    /// What happens next.
    pub fn decide(&mut self, world: &World) -> Action {
        self.made += 1;
        if self.breaks_at.is_some_and(|at| at < self.made) && self.rng.u8(..32) == 0 {
            self.breaks_at = (self.rng.u8(..4) == 0).then_some(self.made);
            return self.fault();
        }
        if self.made.is_multiple_of(STALL_FOR) {
            self.stall();
        }
        match self.rng.u8(..16) {
            0..6 => self.task(),
            6 => Action::Wait,
            _ => self.turn(world),
        }
    }

    fn turn(&mut self, world: &World) -> Action {
        let Some(turn) = world.take_awake(|count| self.rng.usize(..count)) else {
            return if self.rng.bool() { Action::Wait } else { self.task() };
        };
        // Whatever becomes of it, it stays on the list: a turn that is done is known by its alarm.
        world.put_back(turn);
        if self.stalled.contains(&turn) { self.task() } else { Action::of(turn, self.amount(turn)) }
    }

    fn amount(&mut self, turn: Turn) -> usize {
        match turn {
            Turn::Read(_) => self.rng.usize(1..8),
            // Short enough to cut every header somewhere, or all there is.
            Turn::Send(..) | Turn::Receive(..) if self.rng.bool() => self.rng.usize(1..96),
            _ => usize::MAX,
        }
    }

    fn task(&mut self) -> Action {
        let (any_producer, any_consumer) = (self.rng.usize(..self.producers), self.rng.usize(..self.consumers));
        let producer = self.rng.usize(..self.sources.len());
        let consumers = &self.sources[producer];
        let consumer = consumers[self.rng.usize(..consumers.len())];
        match self.rng.u8(..32) {
            0..4 => Action::Write { producer, consumer, bytes: self.rng.usize(1..self.segment_bytes) },
            4..10 => Action::Write { producer, consumer, bytes: self.rng.usize(1..5 * self.segment_bytes) },
            10 => Action::Write { producer, consumer, bytes: self.rng.usize(1..40 * self.segment_bytes) },
            11 => Action::Broadcast { producer, bytes: self.rng.usize(1..3 * self.segment_bytes) },
            12..16 => Action::Flush { producer: any_producer },
            16..18 => Action::Watermark { producer, consumer },
            18 => Action::Barrier { producer, is_aligned: self.rng.bool() },
            19 if self.rng.u8(..8) == 0 => Action::Finish { producer },
            20 => Action::Register { producer: any_producer },
            21..29 => Action::Drop { consumer: any_consumer, buffers: self.rng.usize(1..8) },
            29 if self.is_debloated => Action::Limit { consumer: any_consumer, bytes: self.limit() },
            _ => Action::Resume { consumer: any_consumer },
        }
    }

    /// A record a buffer, some bytes, or full ones.
    fn limit(&mut self) -> u32 {
        match self.rng.u8(..4) {
            0 => FillLimit::ONE_RECORD.get(),
            1 => FillLimit::NONE.get(),
            _ => self.rng.u32(1..=self.segment_bytes as u32),
        }
    }

    fn fault(&mut self) -> Action {
        let (producer, consumer) = (self.rng.usize(..self.producers), self.rng.usize(..self.consumers));
        let connection = self.rng.usize(..self.connections.max(1));
        match self.rng.u8(..11) {
            0..3 => Action::Release { consumer, producer },
            3 => Action::CloseGate { consumer },
            4 => Action::Fail { producer },
            5 => Action::Vanish { producer },
            6 => Action::Lose { connection },
            7 => Action::Leave { connection },
            8 => Action::Close { connection },
            9 => Action::Expire { connection },
            _ => Action::Kill { worker: self.rng.usize(..5) },
        }
    }

    /// Others than before do nothing for a while, or nobody.
    fn stall(&mut self) {
        self.stalled.clear();
        for _ in 0..self.rng.usize(..4) {
            let connection = self.rng.usize(..self.connections.max(1));
            let side = if self.rng.bool() { Side::Producer } else { Side::Consumer };
            self.stalled.push(match self.rng.u8(..4) {
                0 | 1 => Turn::Read(self.rng.usize(..self.consumers)),
                2 => Turn::Send(connection, side),
                _ => Turn::Receive(connection, side),
            });
        }
    }
}

/// Decisions between two changes of who is stalled.
const STALL_FOR: usize = 40;
