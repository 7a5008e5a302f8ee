//! The raw twin: the same records over one blocking socket and nothing else. What an exchange without credit, pools,
//! channels and threads of its own could reach.

use std::io::{self, Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};

use flownet_core::record::reader::read_whole_records;

use crate::clock::{monotonic_ns, process_cpu_ns};
use crate::error::BenchError;
use crate::exchange::ArrivalCount;
use crate::latency::Latencies;
use crate::network::usage;
use crate::party::Control;
use crate::role::{Answer, Instruction, Usage};
use crate::spec::{ExchangeSpec, LENGTH_BYTES, sum_below};

/// Encodes `u32 length | record` and writes 32 KiB at a time.
pub(crate) fn send(spec: &ExchangeSpec, control: &mut Control) -> Result<(), BenchError> {
    let mut stream = accept(control)?;
    control.wait_for(&Instruction::Go)?;
    let cpu_ns = process_cpu_ns();
    let encoded = match spec.record_bytes {
        8 => encode(&mut stream, spec.delivered(), [0; 8]),
        bytes => encode(&mut stream, spec.delivered(), vec![0; bytes]),
    };
    encoded.map_err(BenchError::io("write to the raw twin's socket"))?;
    control.wait_for(&Instruction::End)?;
    control.report(&Answer::Done(Box::new(usage(cpu_ns)?)))
}

/// Reads up to 256 KiB at a time, decodes and adds up.
pub(crate) fn receive(spec: &ExchangeSpec, sender: SocketAddr, control: &mut Control) -> Result<(), BenchError> {
    let mut stream = connect(sender)?;
    control.report(&Answer::Ready)?;
    let cpu_ns = process_cpu_ns();
    let mut tally = ArrivalCount::default();
    let records = spec.delivered();
    decode(&mut stream, spec.record_bytes, records, |record| tally.add(record))
        .map_err(BenchError::io("read from the raw twin's socket"))?;
    let expected_sum = sum_below(records);
    if tally.received != records || tally.sum != expected_sum {
        let ArrivalCount { received, sum } = tally;
        return Err(BenchError::WrongSum { received, sum, expected: records, expected_sum });
    }
    control.report(&Answer::Done(Box::new(usage(cpu_ns)?)))
}

/// Sends back what comes, until the other side leaves.
pub(crate) fn pong(message_bytes: usize, control: &mut Control) -> Result<(), BenchError> {
    let mut stream = accept(control)?;
    let mut message = vec![0; message_bytes];
    while stream.read_exact(&mut message).is_ok() && stream.write_all(&message).is_ok() {}
    Ok(())
}

/// Takes half the time of round trips, one after the other.
pub(crate) fn ping(message_bytes: usize, pong: SocketAddr, control: &mut Control) -> Result<(), BenchError> {
    let mut stream = connect(pong)?;
    control.report(&Answer::Ready)?;
    let cpu_ns = process_cpu_ns();
    let mut latencies = Latencies::new()?;
    let mut message = vec![0; message_bytes];
    for round in 0..WARM_UP_ROUNDS + ROUNDS {
        let before = monotonic_ns();
        let result = stream.write_all(&message).and_then(|()| stream.read_exact(&mut message));
        result.map_err(BenchError::io("play ping-pong"))?;
        if round >= WARM_UP_ROUNDS {
            latencies.record((monotonic_ns() - before) / 2);
        }
    }
    control.report(&Answer::Done(Box::new(Usage { latency: Some(latencies.figures()), ..usage(cpu_ns)? })))
}

/// The listening end of a connection, with its address told to the bench.
pub(crate) fn accept(control: &mut Control) -> Result<TcpStream, BenchError> {
    let listen = || TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).and_then(|port| Ok((port.local_addr()?, port)));
    let (address, listener) = listen().map_err(BenchError::io("listen on 127.0.0.1"))?;
    control.report(&Answer::Listening(address))?;
    let accept = || {
        let (stream, _) = listener.accept()?;
        stream.set_nodelay(true)?;
        Ok(stream)
    };
    accept().map_err(BenchError::io("accept a connection"))
}

