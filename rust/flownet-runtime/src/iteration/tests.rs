//! Tests the end of iterations over all kinds of steps: every schedule of small ones, random schedules of
//! larger ones, and planted faults, which have to be found.

use std::collections::{HashSet, VecDeque};
use std::hash::{DefaultHasher, Hash, Hasher};

use flownet_core::{ChannelIndex, Round};

use super::rounds::{HeadRounds, Next, RoundAligner};

/// How the subtasks of two tasks are connected.
#[derive(Clone, Copy, Debug)]
enum Join {
    /// Each with the one of its index.
    Forward,
    /// Each with each.
    All,
}

/// Tasks of a step, in order: subtasks, their input tasks and how they are connected. The first is the head,
/// the last the tail.
#[derive(Clone, Debug)]
struct Step {
    tasks: Vec<(usize, Vec<(usize, Join)>)>,
    /// A stream from outside that ends at some time: the task that reads it, in each of its subtasks.
    outside: Option<usize>,
}

/// A planted fault.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Fault {
    /// A task passes on the round of the channel that came last, instead of the merged one.
    LastChannelSays,
    /// A task lets a round pass when the first channel delivers it.
    PassesAtFirst,
    /// A tail puts rounds before the records that wait.
    Overtakes,
    /// A head considers only records that it took itself.
    AsksItselfOnly,
    /// The first round claims to be quiet.
    BeginsQuiet,
    /// A channel from outside is not waited for.
    ForgetsOutside,
    /// A head forgets that it took records.
    ForgetsFeed,
}

/// A record with its remaining laps. In the first lap it becomes `fan` records.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct Record {
    laps: u8,
    fan: u8,
    /// Chooses the receivers in turn.
    turn: u8,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Item {
    Record(Record),
    Round(Round),
    End,
}

#[derive(Clone, Hash)]
struct Task {
    aligner: RoundAligner,
    /// True for channels that have ended.
    ended: usize,
    has_ended: bool,
    /// The next round to pass, for a task that waits for one channel only.
    next_round: u64,
    inputs: Vec<usize>,
    /// For each task that reads it: its channels.
    outputs: Vec<Vec<usize>>,
}

/// The model: heads, tasks, channels, and the queues between tails and heads.
#[derive(Clone, Hash)]
struct World {
    fault: Option<Fault>,
    heads: Vec<HeadRounds>,
    /// Records fed since the last round, for a head that considers only itself.
    fed: Vec<bool>,
    /// True after the end of its input was found.
    closed: Vec<bool>,
    inputs: Vec<VecDeque<Record>>,
    queues: Vec<VecDeque<Item>>,
    /// Tasks of the head first, those of the tail last.
    tasks: Vec<Task>,
    channels: Vec<VecDeque<Item>>,
    left: u32,
}

impl World {
    fn new(step: &Step, inputs: &[Vec<Record>], fault: Option<Fault>) -> Self {
        let firsts: Vec<usize> =
            step.tasks.iter().scan(0, |at, (count, _)| Some(std::mem::replace(at, *at + count))).collect();
        let total: usize = step.tasks.iter().map(|(count, _)| count).sum();
        let (mut reads, mut writes) = (vec![Vec::new(); total], vec![Vec::new(); total]);
        let mut channels = Vec::new();
        for (at, (count, from)) in step.tasks.iter().enumerate() {
            for &(source, join) in from {
                for producer in 0..step.tasks[source].0 {
                    let consumers = match join {
                        Join::Forward => producer..producer + 1,
                        Join::All => 0..*count,
                    };
                    let mut output = Vec::new();
                    for consumer in consumers {
                        reads[firsts[at] + consumer].push((channels.len(), true));
                        output.push(channels.len());
                        channels.push(VecDeque::new());
                    }
                    writes[firsts[source] + producer].push(output);
                }
            }
            if step.outside == Some(at) {
                for consumer in 0..*count {
                    reads[firsts[at] + consumer].push((channels.len(), false));
                    channels.push(VecDeque::from([Item::Record(Record { laps: 1, fan: 1, turn: 1 }), Item::End]));
                }
            }
        }
        let tasks = reads.into_iter().zip(writes).map(|(reads, outputs): (Vec<(usize, bool)>, _)| Task {
            aligner: RoundAligner::new(reads.iter().map(|(_, is_within)| *is_within)),
            ended: 0,
            has_ended: false,
            next_round: 0,
            inputs: reads.into_iter().map(|(channel, _)| channel).collect(),
            outputs,
        });
        let heads = step.tasks[0].0;
        let mut tasks: Vec<Task> = tasks.collect();
        if fault == Some(Fault::ForgetsOutside)
            && let Some(at) = step.outside
        {
            for task in &mut tasks[firsts[at]..firsts[at] + step.tasks[at].0] {
                let outside = ChannelIndex::new(u32::try_from(task.inputs.len() - 1).unwrap());
                let _ = task.aligner.on_end(outside, true);
            }
        }
        Self {
            fault,
            heads: vec![HeadRounds::default(); heads],
            fed: vec![false; heads],
            closed: vec![false; heads],
            inputs: inputs.iter().map(|records| records.iter().copied().collect()).collect(),
            queues: vec![VecDeque::new(); heads],
            tasks,
            channels,
            left: 0,
        }
    }

