/* HTTP/1.1 response framing (RFC 9112): head, length, chunks, until close. No body is interpreted.
 *
 * Strict where leniency would guess: CRLF only, one Content-Length, never both framings. Everything it keeps is bounded.
 */
#include "engine.h"

#include <string.h>
#include <strings.h>

enum { W_UNASKED, W_SECOND, W_STATUS, W_HEADER, W_LENGTH, W_BOTH, W_CHUNK, W_CHUNK_END, W_COUNT, W_HEAD, W_BODY,
       W_UPGRADE, W_TRAILER, W_MEMORY };

const char *const WIRE_ERRORS[] = {
    "the server sent bytes that answer no request",
    "the server sent a second response to one request",
    "not HTTP/1.1: the status line is malformed",
    "not HTTP/1.1: a response header is malformed",
    "not HTTP/1.1: Content-Length is not one number",
    "not HTTP/1.1: both Content-Length and Transfer-Encoding are given",
    "not HTTP/1.1: a chunk size is malformed",
    "not HTTP/1.1: a chunk does not end where its size says",
    "more than 256 response headers and trailers",
    "the head of the response is larger than 64 KiB",
    "the response is larger than 256 MiB",
    "the server switched protocols (101) unasked",
    "the trailers are malformed or larger than 64 KiB",
    "out of memory for the response",
};
const int N_WIRE_ERRORS = sizeof WIRE_ERRORS / sizeof *WIRE_ERRORS;

void parser_start(Parser *p, bool head_request)
{
    memset(p, 0, sizeof *p);
    p->head_request = head_request;
}

static bool token_char(unsigned char c)
{
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || (c && strchr("!#$%&'*+-.^_`|~", c));
}

static bool is_name(const char *name, size_t n, const char *wanted)
{
    return n == strlen(wanted) && strncasecmp(name, wanted, n) == 0;
}

/* Whether a comma-separated list holds (or, `last`, ends with) a token. */
static bool lists(const char *value, size_t n, const char *wanted, bool last)
{
    bool found = false;
    for (size_t at = 0; at < n;) {
        size_t end = at;
        while (end < n && value[end] != ',')
            end++;
        size_t from = at, to = end;
        while (from < to && (value[from] == ' ' || value[from] == '\t'))
            from++;
        while (to > from && (value[to - 1] == ' ' || value[to - 1] == '\t'))
            to--;
        bool same = is_name(value + from, to - from, wanted);
        found = last ? same : found || same;
        at = end + 1;
    }
    return found;
}

typedef struct {
    i64 length;
    bool transfer, chunked, close, keep;
} Framing;

static int take_length(Framing *f, const char *value, size_t n)
{
    i64 length = 0;
    if (f->length >= 0 || n == 0 || n > 18)
        return W_LENGTH;
    for (size_t i = 0; i < n; i++) {
        if (value[i] < '0' || value[i] > '9')
            return W_LENGTH;
        length = length * 10 + (value[i] - '0');
    }
    f->length = length;
    return PARSE_MORE;
}

static int take_header(Parser *p, Framing *f, const char *line, size_t n)
{
    size_t colon = 0;
    while (colon < n && token_char((unsigned char)line[colon]))
        colon++;
    if (colon == 0 || colon == n || line[colon] != ':')
        return W_HEADER;
    const char *value = line + colon + 1;
    size_t size = n - colon - 1;
    while (size && (*value == ' ' || *value == '\t'))
        value++, size--;
    while (size && (value[size - 1] == ' ' || value[size - 1] == '\t'))
        size--;
    for (size_t i = 0; i < size; i++) {
        unsigned char c = (unsigned char)value[i];
        if ((c < 0x20 && c != '\t') || c == 0x7f)
            return W_HEADER;
    }
    if (is_name(line, colon, "content-length"))
        return take_length(f, value, size);
    if (is_name(line, colon, "transfer-encoding")) {
        f->transfer = true;
        f->chunked = lists(value, size, "chunked", true);
    } else if (is_name(line, colon, "connection")) {
        f->close = f->close || lists(value, size, "close", false);
        f->keep = f->keep || lists(value, size, "keep-alive", false);
    } else if (is_name(line, colon, "content-encoding")) {
        p->plain = p->plain && is_name(value, size, "identity");
    } else if (is_name(line, colon, "server-timing")) {
        p->plain = false;
    }
    return PARSE_MORE;
}

