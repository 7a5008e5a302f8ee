//! Timer with the kernel's precision. The runtime's timer is up to two milliseconds late, which exceeds a short buffer
//! timeout.

use std::io;
use std::os::fd::OwnedFd;
use std::time::Duration;

use rustix::time::{
    Itimerspec, TimerfdClockId, TimerfdFlags, TimerfdTimerFlags, Timespec, timerfd_create, timerfd_settime,
};
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;

/// Timer for one wait at a time. See the [module docs](self).
#[derive(Debug)]
pub(crate) struct Alarm(Option<AsyncFd<OwnedFd>>);

impl Alarm {
    /// Creates a timer on this runtime. If the system has no descriptor to spare, waits use the runtime's timer.
    #[expect(
        deprecated,
        reason = "what replaces it is unsafe; for an `OwnedFd`, which keeps its promises, both are sound"
    )]
    pub(crate) fn new() -> Self {
        let timer = timerfd_create(TimerfdClockId::Monotonic, TimerfdFlags::NONBLOCK | TimerfdFlags::CLOEXEC);
        Self(timer.map_err(io::Error::from).and_then(|timer| AsyncFd::with_interest(timer, Interest::READABLE)).ok())
    }

    /// Waits for `time`. Can be cancelled at any time.
    pub(crate) async fn wait(&self, time: Duration) {
        let waited = match &self.0 {
            Some(timer) => wait_for(timer, time).await,
            None => Err(io::ErrorKind::Unsupported.into()),
        };
        if waited.is_err() {
            tokio::time::sleep(time).await;
        }
    }
}

async fn wait_for(timer: &AsyncFd<OwnedFd>, time: Duration) -> io::Result<()> {
    // Zero would disarm the timer.
    let value = Timespec::try_from(time.max(Duration::from_nanos(1))).map_err(io::Error::other)?;
    let once = Itimerspec { it_interval: Timespec::default(), it_value: value };
    timerfd_settime(timer, TimerfdTimerFlags::empty(), &once)?;
    loop {
        let mut ready = timer.readable().await?;
        // No expiry of a cancelled wait can be read here, because setting the timer cleared it.
        match rustix::io::read(timer, &mut [0; 8]) {
            Ok(_) => {
                ready.clear_ready();
                return Ok(());
            }
            Err(rustix::io::Errno::AGAIN) => ready.clear_ready(),
            Err(error) => return Err(error.into()),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Instant;

    use super::*;

    #[tokio::test]
    async fn an_alarm_waits_as_long_as_asked_however_often() {
        let alarm = Alarm::new();
        for micros in [300, 0, 2_000] {
            let (before, time) = (Instant::now(), Duration::from_micros(micros));
            alarm.wait(time).await;
            assert!(before.elapsed() >= time);
        }
    }

    #[tokio::test]
    async fn a_wait_that_is_given_up_does_not_shorten_the_next() {
        let alarm = Alarm::new();
        tokio::select! {
            biased;
            () = alarm.wait(Duration::from_millis(1)) => panic!("it has just begun"),
            () = async {} => {}
        }
        std::thread::sleep(Duration::from_millis(3));
        let before = Instant::now();
        alarm.wait(Duration::from_millis(20)).await;
        assert!(before.elapsed() >= Duration::from_millis(20));
    }

    #[tokio::test]
    async fn without_a_timer_of_the_kernel_the_runtime_s_is_used() {
        let before = Instant::now();
        Alarm(None).wait(Duration::from_millis(2)).await;
        assert!(before.elapsed() >= Duration::from_millis(2));
    }
}
