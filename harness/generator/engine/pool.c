/* The pool of connections to one origin, one request in flight on each; time-outs; the hand-over of finished rows. */
#include "engine.h"

#include <stdlib.h>
#include <string.h>

/* -- lists -- */

static void flying_add(Engine *e, Exchange *x)
{
    x->next = NULL;
    x->prev = e->last;
    *(e->last ? &e->last->next : &e->first) = x;
    e->last = x;
    atomic_fetch_add(&e->in_flight, 1);
}

static void flying_remove(Engine *e, Exchange *x)
{
    *(x->prev ? &x->prev->next : &e->first) = x->next;
    *(x->next ? &x->next->prev : &e->last) = x->prev;
}

static void wait_add(Engine *e, Exchange *x, bool front)
{
    x->waiting = true;
    x->wnext = front ? e->wait_first : NULL;
    x->wprev = front ? NULL : e->wait_last;
    *(x->wprev ? &x->wprev->wnext : &e->wait_first) = x;
    *(x->wnext ? &x->wnext->wprev : &e->wait_last) = x;
}

static void wait_remove(Engine *e, Exchange *x)
{
    if (!x->waiting)
        return;
    x->waiting = false;
    *(x->wprev ? &x->wprev->wnext : &e->wait_first) = x->wnext;
    *(x->wnext ? &x->wnext->wprev : &e->wait_last) = x->wprev;
}

/* A request's wait for the pool is over. One that is sent a second time waited for the server, not for us. */
static void wait_over(Engine *e, Exchange *x)
{
    if (x->waiting && x->row.sent < 0) {
        atomic_fetch_add_explicit(&e->pool_waits, 1, memory_order_relaxed);
        histogram_add(&e->waits, mono_ns() - x->row.ready);
    }
    wait_remove(e, x);
}

void connecting_remove(Engine *e, Connection *c)
{
    if (!c->connecting)
        return;
    c->connecting = false;
    *(c->cprev ? &c->cprev->cnext : &e->connecting_first) = c->cnext;
    *(c->cnext ? &c->cnext->cprev : &e->connecting_last) = c->cprev;
    c->cnext = c->cprev = NULL;
    atomic_fetch_sub(&e->connecting, 1);
}

/* The last that answered is used first. One that has not answered yet, because it was opened ahead, comes after all that have, in
 * the order of opening: a server of few threads has accepted the first of them, and would never read the last. */
static void idle_push(Engine *e, Connection *c)
{
    Connection *below = c->reused ? e->idle_top : NULL;
    c->idle = true;
    c->inext = below;
    c->iprev = below ? NULL : e->idle_bottom;
    *(c->iprev ? &c->iprev->inext : &e->idle_top) = c;
    *(below ? &below->iprev : &e->idle_bottom) = c;
}

static void idle_remove(Engine *e, Connection *c)
{
    if (!c->idle)
        return;
    c->idle = false;
    *(c->iprev ? &c->iprev->inext : &e->idle_top) = c->inext;
    *(c->inext ? &c->inext->iprev : &e->idle_bottom) = c->iprev;
}

/* -- an exchange begins -- */

static size_t decimal(char *to, i64 value)
{
    char digits[24];
    size_t n = 0, len = 0;
    do
        digits[n++] = (char)('0' + value % 10);
    while (value /= 10);
    while (n)
        to[len++] = digits[--n];
    return len;
}

static uint64_t mixed(uint64_t z)
{
    z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9u;
    z = (z ^ (z >> 27)) * 0x94D049BB133111EBu;
    return z ^ (z >> 31);
}

static void hexadecimal(char *to, uint64_t value)
{
    for (int i = 15; i >= 0; i--, value >>= 4)
        to[i] = "0123456789abcdef"[value & 15];
}

/* The 55 letters of a traceparent, as plimsoll.slo.records.trace_ids makes them. */
static size_t trace_context(const Engine *e, const Row *row, char *to)
{
    uint64_t number = 2 * (uint64_t)(e->first_query + row->query_id) + (row->phase != 0);
    uint64_t sample = (uint64_t)row->sample_ix * 0xBF58476D1CE4E5B9u;
    uint64_t high = mixed(e->trace_high + number * 0x9E3779B97F4A7C15u + sample);
    uint64_t low = mixed(high ^ e->trace_low);
    memcpy(to, "00-", 3);
    hexadecimal(to + 3, high);
    hexadecimal(to + 19, low);
    to[35] = '-';
    hexadecimal(to + 36, high ^ low);
    memcpy(to + 52, (low & 0xFFFFFFFFFFFFFFu) >= e->trace_least ? "-01" : "-00", 3);
    return 55;
}

