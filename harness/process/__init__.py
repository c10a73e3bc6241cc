"""What a process of ours is to its host: how it is started, what it writes, who reads its output."""
