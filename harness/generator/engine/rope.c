/* Bytes that arrive bit by bit, kept in blocks. Nothing is copied as they grow, and blocks of few sizes leave no holes:
 * ten thousand streams that grow side by side in doubling buffers held twice what they had received. */
#include "engine.h"

#include <stdlib.h>
#include <string.h>

static size_t block_size(size_t held)
{
    return held == 0 ? 1024 : held < 65536 ? 4096 : held < (1u << 20) ? 65536 : 1u << 18;
}

bool rope_add(Rope *r, const void *data, size_t n)
{
    const char *from = data;
    while (n) {
        if (!r->last || r->last->len == r->last->size) {
            size_t size = block_size(r->len) - sizeof(Block);
            Block *block = malloc(sizeof *block + size);
            if (!block)
                return false;
            *block = (Block){.size = (uint32_t)size};
            *(r->last ? &r->last->next : &r->first) = block;
            r->last = block;
            r->held += size;
        }
        size_t room = r->last->size - r->last->len, take = n < room ? n : room;
        memcpy(r->last->data + r->last->len, from, take);
        r->last->len += (uint32_t)take;
        r->len += take;
        from += take;
        n -= take;
    }
    return true;
}

/* Whether a needle of at most 64 bytes lies anywhere in the rope. */
bool rope_finds(const Rope *r, const char *needle, size_t n)
{
    char seam[128];
    size_t tail = 0;
    for (const Block *block = r->first; block; block = block->next) {
        if (memmem(block->data, block->len, needle, n))
            return true;
        size_t head = block->len < n - 1 ? block->len : n - 1;
        memcpy(seam + tail, block->data, head); /* the end of the blocks before, and the beginning of this one */
        if (tail && memmem(seam, tail + head, needle, n))
            return true;
        if (block->len >= n - 1) {
            tail = n - 1;
            memcpy(seam, block->data + block->len - tail, tail);
        } else {
            size_t all = tail + head, drop = all > n - 1 ? all - (n - 1) : 0;
            memmove(seam, seam + drop, all - drop);
            tail = all - drop;
        }
    }
    return false;
}

bool rope_copy(const Rope *r, Buffer *to)
{
    for (const Block *block = r->first; block; block = block->next)
        if (!buffer_add(to, block->data, block->len))
            return false;
    return true;
}

/* Empty the rope. `keep`: hold on to its first block, for the next response. */
void rope_clear(Rope *r, bool keep)
{
    Block *block = r->first, *next;
    if (keep && block) {
        next = block->next;
        block->len = 0;
        block->next = NULL;
        *r = (Rope){.first = block, .last = block, .held = block->size};
        block = next;
    } else {
        *r = (Rope){0};
    }
    for (; block; block = next) {
        next = block->next;
        free(block);
    }
}
