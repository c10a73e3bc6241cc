/* Growing byte buffers. Memory that can't be had is reported, not hidden. */
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
