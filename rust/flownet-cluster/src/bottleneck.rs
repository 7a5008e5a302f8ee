//! Finds the vertex that limits the throughput of a job, from the time shares of all vertices.

use std::fmt;

use crate::report::VertexReport;

/// Vertex that limits the throughput of a job.
#[derive(Clone, Debug, PartialEq)]
pub struct Bottleneck {
    /// Index of the vertex.
    pub vertex: usize,
    /// Name of the vertex.
    pub name: String,
    /// `busy` of its busiest subtask.
    pub busy: f64,
    /// Number of subtasks about as busy as the busiest, and of all subtasks, if the others are less busy.
    pub skew: Option<(u32, u32)>,
    /// Share of time in which it waits for the interpreter.
    pub interpreter: f64,
    /// Share of time in which it waits for async I/O calls of its functions.
    pub awaiting: f64,
    /// Neighbours that wait for it.
    pub waiting: BottleneckWaiters,
}

/// Neighbours that wait for a bottleneck.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum BottleneckWaiters {
    /// Upstream is back-pressured: more records arrive than the vertex can process.
    Upstream,
    /// Downstream is idle: the vertex delivers less than downstream could process.
    Downstream,
}

impl Bottleneck {
    /// Finds the busiest vertex among those that are busy, or wait for the interpreter, most of the time. Waiting for
    /// async I/O calls counts as busy, because the vertex could not process more. Of vertices that are about equally
    /// busy, it is the one with back-pressured upstream: the others are busy because it lets them. `edges` are (from,
    /// to) indices.
    pub(crate) fn find(vertices: &[VertexReport], edges: &[(usize, usize)]) -> Option<Self> {
        let is_pressing =
            |vertex: usize| edges.iter().any(|&(from, to)| to == vertex && vertices[from].back_pressured > NOTICEABLE);
        let feeds = |vertex: usize| edges.iter().any(|&(from, _)| from == vertex);
        let occupied = |vertex: usize| vertices[vertex].busiest + vertices[vertex].awaiting;
        let is_saturated = |vertex: usize| occupied(vertex) + vertices[vertex].interpreter > MOST_OF_THE_TIME;
        // Back-pressured upstream decides between vertices that are about equally busy.
        let blame = |vertex: usize| occupied(vertex) + if is_pressing(vertex) { ABOUT_EQUAL } else { 0.0 };
        let vertex = (0..vertices.len())
            .filter(|&vertex| is_saturated(vertex) && (is_pressing(vertex) || feeds(vertex)))
            .max_by(|&a, &b| blame(a).total_cmp(&blame(b)))?;
        let waiting = if is_pressing(vertex) { BottleneckWaiters::Upstream } else { BottleneckWaiters::Downstream };
        let VertexReport { name, parallelism, busy, busiest, busiest_subtasks, interpreter, awaiting, .. } =
            &vertices[vertex];
        let is_skewed = busiest_subtasks < parallelism && busiest - busy > ABOUT_EQUAL;
        let skew = is_skewed.then_some((*busiest_subtasks, *parallelism));
        let (name, busy) = (name.clone(), *busiest);
        Some(Self { vertex, name, busy, skew, interpreter: *interpreter, awaiting: *awaiting, waiting })
    }
}

impl fmt::Display for Bottleneck {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let waiting = match self.waiting {
            BottleneckWaiters::Upstream => "upstream",
            BottleneckWaiters::Downstream => "downstream",
        };
        write!(f, "{} (", self.name)?;
        match self.skew {
            Some((1, all)) => write!(f, "one of {all} subtasks ")?,
            Some((some, all)) => write!(f, "{some} of {all} subtasks ")?,
            None => {}
        }
        write!(f, "{:.0} % busy", self.busy * 100.0)?;
        if self.interpreter > WORTH_MORE_WORKERS {
            let more = "use more workers";
            write!(f, ", {:.0} % waiting for the interpreter: {more}", self.interpreter * 100.0)?;
        }
        if self.awaiting > WORTH_MORE_CALLS {
            let more = "a greater capacity has more of them at a time";
            write!(f, ", {:.0} % waiting for calls of its functions: {more}", self.awaiting * 100.0)?;
        }
        write!(f, "; {waiting} waits for it)")
    }
}

