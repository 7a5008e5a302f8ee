//! Reads lines from a TCP socket.

use std::io::ErrorKind;
use std::net::{TcpStream, ToSocketAddrs};
use std::sync::mpsc::{RecvTimeoutError, sync_channel};
use std::thread;
use std::time::{Duration, Instant};

use super::SourceError;
use super::lines::LineBuffer;
use crate::error::TaskError;
use crate::mailbox::CancelToken;

/// Longest interval between checks of the cancel token.
const POLL_INTERVAL: Duration = Duration::from_millis(50);

/// Reads lines from a server until it closes the connection.
///
/// Take lines with [`next_line`](Self::next_line) until there is none. Then call [`fill`](Self::fill), which
/// waits for a short time only.
#[derive(Debug)]
pub struct SocketLines {
    address: String,
    stream: TcpStream,
    buffer: LineBuffer,
    ended: bool,
    max_line_bytes: usize,
}

/// Result of a read from the socket.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SocketPoll {
    /// Bytes: ask for lines.
    Data,
    /// Nothing yet: read again.
    Nothing,
    /// The server has closed the connection; ask for the last line.
    End,
}

impl SocketLines {
    /// Connects to `host:port`, for at most `timeout` and until cancelled. A line longer than `max_line_bytes`
    /// is an error.
    pub fn connect(
        host: &str,
        port: u16,
        timeout: Duration,
        max_line_bytes: usize,
        cancel: &CancelToken,
    ) -> Result<Self, TaskError> {
        let address = format!("{host}:{port}");
        let stream = connect_unless_cancelled(host, port, timeout, cancel)?;
        stream.set_read_timeout(Some(POLL_INTERVAL)).map_err(|error| broken(&address, &error))?;
        Ok(Self { address, stream, buffer: LineBuffer::new(max_line_bytes), ended: false, max_line_bytes })
    }

    /// The next line that has arrived, without its end (`\n` or `\r\n`).
    pub fn next_line(&mut self) -> Result<Option<&[u8]>, SourceError> {
        let taken = self.buffer.take_line(self.ended).map_err(|too_long| SourceError::LineTooLong {
            input: self.address.clone(),
            offset: too_long.offset,
            max_bytes: self.max_line_bytes,
        })?;
        Ok(taken.map(|line| self.buffer.line(line)))
    }

    /// Waits for bytes, at most 50 ms.
    pub fn fill(&mut self) -> Result<SocketPoll, SourceError> {
        if self.ended {
            return Ok(SocketPoll::End);
        }
        match self.buffer.read_from(&mut &self.stream) {
            Ok(0) => {
                self.ended = true;
                Ok(SocketPoll::End)
            }
            Ok(_) => Ok(SocketPoll::Data),
            Err(error) => match error.kind() {
                ErrorKind::WouldBlock | ErrorKind::TimedOut => Ok(SocketPoll::Nothing),
                _ => Err(broken(&self.address, &error)),
            },
        }
    }
}

/// Name look-up and connecting cannot be interrupted, so a helper thread does both. If the task is cancelled,
/// the helper continues until its timeout. It holds no resource of the task.
fn connect_unless_cancelled(
    host: &str,
    port: u16,
    timeout: Duration,
    cancel: &CancelToken,
) -> Result<TcpStream, TaskError> {
    let failed = |reason: String| SourceError::Connect { address: format!("{host}:{port}"), reason };
    let (send, receive) = sync_channel(1);
    let target = (host.to_owned(), port);
    let helper = move || {
        // There is no receiver any more after the task was cancelled.
        let _ = send.send(connect(&target, timeout));
    };
    thread::Builder::new().name("socket-connect".into()).spawn(helper).map_err(|error| failed(error.to_string()))?;
    let deadline = Instant::now() + timeout;
    loop {
        cancel.check()?;
        match receive.recv_timeout(POLL_INTERVAL) {
            Ok(Ok(stream)) => return Ok(stream),
            Ok(Err(error)) => return Err(failed(error.to_string()).into()),
            Err(RecvTimeoutError::Timeout) if Instant::now() < deadline + POLL_INTERVAL => {}
            Err(_) => return Err(failed(format!("no answer within {timeout:?}")).into()),
        }
    }
}

