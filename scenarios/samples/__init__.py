"""What one sample asks for, and where samples come from."""
