"""Where the roles live: here one process holds them all."""
