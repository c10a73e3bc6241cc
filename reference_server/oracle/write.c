/* Getting bytes out: one send an event, the rest of short writes, refusals, hanging up. It decides no content. */
#include "oracle.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>

/* Let the peer read our last bytes before the socket goes: closing with unread input would destroy them. */
void hang_up(Loop *l, Connection *c)
{
    shutdown(c->fd, SHUT_WR);
    c->phase = P_DRAINING;
    c->in.len = 0;
    if (!loop_watch(l, c, EPOLLIN) || !heap_set(&l->heap, c, mono_ns() + LINGER_NS))
        connection_close(l, c);
}

/* A plain answer is out. */
void answered(Loop *l, Connection *c)
{
    if (c->seq != NO_ROW)
        truth_close(&l->truth, c->seq, T_OK, mono_ns(), NULL);
    c->phase = P_READING;
    if (c->close_after)
        hang_up(l, c);
}

/* One write. True: everything went out. Else the rest waits for the socket, or the connection is gone. */
bool send_piece(Loop *l, Connection *c, Piece p)
{
    ssize_t n = send(c->fd, p.data, p.len, MSG_NOSIGNAL | MSG_DONTWAIT);
    if (n == (ssize_t)p.len)
        return true;
    if (n < 0 && errno != EAGAIN && errno != EINTR) {
        connection_close(l, c);
        return false;
    }
    size_t sent = n > 0 ? (size_t)n : 0;
    c->out.len = c->out_at = 0;
    if (!buffer_room(&c->out, p.len - sent) || !loop_watch(l, c, c->watched | EPOLLOUT)) {
        connection_close(l, c);
        return false;
    }
    memcpy(c->out.data, p.data + sent, p.len - sent);
    c->out.len = p.len - sent;
    heap_remove(&l->heap, c);
    return false;
}

void say(Loop *l, Connection *c, Piece p)
{
    c->phase = P_ANSWERING;
    if (send_piece(l, c, p))
        answered(l, c);
}

void refuse(Loop *l, Connection *c, int code, const char *why)
{
    const char *reason = code == 413 ? "Content Too Large" : code == 405 ? "Method Not Allowed" : "Bad Request";
    char body[256], text[512];
    int n = snprintf(body, sizeof(body), "{\"error\": {\"message\": \"%s\", \"type\": \"invalid_request_error\"}}", why);
    int len = snprintf(text, sizeof(text),
                       "HTTP/1.1 %d %s\r\ncontent-type: application/json\r\nconnection: close\r\n"
                       "content-length: %d\r\n\r\n%s",
                       code, reason, n, body);
    c->seq = NO_ROW;
    c->close_after = true;
    say(l, c, (Piece){text, (size_t)len});
}

void connection_writable(Loop *l, Connection *c)
{
    i64 until = c->phase == P_LISTING ? -1 : stalled_until(l, mono_ns());
    if (until >= 0) { /* not now: the loop calls again when the stall is over */
        if (!loop_watch(l, c, c->watched & ~(uint32_t)EPOLLOUT) || !heap_set(&l->heap, c, until))
            connection_close(l, c);
        return;
    }
    ssize_t n = send(c->fd, c->out.data + c->out_at, c->out.len - c->out_at, MSG_NOSIGNAL | MSG_DONTWAIT);
    if (n < 0) {
        if (errno != EAGAIN && errno != EINTR)
            connection_close(l, c);
        return;
    }
    c->out_at += (size_t)n;
    if (c->out_at < c->out.len)
        return;
    if (c->phase == P_LISTING && !c->listed) {
        if (!render_slice(l, c))
            connection_close(l, c);
        return;
    }
    free(c->out.data);
    c->out = (Buffer){0};
    if (!loop_watch(l, c, c->watched & ~(uint32_t)EPOLLOUT)) {
        connection_close(l, c);
    } else if (c->phase == P_STREAMING) {
        event_written(l, c);
    } else {
        c->seq = c->phase == P_LISTING ? NO_ROW : c->seq;
        answered(l, c);
        if (c->phase == P_READING)
            resume(l, c);
    }
}

/* The connection's own time has come: of its next event, of an answer held by a stall, or to be closed. */
void connection_due(Loop *l, Connection *c, i64 now)
{
    if (c->out.len) { /* a short write that a stall put off: the socket says when */
        heap_remove(&l->heap, c);
        if (!loop_watch(l, c, c->watched | EPOLLOUT))
            connection_close(l, c);
    } else if (c->phase == P_STREAMING) {
        write_event(l, c, now);
    } else if (c->phase == P_HELD) {
        heap_remove(&l->heap, c);
        say(l, c, c->held);
        if (c->phase == P_READING)
            resume(l, c);
    } else {
        connection_close(l, c);
    }
}