/// The dialing end.
pub(crate) fn connect(address: SocketAddr) -> Result<TcpStream, BenchError> {
    let connect = || {
        let stream = TcpStream::connect(address)?;
        stream.set_nodelay(true)?;
        Ok(stream)
    };
    connect().map_err(BenchError::io("connect to the sender"))
}

/// Calls `on_record` with each of `records` records as they arrive.
#[inline]
pub(crate) fn decode(
    stream: &mut impl Read,
    record_bytes: usize,
    records: u64,
    mut on_record: impl FnMut(&[u8]),
) -> io::Result<()> {
    let mut buffer = vec![0; READ_BYTES + LENGTH_BYTES as usize + record_bytes];
    let (mut have, mut received) = (0, 0);
    while received < records {
        let read = stream.read(&mut buffer[have..have + READ_BYTES])?;
        if read == 0 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        have += read;
        // As the exchange decodes, or the twin would measure another loop as well.
        let at = read_whole_records(&buffer[..have], 0, record_bytes, &mut |record| {
            on_record(record);
            received += 1;
        });
        if have - at > buffer.len() - READ_BYTES {
            return Err(io::ErrorKind::InvalidData.into());
        }
        buffer.copy_within(at..have, 0);
        have -= at;
    }
    Ok(())
}

#[inline]
fn encode(stream: &mut impl Write, records: u64, mut record: impl AsMut<[u8]> + AsRef<[u8]>) -> io::Result<()> {
    let record_bytes = record.as_ref().len();
    let prefix = (record_bytes as u32).to_le_bytes();
    let mut buffer = vec![0; WRITE_BYTES + prefix.len() + record_bytes];
    let mut filled = 0;
    for value in 0..records {
        record.as_mut()[..8].copy_from_slice(&value.to_le_bytes());
        let (head, tail) = buffer[filled..].split_at_mut(prefix.len());
        head.copy_from_slice(&prefix);
        tail[..record_bytes].copy_from_slice(record.as_ref());
        filled += prefix.len() + record_bytes;
        while filled >= WRITE_BYTES {
            stream.write_all(&buffer[..WRITE_BYTES])?;
            buffer.copy_within(WRITE_BYTES..filled, 0);
            filled -= WRITE_BYTES;
        }
    }
    stream.write_all(&buffer[..filled])
}

const WRITE_BYTES: usize = 32 * 1024;
const READ_BYTES: usize = 256 * 1024;
const WARM_UP_ROUNDS: u32 = 1_000;
const ROUNDS: u32 = 10_000;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_encoded_is_decoded_whatever_the_size() {
        for (record_bytes, records) in [(8, 10_000), (9, 10_000), (1024, 500), (40_000, 40), (300_000, 3)] {
            let mut bytes = Vec::new();
            encode(&mut bytes, records, vec![0; record_bytes]).unwrap();
            assert_eq!(bytes.len() as u64, records * (record_bytes as u64 + LENGTH_BYTES));
            let mut tally = ArrivalCount::default();
            decode(&mut bytes.as_slice(), record_bytes, records, |record| tally.add(record)).unwrap();
            assert_eq!((tally.received, tally.sum), (records, sum_below(records)));
        }
    }

    #[test]
    fn a_stream_that_ends_early_or_lies_is_an_error() {
        let mut bytes = Vec::new();
        encode(&mut bytes, 10, [0; 8]).unwrap();
        let decoded = decode(&mut &bytes[..bytes.len() - 1], 8, 10, |_| ());
        assert_eq!(decoded.unwrap_err().kind(), io::ErrorKind::UnexpectedEof);
        bytes[..4].copy_from_slice(&u32::MAX.to_le_bytes());
        assert!(decode(&mut bytes.as_slice(), 8, 10, |_| ()).is_err());
    }
}
