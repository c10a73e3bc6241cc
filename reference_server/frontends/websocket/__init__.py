"""The WebSocket front-end: live recognition, live speech and audio conversations, on the sockets of the HTTP server."""
