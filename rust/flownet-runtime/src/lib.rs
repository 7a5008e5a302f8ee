//! Task loop, operator chains, keyed state, timers and sources of flownet.
