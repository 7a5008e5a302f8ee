//! Consumer end of a data connection.
