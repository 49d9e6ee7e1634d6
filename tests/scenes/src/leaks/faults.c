/* Lets one call of vpnd fail that changes the host. It is loaded into vpnd (LD_PRELOAD); the file that FAULTS names says which
 * call is to fail, and tells whether it has. */

#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <spawn.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <unistd.h>

enum kind { NONE, SPAWN, REFUSE, NETLINK, REFUSE_CHANGES };

/* As in faults.rs. */
struct faults {
    _Atomic uint32_t kind;
    /* Calls of this kind up to the one that fails. */
    _Atomic uint32_t left;
    _Atomic uint32_t fired;
};

static struct faults *faults;

__attribute__((constructor)) static void attach(void) {
    const char *path = getenv("FAULTS");
    int file = path == NULL ? -1 : open(path, O_RDWR | O_CLOEXEC);
    if (file < 0)
        return;
    void *memory = mmap(NULL, sizeof *faults, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
    close(file);
    if (memory != MAP_FAILED)
        faults = memory;
}

static int is_due(uint32_t kind) {
    if (faults == NULL || faults->kind != kind || atomic_fetch_sub(&faults->left, 1) != 1)
        return 0;
    faults->kind = NONE;
    faults->fired = 1;
    return 1;
}

/* Every change of nftables is refused, and none of its answers. */
static int is_refused_change(char *const arguments[]) {
    if (faults == NULL || faults->kind != REFUSE_CHANGES || arguments[1] == NULL || strcmp(arguments[1], "-f") != 0)
        return 0;
    faults->fired = 1;
    return 1;
}

int posix_spawnp(pid_t *child, const char *program, const posix_spawn_file_actions_t *actions,
                 const posix_spawnattr_t *attributes, char *const arguments[], char *const environment[]) {
    int (*real)(pid_t *, const char *, const posix_spawn_file_actions_t *, const posix_spawnattr_t *, char *const[],
                char *const[]) = dlsym(RTLD_NEXT, "posix_spawnp");
    if (is_due(SPAWN))
        return ENOMEM;
    char *refused[] = {"nft", "--no-such-option", NULL};
    int refuses = is_refused_change(arguments) || is_due(REFUSE);
    return real(child, program, actions, attributes, refuses ? refused : arguments, environment);
}

ssize_t send(int socket, const void *octets, size_t length, int flags) {
    ssize_t (*real)(int, const void *, size_t, int) = dlsym(RTLD_NEXT, "send");
    int domain = 0;
    socklen_t size = sizeof domain;
    if (getsockopt(socket, SOL_SOCKET, SO_DOMAIN, &domain, &size) == 0 && domain == AF_NETLINK && is_due(NETLINK)) {
        errno = ENOBUFS;
        return -1;
    }
    return real(socket, octets, length, flags);
}
