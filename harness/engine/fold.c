/* Event streams whose events differ in one string only: found at memcmp speed. Needs nothing of the engine. */
#define PY_SSIZE_T_CLEAN
#include <Python.h>

#include "binding.h"

#include <string.h>

#define PREFIX "data: "
#define PREFIX_LEN 6

/* A non-empty JSON string literal without escapes: from quote to quote. */
static bool plain_literal(const char *s, size_t n)
{
    if (n < 3 || s[0] != '"' || s[n - 1] != '"')
        return false;
    for (size_t i = 1; i + 1 < n; i++)
        if ((unsigned char)s[i] < 0x20 || s[i] == '"' || s[i] == '\\')
            return false;
    return true;
}

static bool like(const char *payload, size_t n, const Py_buffer *before, const Py_buffer *after)
{
    size_t head = (size_t)before->len, tail = (size_t)after->len;
    return n >= head + tail + 3 && memcmp(payload, before->buf, head) == 0
           && memcmp(payload + n - tail, after->buf, tail) == 0 && plain_literal(payload + head, n - head - tail);
}

/* Every event is one "data: " line and a blank line, by LF only: fill ends and kinds. False for anything else. */
static bool fold_events(const char *body, size_t size, const Py_buffer *before, const Py_buffer *after, Buffer *ends,
                        Buffer *kinds, bool *memory)
{
    size_t at = 0;
    if (memchr(body, '\r', size))
        return false;
    while (at < size) {
        if (size - at < PREFIX_LEN + 2 || memcmp(body + at, PREFIX, PREFIX_LEN) != 0)
            return false;
        const char *payload = body + at + PREFIX_LEN;
        const char *eol = memchr(payload, '\n', size - at - PREFIX_LEN);
        if (!eol || eol + 1 >= body + size || eol[1] != '\n')
            return false;
        char kind = like(payload, (size_t)(eol - payload), before, after) ? 1 : 0;
        at = (size_t)(eol - body) + 2;
        i64 end = (i64)at;
        if (!buffer_add(ends, &end, sizeof end) || !buffer_add(kinds, &kind, 1)) {
            *memory = false;
            return false;
        }
    }
    return true;
}

/* fold(body, before, after) -> (ends, kinds) or None */
PyObject *fold(PyObject *module, PyObject *args)
{
    Py_buffer body, before, after;
    Buffer ends = {0}, kinds = {0};
    bool memory = true;
    PyObject *result = NULL;
    (void)module;
    if (!PyArg_ParseTuple(args, "y*y*y*", &body, &before, &after))
        return NULL;
    bool plain = fold_events(body.buf, (size_t)body.len, &before, &after, &ends, &kinds, &memory);
    if (!memory)
        PyErr_NoMemory();
    else if (plain)
        result = Py_BuildValue("y#y#", ends.data ? ends.data : "", (Py_ssize_t)ends.len, kinds.data ? kinds.data : "",
                               (Py_ssize_t)kinds.len);
    else
        result = Py_NewRef(Py_None);
    PyBuffer_Release(&body);
    PyBuffer_Release(&before);
    PyBuffer_Release(&after);
    buffer_trim(&ends, 0);
    buffer_trim(&kinds, 0);
    return result;
}
