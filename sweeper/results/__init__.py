"""What came of a sweep: as records, as a frame, as files beside the trials, and as a table for people."""
