/* When what is sent: the open and closed loops of harness/generator/issuer.py, by the same rules. */
#include "engine.h"

#include <stdlib.h>
#include <string.h>

static void lane_go(Lane *lane, Exchange *x)
{
    Engine *e = lane->engine;
    x->row.phase = lane->phase;
    x->lane = lane;
    lane->flying++;
    atomic_fetch_add_explicit(&e->sent, 1, memory_order_relaxed);
    pool_send(e, x);
    i64 flying = atomic_load_explicit(&e->in_flight, memory_order_relaxed);
    if (flying > e->outstanding_limit && !atomic_load(&e->aborted)) {
        atomic_store(&e->aborted, flying);
        atomic_store(&e->stopped, true);
    }
}

static void lane_send(Lane *lane, i64 query_id, i64 row, i64 ix, i64 due, Query *query)
{
    Engine *e = lane->engine;
    Exchange *x = exchange_take(e);
    if (!x)
        return; /* out of memory: stopped and reported by exchange_take */
    x->row.query_id = query_id;
    x->row.sample_ix = lane->at->sample[ix];
    x->row.payload_ix = lane->at->payload[ix];
    x->request = lane->at->requests ? lane->at->requests[ix] : e->requests[x->row.payload_ix];
    x->row.due = due;
    x->query = query;
    x->cancel_after = lane->at->cancel ? lane->at->cancel[row] : -1;
    lane_go(lane, x);
}

/* The stretch after the one at hand, which is used up. False: there is none, or none yet. */
static bool lane_turn(Lane *lane)
{
    Stretch *used = lane->at, *next = atomic_load_explicit(&used->next, memory_order_acquire);
    if (!next)
        return false;
    atomic_fetch_add_explicit(&lane->used, used->n_rows, memory_order_relaxed);
    lane->at = next;
    lane->row = lane->released = lane->cursor = lane->cursor_row = 0;
    atomic_store_explicit(&lane->dry, 0, memory_order_relaxed);
    free(used);
    return true;
}

/* Its rows are used up, and whoever brings them hears since when. */
static void lane_dry(Lane *lane)
{
    if (!atomic_load_explicit(&lane->dry, memory_order_relaxed))
        atomic_store_explicit(&lane->dry, lane->engine->now, memory_order_relaxed);
}

/* -- open loop: due times are absolute; nothing is waited for, but an offline plan bounds samples on the wire -- */

static void open_run(Lane *lane)
{
    Engine *e = lane->engine;
    /* A burst at most: an overloaded schedule must not keep the sockets from being read. */
    for (int burst = 0; burst < 64 && !atomic_load_explicit(&e->stopped, memory_order_relaxed);) {
        if (lane->cursor < lane->released && (lane->limit < 0 || lane->flying < lane->limit)) {
            while (lane->at->offsets[lane->cursor_row + 1] <= lane->cursor)
                lane->cursor_row++;
            i64 row = lane->cursor_row, ix = lane->cursor++;
            lane_send(lane, lane->at->ids[row], row, ix, lane->at->due[row] + e->t0, NULL);
            e->now = mono_ns();
            burst++;
            continue;
        }
        if (lane->row >= lane->at->n_rows && lane->cursor < lane->released)
            return;
        if (lane->row >= lane->at->n_rows && !lane_turn(lane)) {
            if (lane->limit < 0 || lane->flying < lane->limit)
                lane_dry(lane);
            return;
        }
        if (lane->row < lane->at->n_rows && lane->at->due[lane->row] + e->t0 > e->now)
            return;
        if (lane->row < lane->at->n_rows)
            lane->released = lane->at->offsets[++lane->row];
    }
}

/* -- closed loop: a query is due the moment its slot comes free -- */

