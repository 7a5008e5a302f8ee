//! Python bindings of flownet: handles, Python operators, object codec, errors.
