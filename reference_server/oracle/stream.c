/* One stream: its timetable, its writes and their stamps. Due times are absolute, so lateness never adds up. */
#include "oracle.h"

#include <stdlib.h>

void start_stream(Loop *l, Connection *c, const char *request, i64 now)
{
    Request *r = &c->request;
    const char *body = request + r->head_len, *id = request + r->id_at;
    size_t id_len = r->id_len;
    i64 n_tokens = body_tokens(body, (size_t)r->body_len, l->tokens);
    if (n_tokens < 0 || r->http10) {
        refuse(l, c, 400, r->http10 ? "streams need HTTP/1.1" : "max_tokens must be a number from 1 to 131072");
        return;
    }
    c->seq = truth_open(&l->truth, id, id_len, now);
    c->phase = P_STREAMING;
    c->stamps = NULL;
    c->n_written = 0;
    c->n_tokens = (uint32_t)n_tokens;
    c->n_prompt = r->body_len / 4;
    c->first_due = through_queue(l, c, request, now) + l->ttft_ns;
    uint64_t number = l->n_anonymous;
    if (id_len == 0) {
        l->n_anonymous++;
        id = (const char *)&number;
        id_len = sizeof(number);
    }
    if (l->jitter)
        c->first_due += draw(l->jitter, l->seed, id, id_len);
    Row *row = truth_row(&l->truth, c->seq);
    if (row) {
        row->stamps = c->stamps = calloc((size_t)n_tokens, sizeof(c->stamps[0]));
        row->first_due = c->first_due;
        row->itl = l->itl_ns;
        row->n_tokens = c->n_tokens;
    }
    if ((row && !c->stamps) || !heap_set(&l->heap, c, c->first_due))
        connection_close(l, c);
}

/* The row gets what only the stream knew, and the stamps. */
void close_row(Loop *l, Connection *c, int outcome, i64 done)
{
    Row *row = truth_row(&l->truth, c->seq);
    if (row && c->phase == P_STREAMING) {
        row->n_written = c->n_written;
        row->end_before = outcome == T_OK ? c->before : -1;
    }
    truth_close(&l->truth, c->seq, outcome, done, c->stamps);
    c->stamps = NULL;
}

/* The last byte of a stream's write is out. */
void event_written(Loop *l, Connection *c)
{
    i64 after = mono_ns();
    if (c->n_written < c->n_tokens) {
        if (c->stamps) {
            c->stamps[c->n_written][0] = c->before;
            c->stamps[c->n_written][1] = after;
        }
        c->n_written++;
        if (!heap_set(&l->heap, c, c->first_due + (i64)c->n_written * l->itl_ns))
            connection_close(l, c);
        return;
    }
    heap_remove(&l->heap, c);
    close_row(l, c, T_OK, after);
    c->phase = P_READING;
    if (c->close_after)
        hang_up(l, c);
    else
        resume(l, c);
}

void write_event(Loop *l, Connection *c, i64 now)
{
    char last[640];
    Piece p = c->n_written == 0 ? l->script.first : l->script.word[c->n_written % N_WORDS];
    if (c->n_written == c->n_tokens) {
        p = script_last(&l->script, c->n_prompt, c->n_tokens, last, sizeof(last));
        now = mono_ns();
    }
    c->before = now;
    if (send_piece(l, c, p))
        event_written(l, c);
}