fn connect(target: &(String, u16), timeout: Duration) -> std::io::Result<TcpStream> {
    let mut last = std::io::Error::new(ErrorKind::NotFound, "the name has no address");
    for address in (target.0.as_str(), target.1).to_socket_addrs()? {
        match TcpStream::connect_timeout(&address, timeout) {
            Ok(stream) => return Ok(stream),
            Err(error) => last = error,
        }
    }
    Err(last)
}

fn broken(address: &str, error: &std::io::Error) -> SourceError {
    SourceError::Broken { address: address.to_owned(), reason: error.to_string() }
}

#[cfg(test)]
mod tests {
    use std::io::Write;
    use std::net::TcpListener;

    use super::*;
    use crate::mailbox::{Mail, Mailbox};

    const TIMEOUT: Duration = Duration::from_secs(10);

    fn serve(chunks: &'static [&'static [u8]]) -> u16 {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        thread::spawn(move || {
            let (mut stream, _) = listener.accept().unwrap();
            chunks.iter().for_each(|chunk| stream.write_all(chunk).unwrap());
        });
        port
    }

    fn open(port: u16, max_line_bytes: usize) -> Result<SocketLines, TaskError> {
        SocketLines::connect("127.0.0.1", port, TIMEOUT, max_line_bytes, &Mailbox::new().cancel_token())
    }

    #[test]
    fn lines_come_as_sent_until_the_server_closes() {
        let mut socket = open(serve(&[b"one\ntw", b"o\r\nthr", b"ee"]), 100).unwrap();
        let mut lines = Vec::new();
        loop {
            let status = socket.fill().unwrap();
            while let Some(line) = socket.next_line().unwrap() {
                lines.push(String::from_utf8(line.to_vec()).unwrap());
            }
            if status == SocketPoll::End {
                break;
            }
        }
        assert_eq!(lines, ["one", "two", "three"]);
        assert_eq!((socket.fill().unwrap(), socket.next_line().unwrap()), (SocketPoll::End, None));
    }

    #[test]
    fn a_silent_server_holds_nobody_up() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let mut socket = open(listener.local_addr().unwrap().port(), 100).unwrap();
        let begun = Instant::now();
        assert_eq!(socket.fill().unwrap(), SocketPoll::Nothing);
        assert!(begun.elapsed() < Duration::from_secs(5));
    }

    #[test]
    fn nobody_listening_is_an_error_that_names_the_address() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        drop(listener);
        let Err(TaskError::Source(SourceError::Connect { address, .. })) = open(port, 100) else { panic!() };
        assert_eq!(address, format!("127.0.0.1:{port}"));
    }

    #[test]
    fn a_cancelled_task_does_not_wait_for_a_connection() {
        let mailbox = Mailbox::new();
        mailbox.post(Mail::Cancel);
        let begun = Instant::now();
        // A documentation address, from which there is no answer.
        let result = SocketLines::connect("192.0.2.1", 9, Duration::from_millis(500), 100, &mailbox.cancel_token());
        assert_eq!(result.map(|_| ()), Err(TaskError::Cancelled));
        assert!(begun.elapsed() < Duration::from_millis(500));
    }

    #[test]
    fn a_line_over_the_limit_is_an_error_that_names_the_address() {
        let mut socket = open(serve(&[b"0123456789\n"]), 5).unwrap();
        let too_long = loop {
            match socket.fill().and_then(|_| socket.next_line().map(|line| line.is_some())) {
                Ok(found) => assert!(!found),
                Err(error) => break error,
            }
        };
        assert!(matches!(too_long, SourceError::LineTooLong { offset: 0, max_bytes: 5, .. }));
    }
}
