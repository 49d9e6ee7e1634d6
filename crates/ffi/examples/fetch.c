/* Fetches a page from a host behind a tunnel, with poll: fetch POLICY HOST:PORT
 *
 * cc fetch.c $(pkg-config --cflags --libs vpn) -o fetch
 */
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "vpn.h"

static char *contents(const char *path) {
    FILE *file = fopen(path, "rb");
    char *text = calloc(1, 1 << 20);
    if (!file || !text || fread(text, 1, (1 << 20) - 1, file) == 0) {
        perror(path);
        exit(1);
    }
    fclose(file);
    return text;
}

int main(int argc, char **argv) {
    char error[512];
    if (argc != 3) {
        fprintf(stderr, "usage: fetch POLICY HOST:PORT\n");
        return 2;
    }
    char *policy = contents(argv[1]);
    vpn_tunnel *tunnel = vpn_open(policy, NULL, error, sizeof error);
    free(policy);
    if (!tunnel) {
        fprintf(stderr, "%s\n", error);
        return 1;
    }
    vpn_stream *stream = vpn_connect(tunnel, argv[2], error, sizeof error);
    if (!stream) {
        fprintf(stderr, "%s\n", error);
        vpn_close(tunnel);
        return 1;
    }
    struct pollfd waiting = {.fd = vpn_stream_fd(stream), .events = POLLOUT};
    fcntl(waiting.fd, F_SETFL, O_NONBLOCK);
    const char *request = "GET / HTTP/1.0\r\n\r\n";
    size_t left = strlen(request);
    int status = 0;
    for (;;) {
        char buffer[65536];
        if (poll(&waiting, 1, -1) < 0) {
            if (errno == EINTR)
                continue;
            perror("poll");
            status = 1;
            break;
        }
        if (left && (waiting.revents & POLLOUT)) {
            ssize_t written = write(waiting.fd, request, left);
            if (written > 0) {
                request += written;
                left -= (size_t)written;
            }
            if (!left)
                waiting.events = POLLIN;
            continue;
        }
        ssize_t got = read(waiting.fd, buffer, sizeof buffer);
        if (got > 0) {
            fwrite(buffer, 1, (size_t)got, stdout);
        } else if (got == 0) {
            /* The peer has said all, or the connection is broken. */
            if (vpn_stream_error(stream, error, sizeof error)) {
                fprintf(stderr, "%s\n", error);
                status = 1;
            }
            break;
        } else if (errno != EAGAIN && errno != EINTR) {
            perror("read");
            status = 1;
            break;
        }
    }
    vpn_stream_free(stream);
    vpn_close(tunnel);
    return status;
}
