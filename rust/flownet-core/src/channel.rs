//! Remote input channel: segments and credit of one channel.
