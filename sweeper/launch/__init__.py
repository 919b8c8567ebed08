"""What every command that runs a sweep shares, whichever face it came through: settings, worker roles, telling."""
