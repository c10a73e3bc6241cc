"""Live sessions: scripts said on exact deadlines, the player that keeps them, and WebSocket sessions on the stamped transport."""