/* "HTTP/1.1 200 OK": the code, or -1. `old` is set for HTTP/1.0. */
static int status_line(const char *line, size_t n, bool *old)
{
    if (n < 12 || memcmp(line, "HTTP/1.", 7) != 0 || (line[7] != '0' && line[7] != '1') || line[8] != ' ')
        return -1;
    if (n > 12 && line[12] != ' ')
        return -1;
    for (size_t i = 13; i < n; i++)
        if (((unsigned char)line[i] < 0x20 && line[i] != '\t') || line[i] == 0x7f)
            return -1;
    int code = 0;
    for (int i = 9; i < 12; i++) {
        if (line[i] < '0' || line[i] > '9')
            return -1;
        code = code * 10 + (line[i] - '0');
    }
    *old = line[7] == '0';
    return code >= 100 ? code : -1;
}

/* What the head says about the body: sets the next state. */
static int frame(Parser *p, const Framing *f, bool old)
{
    if (f->length >= 0 && f->transfer)
        return W_BOTH;
    p->final = true;
    p->keep_alive = old ? f->keep && !f->close : !f->close;
    p->framed = f->length >= 0 || f->transfer;
    if (p->head_request || p->code == 204 || p->code == 304 || f->length == 0) {
        p->framed = true;
        p->state = P_DONE;
        return PARSE_COMPLETE;
    }
    if (f->chunked) {
        p->state = P_CHUNK_SIZE;
    } else if (f->length > MAX_BODY) {
        return W_BODY;
    } else if (f->length > 0) {
        p->left = f->length;
        p->state = P_LENGTH;
    } else {
        p->keep_alive = false;
        p->state = P_UNTIL_CLOSE;
    }
    return PARSE_MORE;
}

static int parse_head(Parser *p, Exchange *x)
{
    const char *at = x->head.data, *end = at + x->head.len - 2;
    Framing f = {.length = -1};
    bool old = false;
    p->plain = true;
    p->n_headers = 0;
    for (bool first = true; at < end; first = false) {
        const char *eol = memchr(at, '\r', (size_t)(end - at));
        if (!eol || eol[1] != '\n')
            return first ? W_STATUS : W_HEADER;
        if (first) {
            if ((p->code = status_line(at, (size_t)(eol - at), &old)) < 0)
                return W_STATUS;
        } else {
            if (++p->n_headers > MAX_HEADERS)
                return W_COUNT;
            int result = take_header(p, &f, at, (size_t)(eol - at));
            if (result != PARSE_MORE)
                return result;
        }
        at = eol + 2;
    }
    if (p->code == 101)
        return W_UPGRADE;
    if (p->code < 200) { /* an interim response: the real one follows */
        x->head.len = 0;
        return PARSE_MORE;
    }
    x->row.code = p->code;
    return frame(p, &f, old);
}

/* Collect the head until its empty line. `used` counts what was taken of the data. */
static int feed_head(Parser *p, Exchange *x, const char *data, size_t n, size_t *used)
{
    size_t old = x->head.len, room = MAX_HEAD + 1 - p->heads, skipped = 0;
    while (old == 0 && skipped < n && (data[skipped] == '\r' || data[skipped] == '\n'))
        skipped++; /* as every client does: empty lines before a status line are passed over */
    data += skipped;
    n -= skipped;
    *used = skipped;
    p->heads += skipped;
    if (p->heads > MAX_HEAD)
        return W_HEAD;
    if (n == 0)
        return PARSE_MORE;
    room -= skipped;
    size_t take = n < room - old ? n : room - old;
    const char *blank = old ? NULL : memmem(data, take, "\r\n\r\n", 4);
    if (blank)
        take = (size_t)(blank - data) + 4;
    if (!buffer_add(&x->head, data, take))
        return W_MEMORY;
    size_t begin = x->head.len < 7 ? x->head.len : 7;
    if (memcmp(x->head.data, "HTTP/1.", begin) != 0)
        return W_STATUS;
    if (!blank) {
        size_t from = old > 3 ? old - 3 : 0;
        const char *found = memmem(x->head.data + from, x->head.len - from, "\r\n\r\n", 4);
        if (!found) {
            *used += take;
            return x->head.len == room ? W_HEAD : PARSE_MORE;
        }
        x->head.len = (size_t)(found - x->head.data) + 4;
        take = x->head.len - old;
    }
    *used += take;
    p->heads += x->head.len;
    return p->heads > MAX_HEAD ? W_HEAD : parse_head(p, x);
}

static int add_body(Exchange *x, const char *data, size_t n)
{
    if (x->body.len + n > (size_t)MAX_BODY)
        return W_BODY;
    return rope_add(&x->body, data, n) ? PARSE_MORE : W_MEMORY;
}

