package vserver

import (
	"bytes"
	"context"
	"math/rand/v2"
	"net/netip"
	"testing"

	"go.uber.org/zap"
)

// listening keeps what is sent to it, and acknowledges it.
type listening struct {
	deaf
	sent []byte
}

func (l *listening) Send(b []byte) error {
	l.sent = append(l.sent, b...)
	return l.deaf.Send(b)
}

// A message made from the one before it is the one that would have been made alone.
func TestAmendedMessagesAreThoseEncodedAlone(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 2))
	addrs := []netip.Addr{netip.MustParseAddr("10.0.0.1"), netip.MustParseAddr("203.0.113.255"), netip.MustParseAddr("fd00::1"), netip.MustParseAddr("2001:db8:ffff:1:2:3:4:5")}
	changes := make([]DestinationChange, 2000)
	for i := range changes {
		server := ServerKey{Addr: addrs[random.IntN(len(addrs))], Port: uint16(random.Uint32()), Protocol: []uint8{ProtocolTCP, ProtocolUDP, ProtocolSCTP}[random.IntN(3)]}
		changes[i] = DestinationChange{Op: Op(random.IntN(3)), Key: DestinationKey{Server: server, Addr: addrs[random.IntN(len(addrs))], Port: uint16(random.Uint32())}}
		d := &changes[i].Destination
		d.Weight, d.Upper, d.Lower = uint16(random.Uint32()), random.Uint32(), random.Uint32()
		switch random.IntN(4) {
		case 0:
			d.Forward = ForwardRoute
		case 1:
			d.Forward, d.Tunnel, d.TunnelPort = ForwardTunnel, TunnelGUE, 1+uint16(random.IntN(60000))
		}
	}
	together, alone := &listening{}, &listening{}
	write := func(w *listening, rows int) {
		h := &Handle{log: zap.NewNop(), opts: Options{ChunkRows: rows}.Defaults(), wire: w, family: 28, in: make([]byte, receiveSize)}
		if errs := h.WriteDestinations(context.Background(), changes); errs != nil {
			t.Fatal(errs)
		}
	}
	write(together, len(changes))
	write(alone, 1)
	for i, rest := 0, alone.sent; len(rest) > 0; i++ {
		n := int(native.Uint32(rest))
		if i+1 < len(changes) {
			rest[6] &^= nlAck // each of those sent alone is the last of its chunk
		}
		if len(together.sent) < n || !bytes.Equal(together.sent[:n], rest[:n]) {
			t.Fatalf("%s: %x, not %x", changes[i].describe(), together.sent[:min(n, len(together.sent))], rest[:n])
		}
		together.sent, rest = together.sent[n:], rest[n:]
	}
	if len(together.sent) > 0 {
		t.Errorf("%d bytes more", len(together.sent))
	}
}
