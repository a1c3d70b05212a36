package kube

import (
	"context"
	"net"
	"net/netip"
	"slices"
	"testing"
)

// The address is told before the first packet: the dial is ended there, and never gets an answer.
func TestEachDialledAddressIsKnownBefore(t *testing.T) {
	for _, a := range []string{"192.0.2.7", "2001:db8::7"} {
		ctx, cancel := context.WithCancel(t.Context())
		var r Reached
		told := 0
		r.Tell(func() { told++; cancel() })
		if conn, err := r.dial(ctx, "tcp", net.JoinHostPort(a, "6443")); err == nil {
			_ = conn.Close()
			t.Fatalf("an address of documentation answers: %s", a)
		}
		if got := r.Addrs(); !slices.Equal(got, []netip.Addr{netip.MustParseAddr(a)}) || told != 1 {
			t.Errorf("%s: %v, told %d times", a, got, told)
		}
		cancel()
	}
}

// TestARefusalIsTold: with the address and the port, and not before the kernel has refused.
func TestARefusalIsTold(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	var r Reached
	var told []netip.AddrPort
	r.Refused(func(at netip.AddrPort) { told = append(told, at) })
	dial := func() {
		if conn, err := r.dial(t.Context(), "tcp", l.Addr().String()); err == nil {
			_ = conn.Close()
		}
	}
	dial()
	_ = l.Close()
	if len(told) > 0 {
		t.Errorf("a server that answers is told to refuse: %v", told)
	}
	dial()
	if want := []netip.AddrPort{netip.MustParseAddrPort(l.Addr().String())}; !slices.Equal(told, want) {
		t.Errorf("told %v, want %v", told, want)
	}
}

func TestAnAddressIsToldOnce(t *testing.T) {
	var r Reached
	told := 0
	r.Tell(func() { told++ })
	a, b := netip.MustParseAddr("192.0.2.7"), netip.MustParseAddr("192.0.2.5")
	r.add(a, b)
	r.add(netip.MustParseAddr("::ffff:192.0.2.7"), netip.MustParseAddr("127.0.0.1"))
	if got := r.Addrs(); !slices.Equal(got, []netip.Addr{b, a}) || told != 1 {
		t.Errorf("%v, told %d times; want both, told once, and no loopback address", got, told)
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
