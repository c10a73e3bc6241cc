/* Which request gets which answer: routes, and requests taken one after the other from what a socket gave. */
#include "oracle.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>

static bool is_path(const char *request, const Request *r, const char *path)
{
    return r->path_len == strlen(path) && memcmp(request + r->path_at, path, r->path_len) == 0;
}

/* The routes that are about the server itself: not stalled, not remembered. */
static bool control(Loop *l, Connection *c, const char *request)
{
    Request *r = &c->request;
    bool bare = r->method == M_HEAD;
    c->seq = NO_ROW;
    if (r->method == M_OTHER) {
        refuse(l, c, 405, "the oracle answers GET, HEAD and POST");
    } else if (r->method == M_POST) {
        if (!is_path(request, r, "/truth/clear"))
            return false;
        truth_clear(&l->truth);
        say(l, c, ANSWER_OK);
    } else if (is_path(request, r, "/healthz")) {
        say(l, c, bare ? ANSWER_OK_BARE : ANSWER_OK);
    } else if (is_path(request, r, "/v1/models")) {
        say(l, c, bare ? ANSWER_MODELS_BARE : ANSWER_MODELS);
    } else if (!bare && is_path(request, r, "/truth")) {
        start_list(l, c, false);
    } else if (!bare && is_path(request, r, "/truth.bin")) {
        start_list(l, c, true);
    } else {
        return false;
    }
    return true;
}

/* When the one server of the queue is done with a request that came now: first come, first served. `now` without a queue.
 *
 * Ends are chained to ends and never to when this loop woke up, so that lateness does not add up and the server is exactly
 * as fast as it was told to be. A request whose client left keeps its place.
 */
i64 through_queue(Loop *l, Connection *c, const char *request, i64 now)
{
    if (!l->service)
        return now;
    Request *r = &c->request;
    uint64_t number = l->n_queued++;
    const char *id = r->id_len ? request + r->id_at : (const char *)&number;
    i64 took = draw(l->service, l->seed ^ QUEUE_SEED, id, r->id_len ? r->id_len : sizeof(number));
    l->free_at = (l->free_at > now ? l->free_at : now) + took;
    return l->free_at;
}

static void answer(Loop *l, Connection *c, const char *request, i64 now)
{
    Request *r = &c->request;
    c->close_after = r->close;
    if (control(l, c, request))
        return;
    if (l->first_request < 0)
        l->first_request = now;
    if (r->method == M_POST && r->body_len && body_streams(request + r->head_len, (size_t)r->body_len)) {
        start_stream(l, c, request, now);
        return;
    }
    c->seq = truth_open(&l->truth, request + r->id_at, r->id_len, now);
    Piece p = r->method == M_HEAD ? ANSWER_OK_BARE : ANSWER_OK;
    i64 until = stalled_until(l, mono_ns()), served = through_queue(l, c, request, now);
    until = until > served ? until : served;
    if (until <= now) {
        say(l, c, p);
        return;
    }
    Row *row = truth_row(&l->truth, c->seq);
    if (row && l->service)
        row->first_due = served;
    c->held = p;
    c->phase = P_HELD;
    if (!heap_set(&l->heap, c, until))
        connection_close(l, c);
}

/* Answer the requests that are complete, as far as answers are over at once. Returns the bytes that are used up. */
static size_t take_requests(Loop *l, Connection *c, const char *data, size_t len, i64 now)
{
    size_t at = 0;
    Request *r = &c->request;
    while (at < len && c->fd >= 0 && c->phase == P_READING) {
        if (!c->have_head) {
            int code = parse_head(data + at, len - at, c->scanned, r);
            if (code == 0) {
                c->scanned = len - at;
                break;
            }
            if (code != 200) {
                refuse(l, c, code, r->wrong);
                return len;
            }
            c->have_head = true;
        }
        size_t total = r->head_len + (size_t)r->body_len;
        if (len - at < total) {
            if (r->expects && send(c->fd, ANSWER_CONTINUE.data, ANSWER_CONTINUE.len, MSG_NOSIGNAL | MSG_DONTWAIT) > 0)
                r->expects = false;
            break;
        }
        c->have_head = false;
        c->scanned = 0;
        answer(l, c, data + at, now);
        at += total;
    }
    return at;
}

/* Requests that came while an answer was under way get their turn: received is now. */
void resume(Loop *l, Connection *c)
{
    if (!loop_watch(l, c, EPOLLIN)) {
        connection_close(l, c);
        return;
    }
    if (c->in.len == 0)
        return;
    size_t used = take_requests(l, c, c->in.data, c->in.len, mono_ns());
    if (c->fd < 0 || c->phase == P_DRAINING)
        return;
    memmove(c->in.data, c->in.data + used, c->in.len - used);
    c->in.len -= used;
}

void connection_readable(Loop *l, Connection *c)
{
    bool keeps = c->in.len > 0;
    if (keeps && !buffer_room(&c->in, SCRATCH)) {
        connection_close(l, c);
        return;
    }
    char *into = keeps ? c->in.data + c->in.len : l->scratch;
    ssize_t n = recv(c->fd, into, SCRATCH, MSG_DONTWAIT);
    if (n <= 0) {
        if (n == 0 || (errno != EAGAIN && errno != EINTR))
            connection_close(l, c);
        return;
    }
    if (c->phase == P_DRAINING)
        return;
    i64 now = mono_ns();
    const char *data = keeps ? c->in.data : l->scratch;
    size_t len = keeps ? c->in.len + (size_t)n : (size_t)n, used = 0;
    if (c->phase == P_READING)
        used = take_requests(l, c, data, len, now);
    if (c->fd < 0 || c->phase == P_DRAINING)
        return;
    size_t rest = len - used;
    if (rest && !keeps && buffer_room(&c->in, rest))
        memcpy(c->in.data, data + used, rest);
    else if (rest && keeps && used)
        memmove(c->in.data, data + used, rest);
    c->in.len = rest;
    if (rest == 0 && c->in.data) {
        free(c->in.data);
        c->in = (Buffer){0};
    }
    if (c->in.cap < rest || (c->phase != P_READING && rest >= MAX_EARLY && !loop_watch(l, c, (c->watched & ~(uint32_t)EPOLLIN) | EPOLLRDHUP)))
        connection_close(l, c);
}
