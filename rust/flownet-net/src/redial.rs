//! Retries dialing when the peer was too busy to complete the handshake.

use std::fmt;
use std::net::SocketAddr;
use std::time::Duration;

use tokio::time::Instant;

/// Dials `peer`, and retries for 10 s if it hangs up during the handshake.
///
/// A hang-up ([`HandshakeError::is_hang_up`](crate::HandshakeError::is_hang_up)) means that the peer has too many
/// pending handshakes: it dropped ours before it could identify us. Pauses between attempts double from 50 ms to 1 s.
///
/// # Errors
/// Returns the error of the last attempt.
pub async fn redial<T, E, F>(
    peer: SocketAddr,
    is_hang_up: impl Fn(&E) -> bool,
    mut dial: impl FnMut() -> F,
) -> Result<T, E>
where
    E: fmt::Display,
    F: Future<Output = Result<T, E>>,
{
    let deadline = Instant::now() + PATIENCE;
    let mut pause = FIRST_PAUSE;
    loop {
        match dial().await {
            Err(error) if is_hang_up(&error) && Instant::now() + pause < deadline => {
                tracing::debug!(%peer, %error, ?pause, "dialing again after a pause");
                tokio::time::sleep(pause).await;
                pause = LONGEST_PAUSE.min(2 * pause);
            }
            dialed => return dialed,
        }
    }
}

const PATIENCE: Duration = Duration::from_secs(10);
const FIRST_PAUSE: Duration = Duration::from_millis(50);
const LONGEST_PAUSE: Duration = Duration::from_secs(1);

#[cfg(test)]
mod tests {
    use std::io;

    use super::*;
    use crate::HandshakeError;

    const PEER: SocketAddr = SocketAddr::V4(std::net::SocketAddrV4::new(std::net::Ipv4Addr::LOCALHOST, 1));

    async fn attempts_at(mut answers: Vec<Result<(), HandshakeError>>) -> (Result<(), HandshakeError>, usize) {
        answers.reverse();
        let all = answers.len();
        let answer = redial(PEER, HandshakeError::is_hang_up, || std::future::ready(answers.pop().unwrap())).await;
        (answer, all - answers.len())
    }

    fn hang_up() -> Result<(), HandshakeError> {
        Err(io::Error::from(io::ErrorKind::ConnectionReset).into())
    }

    #[tokio::test(start_paused = true)]
    async fn who_is_hung_up_on_tries_again_but_not_for_ever_and_who_is_refused_does_not() {
        let (answer, attempts) = attempts_at(vec![hang_up(), hang_up(), Ok(())]).await;
        assert!(answer.is_ok() && attempts == 3, "{answer:?} {attempts}");
        let (answer, attempts) = attempts_at(vec![hang_up(), Err(HandshakeError::Refused), Ok(())]).await;
        assert!(matches!(answer, Err(HandshakeError::Refused)) && attempts == 2, "{answer:?} {attempts}");
        let (answer, attempts) = attempts_at((0..99).map(|_| hang_up()).collect()).await;
        // The first five pauses sum up to 1,550 ms. Pauses of one second fill the remaining eight seconds.
        assert!(answer.is_err_and(|error| error.is_hang_up()) && attempts == 14, "{attempts}");
    }
}
