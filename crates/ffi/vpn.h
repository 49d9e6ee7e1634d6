/* Tunnels for programs in C: IKEv2 and ESP in this process, without root, device or route. Made by cbindgen of crates/ffi. */

#ifndef VPN_H
#define VPN_H

#include <stddef.h>

/*
 A connect or an accept that is under way.
 */
typedef struct vpn_call vpn_call;

/*
 Takes TCP connections of peers.
 */
typedef struct vpn_listener vpn_listener;

/*
 A TCP connection through a tunnel.
 */
typedef struct vpn_stream vpn_stream;

/*
 A gateway in this process, with its tunnels. All functions may be called from any thread at any time. With a handle
 that is closed or freed, or NULL, they return an error, or do nothing.
 */
typedef struct vpn_tunnel vpn_tunnel;

#ifdef __cplusplus
extern "C" {
#endif // __cplusplus

/*
 Starts a gateway with a policy: the text of an AIX_VPN XML file. `name_servers`: addresses of DNS servers behind the
 tunnels, separated by commas, or NULL. Tunnels are started by the connections that need them, or by their peers:
 `vpn_listening_error` tells whether peers can. Returns NULL after an error, whose reason is then in `error`.

 # Safety
 The texts end with a zero. `error` is NULL, or has `error_size` octets.
 */
vpn_tunnel *vpn_open(const char *policy,
                     const char *name_servers,
                     char *error,
                     size_t error_size);

/*
 Starts a gateway as `vpn_open` does, whose peers begin at certain addresses of this host: on UDP port 4500, and on
 port 500 beside it if this user may have it. `listen`: these addresses, separated by commas; 0.0.0.0 and :: stand for
 all. It is an error if UDP port 4500 is taken there. With an empty text, only this side begins. With NULL, peers
 begin at the addresses that the policy gives to this side, as far as the ports are free.

 # Safety
 As `vpn_open`.
 */
vpn_tunnel *vpn_open_listening(const char *policy,
                               const char *name_servers,
                               const char *listen,
                               char *error,
                               size_t error_size);

/*
 Tells whether peers can begin all tunnels that the policy lets them begin: returns 0 if so, and -1 if not, with the
 tunnels and the reasons in `error`, one tunnel a line.

 # Safety
 `error` is NULL, or has `error_size` octets.
 */
int vpn_listening_error(const vpn_tunnel *tunnel,
                        char *error,
                        size_t error_size);

/*
 Ends a gateway. All calls that are under way end at once with the error "the gateway has stopped", its connections
 end with an error, and the peers are told. It waits for their answers, at most three seconds. Streams, listeners and
 calls keep their handles until each is freed.
 */
void vpn_close(vpn_tunnel *tunnel);

/*
 Connects to `HOST:PORT` behind a tunnel, and waits for the tunnel and for the peer, or until the tunnel is closed.
 Returns NULL after an error, whose reason is then in `error`. `vpn_connect_begin` is the same with a time limit, or
 without waiting.

 # Safety
 `target` ends with a zero. `error` is NULL, or has `error_size` octets.
 */
vpn_stream *vpn_connect(const vpn_tunnel *tunnel,
                        const char *target,
                        char *error,
                        size_t error_size);

/*
 Begins to connect to `HOST:PORT` behind a tunnel, and does not wait. Returns NULL after an error, whose reason is
 then in `error`.

 # Safety
 As `vpn_connect`.
 */
vpn_call *vpn_connect_begin(const vpn_tunnel *tunnel,
                            const char *target,
                            char *error,
                            size_t error_size);

/*
 The descriptor of a call. `poll` says that it is readable once the call has ended: then `vpn_call_finish` does not
 wait. It belongs to the call: do not read or close it. -1: the call is freed.
 */
int vpn_call_fd(const vpn_call *call);

/*
 Waits for the end of a call, at most so many milliseconds, or without a limit if `milliseconds` is negative. Frees
 the call. Returns its connection, or NULL after an error, whose reason is then in `error`. A call that has not ended
 within the limit is cancelled. If `call` is NULL, it returns NULL and leaves `error` as it is, so that the reason of
 `vpn_connect_begin` stays:

 `vpn_call_finish(vpn_connect_begin(tunnel, target, error, size), 5000, error, size)`

 # Safety
 `error` is NULL, or has `error_size` octets.
 */
vpn_stream *vpn_call_finish(vpn_call *call,
                            int milliseconds,
                            char *error,
                            size_t error_size);

/*
 Cancels a call and frees it. A connection that has come about meanwhile is closed. A thread that waits in
 `vpn_call_finish` returns from there with an error.
 */
void vpn_call_cancel(vpn_call *call);

/*
 Takes connections of peers at `ADDRESS:PORT` of this end, `0.0.0.0:PORT` for each of its addresses. Returns NULL
 after an error, whose reason is then in `error`.

 # Safety
 `local` ends with a zero. `error` is NULL, or has `error_size` octets.
 */
vpn_listener *vpn_listen(const vpn_tunnel *tunnel,
                         const char *local,
                         char *error,
                         size_t error_size);

/*
 Waits for the next connection of a peer. Returns NULL after an error, whose reason is then in `error`: the gateway
 was closed, or the listener was freed. `vpn_accept_begin` is the same with a time limit, or without waiting.

 # Safety
 `error` is NULL, or has `error_size` octets.
 */
vpn_stream *vpn_accept(const vpn_listener *listener,
                       char *error,
                       size_t error_size);

/*
 Begins to wait for the next connection of a peer, and returns at once. Returns NULL after an error, whose reason is
 then in `error`.

 # Safety
 As `vpn_accept`.
 */
vpn_call *vpn_accept_begin(const vpn_listener *listener,
                           char *error,
                           size_t error_size);

/*
 Frees a listener. Accepts that are under way end with an error. Connections that it has given stay.
 */
void vpn_listener_free(vpn_listener *listener);

/*
 The descriptor of a connection, a stream socket for `poll`, `read`, `write`, `send`, `recv` and `shutdown`. It
 belongs to the connection: do not close it. -1: the connection is freed.
 */
int vpn_stream_fd(const vpn_stream *stream);

/*
 Tells whether a connection has ended with an error, once `read` has returned 0: returns 0 if the peer has said all,
 and -1 if not, with the reason in `error`. A connection also ends with an error after two hours in which neither end
 has said anything, and after five minutes if one end has said all.

 # Safety
 `error` is NULL, or has `error_size` octets.
 */
int vpn_stream_error(const vpn_stream *stream,
                     char *error,
                     size_t error_size);

/*
 Closes a connection and frees it, with its descriptor. The peer still gets what was written, within 60 seconds.
 */
void vpn_stream_free(vpn_stream *stream);

#ifdef __cplusplus
}  // extern "C"
#endif  // __cplusplus

#endif  /* VPN_H */
