/* Records as bytes: what encode_record, encode_columns and varint of plain_kernel.py do. */

enum { VARINT_BYTES_MAX = 10 };

/* Bytes that grow. They are the module's own memory until they are made a bytes object. */
typedef struct {
    char *data;
    size_t size, capacity;
} Buffer;

static int make_room(Buffer *buffer, size_t more)
{
    size_t capacity = buffer->capacity;
    char *moved;
    if (more > (size_t)PY_SSIZE_T_MAX - buffer->size) {
        PyErr_NoMemory();
        return 0;
    }
    if (buffer->size + more <= capacity)
        return 1;
    capacity = capacity > (size_t)PY_SSIZE_T_MAX / 2 ? (size_t)PY_SSIZE_T_MAX : capacity * 2;
    if (capacity < buffer->size + more)
        capacity = buffer->size + more;
    moved = PyMem_Realloc(buffer->data, capacity);
    if (moved == NULL) {
        PyErr_NoMemory();
        return 0;
    }
    buffer->data = moved;
    buffer->capacity = capacity;
    return 1;
}

static char *put_zigzag(char *out, uint64_t zigzag)
{
    while (zigzag >= 0x80) {
        *out++ = (char)((zigzag & 0x7F) | 0x80);
        zigzag >>= 7;
    }
    *out++ = (char)zigzag;
    return out;
}

static uint64_t zigzag_of(int64_t value)
{
    return value < 0 ? ~((uint64_t)value << 1) : (uint64_t)value << 1;
}

static char *put_varint(char *out, int64_t value)
{
    return put_zigzag(out, zigzag_of(value));
}

static size_t varint_size(int64_t value)
{
    char scratch[VARINT_BYTES_MAX];
    return (size_t)(put_varint(scratch, value) - scratch);
}

/* Bytes that are to be written, or none. */
typedef struct {
    const char *data;
    int64_t size; /* -1 for null */
} Piece;

static int piece_of(PyObject *object, const char *what, Piece *piece)
{
    piece->data = NULL;
    piece->size = -1;
    if (object == Py_None)
        return 1;
    if (!PyBytes_Check(object)) {
        PyErr_Format(PyExc_TypeError, "a %s is neither bytes nor None", what);
        return 0;
    }
    piece->data = PyBytes_AsString(object);
    piece->size = PyBytes_Size(object);
    return 1;
}

static char *put_piece(char *out, Piece piece)
{
    out = put_varint(out, piece.size);
    if (piece.size > 0) {
        memcpy(out, piece.data, (size_t)piece.size);
        out += piece.size;
    }
    return out;
}

static uint64_t piece_size(Piece piece)
{
    return varint_size(piece.size) + (piece.size > 0 ? (uint64_t)piece.size : 0);
}

static int add_piece(Buffer *buffer, Piece piece)
{
    if (!make_room(buffer, VARINT_BYTES_MAX + (piece.size > 0 ? (size_t)piece.size : 0)))
        return 0;
    buffer->size = (size_t)(put_piece(buffer->data + buffer->size, piece) - buffer->data);
    return 1;
}

/* One header, whose reference is the caller's. */
static int add_header(Buffer *buffer, PyObject *pair)
{
    Piece name, content;
    PyObject *first, *second;
    Py_ssize_t size;
    if (!PyTuple_Check(pair) || PyTuple_Size(pair) != 2) {
        PyErr_SetString(PyExc_TypeError, "a header is no tuple of a name and a value");
        return 0;
    }
    first = PyTuple_GetItem(pair, 0);
    second = PyTuple_GetItem(pair, 1);
    if (!PyUnicode_Check(first)) {
        PyErr_SetString(PyExc_TypeError, "the name of a header is no str");
        return 0;
    }
    name.data = PyUnicode_AsUTF8AndSize(first, &size);
    name.size = size;
    return name.data != NULL && add_piece(buffer, name) && piece_of(second, "header", &content) && add_piece(buffer, content);
}

/* The headers of a record, their number first. Taking them out of their sequence may run code of the application. */
static int add_headers(Buffer *buffer, PyObject *headers)
{
    Py_ssize_t count = PySequence_Size(headers);
    if (count < 0 || !make_room(buffer, VARINT_BYTES_MAX))
        return 0;
    buffer->size = (size_t)(put_varint(buffer->data + buffer->size, count) - buffer->data);
    for (Py_ssize_t at = 0; at < count; at++) {
        PyObject *pair = PySequence_GetItem(headers, at);
        int is_added = pair != NULL && add_header(buffer, pair);
        Py_XDECREF(pair);
        if (!is_added)
            return 0;
    }
    return 1;
}

/* One record, its length included; headers are written already. No code of the application runs: key and value stay where they are. */
static int add_record(Buffer *buffer, int64_t time_delta, int64_t offset_delta, PyObject *key, PyObject *value, const Buffer *headers)
{
    Piece key_piece, value_piece;
    uint64_t body; /* three sizes may be more than a size_t has room for */
    char *out;
    if (!piece_of(key, "key", &key_piece) || !piece_of(value, "value", &value_piece))
        return 0;
    body = piece_size(key_piece) + piece_size(value_piece) + headers->size;
    body += 1 + varint_size(time_delta) + varint_size(offset_delta);
    if (body > (uint64_t)PY_SSIZE_T_MAX - VARINT_BYTES_MAX) {
        PyErr_NoMemory();
        return 0;
    }
    if (!make_room(buffer, VARINT_BYTES_MAX + (size_t)body))
        return 0;
    out = put_varint(buffer->data + buffer->size, (int64_t)body);
    *out++ = 0;
    out = put_varint(put_varint(out, time_delta), offset_delta);
    out = put_piece(put_piece(out, key_piece), value_piece);
    memcpy(out, headers->data, headers->size);
    buffer->size = (size_t)(out - buffer->data) + headers->size;
    return 1;
}
