"""Pure rules: states, leases, retry, messages, waits, config hash. No I/O, no clock, no third-party imports."""
