/* The response parser by itself, for the tests that hold it against another parser. The engine does not use this file. */
#define PY_SSIZE_T_CLEAN
#include <Python.h>

#include "binding.h"

#include <stdlib.h>
#include <string.h>

/* Feed the pieces until the response is complete or refused: the last result. -3 stands for a Python error. */
static int feed_all(Parser *parser, Exchange *x, PyObject *pieces, bool eof)
{
    int result = PARSE_MORE;
    Py_ssize_t n = PyList_Size(pieces);
    for (Py_ssize_t i = 0; i < n && result < 0; i++) {
        char *data, *copy;
        Py_ssize_t size;
        if (PyBytes_AsStringAndSize(PyList_GetItem(pieces, i), &data, &size) < 0)
            return -3;
        if (size == 0)
            continue;
        if (!(copy = malloc((size_t)size))) { /* a block of exactly its size: reading beyond it is then an error that tools see */
            PyErr_NoMemory();
            return -3;
        }
        memcpy(copy, data, (size_t)size);
        result = parser_feed(parser, x, copy, (size_t)size);
        free(copy);
    }
    return result == PARSE_MORE && eof && parser_eof(parser) ? PARSE_COMPLETE : result;
}

/* read_response(pieces, head_request, eof) -> (complete, error or None, code, keep_alive, plain, head, body, memory) */
PyObject *read_response(PyObject *module, PyObject *args)
{
    PyObject *pieces;
    int head_request, eof;
    (void)module;
    if (!PyArg_ParseTuple(args, "Opp", &pieces, &head_request, &eof))
        return NULL;
    if (!PyList_Check(pieces)) {
        PyErr_SetString(PyExc_TypeError, "pieces is a list of bytes");
        return NULL;
    }
    Parser parser;
    Exchange *x = calloc(1, sizeof *x);
    if (!x)
        return PyErr_NoMemory();
    x->row.code = -1;
    parser_start(&parser, head_request);
    int result = feed_all(&parser, x, pieces, eof);
    PyObject *found = NULL;
    Buffer body = {0};
    size_t memory = x->head.cap + x->body.held;
    if (result != -3 && !rope_copy(&x->body, &body))
        PyErr_NoMemory();
    else if (result != -3)
        found = Py_BuildValue("Nziiiy#y#n", PyBool_FromLong(result == PARSE_COMPLETE),
                              result >= 0 ? WIRE_ERRORS[result] : NULL, (int)x->row.code, (int)parser.keep_alive,
                              (int)parser.plain, x->head.data ? x->head.data : "", (Py_ssize_t)x->head.len,
                              body.data ? body.data : "", (Py_ssize_t)body.len, (Py_ssize_t)memory);
    buffer_trim(&body, 0);
    exchange_free(x);
    return found;
}