    /// Possible next steps: a head takes from its queue or its input, or finds the input ended; a task takes
    /// from a channel.
    fn choices(&self) -> Vec<(usize, usize)> {
        let count = self.heads.len();
        let heads = (0..count).filter(|&head| !self.heads[head].is_over());
        let heads = heads.filter(|&head| !self.queues[head].is_empty() || !self.closed[head]);
        let tasks = (count..self.tasks.len()).flat_map(|task| {
            let inputs = self.tasks[task].inputs.iter().enumerate();
            inputs.filter(|(_, channel)| !self.channels[**channel].is_empty()).map(move |(at, _)| (task, at))
        });
        heads.map(|head| (head, 0)).chain(tasks).collect()
    }

    fn act(&mut self, (task, at): (usize, usize)) -> Result<(), String> {
        if task < self.heads.len() { self.act_head(task) } else { self.act_task(task, at) }
    }

    fn act_head(&mut self, head: usize) -> Result<(), String> {
        match self.queues[head].pop_front() {
            Some(Item::Record(record)) => {
                self.fed[head] = true;
                if self.fault != Some(Fault::ForgetsFeed) {
                    self.heads[head].on_feed();
                }
                self.send(head, record);
            }
            Some(Item::Round(mut round)) => {
                if self.fault == Some(Fault::AsksItselfOnly) {
                    round.is_quiet = round.number > 0 && !self.fed[head];
                }
                self.fed[head] = false;
                match self.heads[head].on_return(round).map_err(|error| error.to_string())? {
                    Next::Send(round) => self.send_to_all(head, Item::Round(round)),
                    Next::End if !self.queues[head].is_empty() => {
                        return Err(format!("loop {head} was over too early"));
                    }
                    Next::End => self.send_to_all(head, Item::End),
                }
            }
            Some(Item::End) => return Err("a queue has no end".into()),
            None => match self.inputs[head].pop_front() {
                Some(record) => self.send(head, record),
                None => {
                    self.closed[head] = true;
                    if let Some(mut round) = self.heads[head].on_input_end() {
                        round.is_quiet = self.fault == Some(Fault::BeginsQuiet);
                        self.send_to_all(head, Item::Round(round));
                    }
                }
            },
        }
        Ok(())
    }

    fn act_task(&mut self, task: usize, at: usize) -> Result<(), String> {
        let channel = self.tasks[task].inputs[at];
        let index = ChannelIndex::new(u32::try_from(at).unwrap());
        match self.channels[channel].pop_front() {
            Some(Item::Record(record)) => {
                self.send(task, record);
                self.check_record(task)
            }
            Some(Item::Round(round)) if self.fault == Some(Fault::PassesAtFirst) => {
                if round.number == self.tasks[task].next_round {
                    self.tasks[task].next_round += 1;
                    self.pass(task, round);
                }
                Ok(())
            }
            Some(Item::Round(round)) => {
                if let Some(mut passing) = self.tasks[task].aligner.on_round(index, round)? {
                    if self.fault == Some(Fault::LastChannelSays) {
                        passing.is_quiet = round.is_quiet;
                    }
                    self.pass(task, passing);
                }
                Ok(())
            }
            Some(Item::End) => {
                for round in self.tasks[task].aligner.on_end(index, true)? {
                    self.pass(task, round);
                }
                let of = &mut self.tasks[task];
                of.ended += 1;
                if of.ended == of.inputs.len() {
                    of.has_ended = true;
                    self.send_to_all(task, Item::End);
                }
                Ok(())
            }
            None => Ok(()),
        }
    }

    /// The property: a head whose loop is over receives no more records.
    fn check_record(&self, task: usize) -> Result<(), String> {
        let Some(tail) = self.tail(task) else { return Ok(()) };
        let waits = self.queues[tail].iter().any(|item| matches!(item, Item::Record(_)));
        if waits && self.heads[tail].is_over() {
            Err(format!("loop {tail} was over, and a record came"))
        } else {
            Ok(())
        }
    }

    /// The index of the tail, if the task is one.
    fn tail(&self, task: usize) -> Option<usize> {
        task.checked_sub(self.tasks.len() - self.heads.len())
    }

