/* Exchanges that wait for a time of their own (to be sent, to be cancelled): a binary heap by it, each knowing its place. */
#include "engine.h"

#include <stdlib.h>

static void put(Heap *h, size_t at, Exchange *x)
{
    h->of[at] = x;
    x->heap = at + 1; /* 0: in no heap */
}

static void rise(Heap *h, size_t at, Exchange *x)
{
    for (size_t up; at && h->of[up = (at - 1) / 2]->at > x->at; at = up)
        put(h, at, h->of[up]);
    put(h, at, x);
}

static void sink(Heap *h, size_t at, Exchange *x)
{
    for (size_t down; (down = 2 * at + 1) < h->len; at = down) {
        if (down + 1 < h->len && h->of[down + 1]->at < h->of[down]->at)
            down++;
        if (h->of[down]->at >= x->at)
            break;
        put(h, at, h->of[down]);
    }
    put(h, at, x);
}

/* False without memory: the run is stopped, and says so. */
bool heap_add(Engine *e, Heap *h, Exchange *x, i64 at)
{
    if (h->len == h->cap) {
        size_t cap = h->cap ? 2 * h->cap : 256;
        Exchange **grown = realloc(h->of, cap * sizeof *grown);
        if (!grown) {
            atomic_store(&e->over_memory, true);
            atomic_store(&e->stopped, true);
            return false;
        }
        h->of = grown;
        h->cap = cap;
    }
    x->at = at;
    rise(h, h->len++, x);
    return true;
}

void heap_remove(Heap *h, Exchange *x)
{
    size_t at = x->heap - 1;
    Exchange *last = h->of[--h->len];
    x->heap = 0;
    if (last == x)
        return;
    if (at && h->of[(at - 1) / 2]->at > last->at)
        rise(h, at, last);
    else
        sink(h, at, last);
}
