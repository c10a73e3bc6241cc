/* Growing byte buffers and lists of marks. Memory that can't be had is reported, not hidden. */
#include "engine.h"

#include <stdlib.h>
#include <string.h>

bool buffer_add(Buffer *b, const void *data, size_t n)
{
    if (b->len + n > b->cap) {
        size_t cap = b->cap ? b->cap : 512;
        while (cap < b->len + n)
            cap += cap < (1u << 20) ? cap : cap / 2;
        char *grown = realloc(b->data, cap);
        if (!grown)
            return false;
        b->data = grown;
        b->cap = cap;
    }
    if (n)
        memcpy(b->data + b->len, data, n);
    b->len += n;
    return true;
}

/* Empty the buffer; give its memory back if it holds more than `keep`. */
void buffer_trim(Buffer *b, size_t keep)
{
    b->len = 0;
    if (b->cap > keep) {
        free(b->data);
        b->data = NULL;
        b->cap = 0;
    }
}

void marks_add(Marks *m, i64 ns, i64 end)
{
    if (m->len == m->cap) {
        size_t cap = m->cap ? m->cap * 2 : 8;
        i64 *grown = realloc(m->ns, cap * 2 * sizeof(i64));
        if (!grown)
            return; /* the bytes stay; their time is that of the mark before */
        /* One block: times first, then ends. */
        if (m->len)
            memmove(grown + cap, grown + m->cap, m->len * sizeof(i64));
        m->ns = grown;
        m->end = grown + cap;
        m->cap = cap;
    }
    m->ns[m->len] = ns;
    m->end[m->len] = end;
    m->len++;
}
