/* The record kernel in C: what plain_kernel.py does, with the same results, the same errors and the same columns after an error.
 *
 * plain_kernel.py is the reference, and says what is checked and why; tests/kernel holds this module against it. Against CPython's
 * limited API, so that one file serves every CPython from 3.11 on, and without state of its own. Numbers of more than 64 bits are
 * left to the plain form.
 */
#define Py_LIMITED_API 0x030B0000
#define PY_SSIZE_T_CLEAN
#include <Python.h>
#include <limits.h>
#include <stdint.h>
#include <string.h>

#include "walk.h"
#include "reading.h"
#include "checking.h"
#include "writing.h"

#ifndef SOURCE_SHA256
#define SOURCE_SHA256 ""
#endif
#ifndef C_SHA256
#define C_SHA256 ""
#endif

/* What a function was called with. Every argument is required, and may be given by its name, those after positional_max only so. */
static int take(const char *const *names, Py_ssize_t count, Py_ssize_t positional_max, PyObject *const *given, Py_ssize_t given_count,
                PyObject *given_names, PyObject **taken)
{
    Py_ssize_t named = given_names == NULL ? 0 : PyTuple_Size(given_names);
    memset(taken, 0, (size_t)count * sizeof *taken);
    if (given_count > positional_max || given_count + named != count) {
        PyErr_Format(PyExc_TypeError, "%zd arguments are taken, %zd of them by position; %zd and %zd were given", count, positional_max,
                     given_count + named, given_count);
        return 0;
    }
    for (Py_ssize_t at = 0; at < given_count; at++)
        taken[at] = given[at];
    for (Py_ssize_t at = 0; at < named; at++) {
        PyObject *name = PyTuple_GetItem(given_names, at);
        Py_ssize_t index = 0;
        while (index < count && PyUnicode_CompareWithASCIIString(name, names[index]) != 0)
            index++;
        if (index == count || taken[index] != NULL) {
            PyErr_Format(PyExc_TypeError, "%R is no argument, or was given twice", name);
            return 0;
        }
        taken[index] = given[given_count + at];
    }
    return 1; /* so many different ones are all of them */
}

static int number_of(PyObject *object, long long *number)
{
    *number = PyLong_AsLongLong(object);
    return !(*number == -1 && PyErr_Occurred());
}

/* A list; with is_optional, NULL for None. */
static int list_of(PyObject *object, int is_optional, PyObject **list)
{
    *list = is_optional && object == Py_None ? NULL : object;
    if (*list == NULL || PyList_Check(object))
        return 1;
    PyErr_SetString(PyExc_TypeError, is_optional ? "a column is neither a list nor None" : "a column is no list");
    return 0;
}

static int walk_over(const void *data, Py_ssize_t size, PyObject *position, Walk *walk)
{
    long long begin;
    if (!number_of(position, &begin))
        return 0;
    walk->data = data;
    walk->end = size;
    walk->position = begin;
    if (begin >= 0 && begin <= INT64_MAX / 2)
        return 1;
    PyErr_SetString(PyExc_ValueError, "the position is negative, or that of no byte");
    return 0;
}

static int walk_of(PyObject *data, PyObject *position, Walk *walk)
{
    if (PyBytes_Check(data))
        return walk_over(PyBytes_AsString(data), PyBytes_Size(data), position, walk);
    PyErr_SetString(PyExc_TypeError, "data are not bytes");
    return 0;
}

/* The same call of the plain form, after an OverflowError: its numbers may have any size. */
static PyObject *by_plain(const char *name, const char *const *names, PyObject *const *taken, Py_ssize_t positional, Py_ssize_t count)
{
    PyObject *function, *arguments, *named, *result = NULL;
    if (!PyErr_ExceptionMatches(PyExc_OverflowError))
        return NULL;
    PyErr_Clear();
    function = from_ottla("ottla.records.plain_kernel", name);
    arguments = PyTuple_New(positional);
    named = PyDict_New();
    if (function != NULL && arguments != NULL && named != NULL) {
        int failed = 0;
        for (Py_ssize_t at = 0; at < positional; at++) {
            Py_INCREF(taken[at]);
            failed |= PyTuple_SetItem(arguments, at, taken[at]) < 0;
        }
        for (Py_ssize_t at = positional; at < count; at++)
            failed |= PyDict_SetItemString(named, names[at], taken[at]) < 0;
        if (!failed)
            result = PyObject_Call(function, arguments, named);
    }
    Py_XDECREF(function);
    Py_XDECREF(arguments);
    Py_XDECREF(named);
    return result;
}

