"""Real daemons, real Valkey, real worker processes, real clocks and real kill -9."""
