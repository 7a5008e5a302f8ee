//! Memory segments, buffer pools and ref-counted buffers of flownet.
