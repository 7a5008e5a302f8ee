//! Plan expansion, coordinator and worker agent of flownet.
