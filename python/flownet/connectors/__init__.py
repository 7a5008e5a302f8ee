"""Sources and sinks, and the interface that they implement."""
