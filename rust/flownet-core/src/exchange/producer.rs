//! Producer end of a data connection.
