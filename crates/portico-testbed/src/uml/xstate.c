/* User-mode-linux 6.1 keeps the registers of its processes in 2,696 bytes, which is all that a CPU with AVX-512 has. Where there are more
 * (AMX), the host refuses to set a part of them, and nothing boots. So the rest is set to what it is.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <elf.h>
#include <stdarg.h>
#include <string.h>
#include <sys/ptrace.h>
#include <sys/types.h>
#include <sys/uio.h>

#define MOST 65536

long ptrace(enum __ptrace_request request, ...) {
    static long (*real)(enum __ptrace_request, pid_t, void *, void *);
    va_list arguments;
    va_start(arguments, request);
    pid_t pid = va_arg(arguments, pid_t);
    void *address = va_arg(arguments, void *);
    void *data = va_arg(arguments, void *);
    va_end(arguments);
    if (!real)
        real = dlsym(RTLD_NEXT, "ptrace");
    if (request == PTRACE_SETREGSET && address == (void *)NT_X86_XSTATE) {
        struct iovec *given = data;
        /* Its stacks are small. It has one CPU, and nothing interrupts it here. */
        static char whole[MOST];
        struct iovec all = {whole, sizeof whole};
        if (real(PTRACE_GETREGSET, pid, address, &all) == 0 && all.iov_len > given->iov_len) {
            memcpy(whole, given->iov_base, given->iov_len);
            return real(request, pid, address, &all);
        }
    }
    return real(request, pid, address, data);
}
