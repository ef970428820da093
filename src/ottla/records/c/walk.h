/* A walk over the numbers of records, and the errors that it ends with.
 *
 * A position is an int64_t index, never a pointer: it may lie after the end of the data, where byte_at refuses it. What is added to
 * one has at most 32 bits. Numbers are decoded as unsigned and made signed at the end, so that nothing overflows.
 */
/* How a step of a walk has ended. */
typedef enum { OK, SHORT, TOO_MANY_BITS, TOO_LARGE, RAISED } Step;

typedef struct {
    const unsigned char *data;
    int64_t end;      /* of the data */
    int64_t position; /* of the next byte; never negative */
} Walk;

static int64_t unzigzag(uint64_t zigzag)
{
    uint64_t half = zigzag >> 1;
    return zigzag & 1 ? -(int64_t)half - 1 : (int64_t)half;
}

static int byte_at(const Walk *walk, int64_t position, uint64_t *byte)
{
    if (position >= walk->end)
        return 0;
    *byte = walk->data[position];
    return 1;
}

/* The zig-zag number of at most 64 bits whose first byte was read. */
static Step wide(Walk *walk, uint64_t first, uint64_t *zigzag)
{
    uint64_t byte = first, number = first & 0x7F;
    int shift = 0;
    while (byte >= 0x80) {
        if (!byte_at(walk, walk->position, &byte))
            return SHORT;
        walk->position++;
        shift += 7;
        if (shift == 63 && byte > 1)
            return TOO_MANY_BITS;
        number |= (byte & 0x7F) << shift;
    }
    *zigzag = number;
    return OK;
}

/* The zig-zag number of at most 32 bits that comes next. */
static Step narrow(Walk *walk, int64_t *zigzag)
{
    uint64_t number;
    if (!byte_at(walk, walk->position, &number))
        return SHORT;
    walk->position++;
    if (number >= 0x80) {
        Step step = wide(walk, number, &number);
        if (step != OK)
            return step;
        if (number > UINT32_MAX)
            return TOO_LARGE;
    }
    *zigzag = (int64_t)number;
    return OK;
}

/* The time difference, after the attributes, of which none is defined. */
static Step time_of(Walk *walk, int64_t *time_delta)
{
    uint64_t number;
    Step step = OK;
    if (!byte_at(walk, walk->position + 1, &number))
        return SHORT;
    walk->position += 2;
    if (number >= 0x80)
        step = wide(walk, number, &number);
    if (step == OK)
        *time_delta = unzigzag(number);
    return step;
}

static PyObject *from_ottla(const char *module_name, const char *name)
{
    PyObject *module = PyImport_ImportModule(module_name);
    PyObject *found = module == NULL ? NULL : PyObject_GetAttrString(module, name);
    Py_XDECREF(module);
    return found;
}

/* DecodeError(text), whose reference is taken. */
static Step raise_text(PyObject *text)
{
    PyObject *type = text == NULL ? NULL : from_ottla("ottla.errors", "DecodeError");
    if (type != NULL) {
        PyErr_SetObject(type, text);
        Py_DECREF(type);
    }
    Py_XDECREF(text);
    return RAISED;
}

static Step bad_length(const char *what, int64_t zigzag, int64_t left)
{
    long long length = unzigzag((uint64_t)zigzag);
    return raise_text(PyUnicode_FromFormat("a %s has length %lld, %lld bytes are left for it", what, length, (long long)left));
}

static Step bad_end(int64_t position, int64_t record_end)
{
    return raise_text(
        PyUnicode_FromFormat("a record ends at byte %lld, its length says %lld", (long long)position, (long long)record_end));
}

/* The error of a step that has not raised it yet. */
static void raise_step(Step step, PyObject *base_offset)
{
    if (step == SHORT)
        raise_text(PyUnicode_FromFormat("the records of offset %S end inside a record", base_offset));
    else if (step == TOO_MANY_BITS)
        raise_text(PyUnicode_FromString("a varint has more than 64 bits"));
    else if (step == TOO_LARGE)
        raise_text(PyUnicode_FromString("a length or an offset has more than 32 bits"));
}
