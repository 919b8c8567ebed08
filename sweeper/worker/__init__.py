"""The worker: leases trials one at a time and owns all I/O with the outside."""
