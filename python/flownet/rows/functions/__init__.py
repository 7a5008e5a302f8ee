"""Functions of expressions, generated from the registry in Rust."""
