/* The bytes of every answer, made once before the first request, and the seeded draw of a time. No sockets, no clock. */
#include "oracle.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define STREAM_HEAD                                                                                                  \
    "HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ncache-control: no-cache\r\ntransfer-encoding: chunked\r\n\r\n"
#define EVENT_SIZE 512

static const char *const WORDS[N_WORDS] = {" load", " her", " to", " the", " line", " painted", " on", " a",
                                           " hull", " and", " no", " ship", " sinks", " in", " fair", " weather"};

#define JSON_HEAD(length) "HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: " length "\r\n\r\n"
#define PIECE(text) {text, sizeof(text) - 1}
#define MODELS                                                                                                       \
    "{\"object\": \"list\", \"data\": [{\"id\": \"oracle\", \"object\": \"model\", \"created\": 0, \"owned_by\": \"plimsoll\"}]}"

const Piece ANSWER_OK = PIECE(JSON_HEAD("13") "{\"ok\": \"yes\"}");
const Piece ANSWER_OK_BARE = PIECE(JSON_HEAD("13"));
const Piece ANSWER_MODELS = PIECE(JSON_HEAD("103") MODELS);
const Piece ANSWER_MODELS_BARE = PIECE(JSON_HEAD("103"));
const Piece ANSWER_CONTINUE = PIECE("HTTP/1.1 100 Continue\r\n\r\n");
_Static_assert(sizeof(MODELS) - 1 == 103, "the content-length of the model list");

/* Room for n more bytes. False: no memory. */
bool buffer_room(Buffer *b, size_t n)
{
    if (b->len + n <= b->cap)
        return true;
    size_t cap = b->cap ? b->cap : 4096;
    while (cap < b->len + n)
        cap *= 2;
    char *grown = realloc(b->data, cap);
    if (!grown)
        return false;
    b->data = grown;
    b->cap = cap;
    return true;
}

/* The number in digits; the caller has made room for 20 bytes. */
void put_number(Buffer *b, i64 value)
{
    char digits[20];
    size_t n = 0;
    uint64_t rest = value < 0 ? 0 - (uint64_t)value : (uint64_t)value;
    do
        digits[n++] = (char)('0' + rest % 10);
    while (rest /= 10);
    if (value < 0)
        b->data[b->len++] = '-';
    while (n)
        b->data[b->len++] = digits[--n];
}

/* One HTTP chunk round one SSE event, after `before`. */
static Piece event(char **at, const char *before, const char *frame, const char *choice)
{
    char *begin = *at;
    size_t n = strlen("data: \n\n") + strlen(frame) + strlen(choice);
    int len = sprintf(begin, "%s%zx\r\ndata: %s%s\n\n\r\n", before, n, frame, choice);
    *at = begin + len;
    return (Piece){begin, (size_t)len};
}

bool script_make(Script *s, i64 created_s)
{
    char choice[160], *at = s->memory = malloc((N_WORDS + 1) * EVENT_SIZE);
    if (!at)
        return false;
    snprintf(s->frame, sizeof(s->frame),
             "{\"id\": \"chatcmpl-oracle\", \"object\": \"chat.completion.chunk\", \"created\": %lld, \"model\": \"oracle\", ",
             (long long)created_s);
    for (int i = 0; i < N_WORDS; i++) {
        snprintf(choice, sizeof(choice),
                 "\"choices\": [{\"index\": 0, \"delta\": {\"content\": \"%s\"}, \"finish_reason\": null}]}", WORDS[i]);
        s->word[i] = event(&at, "", s->frame, choice);
    }
    snprintf(choice, sizeof(choice),
             "\"choices\": [{\"index\": 0, \"delta\": {\"role\": \"assistant\", \"content\": \"%s\"}, \"finish_reason\": null}]}",
             WORDS[0]);
    s->first = event(&at, STREAM_HEAD, s->frame, choice);
    return true;
}

/* The last write of a stream: finish reason with usage, [DONE], the end of the chunks. */
Piece script_last(const Script *s, i64 n_prompt, i64 n_tokens, char *into, size_t size)
{
    char choice[EVENT_SIZE];
    snprintf(choice, sizeof(choice),
             "\"choices\": [{\"index\": 0, \"delta\": {}, \"finish_reason\": \"length\"}], \"usage\": {\"prompt_tokens\": "
             "%lld, \"completion_tokens\": %lld, \"total_tokens\": %lld}}",
             (long long)n_prompt, (long long)n_tokens, (long long)(n_prompt + n_tokens));
    size_t n = strlen("data: \n\ndata: [DONE]\n\n") + strlen(s->frame) + strlen(choice);
    int len = snprintf(into, size, "%zx\r\ndata: %s%s\n\ndata: [DONE]\n\n\r\n0\r\n\r\n", n, s->frame, choice);
    return (Piece){into, (size_t)len};
}

/* A request's jitter or service: the same for the same seed and id, whatever else was asked before. */
i64 draw(const i64 *table, uint64_t seed, const char *id, size_t len)
{
    uint64_t hash = 0xcbf29ce484222325u ^ seed; /* FNV-1a, then a finalizer that spreads it over the upper bits */
    for (size_t i = 0; i < len; i++)
        hash = (hash ^ (unsigned char)id[i]) * 0x100000001b3u;
    hash = (hash ^ (hash >> 33)) * 0xff51afd7ed558ccdu;
    hash = (hash ^ (hash >> 33)) * 0xc4ceb9fe1a85ec53u;
    return table[(hash ^ (hash >> 33)) % N_JITTER];
}
