/* Gateways of one process at addresses of the loopback device, where one waits for the other: listening OWN PEER ADDRESS
 *
 * OWN and PEER are the policies of the two ends of a tunnel. ADDRESS is that of the first one, which the second begins.
 */
#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "../vpn.h"

#define INNER "10.1.0.1:8080"

#define CHECK(condition)                                                                                               \
    do {                                                                                                               \
        if (!(condition)) {                                                                                            \
            fprintf(stderr, "line %d: %s does not hold; the last error: %s\n", __LINE__, #condition, error);           \
            exit(1);                                                                                                   \
        }                                                                                                              \
    } while (0)

static char own[1 << 20], peer[1 << 20];
static char error[512];
static const char *address;
/* The address and the port of NAT traversal. */
static char at[64];

static void read_policy(const char *path, char *text, size_t size) {
    FILE *file = fopen(path, "rb");
    CHECK(file && fread(text, 1, size - 1, file) > 0);
    fclose(file);
}

static vpn_tunnel *opened(const char *policy, const char *listen) {
    vpn_tunnel *tunnel = vpn_open_listening(policy, NULL, listen, error, sizeof error);
    CHECK(tunnel);
    return tunnel;
}

/* Whether another socket can have the port. */
static int is_free(void) {
    struct sockaddr_in to = {.sin_family = AF_INET, .sin_port = htons(4500)};
    int socket_of_test = socket(AF_INET, SOCK_DGRAM, 0);
    CHECK(inet_pton(AF_INET, address, &to.sin_addr) == 1);
    int bound = bind(socket_of_test, (struct sockaddr *)&to, sizeof to);
    CHECK(bound == 0 || errno == EADDRINUSE);
    close(socket_of_test);
    return bound == 0;
}

/* The peer begins, and its connection arrives. */
static void met(void) {
    char octet = 0;
    vpn_tunnel *waits = opened(own, address);
    CHECK(vpn_listening_error(waits, error, sizeof error) == 0);
    CHECK(!is_free());
    vpn_tunnel *begins = opened(peer, "");
    CHECK(vpn_listening_error(begins, error, sizeof error) == 0);
    vpn_listener *listener = vpn_listen(waits, INNER, error, sizeof error);
    vpn_call *accepting = vpn_accept_begin(listener, error, sizeof error);
    CHECK(listener && accepting);
    vpn_stream *there = vpn_connect(begins, INNER, error, sizeof error);
    CHECK(there);
    vpn_stream *here = vpn_call_finish(accepting, -1, error, sizeof error);
    CHECK(here);
    CHECK(write(vpn_stream_fd(there), "x", 1) == 1);
    CHECK(read(vpn_stream_fd(here), &octet, 1) == 1 && octet == 'x');
    vpn_stream_free(there);
    vpn_stream_free(here);
    vpn_listener_free(listener);
    vpn_close(begins);
    vpn_close(waits);
    CHECK(is_free());
    CHECK(vpn_listening_error(waits, error, sizeof error) == -1);
    CHECK(strstr(error, "tunnel was freed or closed"));
    printf("met\n");
}

/* A port that is taken is an error where the program has chosen the address, and otherwise a remark. */
static void taken(void) {
    vpn_tunnel *first = opened(own, NULL);
    CHECK(!is_free());
    CHECK(vpn_open_listening(own, NULL, address, error, sizeof error) == NULL);
    CHECK(strstr(error, at) && strstr(error, "this process has it already"));
    CHECK(strstr(error, "leave the choice to the policy"));
    vpn_tunnel *second = vpn_open(own, NULL, error, sizeof error);
    CHECK(second);
    CHECK(vpn_listening_error(second, error, sizeof error) == -1);
    CHECK(strstr(error, "tunnel waits: the peer cannot begin") && strstr(error, at));
    vpn_tunnel *none = opened(own, "");
    CHECK(vpn_listening_error(none, error, sizeof error) == 0);
    vpn_close(none);
    vpn_close(second);
    vpn_close(first);
    CHECK(is_free());
    printf("taken\n");
}

static void refused(void) {
    static const char *const wrong[][3] = {
        {"192.0.2.99", "192.0.2.99:4500", "it is not an address of this host"},
        {"192.0.2.300", "\"192.0.2.300\"", "it has to be an address of this host"},
        {"127.0.0.1, 127.0.0.1:4500", "\"127.0.0.1:4500\"", "leave the port out"},
        {"[::1]:4500", "\"[::1]:4500\"", "leave the port out"},
    };
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        CHECK(vpn_open_listening(own, NULL, wrong[i][0], error, sizeof error) == NULL);
        CHECK(strstr(error, wrong[i][1]) && strstr(error, wrong[i][2]));
    }
    CHECK(vpn_open_listening(NULL, NULL, address, error, sizeof error) == NULL);
    CHECK(strstr(error, "policy is a null pointer"));
    CHECK(is_free());
    printf("refused\n");
}

int main(int argc, char **argv) {
    CHECK(argc == 4);
    read_policy(argv[1], own, sizeof own);
    read_policy(argv[2], peer, sizeof peer);
    address = argv[3];
    snprintf(at, sizeof at, "%s:4500", address);
    met();
    taken();
    refused();
    return 0;
}