static PyObject *decode_columns(PyObject *module, PyObject *const *given, Py_ssize_t given_count, PyObject *given_names)
{
    static const char *const names[] = {"data",      "position", "count", "base_offset", "base_timestamp", "last_delta", "delta_min",
                                        "delta_max", "offsets",  "times", "keys",        "values",         "headers"};
    PyObject *taken[13];
    long long count;
    Wanted wanted;
    Walk walk;
    (void)module;
    if (!take(names, 13, 3, given, given_count, given_names, taken) || !base_from(taken[3], &wanted.offset) ||
        !base_from(taken[4], &wanted.timestamp) || !list_of(taken[8], 0, &wanted.offsets) || !list_of(taken[9], 0, &wanted.times) ||
        !list_of(taken[10], 1, &wanted.keys) || !list_of(taken[11], 1, &wanted.values) || !list_of(taken[12], 1, &wanted.headers))
        return NULL;
    if (!walk_of(taken[0], taken[1], &walk) || !number_of(taken[2], &count) || !number_of(taken[5], &wanted.last_delta) ||
        !number_of(taken[6], &wanted.delta_min) || !number_of(taken[7], &wanted.delta_max))
        return by_plain("decode_columns", names, taken, 3, 13);
    for (; count > 0; count--) {
        Step step = record(&walk, &wanted);
        if (step != OK) {
            raise_step(step, wanted.offset.object);
            return NULL;
        }
    }
    return PyLong_FromLongLong(walk.position);
}

static PyObject *check_records(PyObject *module, PyObject *const *given, Py_ssize_t given_count, PyObject *given_names)
{
    static const char *const names[] = {"data", "position", "count", "first_delta"};
    PyObject *taken[4];
    long long count, first_delta, number;
    Checked checked = {0, 0, 0, 1};
    int problem = 0, is_right;
    Py_buffer buffer;
    Walk walk;
    (void)module;
    if (!take(names, 4, 4, given, given_count, given_names, taken) || PyObject_GetBuffer(taken[0], &buffer, PyBUF_SIMPLE) < 0)
        return NULL;
    is_right = walk_over(buffer.buf, buffer.len, taken[1], &walk) && number_of(taken[2], &count) && number_of(taken[3], &first_delta);
    for (number = first_delta; is_right && count > 0 && problem == 0; count--, number += number < LLONG_MAX)
        problem = check_record(&walk, number, &checked);
    PyBuffer_Release(&buffer);
    if (!is_right)
        return by_plain("check_records", names, taken, 4, 4);
    return Py_BuildValue("(LLLL)", problem ? (long long)problem : (long long)walk.position, (long long)checked.time_min,
                         (long long)checked.time_max, (long long)checked.keyless);
}

static PyObject *encode_record(PyObject *module, PyObject *const *given, Py_ssize_t given_count, PyObject *given_names)
{
    static const char *const names[] = {"time_delta", "offset_delta", "key", "value", "headers"};
    PyObject *taken[5], *result = NULL;
    Buffer buffer = {NULL, 0, 0}, headers = {NULL, 0, 0};
    long long time_delta, offset_delta;
    (void)module;
    if (!take(names, 5, 5, given, given_count, given_names, taken))
        return NULL;
    if (!number_of(taken[0], &time_delta) || !number_of(taken[1], &offset_delta))
        return by_plain("encode_record", names, taken, 5, 5);
    if (add_headers(&headers, taken[4]) && add_record(&buffer, time_delta, offset_delta, taken[2], taken[3], &headers))
        result = PyBytes_FromStringAndSize(buffer.data, (Py_ssize_t)buffer.size);
    PyMem_Free(buffer.data);
    PyMem_Free(headers.data);
    return result;
}

/* The row's record is added; headers is NULL when no row has any. */
static int add_row(Buffer *buffer, Buffer *encoded, PyObject *const *columns, Py_ssize_t row, int64_t time_delta, int64_t offset_delta)
{
    PyObject *key, *value;
    if (columns[2] != NULL) {
        PyObject *headers = PyList_GetItem(columns[2], row);
        int is_added;
        if (headers == NULL)
            return 0;
        Py_INCREF(headers);
        encoded->size = 0;
        is_added = add_headers(encoded, headers);
        Py_DECREF(headers);
        if (!is_added)
            return 0;
    }
    key = PyList_GetItem(columns[0], row);
    value = key == NULL ? NULL : PyList_GetItem(columns[1], row);
    return value != NULL && add_record(buffer, time_delta, offset_delta, key, value, encoded);
}

