/* Whether the records of a batch are complete and numbered: what check_records of plain_kernel.py does. */

enum { GARBAGE = -1, MISCOUNTED = -2, MISSHAPEN = -3 };

typedef struct {
    int64_t time_min, time_max, keyless;
    int is_first;
} Checked;

/* Past a length and the bytes that it counts; an odd length but -1 is none. Whether the position may still be in the record. */
static int pass(Walk *walk, int64_t *keyless)
{
    int64_t number;
    if (narrow(walk, &number) != OK)
        return 0;
    if (number == 1) {
        ++*keyless;
        return 1;
    }
    walk->position += number >> 1;
    return !(number & 1);
}

/* Past the headers; 0 when they are incomplete. */
static int pass_headers(Walk *walk, int64_t end)
{
    int64_t count, number;
    if (narrow(walk, &count) != OK || count & 1 || count > end - walk->position)
        return 0;
    for (; count > 0; count -= 2) {
        for (int is_value = 0; is_value < 2; is_value++) {
            if (walk->position >= end || narrow(walk, &number) != OK)
                return 0;
            if (is_value && number == 1)
                continue;
            if (number & 1 || number >> 1 > end - walk->position)
                return 0;
            walk->position += number >> 1;
        }
    }
    return 1;
}

/* 0, or what is wrong with the next record, which is to have that number. */
static int check_record(Walk *walk, int64_t number, Checked *checked)
{
    int64_t length, record_end, time_delta, delta, unused = 0;
    uint64_t first;
    if (walk->position >= walk->end)
        return MISCOUNTED;
    if (narrow(walk, &length) != OK)
        return GARBAGE;
    record_end = walk->position + (length >> 1);
    if (length & 1 || record_end > walk->end)
        return GARBAGE;
    if (time_of(walk, &time_delta) != OK)
        return MISSHAPEN;
    if (checked->is_first || time_delta < checked->time_min)
        checked->time_min = time_delta;
    if (checked->is_first || time_delta > checked->time_max)
        checked->time_max = time_delta;
    checked->is_first = 0;
    if (narrow(walk, &delta) != OK)
        return MISSHAPEN;
    if (number < 0 || number > INT32_MAX || delta != number << 1)
        return MISCOUNTED;
    if (!pass(walk, &checked->keyless) || walk->position >= record_end)
        return MISSHAPEN;
    if (!pass(walk, &unused) || walk->position >= record_end)
        return MISSHAPEN;
    if (!byte_at(walk, walk->position, &first))
        return MISSHAPEN;
    if (first == 0)
        walk->position++;
    else if (!pass_headers(walk, record_end))
        return MISSHAPEN;
    return walk->position == record_end ? 0 : MISSHAPEN;
}
