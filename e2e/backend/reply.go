package backend

import (
	"fmt"
	"net"
	"net/netip"
	"strings"
)

// Reply is the answer of a backend: its name, the address it was reached at, and the address the request came from.
type Reply struct {
	Name          string
	Local, Client netip.AddrPort
}

// String is the line on the wire, without the newline.
func (r Reply) String() string {
	return fmt.Sprintf("%s local=%s client=%s", r.Name, r.Local, r.Client)
}

// ParseReply reads such a line.
func ParseReply(line string) (Reply, error) {
	fields := strings.Fields(line)
	if len(fields) != 3 {
		return Reply{}, fmt.Errorf("reply %q: want NAME local=ADDR:PORT client=ADDR:PORT", line)
	}
	local, err := addrField(fields[1], "local=")
	if err != nil {
		return Reply{}, fmt.Errorf("reply %q: %w", line, err)
	}
	client, err := addrField(fields[2], "client=")
	if err != nil {
		return Reply{}, fmt.Errorf("reply %q: %w", line, err)
	}
	return Reply{Name: fields[0], Local: local, Client: client}, nil
}

func addrField(field, key string) (netip.AddrPort, error) {
	text, ok := strings.CutPrefix(field, key)
	if !ok {
		return netip.AddrPort{}, fmt.Errorf("%q does not begin with %s", field, key)
	}
	return netip.ParseAddrPort(text)
}

// addrPort turns a socket's address into a value. Wildcard sockets see IPv4 peers as mapped
// addresses, which are hard to read.
func addrPort(a net.Addr) netip.AddrPort {
	typed, ok := a.(interface{ AddrPort() netip.AddrPort })
	if !ok {
		return netip.AddrPort{}
	}
	return unmap(typed.AddrPort())
}

func unmap(a netip.AddrPort) netip.AddrPort {
	return netip.AddrPortFrom(a.Addr().Unmap(), a.Port())
}
