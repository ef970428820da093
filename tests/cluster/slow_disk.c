/* Preloaded into a node: its syncs, and its writes to files named *.log, take as long as the file OTTLA_SLOW_FILE says.

   It holds two numbers, milliseconds of a sync and of a write; a file that is missing or empty says nothing. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/types.h>
#include <sys/uio.h>
#include <unistd.h>

static int delay_ms(int of_write)
{
    const char *path = getenv("OTTLA_SLOW_FILE");
    FILE *file = path ? fopen(path, "r") : NULL;
    int ms[2] = {0, 0};
    if (file) {
        if (fscanf(file, "%d %d", &ms[0], &ms[1]) != 2)
            ms[0] = ms[1] = 0;
        fclose(file);
    }
    return ms[of_write];
}

static void take_long(int of_write, int descriptor)
{
    int ms = delay_ms(of_write);
    if (ms > 0 && of_write) {
        char link[64], target[4096];
        snprintf(link, sizeof link, "/proc/self/fd/%d", descriptor);
        ssize_t length = readlink(link, target, sizeof target);
        if (length < 4 || memcmp(target + length - 4, ".log", 4) != 0)
            return;
    }
    if (ms > 0)
        usleep((useconds_t)ms * 1000);
}

#define REAL(name) ((__typeof__(&name))dlsym(RTLD_NEXT, #name))

int fsync(int fd) { take_long(0, fd); return REAL(fsync)(fd); }
int fdatasync(int fd) { take_long(0, fd); return REAL(fdatasync)(fd); }
int syncfs(int fd) { take_long(0, fd); return REAL(syncfs)(fd); }
ssize_t write(int fd, const void *data, size_t size) { take_long(1, fd); return REAL(write)(fd, data, size); }
ssize_t writev(int fd, const struct iovec *parts, int count) { take_long(1, fd); return REAL(writev)(fd, parts, count); }
ssize_t pwrite64(int fd, const void *data, size_t size, off64_t at) { take_long(1, fd); return REAL(pwrite64)(fd, data, size, at); }
ssize_t pwritev64(int fd, const struct iovec *parts, int count, off64_t at) { take_long(1, fd); return REAL(pwritev64)(fd, parts, count, at); }
ssize_t pwritev64v2(int fd, const struct iovec *parts, int count, off64_t at, int flags)
{
    take_long(1, fd);
    return REAL(pwritev64v2)(fd, parts, count, at, flags);
}
