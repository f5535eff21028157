/* A disk that fails to sync, for a process that this is preloaded into.
 *
 * The file SYNC_DISK is what the disk has of the store's file: what was written to that is copied
 * there when it is synced. Once the file SYNC_ARMED exists, the SYNC_NTH sync of the store's file
 * from then on fails, and what was written before it never reaches the disk: the kernel takes
 * pages that it could not write for written. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define MOST 65536
static struct { off64_t at; size_t len; } dirty[MOST];
static size_t count;
static int armed_syncs;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

static int is_store(int fd) {
    char link[64], path[4096];
    snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
    ssize_t len = readlink(link, path, sizeof path - 1);
    static const char name[] = "/portico.redb";
    size_t tail = sizeof name - 1;
    return len >= (ssize_t)tail && !memcmp(path + len - tail, name, tail);
}

static void to_disk(int fd) {
    int disk = open(getenv("SYNC_DISK"), O_RDWR | O_CREAT, 0600);
    struct stat found;
    if (disk < 0 || fstat(fd, &found)) abort();
    if (ftruncate(disk, found.st_size)) abort();
    ssize_t (*write_at)(int, const void *, size_t, off64_t) = dlsym(RTLD_NEXT, "pwrite64");
    for (size_t n = 0; n < count; n++) {
        char *bytes = malloc(dirty[n].len);
        ssize_t len = pread64(fd, bytes, dirty[n].len, dirty[n].at);
        if (len > 0 && write_at(disk, bytes, len, dirty[n].at) != len) abort();
        free(bytes);
    }
    close(disk);
}

ssize_t pwrite64(int fd, const void *bytes, size_t len, off64_t at) {
    ssize_t (*real)(int, const void *, size_t, off64_t) = dlsym(RTLD_NEXT, "pwrite64");
    ssize_t written = real(fd, bytes, len, at);
    if (written > 0 && is_store(fd)) {
        pthread_mutex_lock(&lock);
        if (count == MOST) abort();
        dirty[count].at = at;
        dirty[count++].len = written;
        pthread_mutex_unlock(&lock);
    }
    return written;
}

static int synced(int fd, const char *name) {
    int (*real)(int) = dlsym(RTLD_NEXT, name);
    if (!is_store(fd)) return real(fd);
    pthread_mutex_lock(&lock);
    int fails = !access(getenv("SYNC_ARMED"), F_OK) && ++armed_syncs == atoi(getenv("SYNC_NTH"));
    if (!fails) to_disk(fd);
    count = 0;
    pthread_mutex_unlock(&lock);
    if (fails) {
        errno = EIO;
        return -1;
    }
    return real(fd);
}

int fdatasync(int fd) { return synced(fd, "fdatasync"); }
int fsync(int fd) { return synced(fd, "fsync"); }