    fn pass(&mut self, task: usize, round: Round) {
        match self.tail(task) {
            None => self.send_to_all(task, Item::Round(round)),
            Some(tail) if self.fault == Some(Fault::Overtakes) => self.queues[tail].push_front(Item::Round(round)),
            Some(tail) => self.queues[tail].push_back(Item::Round(round)),
        }
    }

    /// Sends the record to one reader of each output. A tail sends it to the head's queue, or lets it leave.
    fn send(&mut self, task: usize, record: Record) {
        if let Some(tail) = self.tail(task) {
            let Record { laps, fan, turn } = record;
            match laps.checked_sub(1) {
                None => self.left += 1,
                Some(laps) => {
                    for copy in 0..fan {
                        let record = Record { laps, fan: 1, turn: turn.wrapping_mul(3).wrapping_add(copy) };
                        self.queues[tail].push_back(Item::Record(record));
                    }
                }
            }
            return;
        }
        // One copy continues, through the outputs in turn.
        let outputs = &self.tasks[task].outputs;
        let output = &outputs[usize::from(record.turn) % outputs.len()];
        let channel = output[usize::from(record.turn / 2) % output.len()];
        let turn = record.turn.wrapping_mul(5).wrapping_add(1);
        self.channels[channel].push_back(Item::Record(Record { turn, ..record }));
    }

    fn send_to_all(&mut self, task: usize, item: Item) {
        let channels: Vec<usize> = self.tasks[task].outputs.iter().flatten().copied().collect();
        channels.into_iter().for_each(|channel| self.channels[channel].push_back(item));
    }

    fn is_over(&self) -> bool {
        self.heads.iter().all(HeadRounds::is_over)
    }

    /// All loops are over: the only remaining steps are ends.
    fn check_over(&self, expected: u32) -> Result<(), String> {
        let items = self.channels.iter().flatten();
        match items.filter(|item| !matches!(item, Item::End)).count() {
            0 if self.left == expected => Ok(()),
            under_way => {
                Err(format!("it was over when {} of {expected} had left, with {under_way} under way", self.left))
            }
        }
    }

    /// Checks the state in which no step is possible any more.
    fn check_end(&self, expected: u32) -> Result<(), String> {
        if !self.heads.iter().all(HeadRounds::is_over)
            || !self.tasks[self.heads.len()..].iter().all(|task| task.has_ended)
        {
            return Err("it stands still".into());
        }
        if self.left != expected {
            return Err(format!("{} of {expected} records left", self.left));
        }
        Ok(())
    }
}

fn steps() -> Vec<(&'static str, Step)> {
    use Join::{All, Forward};
    let step = |tasks: Vec<(usize, Vec<(usize, Join)>)>, outside| Step { tasks, outside };
    vec![
        ("nothing but a tail", step(vec![(2, vec![]), (2, vec![(0, Forward)])], None)),
        ("one to one", step(vec![(2, vec![]), (2, vec![(0, Forward)]), (2, vec![(1, Forward)])], None)),
        ("each to each", step(vec![(2, vec![]), (2, vec![(0, All)])], None)),
        ("by way of one", step(vec![(2, vec![]), (1, vec![(0, All)]), (2, vec![(1, All)])], None)),
        ("by way of three", step(vec![(2, vec![]), (3, vec![(0, All)]), (2, vec![(1, All)])], None)),
        (
            "two ways",
            step(
                vec![(2, vec![]), (2, vec![(0, Forward)]), (2, vec![(0, All)]), (2, vec![(1, Forward), (2, Forward)])],
                None,
            ),
        ),
        ("from outside", step(vec![(2, vec![]), (2, vec![(0, All)]), (2, vec![(1, Forward)])], Some(1))),
        (
            "from outside, one to one",
            step(vec![(2, vec![]), (2, vec![(0, Forward)]), (2, vec![(1, Forward)])], Some(1)),
        ),
    ]
}

/// Number of records that leave in the end, including those from outside.
fn expected(step: &Step, inputs: &[Vec<Record>]) -> u32 {
    let records = inputs.iter().flatten().map(|record| if record.laps > 0 { u32::from(record.fan) } else { 1 });
    let outside = step.outside.map_or(0, |task| u32::try_from(step.tasks[task].0).unwrap());
    records.sum::<u32>() + outside
}

/// Explores every schedule from here on.
fn explore(world: World, expected: u32) -> Result<usize, String> {
    let mut seen = HashSet::new();
    let mut open = vec![world];
    while let Some(world) = open.pop() {
        if world.is_over() {
            world.check_over(expected)?;
            continue;
        }
        let choices = world.choices();
        if choices.is_empty() {
            world.check_end(expected)?;
        }
        for choice in choices {
            let mut next = world.clone();
            next.act(choice)?;
            let mut hasher = DefaultHasher::new();
            next.hash(&mut hasher);
            if seen.insert(hasher.finish()) {
                open.push(next);
            }
        }
    }
    Ok(seen.len())
}

