/* Tunnels for programs in C: IKEv2 and ESP in this process, without root, device or route. Made by cbindgen of crates/ffi. */

#ifndef VPN_H
#define VPN_H

#include <stddef.h>

/*
 Takes TCP connections of peers.
 */
typedef struct vpn_listener vpn_listener;

/*
 A TCP connection through a tunnel.
 */
typedef struct vpn_stream vpn_stream;

/*
 A gateway in this process, with its tunnels. All functions may be called from any thread.
 */
typedef struct vpn_tunnel vpn_tunnel;

#ifdef __cplusplus
extern "C" {
#endif // __cplusplus

/*
 Starts a gateway with a policy: the text of an AIX_VPN XML file. `name_servers`: addresses of DNS servers behind the
 tunnels, separated by commas, or NULL. Tunnels are started by the connections that need them. Returns NULL after an
 error, whose reason is then in `error`.

 # Safety
 The texts end with a zero. `error` is NULL, or has `error_size` octets.
 */
vpn_tunnel *vpn_open(const char *policy,
                     const char *name_servers,
                     char *error,
                     size_t error_size);

/*
 Ends a gateway: its connections end with an error, and the peers are told. It waits for their answers, at most three
 seconds.

 # Safety
 `tunnel` is NULL or comes from `vpn_open`, and is not used any more.
 */
void vpn_close(vpn_tunnel *tunnel);

/*
 Connects to `HOST:PORT` behind a tunnel, and waits for the tunnel and for the peer. Returns NULL after an error,
 whose reason is then in `error`.

 # Safety
 `tunnel` comes from `vpn_open`. `target` ends with a zero. `error` is NULL, or has `error_size` octets.
 */
vpn_stream *vpn_connect(const vpn_tunnel *tunnel,
                        const char *target,
                        char *error,
                        size_t error_size);

/*
 Takes connections of peers at `ADDRESS:PORT` of this end, `0.0.0.0:PORT` for each of its addresses. Returns NULL
 after an error, whose reason is then in `error`.

 # Safety
 As `vpn_connect`.
 */
vpn_listener *vpn_listen(const vpn_tunnel *tunnel,
                         const char *local,
                         char *error,
                         size_t error_size);

/*
 Waits for the next connection of a peer. Returns NULL once the gateway is closed.

 # Safety
 `listener` comes from `vpn_listen`, and its gateway is not closed yet.
 */
vpn_stream *vpn_accept(const vpn_listener *listener, char *error, size_t error_size);

/*
 Ends a listener. Connections that it has given stay.

 # Safety
 `listener` is NULL or comes from `vpn_listen`, and is not used any more.
 */
void vpn_listener_free(vpn_listener *listener);

/*
 The descriptor of a connection, a stream socket for `poll`, `read`, `write`, `send`, `recv` and `shutdown`. It
 belongs to the connection: do not close it.

 # Safety
 `stream` comes from `vpn_connect` or `vpn_accept`.
 */
int vpn_stream_fd(const vpn_stream *stream);

/*
 Tells whether a connection has ended with an error, once `read` has returned 0: returns 0 if the peer has said all,
 and -1 if not, with the reason in `error`.

 # Safety
 `stream` comes from `vpn_connect` or `vpn_accept`. `error` is NULL, or has `error_size` octets.
 */
int vpn_stream_error(const vpn_stream *stream,
                     char *error,
                     size_t error_size);

/*
 Closes a connection. The peer still gets all that was written.

 # Safety
 `stream` is NULL or comes from `vpn_connect` or `vpn_accept`, and is not used any more.
 */
void vpn_stream_free(vpn_stream *stream);

#ifdef __cplusplus
}  // extern "C"
#endif  // __cplusplus

#endif  /* VPN_H */