static bool closed_over(Lane *lane)
{
    Engine *e = lane->engine;
    if (lane->finished || atomic_load_explicit(&e->stopped, memory_order_relaxed))
        return true;
    if (lane->max_queries >= 0 && lane->issued >= lane->max_queries)
        lane->finished = true;
    else if (lane->ends_at_t0)
        lane->finished = e->now >= e->t0;
    else /* LoadGen judges the issue time of the last query, so one is issued at or after the minimum */
        lane->finished = lane->issued > 0 && lane->issued >= lane->min_queries
                         && lane->last_due - e->t0 >= lane->min_duration;
    return lane->finished;
}

/* Whether the row of the next query is there. */
static bool closed_ready(Lane *lane)
{
    return lane->cyclic || lane->row < lane->at->n_rows || lane_turn(lane);
}

static void closed_issue(Lane *lane)
{
    Engine *e = lane->engine;
    i64 query_id = lane->next_id, row = lane->cyclic ? query_id % lane->at->n_rows : lane->row++;
    i64 first = lane->at->offsets[row], last = lane->at->offsets[row + 1];
    Query *query = NULL;
    if (last - first > 1) {
        query = malloc(sizeof *query);
        if (!query) {
            atomic_store(&e->over_memory, true);
            atomic_store(&e->stopped, true);
            return;
        }
        query->left = last - first;
    }
    lane->next_id += lane->id_step;
    lane->issued++;
    lane->busy++;
    i64 due = lane->last_due = e->now = mono_ns();
    for (i64 ix = first; ix < last; ix++)
        lane_send(lane, query_id, row, ix, due, query);
}

static void closed_release(Lane *lane)
{
    lane->busy--;
    if (lane->successor && closed_over(lane)) {
        if (lane->successor->begun)
            lane->successor->free_slots++;
        return;
    }
    lane->free_slots++;
}

static void rest(Lane *lane, i64 until)
{
    if (lane->release_len == lane->release_cap) {
        size_t cap = lane->release_cap ? lane->release_cap * 2 : 64;
        i64 *grown = malloc(cap * sizeof(i64));
        if (!grown) {
            closed_release(lane);
            return;
        }
        for (size_t i = 0; i < lane->release_len; i++)
            grown[i] = lane->release[(lane->release_head + i) % lane->release_cap];
        free(lane->release);
        lane->release = grown;
        lane->release_head = 0;
        lane->release_cap = cap;
    }
    lane->release[(lane->release_head + lane->release_len++) % lane->release_cap] = until;
}

static void closed_run(Lane *lane)
{
    Engine *e = lane->engine;
    while (lane->release_len && lane->release[lane->release_head] <= e->now) {
        lane->release_head = (lane->release_head + 1) % lane->release_cap;
        lane->release_len--;
        closed_release(lane);
    }
    if (!lane->begun) {
        if (e->now < (lane->ends_at_t0 ? 0 : e->t0))
            return;
        lane->begun = true;
        lane->free_slots += lane->slots - (lane->predecessor ? lane->predecessor->busy : 0);
    }
    while (lane->free_slots > 0 && !closed_over(lane) && closed_ready(lane)) {
        lane->free_slots--;
        closed_issue(lane);
    }
    if (lane->free_slots > 0 && !closed_over(lane))
        lane_dry(lane);
}

/* -- later turns of sessions: each comes with its request and its due time, before that or late -- */

/* What was given since; also of an engine whose thread is over. */
void turns_take(Engine *e)
{
    for (Exchange *x = atomic_exchange(&e->given, NULL), *next; x; x = next) {
        next = x->next;
        if (!heap_add(e, &e->turns, x, x->row.due))
            exchange_free(x);
    }
}

static void turns_run(Engine *e)
{
    for (int burst = 0; burst < 64 && e->turns.len && !atomic_load_explicit(&e->stopped, memory_order_relaxed); burst++) {
        Exchange *x = e->turns.of[0];
        if (x->at > e->now)
            return;
        heap_remove(&e->turns, x);
        lane_go(&e->later, x);
        e->now = mono_ns();
    }
}