void connection_begin(Engine *e, Connection *c, Exchange *x)
{
    const Request *r = &x->request;
    char id[256];
    size_t n = 0;
    c->exchange = x;
    x->on = c;
    parser_start(&c->parser, r->head);
    if (e->send_request_id) { /* <run>[w]-<query_id>-<sample_ix> */
        memcpy(id, e->run_id, n = e->run_id_len);
        if (x->row.phase)
            id[n++] = 'w';
        id[n++] = '-';
        n += decimal(id + n, e->first_query + x->row.query_id);
        id[n++] = '-';
        n += decimal(id + n, x->row.sample_ix);
    }
    if (e->traced) {
        if (e->send_request_id) {
            memcpy(id + n, "\r\ntraceparent: ", 15);
            n += 15;
        }
        n += trace_context(e, &x->row, id + n);
    }
    connection_write(e, c, r, id, n);
}

void pool_send(Engine *e, Exchange *x)
{
    x->row.ready = mono_ns();
    x->deadline = x->row.ready + e->timeout;
    flying_add(e, x);
    if (x->cancel_after >= 0)
        heap_add(e, &e->cancels, x, x->row.ready + x->cancel_after);
    Connection *c = e->idle_top;
    if (c) {
        idle_remove(e, c);
        connection_begin(e, c, x);
    } else if (e->n_connections >= e->max_connections || !connection_new(e, x)) {
        wait_add(e, x, false);
    }
}

void pool_open(Engine *e, i64 connections)
{
    while (connections-- > 0 && e->n_connections < e->max_connections)
        if (!connection_new(e, NULL))
            return;
}

/* A connection is free: the longest waiting request takes it. */
void pool_idle(Engine *e, Connection *c)
{
    Exchange *x = e->wait_first;
    if (!x) {
        idle_push(e, c);
        return;
    }
    wait_over(e, x);
    connection_begin(e, c, x);
}

/* A connection is over. A waiting request gets a new one. */
void pool_forget(Engine *e, Connection *c)
{
    idle_remove(e, c);
    connection_close(e, c);
    Exchange *x = e->wait_first;
    if (x && e->n_connections < e->max_connections) {
        wait_over(e, x);
        if (!connection_new(e, x))
            wait_add(e, x, true);
    }
}

/* The server closed a kept-alive connection before it could read a byte of this: once more, on a fresh one. */
void pool_retry(Engine *e, Exchange *x)
{
    atomic_fetch_add(&e->retried, 1);
    wait_add(e, x, true);
}

/* -- an exchange ends -- */

/* Whether the dialect's settling would change nothing in this row: harness/generator/native.py says when that is so. */
static bool plain_success(const Engine *e, const Parser *p, const Exchange *x)
{
    if (!e->settles_plain || !p->plain || x->row.code < 0 || x->row.code > 999 || !e->success[x->row.code])
        return false;
    for (int i = 0; i < e->n_needles; i++)
        if (rope_finds(&x->body, e->needles[i], e->needle_len[i]))
            return false;
    return true;
}

void connection_complete(Engine *e, Connection *c, i64 t)
{
    Exchange *x = c->exchange;
    c->exchange = NULL;
    x->on = NULL;
    x->row.done = t;
    x->row.status = ST_OK;
    x->row.settled = plain_success(e, &c->parser, x);
    if (c->parser.keep_alive && !c->writing && c->open && !c->doomed) {
        c->reused = true;
        pool_idle(e, c);
    } else {
        pool_forget(e, c);
    }
    pool_finish(e, x);
}

void connection_give_up(Engine *e, Connection *c, int status, int error, i64 detail, i64 t)
{
    Exchange *x = c->exchange;
    c->exchange = NULL;
    x->on = NULL;
    x->row.status = status;
    x->row.error = error;
    x->row.detail = detail;
    x->row.done = t;
    pool_forget(e, c);
    pool_finish(e, x);
}

