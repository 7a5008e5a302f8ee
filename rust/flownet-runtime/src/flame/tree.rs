//! Merges stacks: the common frames of several stacks, from the outermost function on, become one frame.

use std::collections::HashMap;

use super::{FlameFrame, MOST_FRAMES, StackFrame, StackOf, TaskActivity};
use crate::time_accounting::TimeState;

/// Frames, with the number of samples of each.
#[derive(Debug, Default)]
pub(super) struct Tree {
    frames: Vec<Frame>,
    /// Positions of frames by the frame below and their key.
    known: HashMap<(Option<u32>, Key), u32>,
}

/// Distinguishes frames on top of the same one. The line in a function does not.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
enum Key {
    Function { name: String, file: String, begins: u32 },
    State(TimeState),
    Missed,
}

#[derive(Debug)]
struct Frame {
    below: Option<u32>,
    key: Key,
    samples: u32,
    /// Number of samples in each line.
    lines: HashMap<u32, u32>,
}

impl Tree {
    /// Adds `samples` samples of the task in `state`. `stack` is the stack of the thread that belongs to the
    /// state, the innermost function first.
    pub(super) fn add(&mut self, state: TimeState, of: Option<StackOf>, stack: Vec<StackFrame>, samples: u32) {
        let state = state.whatever_lacks();
        // The functions of a helper are on top of the state in which its task waits for it. A state in which
        // the task itself waits within a function is on top of the function.
        let is_outermost = of != Some(StackOf::Task) || stack.is_empty();
        let is_innermost = !is_outermost && state != TimeState::Busy;
        let functions = stack.into_iter().rev().map(|frame| {
            let StackFrame { function, file, begins, line } = frame;
            (Key::Function { name: function, file, begins }, line)
        });
        let state = |is_there: bool| is_there.then_some((Key::State(state), 0));
        self.put(state(is_outermost).into_iter().chain(functions).chain(state(is_innermost)), samples);
    }

    /// Adds `samples` samples of the task at work, whose stack could not be read in time.
    pub(super) fn add_missed(&mut self, samples: u32) {
        self.put([(Key::Missed, 0)].into_iter(), samples);
    }

    fn put(&mut self, stack: impl Iterator<Item = (Key, u32)>, samples: u32) {
        let mut below = None;
        for (key, line) in stack {
            let Some(at) = self.frame(below, key) else { return };
            let frame = &mut self.frames[at as usize];
            frame.samples += samples;
            *frame.lines.entry(line).or_default() += samples;
            below = Some(at);
        }
    }

    /// Position of a frame. None if it is new and there is no room for it.
    fn frame(&mut self, below: Option<u32>, key: Key) -> Option<u32> {
        let Self { frames, known } = self;
        let new = u32::try_from(frames.len()).ok().filter(|_| frames.len() < MOST_FRAMES);
        let at = *match (known.entry((below, key.clone())), new) {
            (std::collections::hash_map::Entry::Occupied(entry), _) => return Some(*entry.get()),
            (std::collections::hash_map::Entry::Vacant(_), None) => return None,
            (std::collections::hash_map::Entry::Vacant(entry), Some(new)) => entry.insert(new),
        };
        frames.push(Frame { below, key, samples: 0, lines: HashMap::new() });
        Some(at)
    }

    /// All frames, each after the one below.
    pub(super) fn frames(&self) -> Vec<FlameFrame> {
        let frames = self.frames.iter().map(|frame| FlameFrame {
            below: frame.below,
            place: frame.place(),
            samples: frame.samples,
        });
        frames.collect()
    }
}

impl Frame {
    fn place(&self) -> TaskActivity {
        match &self.key {
            Key::Function { name, file, .. } => {
                TaskActivity::Function { name: name.clone(), file: file.clone(), line: self.line() }
            }
            Key::State(state) => TaskActivity::State(*state),
            Key::Missed => TaskActivity::Missed,
        }
    }

    /// The line with most samples; of several the first.
    fn line(&self) -> u32 {
        let most = self.lines.iter().max_by_key(|&(&line, &samples)| (samples, std::cmp::Reverse(line)));
        most.map_or(0, |(&line, _)| line)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::time_accounting::BackpressureCause;

    fn function(name: &str, line: u32) -> StackFrame {
        StackFrame::new(name, "job.py", 1, line)
    }

    /// As folded stacks, with lines.
    fn folded(tree: &Tree) -> Vec<String> {
        let frames = tree.frames();
        let name = |frame: &FlameFrame| match &frame.place {
            TaskActivity::Function { name, line, .. } => format!("{name}:{line}"),
            TaskActivity::State(state) => format!("{state:?}"),
            TaskActivity::Missed => "missed".to_owned(),
        };
        let mut paths: Vec<String> = Vec::new();
        for frame in &frames {
            let below = frame.below.map(|at| format!("{};", paths[at as usize])).unwrap_or_default();
            paths.push(format!("{below}{}", name(frame)));
        }
        paths.iter().zip(&frames).map(|(path, frame)| format!("{path} {}", frame.samples)).collect()
    }

    #[test]
    fn stacks_share_what_led_to_them_whatever_line_it_was_in() {
        let mut tree = Tree::default();
        let busy = |tree: &mut Tree, stack: &[(&str, u32)], samples| {
            let stack = stack.iter().map(|&(name, line)| function(name, line)).collect();
            tree.add(TimeState::Busy, Some(StackOf::Task), stack, samples);
        };
        busy(&mut tree, &[("burn", 7), ("map", 3)], 5);
        busy(&mut tree, &[("map", 4)], 1);
        busy(&mut tree, &[("burn", 8), ("map", 3)], 2);
        busy(&mut tree, &[("map", 9), ("burn", 7)], 1);
        assert_eq!(folded(&tree), ["map:3 8", "map:3;burn:7 7", "burn:7 1", "burn:7;map:9 1"]);
    }

    #[test]
    fn states_are_where_they_belong() {
        let mut tree = Tree::default();
        tree.add(TimeState::Busy, Some(StackOf::Task), vec![], 1);
        tree.add(TimeState::SoftBackPressured(BackpressureCause::Pool), None, vec![], 2);
        tree.add(
            TimeState::HardBackPressured(BackpressureCause::Credit),
            Some(StackOf::Task),
            vec![function("map", 1)],
            3,
        );
        tree.add(TimeState::HardBackPressured(BackpressureCause::Credit), Some(StackOf::Task), vec![], 4);
        tree.add(TimeState::Awaiting, Some(StackOf::Helper), vec![function("fetch", 1), function("loop", 2)], 5);
        tree.add(TimeState::Idle, Some(StackOf::Helper), vec![], 6);
        tree.add_missed(7);
        let expected = [
            "Busy 1",
            "SoftBackPressured(Credit) 2",
            "map:1 3",
            "map:1;HardBackPressured(Credit) 3",
            "HardBackPressured(Credit) 4",
            "Awaiting 5",
            "Awaiting;loop:2 5",
            "Awaiting;loop:2;fetch:1 5",
            "Idle 6",
            "missed 7",
        ];
        assert_eq!(folded(&tree), expected);
    }

    #[test]
    fn where_there_is_no_room_for_a_frame_its_samples_stay_below_it() {
        let mut tree = Tree::default();
        for number in 0..2 * MOST_FRAMES {
            let stack = vec![function(&number.to_string(), 1), function("map", 1)];
            tree.add(TimeState::Busy, Some(StackOf::Task), stack, 1);
        }
        let frames = tree.frames();
        assert_eq!(frames.len(), MOST_FRAMES);
        assert_eq!(frames[0].samples, 2 * MOST_FRAMES as u32);
    }
}
