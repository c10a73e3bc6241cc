/* Reads request heads, and looks for three keys in a body. Pure: no sockets, no clock, no memory of its own.
 *
 * Strict about what decides where a request ends; it guesses nothing. It does not parse JSON: a key counts wherever
 * it stands in the body.
 */
#include "oracle.h"

#include <string.h>
#include <strings.h>

static int wrong(Request *r, int code, const char *why)
{
    r->wrong = why;
    return code;
}

static bool is_token(unsigned char c)
{
    if ((c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9'))
        return true;
    return c && strchr("!#$%&'*+-.^_`|~", c) != NULL;
}

static bool same(const char *at, size_t len, const char *word)
{
    return len == strlen(word) && strncasecmp(at, word, len) == 0;
}

static int parse_line(const char *data, const char *end, Request *r)
{
    const char *at = data;
    while (at < end && is_token((unsigned char)*at))
        at++;
    size_t n = (size_t)(at - data);
    r->method = n == 4 && !memcmp(data, "POST", 4)   ? M_POST
                : n == 3 && !memcmp(data, "GET", 3)  ? M_GET
                : n == 4 && !memcmp(data, "HEAD", 4) ? M_HEAD
                                                     : M_OTHER;
    if (n == 0 || at == end || *at != ' ')
        return wrong(r, 400, "the request line does not begin with a method");
    const char *path = ++at;
    while (at < end && (unsigned char)*at > ' ' && *at != 0x7f)
        at++;
    if (at == path || end - at != 10 || memcmp(at, " HTTP/1.", 8) || (at[8] != '0' && at[8] != '1') || at[9] != '\r')
        return wrong(r, 400, "the request line is not METHOD TARGET HTTP/1.1");
    r->path_at = (uint32_t)(path - data);
    const char *query = memchr(path, '?', (size_t)(at - path));
    r->path_len = (uint32_t)((query ? query : at) - path);
    r->http10 = r->close = at[8] == '0';
    return 200;
}

static int take_length(const char *value, size_t len, Request *r, bool *seen)
{
    i64 length = 0;
    if (len == 0 || len > 18)
        return wrong(r, 400, "content-length is not a number");
    for (size_t i = 0; i < len; i++) {
        if (value[i] < '0' || value[i] > '9')
            return wrong(r, 400, "content-length is not a number");
        length = length * 10 + (value[i] - '0');
    }
    if (*seen && length != r->body_len)
        return wrong(r, 400, "two different content-lengths");
    *seen = true;
    r->body_len = length;
    return length > MAX_BODY ? wrong(r, 413, "the body is larger than 64 MiB") : 200;
}

static int take_header(const char *data, const char *name, size_t name_len, const char *value, size_t len, Request *r,
                       bool *seen_length)
{
    switch (name_len) {
    case 6:
        if (same(name, 6, "expect"))
            r->expects = same(value, len, "100-continue");
        break;
    case 10:
        if (same(name, 10, "connection"))
            r->close = same(value, len, "close") || (r->http10 && !same(value, len, "keep-alive"));
        break;
    case 12:
        if (same(name, 12, "x-request-id")) {
            if (len > MAX_ID)
                return wrong(r, 400, "x-request-id is longer than 128 bytes");
            r->id_at = (uint32_t)(value - data);
            r->id_len = (uint32_t)len;
        }
        break;
    case 14:
        if (same(name, 14, "content-length"))
            return take_length(value, len, r, seen_length);
        break;
    case 17:
        if (same(name, 17, "transfer-encoding"))
            return wrong(r, 400, "the body must have a content-length; chunked bodies are not read");
        break;
    }
    return 200;
}

/* 200: the head is complete and in `r`. 0: more bytes are needed. Else the status to refuse with, `wrong` says why.
 * The first `scanned` bytes were looked at before, and the head's end was not in them. */
int parse_head(const char *data, size_t len, size_t scanned, Request *r)
{
    *r = (Request){0};
    const char *line_end = memchr(data, '\n', len < MAX_LINE ? len : MAX_LINE);
    if (!line_end) {
        if (len >= MAX_LINE)
            return wrong(r, 400, "the request line is longer than 8 KiB");
        return len && !is_token((unsigned char)data[0]) ? wrong(r, 400, "this is not HTTP") : 0;
    }
    int code = parse_line(data, line_end, r);
    if (code != 200)
        return code;
    size_t from = scanned > 3 ? scanned - 3 : 0;
    const char *end = memmem(data + from, len - from, "\r\n\r\n", 4);
    size_t head = end ? (size_t)(end - data) + 4 : len;
    if (head > MAX_HEAD)
        return wrong(r, 400, "the head is larger than 64 KiB");
    if (!end)
        return 0;
    r->head_len = (uint32_t)head;
    bool seen_length = false;
    for (const char *at = line_end + 1; at < end + 2;) {
        const char *stop = memchr(at, '\n', (size_t)(end + 2 - at)), *colon = at;
        while (is_token((unsigned char)*colon))
            colon++;
        if (colon == at || *colon != ':' || stop[-1] != '\r')
            return wrong(r, 400, "a header line is not NAME: VALUE");
        const char *value = colon + 1, *last = stop - 1;
        while (value < last && (*value == ' ' || *value == '\t'))
            value++;
        while (last > value && (last[-1] == ' ' || last[-1] == '\t'))
            last--;
        code = take_header(data, at, (size_t)(colon - at), value, (size_t)(last - value), r, &seen_length);
        if (code != 200)
            return code;
        at = stop + 1;
    }
    return 200;
}

/* Where the value of a key begins, or NULL. `quoted` is the key with its quotes. */
static const char *value_of(const char *body, size_t len, const char *quoted)
{
    const char *at = body, *end = body + len;
    size_t n = strlen(quoted);
    while ((at = memmem(at, (size_t)(end - at), quoted, n)) != NULL) {
        at += n;
        const char *value = at;
        while (value < end && strchr(" \t\r\n", *value) && *value)
            value++;
        if (value == end || *value++ != ':')
            continue; /* a string, not a key */
        while (value < end && strchr(" \t\r\n", *value) && *value)
            value++;
        return value;
    }
    return NULL;
}

bool body_streams(const char *body, size_t len)
{
    const char *value = value_of(body, len, "\"stream\"");
    return value && body + len - value >= 4 && memcmp(value, "true", 4) == 0;
}

/* How many tokens are asked for; `otherwise` when the body doesn't say (or says null), -1 when it can't be done. */
i64 body_tokens(const char *body, size_t len, i64 otherwise)
{
    const char *end = body + len, *value = value_of(body, len, "\"max_completion_tokens\"");
    if (!value || value == end || *value == 'n')
        value = value_of(body, len, "\"max_tokens\"");
    if (!value || value == end || *value == 'n')
        return otherwise;
    i64 n = 0;
    const char *at = value;
    for (; at < end && *at >= '0' && *at <= '9' && n <= MAX_TOKENS; at++)
        n = n * 10 + (*at - '0');
    bool number = at > value && (at == end || strchr(" \t\r\n,}", *at));
    return number && n >= 1 && n <= MAX_TOKENS ? n : -1;
}
