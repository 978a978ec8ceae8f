/* Preloaded into a daemon: lets what it writes into files fail as a disk does, while a test wants it to.
 *
 * The file named by REFUSING_DISK is shared with the test: who is meant, what fails, with which errno, how many calls
 * pass before and how many fail, and how many did (refusing_disk.py). Sockets and pipes never fail, nor do the standard
 * streams unless asked.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <unistd.h>

enum { WRITE = 1, SYNC = 2, OPEN = 4, NAME = 8, LOG = 16 };

struct orders {
    int32_t pid, error, mask;
    volatile int32_t skip, left, hits;
};
static struct orders *orders;

__attribute__((constructor)) static void begin(void) {
    const char *path = getenv("REFUSING_DISK");
    int fd = path ? open(path, O_RDWR | O_CLOEXEC) : -1;
    if (fd < 0) return;
    void *found = mmap(0, sizeof *orders, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    close(fd);
    if (found != MAP_FAILED) orders = found;
}

static int fails(int kind) {
    if (!orders || orders->pid != getpid() || !(orders->mask & kind)) return 0;
    if (__sync_fetch_and_sub(&orders->skip, 1) > 0) return 0;
    if (__sync_fetch_and_sub(&orders->left, 1) <= 0) return 0;
    __sync_fetch_and_add(&orders->hits, 1);
    errno = orders->error;
    return 1;
}

static int fails_at(int kind, int fd) {
    struct stat s;
    if (!orders || orders->pid != getpid() || fstat(fd, &s) || !(S_ISREG(s.st_mode) || S_ISDIR(s.st_mode))) return 0;
    return fails(fd == 1 || fd == 2 ? LOG : kind);
}

#define REAL(type, name, ...) \
    static type (*real)(__VA_ARGS__); \
    if (!real) real = (type(*)(__VA_ARGS__))dlsym(RTLD_NEXT, #name)

#define CALL(type, name, kind, fd, given, ...) \
    type name(__VA_ARGS__) { \
        REAL(type, name, __VA_ARGS__); \
        return fails_at(kind, fd) ? -1 : real given; \
    }

CALL(ssize_t, write, WRITE, fd, (fd, b, n), int fd, const void *b, size_t n)
CALL(ssize_t, writev, WRITE, fd, (fd, v, n), int fd, const struct iovec *v, int n)
CALL(ssize_t, pwrite, WRITE, fd, (fd, b, n, o), int fd, const void *b, size_t n, off_t o)
CALL(ssize_t, pwrite64, WRITE, fd, (fd, b, n, o), int fd, const void *b, size_t n, off64_t o)
CALL(int, ftruncate, WRITE, fd, (fd, n), int fd, off_t n)
CALL(int, ftruncate64, WRITE, fd, (fd, n), int fd, off64_t n)
CALL(int, fsync, SYNC, fd, (fd), int fd)
CALL(int, fdatasync, SYNC, fd, (fd), int fd)

#define PATHS(name, given, ...) \
    int name(__VA_ARGS__) { \
        REAL(int, name, __VA_ARGS__); \
        return fails(NAME) ? -1 : real given; \
    }

PATHS(rename, (a, b), const char *a, const char *b)
PATHS(renameat, (x, a, y, b), int x, const char *a, int y, const char *b)
PATHS(mkdir, (a, m), const char *a, mode_t m)
PATHS(mkdirat, (x, a, m), int x, const char *a, mode_t m)
PATHS(unlink, (a), const char *a)
PATHS(unlinkat, (x, a, f), int x, const char *a, int f)

/* EMFILE and the like concern what is read, too; a full disk only what is made. */
static int fails_open(int flags) {
    if (!orders || orders->pid != getpid()) return 0;
    int makes = flags & (O_CREAT | O_TRUNC | O_TMPFILE);
    return (makes || orders->error == EMFILE || orders->error == EIO) && fails(OPEN);
}

#define OPENS(name, given, ...) \
    int name(__VA_ARGS__, ...) { \
        REAL(int, name, __VA_ARGS__, ...); \
        va_list more; \
        va_start(more, f); \
        mode_t m = f & (O_CREAT | O_TMPFILE) ? va_arg(more, mode_t) : 0; \
        va_end(more); \
        return fails_open(f) ? -1 : real given; \
    }

OPENS(open, (p, f, m), const char *p, int f)
OPENS(open64, (p, f, m), const char *p, int f)
OPENS(openat, (d, p, f, m), int d, const char *p, int f)
OPENS(openat64, (d, p, f, m), int d, const char *p, int f)
