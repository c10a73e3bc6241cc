"""Live sessions: scripts said on exact deadlines, their player, and WebSocket sessions on the stamped stream."""
