/* A four-way heap of due times, at most one a connection. It holds no time of its own and calls nobody. */
#include "oracle.h"

#include <stdlib.h>

static void place(Heap *h, size_t i, Due d)
{
    h->at[i] = d;
    d.who->heap_at = (i64)i;
}

static void rise(Heap *h, size_t i, Due d)
{
    while (i > 0) {
        size_t parent = (i - 1) / 4;
        if (h->at[parent].due <= d.due)
            break;
        place(h, i, h->at[parent]);
        i = parent;
    }
    place(h, i, d);
}

static void sink(Heap *h, size_t i, Due d)
{
    for (;;) {
        size_t first = 4 * i + 1, least = first;
        if (first >= h->len)
            break;
        size_t end = first + 4 < h->len ? first + 4 : h->len;
        for (size_t k = first + 1; k < end; k++)
            if (h->at[k].due < h->at[least].due)
                least = k;
        if (h->at[least].due >= d.due)
            break;
        place(h, i, h->at[least]);
        i = least;
    }
    place(h, i, d);
}

/* Make the connection due then, whether or not it is in the heap. False: no memory. */
bool heap_set(Heap *h, Connection *c, i64 due)
{
    Due d = {due, c};
    if (c->heap_at >= 0) {
        size_t i = (size_t)c->heap_at;
        if (due < h->at[i].due)
            rise(h, i, d);
        else
            sink(h, i, d);
        return true;
    }
    if (h->len == h->cap) {
        size_t cap = h->cap ? h->cap * 2 : 256;
        Due *grown = realloc(h->at, cap * sizeof(Due));
        if (!grown)
            return false;
        h->at = grown;
        h->cap = cap;
    }
    rise(h, h->len++, d);
    return true;
}

void heap_remove(Heap *h, Connection *c)
{
    if (c->heap_at < 0)
        return;
    size_t i = (size_t)c->heap_at;
    Due last = h->at[--h->len];
    c->heap_at = -1;
    if (last.who == c)
        return;
    if (i > 0 && last.due < h->at[(i - 1) / 4].due)
        rise(h, i, last);
    else
        sink(h, i, last);
}
