//! The bare twin: encode, write, read, decode, over one blocking socket.

use std::error::Error;
use std::io::{Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};

use flownet_benches::process_cpu_ns;

use crate::process::{report, report_done, wait_for};

pub(crate) fn send(records: u64) -> Result<(), Box<dyn Error>> {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?;
    report(&listener.local_addr()?.to_string())?;
    let (mut stream, _) = listener.accept()?;
    stream.set_nodelay(true)?;
    wait_for("go")?;

    let cpu_ns = process_cpu_ns()?;
    let mut buffer = vec![0; WRITE_BYTES + RECORD_BYTES];
    let mut filled = 0;
    for value in 0..records {
        buffer[filled..filled + 4].copy_from_slice(&8_u32.to_le_bytes());
        buffer[filled + 4..filled + RECORD_BYTES].copy_from_slice(&value.to_le_bytes());
        filled += RECORD_BYTES;
        if filled >= WRITE_BYTES {
            stream.write_all(&buffer[..WRITE_BYTES])?;
            buffer.copy_within(WRITE_BYTES..filled, 0);
            filled -= WRITE_BYTES;
        }
    }
    stream.write_all(&buffer[..filled])?;
    wait_for("end")?;
    report_done(cpu_ns)
}

pub(crate) fn receive(records: u64, sender: SocketAddr) -> Result<(), Box<dyn Error>> {
    let mut stream = TcpStream::connect(sender)?;
    stream.set_nodelay(true)?;
    report("ready")?;

    let cpu_ns = process_cpu_ns()?;
    let mut buffer = vec![0; READ_BYTES + RECORD_BYTES];
    let (mut have, mut received, mut sum) = (0, 0, 0_u64);
    while received < records {
        let read = stream.read(&mut buffer[have..have + READ_BYTES])?;
        if read == 0 {
            return Err("the sender went away".into());
        }
        have += read;
        let mut at = 0;
        while let Some((length, rest)) = buffer[at..have].split_first_chunk::<4>() {
            let Some(value) = rest.first_chunk::<8>() else { break };
            sum = sum.wrapping_add(u64::from_le_bytes(*value));
            at += 4 + usize::try_from(u32::from_le_bytes(*length))?;
            received += 1;
        }
        buffer.copy_within(at..have, 0);
        have -= at;
    }
    if sum != records.wrapping_mul(records.wrapping_sub(1)) / 2 {
        return Err("the records do not add up".into());
    }
    report_done(cpu_ns)
}

const RECORD_BYTES: usize = 12;
const WRITE_BYTES: usize = 32 * 1024;
const READ_BYTES: usize = 256 * 1024;