/* -- all lanes -- */

void lane_done(Exchange *x)
{
    Lane *lane = x->lane;
    lane->flying--;
    if (!lane->closed)
        return;
    if (x->query) {
        if (--x->query->left > 0)
            return;
        free(x->query);
    }
    /* A dead endpoint refuses in microseconds: without a rest a slot would make 100,000 error rows a second. */
    if (x->row.status == ST_CONNECT)
        rest(lane, lane->engine->now + BACKOFF_NS);
    else
        closed_release(lane);
}

void lanes_start(Engine *e)
{
    for (int i = 0; i < e->n_lanes; i++)
        e->lanes[i].engine = e;
    e->later.engine = e; /* open, and measured: zeros */
    if (e->n_lanes == 2 && e->lanes[0].closed && e->lanes[1].closed) {
        e->lanes[1].successor = &e->lanes[0];
        e->lanes[0].predecessor = &e->lanes[1];
    }
    e->max_duration_at = e->max_duration >= 0 ? e->t0 + e->max_duration : NEVER;
}

void lanes_run(Engine *e)
{
    if (e->t0 == 0)
        return;
    if (e->now >= e->max_duration_at) {
        e->max_duration_at = NEVER;
        if (!lanes_finished(e)) {
            atomic_store(&e->max_duration_hit, true);
            atomic_store(&e->stopped, true);
        }
    }
    for (int i = e->n_lanes - 1; i >= 0; i--) { /* the warm-up first: it hands its slots over */
        if (e->lanes[i].closed)
            closed_run(&e->lanes[i]);
        else
            open_run(&e->lanes[i]);
    }
    turns_run(e);
}

/* Everything of an open loop was sent. */
static bool open_over(const Lane *lane)
{
    return atomic_load(&lane->whole) && lane->row >= lane->at->n_rows && lane->cursor >= lane->released
           && !atomic_load(&lane->at->next);
}

bool lanes_finished(const Engine *e)
{
    if (atomic_load_explicit(&e->stopped, memory_order_relaxed))
        return true;
    if (e->t0 == 0 || atomic_load(&e->turning) || atomic_load(&e->given) || e->turns.len) /* in this order */
        return false;
    for (int i = 0; i < e->n_lanes; i++) {
        const Lane *lane = &e->lanes[i];
        if (lane->closed ? !lane->finished : !open_over(lane))
            return false;
    }
    return true;
}

/* The next moment at which some lane has something to do. */
i64 lanes_next(const Engine *e)
{
    if (e->t0 == 0 || atomic_load_explicit(&e->stopped, memory_order_relaxed))
        return NEVER;
    i64 next = e->max_duration_at;
    if (e->turns.len && e->turns.of[0]->at < next)
        next = e->turns.of[0]->at;
    for (int i = 0; i < e->n_lanes; i++) {
        const Lane *lane = &e->lanes[i];
        i64 at = NEVER;
        if (!lane->closed && lane->cursor < lane->released && (lane->limit < 0 || lane->flying < lane->limit)) {
            at = 0; /* a burst was cut short */
        } else if (!lane->closed) {
            if (lane->row < lane->at->n_rows)
                at = lane->at->due[lane->row] + e->t0;
            else if (lane->cursor >= lane->released && atomic_load_explicit(&lane->at->next, memory_order_acquire))
                at = 0;
        } else {
            if (!lane->begun)
                at = lane->ends_at_t0 ? 0 : e->t0;
            else if (lane->free_slots > 0 && !lane->finished
                     && (lane->cyclic || lane->row < lane->at->n_rows
                         || atomic_load_explicit(&lane->at->next, memory_order_acquire)))
                at = 0; /* a time-out freed it at the end of a turn */
            if (lane->release_len && lane->release[lane->release_head] < at)
                at = lane->release[lane->release_head];
        }
        if (at < next)
            next = at;
    }
    return next;
}
