//! Reads records out of the buffers of one channel.
