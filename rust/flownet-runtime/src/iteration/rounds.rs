//! Rounds: detect the end of an iteration. State machines without IO or clock; `mod.rs` proves them correct.

use std::collections::VecDeque;

use flownet_core::{ChannelIndex, Round};

/// The rounds of one head.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub(crate) struct HeadRounds {
    state: State,
    /// A record was taken from the queue since the last round was sent.
    has_fed: bool,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
enum State {
    /// Its input has not ended.
    #[default]
    Open,
    /// This round circulates.
    Round(u64),
    /// No record circulates any more.
    Over,
    /// Circulating records were dropped.
    GivenUp,
}

/// Next action of a head after a round has returned.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Next {
    /// Send this round.
    Send(Round),
    /// The loop is over.
    End,
}

/// A round that was not sent, or does not come next.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("round {found} where {expected} was expected")]
pub(crate) struct UnexpectedRound {
    pub(crate) found: u64,
    pub(crate) expected: u64,
}

impl HeadRounds {
    /// Notes that a record was taken from the queue and sent.
    #[inline]
    pub(crate) fn on_feed(&mut self) {
        self.has_fed = true;
    }

    /// Notes the end of the input. The first call returns the round to send. Earlier records are unknown to
    /// it, so it is not quiet.
    pub(crate) fn on_input_end(&mut self) -> Option<Round> {
        if self.state != State::Open {
            return None;
        }
        (self.state, self.has_fed) = (State::Round(0), false);
        Some(Round { number: 0, is_quiet: false })
    }

    /// Handles a round that has returned, after all items before it.
    pub(crate) fn on_return(&mut self, round: Round) -> Result<Next, UnexpectedRound> {
        match self.state {
            State::Round(number) if number == round.number => {}
            State::Round(expected) => return Err(UnexpectedRound { found: round.number, expected }),
            State::Open | State::Over | State::GivenUp => {
                return Err(UnexpectedRound { found: round.number, expected: 0 });
            }
        }
        if round.is_quiet {
            self.state = State::Over;
            return Ok(Next::End);
        }
        let number = round.number + 1;
        self.state = State::Round(number);
        Ok(Next::Send(Round { number, is_quiet: !std::mem::take(&mut self.has_fed) }))
    }

    /// Drops circulating records.
    pub(crate) fn give_up(&mut self) {
        self.state = State::GivenUp;
    }

    pub(crate) fn is_over(&self) -> bool {
        self.state == State::Over
    }

    pub(crate) fn is_given_up(&self) -> bool {
        self.state == State::GivenUp
    }
}

/// Aligns the rounds of all channels of a task.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct RoundAligner {
    channels: Vec<Channel>,
    /// A channel ended because the job was stopped. Records that its head left to the next run still
    /// circulate, so no round passes.
    is_stopped: bool,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Channel {
    has_ended: bool,
    /// True if it is within the loop.
    is_within: bool,
    /// Rounds that it has delivered and others have not, at most [`MOST_AHEAD`].
    rounds: VecDeque<Round>,
}

/// I6: the round that others have not delivered yet, and the next.
const MOST_AHEAD: usize = 2;

impl RoundAligner {
    /// An aligner for these channels; each flag is true if the channel is within the loop.
    pub(crate) fn new(is_within: impl IntoIterator<Item = bool>) -> Self {
        let channel = |is_within| Channel { has_ended: false, is_within, rounds: VecDeque::new() };
        Self { channels: is_within.into_iter().map(channel).collect(), is_stopped: false }
    }

    /// Handles a round of a channel. Returns the round that may pass now. Returns an error if no head sends
    /// such a round.
    pub(crate) fn on_round(&mut self, channel: ChannelIndex, round: Round) -> Result<Option<Round>, String> {
        let of = &mut self.channels[channel.index()];
        if !of.is_within || of.rounds.len() == MOST_AHEAD {
            return Err(format!("channel {channel} brought round {}, which is not its turn", round.number));
        }
        of.rounds.push_back(round);
        self.merge()
    }

    /// Handles the end of a channel, which is not waited for any more. `drain` is true if it reached its own
    /// end.
    pub(crate) fn on_end(&mut self, channel: ChannelIndex, drain: bool) -> Result<Vec<Round>, String> {
        self.channels[channel.index()].has_ended = true;
        self.is_stopped |= !drain;
        std::iter::from_fn(|| self.merge().transpose()).collect()
    }

    /// The next round, if all channels that deliver it have done so.
    fn merge(&mut self) -> Result<Option<Round>, String> {
        let is_awaited = |channel: &Channel| channel.rounds.is_empty() && !channel.has_ended;
        if self.is_stopped || self.channels.iter().any(is_awaited) {
            return Ok(None);
        }
        let mut merged: Option<Round> = None;
        for round in self.channels.iter_mut().filter_map(|channel| channel.rounds.pop_front()) {
            match &mut merged {
                None => merged = Some(round),
                Some(merged) if merged.number == round.number => merged.is_quiet &= round.is_quiet,
                Some(merged) => return Err(format!("rounds {} and {} at one time", merged.number, round.number)),
            }
        }
        Ok(merged)
    }
}
