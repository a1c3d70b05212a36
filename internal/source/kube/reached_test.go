package kube

import (
	"net"
	"net/netip"
	"slices"
	"testing"
)

func TestEachDialledAddressIsKnownBefore(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	_, port, _ := net.SplitHostPort(l.Addr().String())
	var r Reached
	told := 0
	r.Tell(func() { told++ })
	conn, err := r.dial(t.Context(), "tcp", net.JoinHostPort("localhost", port))
	if err != nil {
		t.Fatal(err)
	}
	_ = conn.Close()
	if got := r.Addrs(); len(got) != 0 || told != 0 {
		t.Errorf("%v is told %d times; an address of this machine alone is nothing to guard", got, told)
	}
	a, b := netip.MustParseAddr("192.0.2.7"), netip.MustParseAddr("192.0.2.5")
	r.add(a, b)
	r.add(netip.MustParseAddr("::ffff:192.0.2.7"))
	if got := r.Addrs(); !slices.Equal(got, []netip.Addr{b, a}) || told != 1 {
		t.Errorf("%v, told %d times; want both, told once", got, told)
	}
}

func TestAddressesOfAServerAreBounded(t *testing.T) {
	var r Reached
	next := netip.MustParseAddr("10.0.0.0")
	for range mostReached + 10 {
		next = next.Next()
		r.add(next)
	}
	if got := r.Addrs(); len(got) != mostReached || !slices.Contains(got, next) {
		t.Errorf("%d addresses, the newest among them: %t; want %d", len(got), slices.Contains(got, next), mostReached)
	}
}
