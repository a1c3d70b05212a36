package main

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"os"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/kube-ipvs/kube-ipvs/internal/kernel/vserver"
)

// TestKernelHoldsTheRows: after each way of writing the kernel has exactly the rows, and what was not written is missed.
func TestKernelHoldsTheRows(t *testing.T) {
	if os.Getuid() != 0 {
		t.Skip("needs root for network namespaces")
	}
	r := makeRows(1200, 2) // several sends, several batches
	found, err := measure(t.Context(), r)
	if errors.Is(err, unix.ENOENT) {
		t.Skipf("this kernel has no IPVS: %v", err)
	}
	if err != nil || found[0] <= 0 || found[1] <= 0 {
		t.Fatalf("measured %+v, %v", found, err)
	}
	nothing := func(context.Context, rows) (func() error, error) { return func() error { return nil }, nil }
	if _, err := written(t.Context(), r, nothing); err == nil {
		t.Error("nothing was written, and nothing is missed")
	}
}

// TestRowsThatDiffer: rows that are missing, different or too many are an error.
func TestRowsThatDiffer(t *testing.T) {
	for _, tt := range []struct {
		services int
		weight   uint16
		same     bool
	}{{2, weight, true}, {1, weight, false}, {3, weight, false}, {2, 2, false}} {
		servers, destinations := map[vserver.ServerKey]vserver.Server{}, map[vserver.DestinationKey]vserver.Destination{}
		r := makeRows(tt.services, 1)
		for i := range r.servers {
			servers[r.servers[i]], destinations[r.destinations[i]] = vserver.Server{Scheduler: scheduler}, vserver.Destination{Weight: tt.weight}
		}
		if err := makeRows(2, 1).missing(servers, destinations); (err == nil) != tt.same {
			t.Errorf("%+v: error %v", tt, err)
		}
	}
}

// attributes reads attributes as the kernel does: by length, aligned to four bytes.
func attributes(b []byte) map[uint16][]byte {
	all := map[uint16][]byte{}
	for len(b) > 0 {
		n := native.Uint16(b)
		all[native.Uint16(b[2:])] = b[4:n]
		b = b[(n+3)&^3:]
	}
	return all
}

// TestMessages reads the packed rows by include/uapi/linux/ip_vs.h.
func TestMessages(t *testing.T) {
	p := packServers(28, makeRows(1, 1))
	sends := p.cut()
	server, destination := p.bytes[:p.starts[1]], p.bytes[p.starts[1]:]
	for command, m := range map[byte][]byte{newServer: server, newDestination: destination} {
		if native.Uint16(m[4:]) != 28 || m[unix.NLMSG_HDRLEN] != command {
			t.Errorf("family %d, command %d, want 28 and %d", native.Uint16(m[4:]), m[unix.NLMSG_HDRLEN], command)
		}
		f := attributes(attributes(m[unix.NLMSG_HDRLEN+4:])[1])
		if native.Uint16(f[1]) != unix.AF_INET || native.Uint16(f[2]) != unix.IPPROTO_TCP || !bytes.Equal(f[3][:4], []byte{10, 64, 0, 0}) || binary.BigEndian.Uint16(f[4]) != 80 {
			t.Errorf("the key of the server is %v", f)
		}
		if command == newServer && (string(f[6]) != "rr\x00" || len(f[7]) != 8 || native.Uint32(f[9]) != 0xffffffff) {
			t.Errorf("the server is %v", f)
		}
	}
	d := attributes(attributes(destination[unix.NLMSG_HDRLEN+4:])[2])
	if !bytes.Equal(d[1][:4], []byte{10, 128, 0, 0}) || binary.BigEndian.Uint16(d[2]) != 8080 || native.Uint32(d[3]) != 0 || native.Uint32(d[4]) != weight || native.Uint16(d[11]) != unix.AF_INET {
		t.Errorf("the destination is %v", d)
	}
	if len(sends) != 1 || sends[0].last != 2 {
		t.Errorf("sends are %v, want one of two messages", sends)
	}
}

func TestSends(t *testing.T) {
	for _, services := range []int{0, 1, 512, 513, 3000} {
		p := packServers(28, makeRows(services, 0))
		seq, size := uint32(0), 0
		for _, s := range p.cut() {
			size += len(s.bytes)
			messages := 0
			for b := s.bytes; len(b) > 0; b = b[native.Uint32(b):] {
				seq++
				messages++
				last := int(native.Uint32(b)) == len(b)
				if native.Uint32(b[seqAt:]) != seq || (native.Uint16(b[flagsAt:])&unix.NLM_F_ACK != 0) != last {
					t.Fatalf("%d Services: message %d has number %d, flags %#x", services, seq, native.Uint32(b[seqAt:]), native.Uint16(b[flagsAt:]))
				}
			}
			if s.last != seq || messages > maxMessages || len(s.bytes) > maxSend {
				t.Errorf("%d Services: a send of %d messages, %d bytes, whose last is %d, not %d", services, messages, len(s.bytes), s.last, seq)
			}
		}
		if int(seq) != services || size != len(p.bytes) {
			t.Errorf("%d Services: %d messages of %d bytes, want %d", services, seq, size, len(p.bytes))
		}
	}
}

// TestAnswers: answers are read to the last one, and broken ones are errors.
func TestAnswers(t *testing.T) {
	answer := func(seq uint32, errno unix.Errno) []byte {
		b := native.AppendUint32(nil, unix.NLMSG_HDRLEN+4)
		b = native.AppendUint16(b, unix.NLMSG_ERROR)
		b = native.AppendUint16(b, 0)
		b = native.AppendUint32(b, seq)
		b = native.AppendUint32(b, 0)
		return native.AppendUint32(b, uint32(-int32(errno)))
	}
	done, refused, err := answers(append(answer(3, unix.EEXIST), answer(9, 0)...), 9)
	if !done || !errors.Is(refused, unix.EEXIST) || err != nil {
		t.Errorf("done %t, refused %v, error %v", done, refused, err)
	}
	if done, _, err := answers(answer(3, unix.EINVAL), 9); done || err != nil {
		t.Errorf("one of several: done %t, error %v", done, err)
	}
	long, foreign := answer(9, 0), answer(9, 0)
	long[0], foreign[4] = 200, 20
	for name, b := range map[string][]byte{"longer than it is": long, "no answer": foreign} {
		if _, _, err := answers(b, 9); err == nil {
			t.Errorf("%s: no error", name)
		}
	}
}

func TestFlags(t *testing.T) {
	var out strings.Builder
	for _, args := range []string{"-services 0", "-services 100001", "-endpoints 81", "more"} {
		if err := run(t.Context(), strings.Fields(args), &out); err == nil {
			t.Errorf("%s is no error", args)
		}
	}
}
