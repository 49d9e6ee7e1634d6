/* A PKCS#11 module before that of SoftHSM, which fails as tokens do. The first letter of the file TOKEN_MODE says how:
 *
 *   h  hangs before each signature, until the letter is another one; meanwhile the file TOKEN_HANGS is there
 *   r  is removed: it has no token, and its sessions have ended
 *   s  was reset: its sessions have ended once
 *
 * Any other letter: it works. TOKEN_MODULE is the path of SoftHSM's module. The list of functions is that of version 2. */
#include <dlfcn.h>
#include <fcntl.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

#define CKR_DEVICE_REMOVED 0x32ul

enum { GET_SLOT_LIST = 4, OPEN_SESSION = 12, CLOSE_ALL_SESSIONS = 14, SIGN_INIT = 42, FUNCTIONS = 68 };

struct list {
    unsigned char version[2];
    void *function[FUNCTIONS];
};

static struct list *real, ours;
static unsigned long slot;
static int was_reset;

static char mode(void) {
    char letter = 0;
    int file = open(getenv("TOKEN_MODE"), O_RDONLY | O_CLOEXEC);
    if (file >= 0) {
        if (read(file, &letter, 1) != 1)
            letter = 0;
        close(file);
    }
    return letter;
}

static void end_sessions(void) {
    unsigned long (*close_all)(unsigned long) = real->function[CLOSE_ALL_SESSIONS];
    close_all(slot);
}

static unsigned long get_slot_list(unsigned char present, unsigned long *slots, unsigned long *count) {
    unsigned long (*next)(unsigned char, unsigned long *, unsigned long *) = real->function[GET_SLOT_LIST];
    if (mode() == 'r') {
        *count = 0;
        return 0;
    }
    return next(present, slots, count);
}

static unsigned long open_session(unsigned long of, unsigned long flags, void *data, void *notify, unsigned long *session) {
    unsigned long (*next)(unsigned long, unsigned long, void *, void *, unsigned long *) = real->function[OPEN_SESSION];
    slot = of;
    return next(of, flags, data, notify, session);
}

static unsigned long sign_init(unsigned long session, void *mechanism, unsigned long key) {
    unsigned long (*next)(unsigned long, void *, unsigned long) = real->function[SIGN_INIT];
    struct timespec moment = {0, 1000000};
    while (mode() == 'h') {
        close(open(getenv("TOKEN_HANGS"), O_WRONLY | O_CREAT | O_CLOEXEC, 0600));
        nanosleep(&moment, NULL);
    }
    unlink(getenv("TOKEN_HANGS"));
    if (mode() == 'r') {
        end_sessions();
        return CKR_DEVICE_REMOVED;
    }
    if (mode() == 's' && !was_reset) {
        was_reset = 1;
        end_sessions();
    }
    return next(session, mechanism, key);
}

unsigned long C_GetFunctionList(struct list **list) {
    void *library = dlopen(getenv("TOKEN_MODULE"), RTLD_NOW | RTLD_LOCAL);
    unsigned long (*get)(struct list **) = library ? dlsym(library, "C_GetFunctionList") : NULL;
    if (!get || get(&real))
        return CKR_DEVICE_REMOVED;
    ours = *real;
    ours.function[GET_SLOT_LIST] = get_slot_list;
    ours.function[OPEN_SESSION] = open_session;
    ours.function[SIGN_INIT] = sign_init;
    *list = &ours;
    return 0;
}
