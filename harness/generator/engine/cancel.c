/* Requests that are to be cancelled at a time of their own: a binary heap by that time, each exchange knowing its place. */
#include "engine.h"

#include <stdlib.h>

static void put(Engine *e, size_t at, Exchange *x)
{
    e->heap[at] = x;
    x->heap = at + 1; /* 0: in no heap */
}

static void rise(Engine *e, size_t at, Exchange *x)
{
    for (size_t up; at && e->heap[up = (at - 1) / 2]->cancel_at > x->cancel_at; at = up)
        put(e, at, e->heap[up]);
    put(e, at, x);
}

static void sink(Engine *e, size_t at, Exchange *x)
{
    for (size_t down; (down = 2 * at + 1) < e->heap_len; at = down) {
        if (down + 1 < e->heap_len && e->heap[down + 1]->cancel_at < e->heap[down]->cancel_at)
            down++;
        if (e->heap[down]->cancel_at >= x->cancel_at)
            break;
        put(e, at, e->heap[down]);
    }
    put(e, at, x);
}

void cancel_add(Engine *e, Exchange *x, i64 at)
{
    if (e->heap_len == e->heap_cap) {
        size_t cap = e->heap_cap ? 2 * e->heap_cap : 256;
        Exchange **grown = realloc(e->heap, cap * sizeof *grown);
        if (!grown) {
            atomic_store(&e->over_memory, true);
            atomic_store(&e->stopped, true);
            return;
        }
        e->heap = grown;
        e->heap_cap = cap;
    }
    x->cancel_at = at;
    rise(e, e->heap_len++, x);
}

void cancel_remove(Engine *e, Exchange *x)
{
    size_t at = x->heap - 1;
    Exchange *last = e->heap[--e->heap_len];
    x->heap = 0;
    if (last == x)
        return;
    if (at && e->heap[(at - 1) / 2]->cancel_at > last->cancel_at)
        rise(e, at, last);
    else
        sink(e, at, last);
}