static int hex(char c)
{
    return c >= '0' && c <= '9' ? c - '0' : c >= 'a' && c <= 'f' ? c - 'a' + 10 : c >= 'A' && c <= 'F' ? c - 'A' + 10 : -1;
}

/* One byte of the trailers. They are kept behind the head: a server may well say its timing there. */
static int feed_trailer(Parser *p, Exchange *x, char c)
{
    if (++p->heads > MAX_HEAD)
        return W_TRAILER;
    if (!buffer_add(&x->head, &c, 1))
        return W_MEMORY;
    if (c != '\n')
        return PARSE_MORE;
    const char *line = x->head.data + p->line_at;
    size_t n = x->head.len - p->line_at;
    if (n < 2 || line[n - 2] != '\r' || memchr(line, '\r', n - 2))
        return W_TRAILER;
    p->line_at = x->head.len;
    if (n == 2) {
        p->state = P_DONE;
        return PARSE_COMPLETE;
    }
    Framing ignored = {.length = -1};
    p->plain = false;
    if (++p->n_headers > MAX_HEADERS)
        return W_COUNT;
    return take_header(p, &ignored, line, n - 2) == PARSE_MORE ? PARSE_MORE : W_TRAILER;
}

/* One byte of the framing between chunks. */
static int feed_framing(Parser *p, Exchange *x, char c)
{
    int digit;
    switch (p->state) {
    case P_CHUNK_SIZE:
        if ((digit = hex(c)) >= 0) {
            if (++p->digits > 15)
                return W_CHUNK;
            p->left = p->left * 16 + digit;
            return PARSE_MORE;
        }
        if (!p->digits || (c != ';' && c != ' ' && c != '\t' && c != '\r'))
            return W_CHUNK;
        p->state = c == '\r' ? P_CHUNK_LF : P_CHUNK_EXT;
        p->line = 0;
        return PARSE_MORE;
    case P_CHUNK_EXT:
        if (c == '\n' || ++p->line > MAX_HEAD)
            return W_CHUNK;
        if (c == '\r')
            p->state = P_CHUNK_LF;
        return PARSE_MORE;
    case P_CHUNK_LF:
        p->state = p->left ? P_CHUNK_DATA : P_TRAILER;
        p->digits = 0;
        p->line_at = x->head.len;
        return c == '\n' ? PARSE_MORE : W_CHUNK;
    case P_CHUNK_CR:
        p->state = P_CHUNK_END;
        return c == '\r' ? PARSE_MORE : W_CHUNK_END;
    case P_CHUNK_END:
        p->state = P_CHUNK_SIZE;
        return c == '\n' ? PARSE_MORE : W_CHUNK_END;
    default:
        return feed_trailer(p, x, c);
    }
}

/* A piece of the body, or of its framing. */
static int feed_body(Parser *p, Exchange *x, const char *data, size_t n, size_t *used)
{
    if (p->state == P_UNTIL_CLOSE) {
        *used = n;
        return add_body(x, data, n);
    }
    if (p->state != P_LENGTH && p->state != P_CHUNK_DATA) {
        *used = 1;
        return feed_framing(p, x, *data);
    }
    *used = (i64)n < p->left ? n : (size_t)p->left;
    int result = add_body(x, data, *used);
    p->left -= (i64)*used;
    if (p->left == 0 && result == PARSE_MORE) {
        if (p->state == P_LENGTH) {
            p->state = P_DONE;
            return PARSE_COMPLETE;
        }
        p->state = P_CHUNK_CR;
    }
    return result;
}

int parser_feed(Parser *p, Exchange *x, const char *data, size_t n)
{
    while (n) {
        size_t used = 0;
        int result;
        if (p->state == P_DONE) {
            if (*data != '\r' && *data != '\n') /* some servers end a body with an empty line that its length leaves out */
                return W_SECOND;
            data++, n--;
            continue;
        }
        result = p->state == P_HEAD ? feed_head(p, x, data, n, &used) : feed_body(p, x, data, n, &used);
        if (result >= 0)
            return result;
        data += used;
        n -= used;
    }
    return p->state == P_DONE ? PARSE_COMPLETE : PARSE_MORE;
}

/* The server closed its side: true if that ends the response properly. */
bool parser_eof(Parser *p)
{
    p->keep_alive = false;
    /* A transfer coding that we don't know, and didn't ask for, has an end of its own that we can't see. */
    return p->state == P_DONE || (p->state == P_UNTIL_CLOSE && !p->framed);
}
