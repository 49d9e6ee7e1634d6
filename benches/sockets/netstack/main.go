// netstack forwards a port of this host through WireGuard by a TCP in the process: wireguard-go and gVisor, joined by
// wireguard-go's package netstack.
//
//	netstack LISTEN ADDRESS PRIVATE-KEY PEER-KEY ENDPOINT TARGET
//
// Keys are in base64, as those of wg are.
package main

import (
	"context"
	"encoding/base64"
	"encoding/hex"
	"fmt"
	"io"
	"log"
	"net"
	"net/netip"
	"os"

	"golang.zx2c4.com/wireguard/conn"
	"golang.zx2c4.com/wireguard/device"
	"golang.zx2c4.com/wireguard/tun/netstack"
)

func must[T any](value T, err error) T {
	if err != nil {
		log.Fatal(err)
	}
	return value
}

func hexadecimal(key string) string {
	return hex.EncodeToString(must(base64.StdEncoding.DecodeString(key)))
}

func main() {
	if len(os.Args) != 7 {
		log.Fatal("usage: netstack LISTEN ADDRESS PRIVATE-KEY PEER-KEY ENDPOINT TARGET")
	}
	target := must(netip.ParseAddrPort(os.Args[6]))
	addresses := []netip.Addr{must(netip.ParseAddr(os.Args[2]))}
	tun, network, err := netstack.CreateNetTUN(addresses, nil, 1420)
	if err != nil {
		log.Fatal(err)
	}
	dev := device.NewDevice(tun, conn.NewDefaultBind(), device.NewLogger(device.LogLevelError, ""))
	settings := fmt.Sprintf("private_key=%s\npublic_key=%s\nendpoint=%s\nallowed_ip=%s/32\n",
		hexadecimal(os.Args[3]), hexadecimal(os.Args[4]), os.Args[5], target.Addr())
	if err := dev.IpcSet(settings); err != nil {
		log.Fatal(err)
	}
	if err := dev.Up(); err != nil {
		log.Fatal(err)
	}
	listener := must(net.Listen("tcp", os.Args[1]))
	for {
		go forward(must(listener.Accept()), network, target)
	}
}

func forward(near net.Conn, network *netstack.Net, target netip.AddrPort) {
	defer near.Close()
	far, err := network.DialContextTCPAddrPort(context.Background(), target)
	if err != nil {
		log.Print(err)
		return
	}
	defer far.Close()
	go func() {
		_, _ = io.Copy(far, near)
		_ = far.CloseWrite()
	}()
	_, _ = io.Copy(near, far)
}
