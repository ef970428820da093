/* Columns from the records of a batch: what decode_columns of plain_kernel.py does. */

/* A new reference is appended, and given up. */
static Step append(PyObject *list, PyObject *item)
{
    int failed = item == NULL || PyList_Append(list, item) < 0;
    Py_XDECREF(item);
    return failed ? RAISED : OK;
}

/* The bytes of a field that ends at or before end, as a new reference; None for a null one. */
static Step field(Walk *walk, const char *what, int64_t end, int is_wanted, PyObject **found)
{
    int64_t number, begin;
    Step step = narrow(walk, &number);
    *found = NULL;
    if (step != OK)
        return step;
    begin = walk->position;
    if (number == 1) {
        Py_INCREF(Py_None);
        *found = Py_None;
        return OK;
    }
    if (number & 1 || begin + (number >> 1) > end)
        return bad_length(what, number, end - begin);
    walk->position = begin + (number >> 1);
    if (is_wanted)
        *found = PyBytes_FromStringAndSize((const char *)walk->data + begin, (Py_ssize_t)(number >> 1));
    return is_wanted && *found == NULL ? RAISED : OK;
}

static Step column(Walk *walk, const char *what, int64_t end, PyObject *list)
{
    PyObject *found;
    Step step = field(walk, what, end, list != NULL, &found);
    if (step == OK && list != NULL)
        return append(list, found);
    Py_XDECREF(found);
    return step;
}

static Step header(Walk *walk, int64_t end, PyObject **pair)
{
    PyObject *key, *value, *name;
    Step step = field(walk, "header", end, 1, &key);
    *pair = NULL;
    if (step != OK)
        return step;
    if (key == Py_None) {
        Py_DECREF(key);
        return raise_text(PyUnicode_FromString("a header has no key"));
    }
    step = field(walk, "header", end, 1, &value);
    if (step != OK) {
        Py_DECREF(key);
        return step;
    }
    name = PyUnicode_DecodeUTF8(PyBytes_AsString(key), PyBytes_Size(key), "replace");
    Py_DECREF(key);
    if (name == NULL) {
        Py_DECREF(value);
        return RAISED;
    }
    *pair = PyTuple_Pack(2, name, value);
    Py_DECREF(name);
    Py_DECREF(value);
    return *pair == NULL ? RAISED : OK;
}

static Step headers_of(Walk *walk, int64_t count, int64_t end, PyObject *list)
{
    PyObject *pairs, *pair;
    if (count & 1 || count > end - walk->position)
        return bad_length("header list", count, end - walk->position);
    pairs = PyList_New(0);
    if (pairs == NULL)
        return RAISED;
    for (; count > 0; count -= 2) {
        Step step = header(walk, end, &pair);
        if (step == OK)
            step = append(pairs, pair);
        if (step != OK) {
            Py_DECREF(pairs);
            return step;
        }
    }
    pair = PyList_AsTuple(pairs);
    Py_DECREF(pairs);
    return append(list, pair);
}

/* A number that may have more than 64 bits, to which differences are added. */
typedef struct {
    PyObject *object;
    long long value;
    int is_wide;
} Base;

static int base_from(PyObject *object, Base *base)
{
    if (!PyLong_Check(object)) {
        PyErr_SetString(PyExc_TypeError, "a base is no int");
        return 0;
    }
    base->object = object;
    base->value = PyLong_AsLongLong(object);
    base->is_wide = base->value == -1 && PyErr_Occurred() != NULL;
    PyErr_Clear();
    return 1;
}

static PyObject *plus(const Base *base, int64_t delta)
{
    PyObject *difference, *sum;
    if (!base->is_wide && (delta >= 0 ? base->value <= LLONG_MAX - delta : base->value >= LLONG_MIN - delta))
        return PyLong_FromLongLong(base->value + delta);
    difference = PyLong_FromLongLong(delta);
    sum = difference == NULL ? NULL : PyNumber_Add(base->object, difference);
    Py_XDECREF(difference);
    return sum;
}

typedef struct {
    Base offset, timestamp;
    long long last_delta, delta_min, delta_max;
    PyObject *offsets, *times, *keys, *values, *headers; /* NULL for a column that is not made */
} Wanted;

static Step record(Walk *walk, const Wanted *wanted)
{
    int64_t number, record_end, time_delta, delta;
    uint64_t first;
    Step step = narrow(walk, &number);
    if (step != OK)
        return step;
    record_end = walk->position + (number >> 1);
    if (number & 1 || record_end > walk->end)
        return bad_length("record", number, walk->end - walk->position);
    if ((step = time_of(walk, &time_delta)) != OK || (step = narrow(walk, &delta)) != OK)
        return step;
    delta = unzigzag((uint64_t)delta);
    if (delta < wanted->delta_min || delta > wanted->delta_max) {
        if (delta < 0 || delta > wanted->last_delta)
            return raise_text(PyUnicode_FromFormat("a record has offset delta %lld; the batch ends with %lld", (long long)delta,
                                                   wanted->last_delta));
        if (walk->position > record_end)
            return bad_end(walk->position, record_end);
        walk->position = record_end;
        return OK;
    }
    if (append(wanted->offsets, plus(&wanted->offset, delta)) != OK || append(wanted->times, plus(&wanted->timestamp, time_delta)) != OK)
        return RAISED;
    if ((step = column(walk, "key", record_end, wanted->keys)) != OK || (step = column(walk, "value", record_end, wanted->values)) != OK)
        return step;
    if (!byte_at(walk, walk->position, &first))
        return SHORT;
    if (first == 0) {
        walk->position++;
        if (wanted->headers != NULL && append(wanted->headers, PyTuple_New(0)) != OK)
            return RAISED;
    } else if (wanted->headers != NULL) {
        if ((step = narrow(walk, &number)) != OK || (step = headers_of(walk, number, record_end, wanted->headers)) != OK)
            return step;
    } else if (++walk->position < record_end)
        walk->position = record_end;
    return walk->position == record_end ? OK : bad_end(walk->position, record_end);
}