/// Flink's limit between "ok" and "low" back-pressure.
const NOTICEABLE: f64 = 0.1;
/// Share of time waiting for the interpreter above which more workers would help.
const WORTH_MORE_WORKERS: f64 = 0.25;
/// Share of time waiting for async I/O calls above which more concurrent calls would help.
const WORTH_MORE_CALLS: f64 = 0.25;
/// A vertex less busy than this could process more: it is no bottleneck.
const MOST_OF_THE_TIME: f64 = 0.5;
/// Differences between time shares below this do not identify a bottleneck.
pub(crate) const ABOUT_EQUAL: f64 = 0.1;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::tests::{LINE, vertex};

    #[test]
    fn the_bottleneck_is_the_busiest_vertex_whose_upstream_is_back_pressured() {
        let vertices = [vertex("source", 0.2, 0.8), vertex("parse", 0.3, 0.7), vertex("slow sink", 0.99, 0.0)];
        let bottleneck = Bottleneck::find(&vertices, &LINE).expect("the sink");
        assert_eq!(bottleneck.to_string(), "slow sink (99 % busy; upstream waits for it)");
    }

    #[test]
    fn a_vertex_behind_the_bottleneck_is_not_blamed_for_being_busy() {
        let vertices = [vertex("source", 0.4, 0.6), vertex("parse", 0.97, 0.02), vertex("sink", 0.61, 0.0)];
        assert_eq!(Bottleneck::find(&vertices, &LINE).map(|found| found.vertex), Some(1));
    }

    #[test]
    fn a_saturated_vertex_without_back_pressure_keeps_downstream_waiting() {
        let vertices = [vertex("read -> split", 0.97, 0.02), vertex("count", 0.61, 0.0)];
        let bottleneck = Bottleneck::find(&vertices, &LINE[..1]).expect("the source");
        assert_eq!(bottleneck.to_string(), "read -> split (97 % busy; downstream waits for it)");
    }

    #[test]
    fn a_busy_source_is_named_rather_than_a_vertex_that_presses_it_now_and_then() {
        let vertices = [vertex("read", 0.84, 0.16), vertex("count", 0.32, 0.0)];
        assert_eq!(Bottleneck::find(&vertices, &LINE[..1]).map(|found| found.vertex), Some(0));
    }

    #[test]
    fn of_two_busy_vertices_the_one_that_presses_is_named() {
        let vertices = [vertex("read", 0.8, 0.2), vertex("count", 0.78, 0.0)];
        assert_eq!(Bottleneck::find(&vertices, &LINE[..1]).map(|found| found.vertex), Some(1));
    }

    #[test]
    fn who_waits_for_calls_is_named_although_it_is_idle_and_told_what_helps() {
        let enrich = VertexReport { awaiting: 0.9, ..vertex("enrich", 0.05, 0.0) };
        let vertices = [vertex("read", 0.1, 0.9), enrich, vertex("sink", 0.02, 0.0)];
        let bottleneck = Bottleneck::find(&vertices, &LINE).expect("the one that waits");
        let expected = "enrich (5 % busy, 90 % waiting for calls of its functions: a greater capacity has more of them \
                        at a time; upstream waits for it)";
        assert_eq!(bottleneck.to_string(), expected);
    }

    #[test]
    fn who_waits_for_the_interpreter_is_not_blamed_for_it_and_whoever_has_it_most_is() {
        let waits = |name, busy, interpreter| VertexReport { interpreter, idle: 0.0, ..vertex(name, busy, 0.0) };
        let vertices = [waits("read", 0.1, 0.85), waits("slow", 0.45, 0.5), waits("sink", 0.1, 0.2)];
        let bottleneck = Bottleneck::find(&vertices, &LINE).expect("the slow one");
        let expected = "slow (45 % busy, 50 % waiting for the interpreter: use more workers; downstream waits for it)";
        assert_eq!(bottleneck.to_string(), expected);
    }

    #[test]
    fn a_hot_subtask_is_told_from_a_task_that_is_busy_as_a_whole() {
        let hot = |busy, busiest_subtasks| VertexReport {
            parallelism: 8,
            busiest: 1.0,
            busiest_subtasks,
            ..vertex("count", busy, 0.0)
        };
        let said =
            |count| Bottleneck::find(&[vertex("read", 0.1, 0.9), count], &LINE[..1]).map(|found| found.to_string());
        let expected = [
            (hot(0.13, 1), "count (one of 8 subtasks 100 % busy; upstream waits for it)"),
            (hot(0.38, 3), "count (3 of 8 subtasks 100 % busy; upstream waits for it)"),
            (hot(0.95, 7), "count (100 % busy; upstream waits for it)"),
            (hot(1.0, 8), "count (100 % busy; upstream waits for it)"),
        ];
        for (count, sentence) in expected {
            assert_eq!(said(count).as_deref(), Some(sentence));
        }
    }

    #[test]
    fn where_nobody_is_busy_nobody_is_named() {
        let vertices = [vertex("read", 0.2, 0.3), vertex("count", 0.4, 0.0)];
        assert_eq!(Bottleneck::find(&vertices, &LINE[..1]), None);
    }

    #[test]
    fn a_job_that_idles_has_no_bottleneck() {
        let vertices = [vertex("source", 0.1, 0.0), vertex("sink", 0.05, 0.0)];
        assert_eq!(Bottleneck::find(&vertices, &LINE[..1]), None);
    }
}
