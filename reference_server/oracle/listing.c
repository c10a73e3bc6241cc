/* The listing of truth: slices of rows as HTTP chunks, so that a long one does not stop the clock for others. */
#include "oracle.h"

#include <stdio.h>
#include <string.h>
#include <sys/epoll.h>

void start_list(Loop *l, Connection *c, bool binary)
{
    c->phase = P_LISTING;
    c->binary = binary;
    c->listed = false;
    c->seq = l->truth.tail;
    c->list_end = l->truth.head;
    c->out.len = c->out_at = 0;
    if (!buffer_room(&c->out, LIST_SLICE) || !loop_watch(l, c, c->watched | EPOLLOUT)) {
        connection_close(l, c);
        return;
    }
    c->out.len = (size_t)sprintf(c->out.data,
                                 "HTTP/1.1 200 OK\r\ncontent-type: %s\r\ntransfer-encoding: chunked\r\n"
                                 "x-truth-rows: %llu\r\nx-truth-dropped: %llu\r\n\r\n",
                                 binary ? "application/octet-stream" : "application/jsonl",
                                 (unsigned long long)(c->list_end - c->seq), (unsigned long long)l->truth.n_dropped);
}

/* Render the next slice of rows as one HTTP chunk; after the last row the end of the chunks. False: no memory. */
bool render_slice(Loop *l, Connection *c)
{
    enum { SIZE_LINE = 10 };
    Buffer *b = &c->out;
    char size[SIZE_LINE + 1];
    b->len = SIZE_LINE;
    c->out_at = 0;
    for (; c->seq < c->list_end && b->len < LIST_SLICE; c->seq++) {
        const Row *row = truth_row(&l->truth, c->seq);
        if (row && !(c->binary ? truth_binary(row, b) : truth_json(row, b)))
            return false;
    }
    if (!buffer_room(b, 16))
        return false;
    size_t n = b->len - SIZE_LINE;
    if (n) {
        snprintf(size, sizeof(size), "%08x\r\n", (unsigned)n);
        memcpy(b->data, size, SIZE_LINE);
        memcpy(b->data + b->len, "\r\n", 2);
        b->len += 2;
    } else {
        c->out_at = SIZE_LINE; /* nothing rendered: rows were forgotten, or this is the end */
    }
    if (c->seq >= c->list_end) {
        memcpy(b->data + b->len, "0\r\n\r\n", 5);
        b->len += 5;
        c->listed = true;
    }
    return true;
}
