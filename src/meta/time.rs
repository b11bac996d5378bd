//! Times as the API writes them: RFC 3339 to the second, MicroTime to the microsecond; durations for people.
