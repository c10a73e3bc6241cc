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

/* What was found: of all events their times, of those like the template theirs, of the others index, begin and end. */
typedef struct {
    Buffer times, like, unlike;
    i64 n;
} Found;

static bool keep(Found *found, bool is_like, i64 time, i64 begin, i64 end)
{
    const i64 other[3] = {found->n, begin, end};
    found->n++;
    return buffer_add(&found->times, &time, sizeof time)
           && (is_like ? buffer_add(&found->like, &time, sizeof time) : buffer_add(&found->unlike, other, sizeof other));
}

/* Every event is one "data: " line and a blank line, by LF only. False for anything else, or without memory. */
static bool fold_events(const Py_buffer *b, const Py_buffer *ns, const Py_buffer *ends, const Py_buffer *before,
                        const Py_buffer *after, Found *found, bool *memory)
{
    const char *body = b->buf;
    const i64 *mark_ns = ns->buf, *mark_end = ends->buf;
    size_t size = (size_t)b->len, at = 0, mark = 0, marks = (size_t)ends->len / sizeof(i64);
    if (memchr(body, '\r', size))
        return false;
    while (at < size) {
        if (size - at < PREFIX_LEN + 2 || memcmp(body + at, PREFIX, PREFIX_LEN) != 0)
            return false;
        const char *payload = body + at + PREFIX_LEN;
        const char *eol = memchr(payload, '\n', size - at - PREFIX_LEN);
        if (!eol || eol + 1 >= body + size || eol[1] != '\n')
            return false;
        i64 begin = payload - body, end = eol - body;
        at = (size_t)end + 2;
        while (mark < marks && mark_end[mark] < (i64)at)
            mark++; /* the event was there when the read that brought its last byte was */
        if (mark == marks)
            return false;
        if (!keep(found, like(payload, (size_t)(end - begin), before, after), mark_ns[mark], begin, end)) {
            *memory = false;
            return false;
        }
    }
    return true;
}

static PyObject *as_bytes(const Found *f)
{
    return Py_BuildValue("y#y#y#", f->times.data ? f->times.data : "", (Py_ssize_t)f->times.len,
                         f->like.data ? f->like.data : "", (Py_ssize_t)f->like.len,
                         f->unlike.data ? f->unlike.data : "", (Py_ssize_t)f->unlike.len);
}

/* fold(body, mark_ns, mark_end, before, after) -> (times, times of the like, (index, begin, end) of the others) or None */
PyObject *fold(PyObject *module, PyObject *args)
{
    Py_buffer body, ns, ends, before, after;
    Found found = {0};
    bool memory = true;
    PyObject *result = NULL;
    (void)module;
    if (!PyArg_ParseTuple(args, "y*y*y*y*y*", &body, &ns, &ends, &before, &after))
        return NULL;
    bool plain = ns.len == ends.len && fold_events(&body, &ns, &ends, &before, &after, &found, &memory);
    if (!memory)
        PyErr_NoMemory();
    else if (plain)
        result = as_bytes(&found);
    else
        result = Py_NewRef(Py_None);
    Py_buffer *given[] = {&body, &ns, &ends, &before, &after};
    for (int i = 0; i < 5; i++)
        PyBuffer_Release(given[i]);
    buffer_trim(&found.times, 0);
    buffer_trim(&found.like, 0);
    buffer_trim(&found.unlike, 0);
    return result;
}
