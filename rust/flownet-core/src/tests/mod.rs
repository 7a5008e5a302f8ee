//! Scenario tests on a simulated pair of connections and virtual time.
