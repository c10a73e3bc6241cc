/* What was received, due and written for the last requests: a ring of rows. Memory is bounded by rows and by bytes of
 * stamps; beyond either the oldest rows are forgotten, and counted. No sockets, no clock. */
#include "oracle.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

/* n_rows of 0: nothing is remembered. */
bool truth_make(Truth *t, uint64_t n_rows, i64 max_stamp_bytes)
{
    *t = (Truth){.n_rows = n_rows, .max_stamp_bytes = max_stamp_bytes};
    if (n_rows == 0)
        return true;
    /* Not touched until a row is used, so that a large bound costs nothing. */
    t->rows = mmap(NULL, n_rows * sizeof(Row), PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (t->rows == MAP_FAILED)
        t->rows = NULL;
    return t->rows != NULL;
}

static i64 stamp_bytes(const Row *row)
{
    return (i64)row->n_tokens * (i64)sizeof(row->stamps[0]);
}

/* Forget the oldest row. The stamps of an open stream stay with the stream. */
static void drop_oldest(Truth *t)
{
    Row *row = &t->rows[t->tail++ % t->n_rows];
    if (row->outcome != T_OPEN && row->stamps) {
        t->stamp_bytes -= stamp_bytes(row);
        free(row->stamps);
    }
    row->stamps = NULL;
}

void truth_clear(Truth *t)
{
    while (t->tail < t->head)
        drop_oldest(t);
    t->n_dropped = 0;
}

void truth_free(Truth *t)
{
    if (!t->rows)
        return;
    truth_clear(t);
    munmap(t->rows, t->n_rows * sizeof(Row));
    t->rows = NULL;
}

uint64_t truth_open(Truth *t, const char *id, size_t id_len, i64 received)
{
    if (t->n_rows == 0)
        return NO_ROW;
    if (t->head - t->tail == t->n_rows) {
        drop_oldest(t);
        t->n_dropped++;
    }
    Row *row = &t->rows[t->head % t->n_rows];
    row->received = received;
    row->first_due = row->itl = row->end_before = row->done = -1;
    row->stamps = NULL;
    row->n_tokens = row->n_written = 0;
    row->id_len = (uint32_t)id_len;
    row->outcome = T_OPEN;
    memcpy(row->id, id, id_len);
    return t->head++;
}

/* The row, or NULL when it is forgotten. */
Row *truth_row(Truth *t, uint64_t seq)
{
    return seq >= t->tail && seq < t->head ? &t->rows[seq % t->n_rows] : NULL;
}

/* End a row. It takes over the stamps, or frees them when the row is forgotten. */
void truth_close(Truth *t, uint64_t seq, int outcome, i64 done, i64 (*stamps)[2])
{
    Row *row = truth_row(t, seq);
    if (!row) {
        free(stamps);
        return;
    }
    row->outcome = (uint8_t)outcome;
    row->done = done;
    row->stamps = stamps;
    if (!stamps)
        return;
    t->stamp_bytes += stamp_bytes(row);
    while (t->stamp_bytes > t->max_stamp_bytes && t->head - t->tail > 1) {
        drop_oldest(t);
        t->n_dropped++;
    }
}

static void put(Buffer *b, const char *text)
{
    size_t n = strlen(text);
    memcpy(b->data + b->len, text, n);
    b->len += n;
}

static void put_id(Buffer *b, const Row *row)
{
    for (uint32_t i = 0; i < row->id_len; i++) {
        unsigned char c = (unsigned char)row->id[i];
        if (c < 0x20 || c >= 0x7f) { /* one byte is one character: Latin-1, as HTTP has it */
            b->len += (size_t)sprintf(b->data + b->len, "\\u%04x", c);
            continue;
        }
        if (c == '"' || c == '\\')
            b->data[b->len++] = '\\';
        b->data[b->len++] = (char)c;
    }
}

/* How many token stamps are there. In an open row those not yet taken are zero. */
static uint32_t n_written(const Row *row)
{
    if (row->outcome != T_OPEN || !row->stamps)
        return row->n_written;
    uint32_t n = 0;
    while (n < row->n_tokens && row->stamps[n][1] != 0)
        n++;
    return n;
}

/* One line of JSON. False: no memory. */
bool truth_json(const Row *row, Buffer *b)
{
    static const char *const OUTCOMES[] = {"open", "ok", "cut"};
    uint32_t written = n_written(row);
    if (!buffer_room(b, 512 + 6 * MAX_ID + (size_t)row->n_tokens * 21 + (size_t)written * 44))
        return false;
    put(b, "{\"request_id\": \"");
    put_id(b, row);
    put(b, "\", \"received_ns\": ");
    put_number(b, row->received);
    put(b, ", \"due_ns\": [");
    for (uint32_t i = 0; i < row->n_tokens; i++) {
        put(b, i ? "," : "");
        put_number(b, row->first_due + (i64)i * row->itl);
    }
    put(b, "], \"tokens\": [");
    for (uint32_t i = 0; i < written; i++) {
        put(b, i ? ",[" : "[");
        put_number(b, row->stamps[i][0]);
        put(b, ",");
        put_number(b, row->stamps[i][1]);
        put(b, "]");
    }
    put(b, "], \"end_due_ns\": ");
    put_number(b, row->n_tokens ? row->first_due + (i64)row->n_tokens * row->itl : row->first_due);
    put(b, ", \"end_before_ns\": ");
    put_number(b, row->end_before);
    put(b, ", \"done_ns\": ");
    put_number(b, row->done);
    put(b, ", \"outcome\": \"");
    put(b, OUTCOMES[row->outcome]);
    put(b, "\"}\n");
    return true;
}

/* The same: five int64, four uint32, the id filled up to eight bytes, two int64 a token written. */
bool truth_binary(const Row *row, Buffer *b)
{
    i64 times[5] = {row->received, row->first_due, row->itl, row->end_before, row->done};
    uint32_t counts[4] = {row->n_tokens, n_written(row), row->outcome, row->id_len};
    size_t padded = (row->id_len + 7u) & ~7u, stamps = (size_t)counts[1] * sizeof(row->stamps[0]);
    if (!buffer_room(b, sizeof(times) + sizeof(counts) + padded + stamps))
        return false;
    char *at = b->data + b->len;
    memcpy(at, times, sizeof(times));
    memcpy(at += sizeof(times), counts, sizeof(counts));
    memset(at += sizeof(counts), 0, padded);
    memcpy(at, row->id, row->id_len);
    if (stamps)
        memcpy(at + padded, row->stamps, stamps);
    b->len += sizeof(times) + sizeof(counts) + padded + stamps;
    return true;
}