static PyObject *encode_columns(PyObject *module, PyObject *const *given, Py_ssize_t given_count, PyObject *given_names)
{
    static const char *const names[] = {"keys", "values", "headers", "start", "end", "time_delta", "offset_delta", "size_max"};
    PyObject *taken[8], *columns[3], *result = NULL;
    Buffer buffer = {NULL, 0, 0}, encoded = {NULL, 0, 0};
    long long row, end, time_delta, offset_delta, size_max;
    int is_good;
    (void)module;
    if (!take(names, 8, 3, given, given_count, given_names, taken) || !list_of(taken[0], 0, &columns[0]) ||
        !list_of(taken[1], 0, &columns[1]) || !list_of(taken[2], 1, &columns[2]))
        return NULL;
    if (!number_of(taken[3], &row) || !number_of(taken[4], &end) || !number_of(taken[5], &time_delta) ||
        !number_of(taken[6], &offset_delta) || !number_of(taken[7], &size_max))
        return by_plain("encode_columns", names, taken, 3, 8);
    if (row < 0 || offset_delta > LLONG_MAX - INT32_MAX) {
        PyErr_SetString(PyExc_ValueError, "a row is negative, or an offset delta that of no record");
        return NULL;
    }
    is_good = make_room(&encoded, VARINT_BYTES_MAX);
    if (is_good)
        encoded.size = (size_t)(put_varint(encoded.data, 0) - encoded.data);
    for (; is_good && row < end && (long long)buffer.size < size_max; row++, offset_delta++)
        is_good = row <= PY_SSIZE_T_MAX && add_row(&buffer, &encoded, columns, (Py_ssize_t)row, time_delta, offset_delta);
    if (is_good) {
        PyObject *written = PyBytes_FromStringAndSize(buffer.data, (Py_ssize_t)buffer.size);
        result = written == NULL ? NULL : Py_BuildValue("(NL)", written, row);
    }
    PyMem_Free(buffer.data);
    PyMem_Free(encoded.data);
    return result;
}

static PyObject *varint(PyObject *module, PyObject *const *given, Py_ssize_t given_count, PyObject *given_names)
{
    static const char *const names[] = {"value"};
    char out[VARINT_BYTES_MAX];
    PyObject *taken[1];
    long long value;
    (void)module;
    if (!take(names, 1, 1, given, given_count, given_names, taken))
        return NULL;
    if (!number_of(taken[0], &value))
        return by_plain("varint", names, taken, 1, 1);
    return PyBytes_FromStringAndSize(out, put_varint(out, value) - out);
}

#define FUNCTION(name, text) {#name, (PyCFunction)(void (*)(void))name, METH_FASTCALL | METH_KEYWORDS, text}

static PyMethodDef functions[] = {
    FUNCTION(decode_columns, "The columns of the next records of a batch, as decode_columns of plain_kernel."),
    FUNCTION(check_records, "Whether records are complete and numbered, as check_records of plain_kernel."),
    FUNCTION(encode_record, "One record, as encode_record of plain_kernel."),
    FUNCTION(encode_columns, "Rows as records, as encode_columns of plain_kernel."),
    FUNCTION(varint, "A zig-zag varint."),
    {NULL, NULL, 0, NULL},
};

static int fill(PyObject *module)
{
    return PyModule_AddIntConstant(module, "GARBAGE", GARBAGE) < 0 || PyModule_AddIntConstant(module, "MISCOUNTED", MISCOUNTED) < 0 ||
                   PyModule_AddIntConstant(module, "MISSHAPEN", MISSHAPEN) < 0 ||
                   PyModule_AddStringConstant(module, "SOURCE_SHA256", SOURCE_SHA256) < 0 ||
                   PyModule_AddStringConstant(module, "C_SHA256", C_SHA256) < 0
               ? -1
               : 0;
}

static PyModuleDef_Slot slots[] = {{Py_mod_exec, (void *)fill}, {0, NULL}};

static struct PyModuleDef definition = {
    PyModuleDef_HEAD_INIT, "ottla.records.compiled_kernel", "The record kernel in C.", 0, functions, slots, NULL, NULL, NULL,
};

PyMODINIT_FUNC PyInit_compiled_kernel(void)
{
    return PyModuleDef_Init(&definition);
}
