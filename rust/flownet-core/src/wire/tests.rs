//! Frames survive the wire, however they are cut; nothing else does.
