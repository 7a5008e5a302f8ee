//! The exchange between two hosts: exact over a link that loses packets, and as fast as the link or its credit allows.
//!
//! The rates asserted are those of the link, which is slow: no machine that can carry it at all comes near its own limit.

use std::io::{BufRead, BufReader, Write};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use flownet_link_tests::{Link, Shape};

const SEGMENT_BYTES: f64 = 32.0 * 1024.0;
const EXCLUSIVE: u32 = 2;
const MBIT: u64 = 1_000_000;

/// The link, or `None` and a line that says why not.
fn link(shape: Shape) -> Option<Link> {
    match Link::open(shape) {
        Ok(link) => Some(link),
        Err(error) => {
            // Not `eprintln`, which the test harness would keep to itself.
            let _ = writeln!(std::io::stderr(), "skipped: two hosts need network namespaces and TUN devices: {error}");
            None
        }
    }
}

/// What is transferred, and for how many bytes on their way the two ends are made (0: the defaults).
#[derive(Clone, Copy)]
struct Transfer {
    bandwidth_delay: u64,
    megabytes: u64,
}

impl Transfer {
    /// Bytes a second from the first host to the second, in processes of their own, each record checked.
    fn rate(self, link: &Link, prefix: &str) -> f64 {
        let mut sender = Party::start(link, 0, &format!("{prefix}send"), self, None);
        let address = sender.line();
        let mut receiver = Party::start(link, 1, &format!("{prefix}receive"), self, Some(&address));
        let result = receiver.line();
        let numbers: Vec<f64> = result.split(' ').map(|number| number.parse().expect("a number")).collect();
        receiver.end();
        sender.end();
        numbers[1] / numbers[0] * 1e9
    }
}

/// A process, ended with this value however the test ends.
struct Party(Child);

impl Party {
    fn start(link: &Link, host: usize, role: &str, transfer: Transfer, peer: Option<&str>) -> Self {
        let Transfer { bandwidth_delay, megabytes } = transfer;
        let mut command = Command::new(env!("CARGO_BIN_EXE_party"));
        command.args([role.to_owned(), Link::ADDRESSES[host].to_string()]);
        command.args([bandwidth_delay, megabytes * 1000].map(|number| number.to_string()));
        command.args(peer).stdin(Stdio::piped()).stdout(Stdio::piped());
        Self(link.host(host).start(command).expect("the party is built"))
    }

    fn line(&mut self) -> String {
        let mut line = String::new();
        let output = self.0.stdout.as_mut().expect("its output is ours");
        BufReader::new(output).read_line(&mut line).expect("its output is text");
        assert!(!line.is_empty(), "a party ended early: see its error above");
        line.trim().to_owned()
    }

    /// Waits for its own end, which tells that all its segments are home.
    fn end(&mut self) {
        let input = self.0.stdin.take();
        assert!(self.0.wait().expect("it is ours").success());
        drop(input);
    }
}

impl Drop for Party {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[test]
fn a_link_that_loses_packets_loses_no_record_and_costs_the_exchange_no_more_than_tcp() {
    let shape = Shape { delay: Duration::from_millis(20), lost_per_mille: 10, rate: 100 * MBIT, seed: 1 };
    let Some(link) = link(shape) else { return };
    let bound = Transfer { bandwidth_delay: 0, megabytes: 3 }.rate(&link, "");
    assert!(bound <= 1.1 * credit(&link, 8), "{bound:.0} B/s is more than credit can be");
    // Which packets are lost differs from run to run, and so does what TCP makes of it: a transfer that loses some of its
    // first ones is slow to its end, with the exchange and without. One that costs more than TCP does so in each round.
    let mut found = Vec::new();
    for _ in 0..ROUNDS {
        let raw = Transfer { bandwidth_delay: 0, megabytes: 3 }.rate(&link, "raw-");
        // What is lost comes a round trip later, or several: TCP then has several times the link on its way.
        let lent = Transfer { bandwidth_delay: 2_000_000, megabytes: 3 }.rate(&link, "");
        println!("raw {raw:.0} B/s, exchange {bound:.0} B/s, with more on its way {lent:.0} B/s");
        if lent >= raw.min(link.bytes_per_s()) / 3.0 {
            return;
        }
        found.push((raw, lent));
    }
    panic!("TCP alone and the exchange, in B/s: {found:.0?}");
}

/// Of transfers whose speed depends on which packets are lost.
const ROUNDS: usize = 5;

#[test]
fn a_long_link_is_bound_by_credit_unless_a_link_full_of_it_is_lent() {
    let shape = Shape { delay: Duration::from_millis(50), lost_per_mille: 0, rate: 100 * MBIT, seed: 1 };
    let Some(link) = link(shape) else { return };
    let on_the_way = (link.bytes_per_s() * link.round_trip().as_secs_f64()) as u64;

    let (bound, most) = (Transfer { bandwidth_delay: 0, megabytes: 8 }.rate(&link, ""), credit(&link, 8));
    let full = Transfer { bandwidth_delay: on_the_way, megabytes: 30 }.rate(&link, "");
    println!("bound {bound:.0} of {most:.0} B/s, full {full:.0} of {:.0} B/s", link.bytes_per_s());

    assert!(bound <= 1.1 * most, "{bound:.0} B/s is more than credit can be, {most:.0} B/s");
    assert!(bound >= 0.4 * most, "{bound:.0} B/s is far from what credit allows, {most:.0} B/s");
    assert!(full >= 0.5 * link.bytes_per_s(), "{full:.0} B/s is far from the link's {:.0} B/s", link.bytes_per_s());
}

/// Bytes a second that a channel with so many floating buffers can move at most.
fn credit(link: &Link, floating: u32) -> f64 {
    f64::from(EXCLUSIVE + floating) * SEGMENT_BYTES / link.round_trip().as_secs_f64()
}
