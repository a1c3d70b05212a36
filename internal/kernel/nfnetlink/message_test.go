package nfnetlink_test

import (
	"errors"
	"slices"
	"syscall"
	"testing"

	"github.com/kube-ipvs/kube-ipvs/internal/kernel/nfnetlink"
)

// build is one message with attributes of every kind.
func build() []byte {
	var b nfnetlink.Builder
	b.Begin(0xa06, nfnetlink.Create, 7, 2, 0)
	b.Text(1, "table")
	b.Number(2, 0x01020304)
	b.Long(3, 0x0102030405060708)
	nest := b.Nest(4)
	b.Fill(1, func(to []byte) []byte { return append(to, 1, 2, 3) })
	b.Unnest(nest)
	b.End()
	b.Acknowledge()
	return b.B
}

func TestMessage(t *testing.T) {
	m, rest, err := nfnetlink.Next(append(build(), build()...))
	if err != nil || len(rest) != len(build()) {
		t.Fatalf("%v, %d bytes left of %d", err, len(rest), 2*len(build()))
	}
	if m.Kind != 0xa06 || m.Flags != nfnetlink.Request|nfnetlink.Create|nfnetlink.Ack || m.Seq != 7 || m.Family() != 2 {
		t.Errorf("header %+v", m)
	}
	a := m.Attrs()
	nest, ok := a.Get(4)
	if a.Text(1) != "table" || a.Number(2) != 0x01020304 || a.Long(3) != 0x0102030405060708 || !ok || !slices.Equal(nest.Bytes(1), []byte{1, 2, 3}) || a.Err() != nil {
		t.Errorf("attributes %q %x %x %v, %v", a.Text(1), a.Number(2), a.Long(3), nest.Bytes(1), a.Err())
	}
	if a.Has(5) || a.Text(5) != "" || a.Number(1) != 0 || a.Bytes(5) != nil {
		t.Error("an attribute that does not exist, or of another length, has a value")
	}
}

func TestMalformed(t *testing.T) {
	whole := build()
	for n := range whole {
		m, _, err := nfnetlink.Next(whole[:n])
		if err == nil {
			t.Errorf("%d bytes of a message are %+v", n, m)
		} else if !errors.Is(err, nfnetlink.ErrMalformed) {
			t.Errorf("%d bytes: %v", n, err)
		}
	}
	for name, b := range map[string][]byte{"short header": {4, 0}, "too long": {200, 0, 1, 0}, "too short": {3, 0, 1, 0}} {
		a := nfnetlink.Attributes(b)
		a.Each(func(uint16, nfnetlink.Attrs) { t.Errorf("%s: an attribute", name) })
		if !errors.Is(a.Err(), nfnetlink.ErrMalformed) {
			t.Errorf("%s: %v", name, a.Err())
		}
	}
	if a := (nfnetlink.Message{Body: []byte{2}}).Attrs(); !errors.Is(a.Err(), nfnetlink.ErrMalformed) {
		t.Errorf("a body of one byte: %v", a.Err())
	}
}

// refusal is the kernel's answer with an offset; a copy of the request is in it or only its header.
func refusal(errno syscall.Errno, flags uint16, copied int, offset uint32) nfnetlink.Message {
	b := nfnetlink.Native.AppendUint32(nil, uint32(-int32(errno)))
	b = nfnetlink.Native.AppendUint32(b, uint32(copied))
	b = append(b, make([]byte, 12)...)
	if flags&0x100 == 0 {
		b = append(b, make([]byte, (copied-nfnetlink.HeaderLen+3)&^3)...)
	}
	b = append(b, 8, 0, 2, 0)
	return nfnetlink.Message{Kind: nfnetlink.Error, Flags: flags, Body: nfnetlink.Native.AppendUint32(b, offset)}
}

func TestVerdict(t *testing.T) {
	const capped, tlvs = 0x100, 0x200
	for _, c := range []struct {
		flags  uint16
		copied int
		want   int
		known  bool
	}{
		{capped | tlvs, 5000, 77, true}, {tlvs, 50, 77, true}, {tlvs, 16, 77, true}, {capped, 50, 0, false}, {tlvs, 4, 0, false}, {0, 16, 0, false},
	} {
		m := refusal(syscall.ENOENT, c.flags, max(c.copied, 16), 77)
		if c.copied < 16 {
			nfnetlink.Native.PutUint32(m.Body[4:], uint32(c.copied))
		}
		if errno, err := m.Verdict(); errno != syscall.ENOENT || err != nil {
			t.Errorf("%+v: verdict %v, %v", c, errno, err)
		}
		if got, known := m.Offset(); got != c.want || known != c.known {
			t.Errorf("%+v: offset %d, %t", c, got, known)
		}
	}
	if errno, err := (nfnetlink.Message{Kind: nfnetlink.Done}).Verdict(); errno != 0 || err != nil {
		t.Errorf("the end of a dump: %v, %v", errno, err)
	}
	for _, m := range []nfnetlink.Message{{Kind: nfnetlink.Error, Body: []byte{1}}, {Kind: nfnetlink.Error, Body: []byte{1, 1, 1, 1}}} {
		if _, err := m.Verdict(); !errors.Is(err, nfnetlink.ErrMalformed) {
			t.Errorf("verdict %v: %v", m.Body, err)
		}
	}
}

// FuzzMessage: reading any datagram ends and does not panic.
func FuzzMessage(f *testing.F) {
	f.Add(build())
	f.Fuzz(func(t *testing.T, b []byte) {
		for n := 0; len(b) > 0; n++ {
			m, rest, err := nfnetlink.Next(b)
			if err != nil {
				return
			}
			if len(rest) >= len(b) {
				t.Fatal("a message of no bytes")
			}
			b = rest
			_, _ = m.Verdict()
			_, _ = m.Offset()
			a := m.Attrs()
			a.Each(func(kind uint16, v nfnetlink.Attrs) {
				_, _, _, _ = a.Text(kind), a.Number(kind), a.Long(kind), a.Bytes(kind)
				v.Each(func(uint16, nfnetlink.Attrs) {})
			})
		}
	})
}
