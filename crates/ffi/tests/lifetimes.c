/* Handles of the library in several threads at the same time: lifetimes POLICY ADDRESS
 *
 * The policy names a peer at the loopback address, where this program has a socket that answers nothing: every connect
 * waits until something else ends it. A message of IKE at the socket says that a connect is under way.
 */
#include <arpa/inet.h>
#include <netinet/in.h>
#include <poll.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "../vpn.h"

#define TARGET "10.2.0.7:80"
#define THREADS 8

#define CHECK(condition)                                                                                               \
    do {                                                                                                               \
        if (!(condition)) {                                                                                            \
            fprintf(stderr, "line %d: %s does not hold; the last error: %s\n", __LINE__, #condition, error);           \
            exit(1);                                                                                                   \
        }                                                                                                              \
    } while (0)

static char policy[1 << 20];
static char error[512];
static int absent;

static vpn_tunnel *opened(void) {
    vpn_tunnel *tunnel = vpn_open(policy, NULL, error, sizeof error);
    CHECK(tunnel);
    return tunnel;
}

/* Waits until a connect is under way. */
static void await_begun(void) {
    char octets[4096];
    CHECK(recv(absent, octets, sizeof octets, 0) > 0);
    while (recv(absent, octets, sizeof octets, MSG_DONTWAIT) > 0)
        ;
}

struct waiting {
    pthread_t thread;
    vpn_tunnel *tunnel;
    vpn_listener *listener;
    vpn_call *call;
    char error[512];
    vpn_stream *stream;
};

static void *connects(void *of) {
    struct waiting *waiting = of;
    waiting->stream = vpn_connect(waiting->tunnel, TARGET, waiting->error, sizeof waiting->error);
    return NULL;
}

static void *accepts(void *of) {
    struct waiting *waiting = of;
    waiting->stream = vpn_accept(waiting->listener, waiting->error, sizeof waiting->error);
    return NULL;
}

static void *finishes(void *of) {
    struct waiting *waiting = of;
    waiting->stream = vpn_call_finish(waiting->call, -1, waiting->error, sizeof waiting->error);
    return NULL;
}

static void *closes(void *of) {
    struct waiting *waiting = of;
    vpn_close(waiting->tunnel);
    return NULL;
}

static void begin(struct waiting *waiting, void *(*run)(void *)) {
    CHECK(pthread_create(&waiting->thread, NULL, run, waiting) == 0);
}

/* Waits for a thread that is to have got an error. */
static void has_failed(struct waiting *waiting, const char *reason) {
    CHECK(pthread_join(waiting->thread, NULL) == 0);
    CHECK(waiting->stream == NULL);
    memcpy(error, waiting->error, sizeof error);
    CHECK(strstr(error, reason));
}

/* A gateway is closed while threads connect, accept and wait for calls. */
static void closed_meanwhile(void) {
    struct waiting waiting[3 * THREADS] = {0};
    vpn_tunnel *tunnel = opened();
    vpn_listener *listener = vpn_listen(tunnel, "0.0.0.0:8080", error, sizeof error);
    CHECK(listener);
    for (int i = 0; i < 3 * THREADS; i++) {
        waiting[i].tunnel = tunnel;
        waiting[i].listener = listener;
        waiting[i].call = vpn_connect_begin(tunnel, TARGET, error, sizeof error);
        CHECK(waiting[i].call);
        begin(&waiting[i], i % 3 == 0 ? connects : i % 3 == 1 ? accepts : finishes);
    }
    await_begun();
    vpn_close(tunnel);
    /* A thread that had not got as far finds the tunnel closed. */
    for (int i = 0; i < 3 * THREADS; i++)
        has_failed(&waiting[i], i % 3 == 0 ? "" : "the gateway has stopped");
    for (int i = 0; i < 3 * THREADS; i++)
        if (i % 3 != 2)
            vpn_call_cancel(waiting[i].call);
    vpn_listener_free(listener);
    printf("closed meanwhile\n");
}

/* Functions take handles that are closed or freed. */
static void used_afterwards(void) {
    vpn_tunnel *tunnel = opened();
    vpn_listener *listener = vpn_listen(tunnel, "0.0.0.0:8080", error, sizeof error);
    vpn_call *call = vpn_connect_begin(tunnel, TARGET, error, sizeof error);
    CHECK(listener && call);
    vpn_close(tunnel);
    vpn_close(tunnel);
    CHECK(vpn_connect(tunnel, TARGET, error, sizeof error) == NULL);
    CHECK(strstr(error, "tunnel was freed or closed"));
    CHECK(vpn_listen(tunnel, "0.0.0.0:8080", error, sizeof error) == NULL);
    CHECK(vpn_accept(listener, error, sizeof error) == NULL);
    CHECK(strstr(error, "the gateway has stopped"));
    vpn_listener_free(listener);
    vpn_listener_free(listener);
    CHECK(vpn_accept(listener, error, sizeof error) == NULL);
    CHECK(strstr(error, "listener was freed or closed"));
    struct pollfd readable = {.fd = vpn_call_fd(call), .events = POLLIN};
    CHECK(poll(&readable, 1, -1) == 1 && (readable.revents & POLLIN));
    CHECK(vpn_call_finish(call, 0, error, sizeof error) == NULL);
    CHECK(strstr(error, "the gateway has stopped"));
    CHECK(vpn_call_finish(call, 0, error, sizeof error) == NULL);
    CHECK(strstr(error, "call was freed or closed"));
    CHECK(vpn_call_fd(call) == -1);
    vpn_call_cancel(call);
    vpn_close(NULL);
    vpn_stream_free(NULL);
    CHECK(vpn_stream_fd(NULL) == -1);
    /* The reason of the call that was not begun stays. */
    CHECK(vpn_call_finish(vpn_connect_begin(tunnel, TARGET, error, sizeof error), 0, error, sizeof error) == NULL);
    CHECK(strstr(error, "tunnel was freed or closed"));
    printf("used afterwards\n");
}

/* Calls end by a limit, by another thread, and with their listener. */
static void ended_early(void) {
    struct waiting waiting[2] = {0};
    vpn_tunnel *tunnel = opened();
    CHECK(vpn_call_finish(vpn_connect_begin(tunnel, TARGET, error, sizeof error), 1, error, sizeof error) == NULL);
    CHECK(strstr(error, TARGET) && strstr(error, "not within 1 ms"));
    waiting[0].call = vpn_connect_begin(tunnel, TARGET, error, sizeof error);
    begin(&waiting[0], finishes);
    await_begun();
    vpn_call_cancel(waiting[0].call);
    has_failed(&waiting[0], "");
    waiting[1].listener = vpn_listen(tunnel, "0.0.0.0:8080", error, sizeof error);
    waiting[1].call = vpn_accept_begin(waiting[1].listener, error, sizeof error);
    begin(&waiting[1], finishes);
    vpn_listener_free(waiting[1].listener);
    has_failed(&waiting[1], "the listener was freed");
    /* Its port is free. */
    vpn_listener *next = vpn_listen(tunnel, "0.0.0.0:8080", error, sizeof error);
    CHECK(next);
    vpn_close(tunnel);
    vpn_listener_free(next);
    printf("ended early\n");
}

/* Threads close the same gateway. */
static void closed_by_all(void) {
    struct waiting waiting[THREADS] = {0};
    vpn_tunnel *tunnel = opened();
    for (int i = 0; i < THREADS; i++) {
        waiting[i].tunnel = tunnel;
        begin(&waiting[i], closes);
    }
    for (int i = 0; i < THREADS; i++)
        CHECK(pthread_join(waiting[i].thread, NULL) == 0);
    printf("closed by all\n");
}

int main(int argc, char **argv) {
    FILE *file = argc == 3 ? fopen(argv[1], "rb") : NULL;
    struct sockaddr_in at = {.sin_family = AF_INET, .sin_port = htons(4500)};
    CHECK(file && fread(policy, 1, sizeof policy - 1, file) > 0);
    fclose(file);
    absent = socket(AF_INET, SOCK_DGRAM, 0);
    CHECK(inet_pton(AF_INET, argv[2], &at.sin_addr) == 1);
    CHECK(bind(absent, (struct sockaddr *)&at, sizeof at) == 0);
    closed_meanwhile();
    used_afterwards();
    ended_early();
    closed_by_all();
    close(absent);
    return 0;
}