void pool_cancel(Engine *e, Exchange *x, int status, int error)
{
    Connection *c = x->on;
    wait_over(e, x);
    if (c) {
        c->exchange = NULL;
        x->on = NULL;
        pool_forget(e, c);
    }
    x->row.status = status;
    x->row.error = error;
    x->row.done = mono_ns();
    pool_finish(e, x);
}

static i64 weight(const Exchange *x)
{
    return x->row.bytes_in + (i64)x->marks.len;
}

/* While the answers in flight hold more than they may together: give up the biggest, without what came of it. */
void pool_relieve(Engine *e)
{
    i64 held = 0;
    e->unweighed = 0;
    for (const Exchange *x = e->first; x; x = x->next)
        held += weight(x);
    while (held > e->held_limit) {
        Exchange *biggest = e->first;
        for (Exchange *x = e->first; x; x = x->next)
            if (weight(x) > weight(biggest))
                biggest = x;
        held -= weight(biggest);
        rope_clear(&biggest->body, false);
        rope_clear(&biggest->marks, false);
        pool_cancel(e, biggest, ST_PROTOCOL, E_TOO_MUCH);
    }
}

/* Hand a settled row over. False without memory. */
static bool hand_row(Engine *e, const Exchange *x)
{
    pthread_mutex_lock(&e->lock);
    bool kept = buffer_add(&e->rows, &x->row, sizeof x->row);
    pthread_mutex_unlock(&e->lock);
    return kept;
}

/* Hand an exchange over with its response: it is Python's from now on. False if too much of them waits. */
static bool hand_exchange(Engine *e, Exchange *x)
{
    x->row.head_len = (i64)x->head.len;
    x->row.body_len = (i64)x->body.len;
    x->row.n_marks = (i64)(x->marks.len / sizeof(Mark));
    x->next = NULL;
    pthread_mutex_lock(&e->lock);
    *(e->finished ? &e->finished_last->next : &e->finished) = x;
    e->finished_last = x;
    e->unsettled += exchange_bytes(x);
    bool room = e->unsettled <= e->waiting_limit;
    pthread_mutex_unlock(&e->lock);
    return room;
}

void pool_finish(Engine *e, Exchange *x)
{
    flying_remove(e, x);
    if (x->heap)
        heap_remove(&e->cancels, x);
    lane_done(x);
    bool kept, rings = e->bell >= 0 && x->lane->phase == 0;
    if (x->row.settled) {
        kept = hand_row(e, x);
        buffer_trim(&x->head, KEEP_HEAD);
        rope_clear(&x->body, true);
        rope_clear(&x->marks, true);
        x->next = e->free_exchanges;
        e->free_exchanges = x;
    } else {
        kept = hand_exchange(e, x);
    }
    if (!kept) {
        atomic_store(&e->over_memory, true);
        atomic_store(&e->stopped, true);
    }
    atomic_fetch_sub(&e->in_flight, 1); /* after the hand-over: at 0 everything can be collected */
    if (rings)
        ring(e->bell);
}

/* -- time-outs -- */

void pool_timers(Engine *e)
{
    while (e->first && e->first->deadline <= e->now)
        pool_cancel(e, e->first, ST_TIMEOUT, E_TIMEOUT);
    while (e->cancels.len && e->cancels.of[0]->at <= e->now)
        pool_cancel(e, e->cancels.of[0], ST_CANCELLED, E_CANCELLED);
    for (Connection *c; (c = e->connecting_first) && c->deadline <= e->now && !c->doomed;) {
        connecting_remove(e, c);
        if (c->tried + 1 < e->n_addresses) {
            c->deadline = e->now + e->connect_timeout;
            c->connecting = true;
            c->cprev = e->connecting_last;
            *(e->connecting_last ? &e->connecting_last->cnext : &e->connecting_first) = c;
            e->connecting_last = c;
            atomic_fetch_add(&e->connecting, 1);
            connection_next_address(e, c);
        } else if (c->exchange) {
            connection_give_up(e, c, ST_CONNECT, E_CONNECT_TIMEOUT, 0, e->now);
        } else {
            pool_forget(e, c);
        }
    }
}

i64 pool_next(const Engine *e)
{
    i64 next = e->first ? e->first->deadline : NEVER;
    if (e->connecting_first && e->connecting_first->deadline < next)
        next = e->connecting_first->deadline;
    if (e->cancels.len && e->cancels.of[0]->at < next)
        next = e->cancels.of[0]->at;
    return next;
}