/// Runs one schedule, chosen by the seed.
fn run(step: &Step, fault: Option<Fault>, seed: u64) -> Result<(), String> {
    let mut random = Random(seed);
    let heads = step.tasks[0].0;
    let record = |random: &mut Random| Record {
        laps: random.below(5) as u8,
        fan: 1 + random.below(3) as u8,
        turn: random.below(200) as u8,
    };
    let inputs: Vec<Vec<Record>> =
        (0..heads).map(|_| (0..random.below(4)).map(|_| record(&mut random)).collect()).collect();
    let mut world = World::new(step, &inputs, fault);
    // Some tasks are slow throughout, so that records in other channels overtake those that they delay.
    let weights: Vec<usize> = world.tasks.iter().map(|_| [1, 1, 5, 50][random.below(4)]).collect();
    loop {
        let choices = world.choices();
        let total: usize = choices.iter().map(|(task, _)| weights[*task]).sum();
        if total == 0 {
            return world.check_end(expected(step, &inputs));
        }
        let mut at = random.below(total);
        let choice = choices.iter().find(|(task, _)| {
            let weight = weights[*task];
            let is_it = at < weight;
            at = at.saturating_sub(weight);
            is_it
        });
        world.act(*choice.unwrap())?;
    }
}

/// SplitMix64.
struct Random(u64);

impl Random {
    fn below(&mut self, limit: usize) -> usize {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut bits = self.0;
        bits = (bits ^ (bits >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        bits = (bits ^ (bits >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        usize::try_from((bits ^ (bits >> 31)) % limit as u64).unwrap()
    }
}

#[test]
fn every_schedule_of_small_loops_ends_when_nothing_goes_round_and_not_before() {
    let record = |laps, turn| Record { laps, fan: 1, turn };
    for (name, step) in steps() {
        // If there is input from outside, it is sufficient.
        let inputs = if step.outside.is_some() { vec![vec![]; 2] } else { vec![vec![record(1, 3)], vec![]] };
        let expected = expected(&step, &inputs);
        let states = explore(World::new(&step, &inputs, None), expected);
        let states = states.unwrap_or_else(|error| panic!("{name}, {inputs:?}: {error}"));
        assert!(states > 10, "{name}: {states}");
    }
}

#[test]
fn loops_of_any_shape_end_on_any_schedule() {
    for (name, step) in steps() {
        for seed in 0..500 {
            run(&step, None, seed).unwrap_or_else(|error| panic!("{name}, seed {seed}: {error}"));
        }
    }
}

#[test]
fn every_planted_fault_is_found() {
    use Fault::{AsksItselfOnly, BeginsQuiet, ForgetsFeed, ForgetsOutside, LastChannelSays, Overtakes, PassesAtFirst};
    for fault in [LastChannelSays, PassesAtFirst, Overtakes, AsksItselfOnly, BeginsQuiet, ForgetsOutside, ForgetsFeed] {
        let mut tries = steps().into_iter().flat_map(|(_, step)| (0..500).map(move |seed| (step.clone(), seed)));
        assert!(tries.any(|(step, seed)| run(&step, Some(fault), seed).is_err()), "{fault:?} goes unnoticed");
    }
}

#[test]
fn rounds_that_nobody_sends_are_errors() {
    let round = |number| Round { number, is_quiet: true };
    let channel = ChannelIndex::new;
    let mut aligner = RoundAligner::new([true, true, false]);
    assert!(aligner.on_round(channel(2), round(0)).is_err(), "it lies outside");
    assert_eq!(aligner.on_round(channel(0), round(0)), Ok(None));
    assert_eq!(aligner.on_round(channel(0), round(1)), Ok(None));
    assert!(aligner.on_round(channel(0), round(2)).is_err(), "I6");
    assert_eq!(aligner.on_end(channel(2), true), Ok(vec![]));
    assert!(aligner.on_round(channel(1), round(7)).is_err(), "not the same");
    let mut head = HeadRounds::default();
    assert!(head.on_return(round(0)).is_err(), "none was sent");
    assert_eq!(head.on_input_end(), Some(Round { number: 0, is_quiet: false }));
    assert_eq!(head.on_input_end(), None);
    assert!(head.on_return(round(1)).is_err());
    assert_eq!(head.on_return(round(0)), Ok(Next::End));
}

#[test]
fn no_round_passes_where_a_channel_was_stopped() {
    let (channel, round) = (ChannelIndex::new, Round { number: 0, is_quiet: false });
    for stopped in [channel(1), channel(2)] {
        let mut aligner = RoundAligner::new([true, true, false]);
        assert_eq!(aligner.on_round(channel(0), round), Ok(None));
        for ended in [channel(1), channel(2)] {
            assert_eq!(aligner.on_end(ended, ended != stopped), Ok(vec![]), "{stopped} has more in the next run");
        }
    }
}
