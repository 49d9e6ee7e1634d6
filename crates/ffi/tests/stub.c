/* A library without a tunnel in the place of libvpn_ffi: a test decides when its calls end, and counts its handles. */
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "../vpn.h"

#define HANDLES 64

struct vpn_call {
    int descriptors[2];
    /* 1: with a connection; -1: with an error. */
    int ended;
};

struct vpn_stream {
    int descriptors[2];
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t changed = PTHREAD_COND_INITIALIZER;
static vpn_call *calls[HANDLES];
static int tunnels, streams, opening, held;
/* The addresses of the last vpn_open_listening. */
static char *listening;

/* Has vpn_open wait until it is called with 0. */
void stub_hold(int on) {
    pthread_mutex_lock(&lock);
    held = on;
    pthread_cond_broadcast(&changed);
    pthread_mutex_unlock(&lock);
}

/* Waits until a thread is in vpn_open. */
void stub_await_opening(void) {
    pthread_mutex_lock(&lock);
    while (!opening)
        pthread_cond_wait(&changed, &lock);
    pthread_mutex_unlock(&lock);
}

static void end(vpn_call *call, int how) {
    if (!call->ended) {
        call->ended = how;
        if (write(call->descriptors[1], "", 1) != 1)
            abort();
    }
}

/* Ends all calls, with a connection each. */
void stub_answer(void) {
    pthread_mutex_lock(&lock);
    for (int i = 0; i < HANDLES; i++)
        if (calls[i])
            end(calls[i], 1);
    pthread_mutex_unlock(&lock);
}

/* Handles that are not freed: tunnels, calls and connections. */
void stub_live(int counts[3]) {
    pthread_mutex_lock(&lock);
    counts[0] = tunnels;
    counts[1] = 0;
    for (int i = 0; i < HANDLES; i++)
        counts[1] += calls[i] != NULL;
    counts[2] = streams;
    pthread_mutex_unlock(&lock);
}

const char *stub_listening(void) {
    return listening;
}

vpn_tunnel *vpn_open_listening(const char *policy, const char *name_servers, const char *listen, char *error,
                               size_t error_size) {
    (void)policy, (void)name_servers, (void)error, (void)error_size;
    pthread_mutex_lock(&lock);
    free(listening);
    listening = listen ? strdup(listen) : NULL;
    opening++;
    pthread_cond_broadcast(&changed);
    while (held)
        pthread_cond_wait(&changed, &lock);
    opening--;
    tunnels++;
    pthread_mutex_unlock(&lock);
    return (vpn_tunnel *)&tunnels;
}

int vpn_listening_error(const vpn_tunnel *tunnel, char *error, size_t error_size) {
    (void)tunnel;
    snprintf(error, error_size, "tunnel t: the peer cannot begin");
    return listening ? 0 : -1;
}

void vpn_close(vpn_tunnel *tunnel) {
    pthread_mutex_lock(&lock);
    tunnels -= tunnel != NULL;
    for (int i = 0; i < HANDLES; i++)
        if (calls[i])
            end(calls[i], -1);
    pthread_mutex_unlock(&lock);
}

vpn_call *vpn_connect_begin(const vpn_tunnel *tunnel, const char *target, char *error, size_t error_size) {
    (void)target;
    if (!tunnel) {
        snprintf(error, error_size, "tunnel is a null pointer");
        return NULL;
    }
    vpn_call *call = calloc(1, sizeof *call);
    int place = 0;
    pthread_mutex_lock(&lock);
    while (place < HANDLES && calls[place])
        place++;
    if (place == HANDLES || pipe(call->descriptors))
        abort();
    calls[place] = call;
    pthread_mutex_unlock(&lock);
    return call;
}

int vpn_call_fd(const vpn_call *call) {
    return call->descriptors[0];
}

static void free_call(vpn_call *call) {
    for (int i = 0; i <= HANDLES; i++) {
        /* It was freed before. */
        if (i == HANDLES)
            abort();
        if (calls[i] == call) {
            calls[i] = NULL;
            break;
        }
    }
    close(call->descriptors[0]);
    close(call->descriptors[1]);
    free(call);
}

vpn_stream *vpn_call_finish(vpn_call *call, int milliseconds, char *error, size_t error_size) {
    (void)milliseconds;
    vpn_stream *stream = NULL;
    pthread_mutex_lock(&lock);
    if (call->ended == 1) {
        stream = calloc(1, sizeof *stream);
        if (socketpair(AF_UNIX, SOCK_STREAM, 0, stream->descriptors))
            abort();
        streams++;
    } else {
        snprintf(error, error_size, "%s", call->ended ? "the gateway has stopped" : "it has not ended");
    }
    free_call(call);
    pthread_mutex_unlock(&lock);
    return stream;
}

void vpn_call_cancel(vpn_call *call) {
    pthread_mutex_lock(&lock);
    free_call(call);
    pthread_mutex_unlock(&lock);
}

int vpn_stream_fd(const vpn_stream *stream) {
    return stream->descriptors[0];
}

int vpn_stream_error(const vpn_stream *stream, char *error, size_t error_size) {
    (void)stream, (void)error, (void)error_size;
    return 0;
}

void vpn_stream_free(vpn_stream *stream) {
    pthread_mutex_lock(&lock);
    streams--;
    pthread_mutex_unlock(&lock);
    close(stream->descriptors[0]);
    close(stream->descriptors[1]);
    free(stream);
}
