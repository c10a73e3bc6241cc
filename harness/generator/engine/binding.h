/* What the files of the Python binding share. Include Python.h first. */
#ifndef PLIMSOLL_BINDING_H
#define PLIMSOLL_BINDING_H

#include "engine.h"

typedef struct {
    PyObject_HEAD
    Engine *engine;
    PyObject *requests, *known;      /* keep the request bytes alive */
} EngineObject;

/* The engine, or NULL and a RuntimeError if it is closed. */
Engine *engine_of(EngineObject *self);

/* load.c */
int add_addresses(Engine *e, PyObject *list);
PyObject *set_requests(PyObject *object, PyObject *list);
PyObject *set_plain(PyObject *object, PyObject *args);
PyObject *open_lane(PyObject *object, PyObject *args);
PyObject *closed_lane(PyObject *object, PyObject *args);
PyObject *more(PyObject *object, PyObject *args);
PyObject *used(PyObject *object, PyObject *args);
PyObject *bell(PyObject *object, PyObject *ignored);
PyObject *turn(PyObject *object, PyObject *args);
PyObject *turned(PyObject *object, PyObject *ignored);

/* fold.c */
PyObject *fold(PyObject *module, PyObject *args);

/* probe.c */
PyObject *read_response(PyObject *module, PyObject *args);

#endif
