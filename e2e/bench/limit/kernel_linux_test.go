package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"net/netip"
	"os"
	"strings"
	"testing"

	"github.com/moby/ipvs"
	"golang.org/x/sys/unix"
)

// inKernel writes rows in a namespace of the test's own, where program reads them back by the rooms' readers; then look may look as well.
func inKernel(t *testing.T, o options, all rows, look func() error) error {
	t.Helper()
	if os.Getuid() != 0 {
		t.Skip("skipped: no permission to make a network namespace")
	}
	return apart(func() error {
		_, err := program(t.Context(), o, all)
		if err == nil && look != nil {
			err = look()
		}
		return err
	})
}

func TestKernelHoldsEverySet(t *testing.T) {
	for _, perSend := range []int{1, 512} {
		o := options{tables: tableSets, perSend: perSend}
		all := rows{Sets: someSets()}
		if err := inKernel(t, o, all, nil); err != nil {
			t.Errorf("%d messages a send: %v", perSend, err)
		}
	}
}

func TestKernelHoldsManyEntries(t *testing.T) {
	if err := inKernel(t, options{tables: tableSets, perSend: 512}, makeRows(5000, 0), nil); err != nil {
		t.Error(err)
	}
}

// Addresses behave alike on a link of any type without carrier; not every kernel has dummy links.
func TestKernelHoldsAddresses(t *testing.T) {
	all := makeRows(2000, 0)
	all.Addresses = append(all.Addresses, netip.MustParseAddr("fd00:96::1"), netip.MustParseAddr("fd00:96::2"))
	for _, kind := range []string{"dummy", "veth"} {
		t.Run(kind, func(t *testing.T) {
			err := inKernel(t, options{tables: tableAddresses, kind: kind, perSend: 512}, all, nil)
			if errors.Is(err, unix.EOPNOTSUPP) {
				t.Skipf("skipped: %v", err)
			}
			if err != nil {
				t.Error(err)
			}
		})
	}
}

// What the rooms' reader and another library see is what was to be written.
func TestKernelHoldsServers(t *testing.T) {
	all := makeRows(200, 10)
	all.Servers = append(all.Servers, someServers()...)
	err := inKernel(t, options{tables: tableIPVS, perSend: 512}, all, func() error {
		h, err := ipvs.New("")
		if err != nil {
			return err
		}
		defer h.Close()
		found, err := h.GetServices()
		if err != nil {
			return err
		}
		if len(found) != len(all.Servers) {
			t.Errorf("the library sees %d servers, want %d", len(found), len(all.Servers))
		}
		for _, want := range someServers() {
			asked := &ipvs.Service{
				AddressFamily: uint16(familyOf(want.Key.Addr)), Protocol: uint16(want.Key.Protocol),
				Address: want.Key.Addr.AsSlice(), Port: want.Key.Port,
			}
			got, err := h.GetService(asked)
			if err != nil {
				return err
			}
			if got.SchedName != want.Server.Scheduler || got.Timeout != want.Server.Timeout {
				t.Errorf("%s: the library sees %+v", want.Key, got)
			}
			destinations, err := h.GetDestinations(asked)
			if err != nil {
				return err
			}
			if len(destinations) != len(want.Destinations) {
				t.Errorf("%s: the library sees %d destinations, want %d", want.Key, len(destinations), len(want.Destinations))
			}
		}
		return nil
	})
	if errors.Is(err, unix.ENOENT) {
		t.Skipf("skipped: this kernel has no IPVS: %v", err)
	}
	if err != nil {
		t.Error(err)
	}
}

// A row that the kernel refuses is an error with its reason, and does not stop the others.
func TestRefusalsAreErrors(t *testing.T) {
	all := rows{Sets: someSets()}
	all.Sets = append(all.Sets, all.Sets[0])
	err := inKernel(t, options{tables: tableSets, perSend: 512}, all, nil)
	if !errors.Is(err, unix.EEXIST) {
		t.Errorf("a set twice: error %v, want one that says it exists", err)
	}
}

// The whole program, on what every kernel has.
func TestProgram(t *testing.T) {
	if os.Getuid() != 0 {
		t.Skip("skipped: no permission to make a network namespace")
	}
	args := []string{"-services", "100", "-tables", "sets,addresses", "-kind", "veth", "-took", "10s"}
	var text, coded bytes.Buffer
	if err := run(t.Context(), args, &text); err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(text.String(), "1 sets with 100 entries, 100 addresses") || !strings.Contains(text.String(), "10 s is ") {
		t.Errorf("printed:\n%s", &text)
	}
	if err := run(t.Context(), append(args, "-json"), &coded); err != nil {
		t.Fatal(err)
	}
	var r report
	if err := json.Unmarshal(coded.Bytes(), &r); err != nil {
		t.Fatal(err)
	}
	if r.Sum.Rows != 201 || r.Sum.Wall <= 0 || r.Times <= 1 || len(r.Tables) != 2 || r.Sum.Sends != 2 {
		t.Errorf("%+v", r)
	}
}

func TestProgramEndsWithItsContext(t *testing.T) {
	if os.Getuid() != 0 {
		t.Skip("skipped: no permission to make a network namespace")
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := run(ctx, []string{"-services", "1", "-tables", "addresses", "-kind", "veth"}, &bytes.Buffer{}); !errors.Is(err, context.Canceled) {
		t.Errorf("error %v, want %v", err, context.Canceled)
	}
}

// Answers are read to the last one, whichever datagram it comes with, and broken ones are errors.
func TestAnswers(t *testing.T) {
	answer := func(seq uint32, errno unix.Errno) []byte {
		b := native.AppendUint32(nil, headerLen+4)
		b = native.AppendUint16(b, ackType)
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
	if done, refused, _ := answers(answer(9, unix.EINVAL), 9); !done || !errors.Is(refused, unix.EINVAL) {
		t.Errorf("the last was refused: done %t, %v", done, refused)
	}
	long := answer(9, 0)
	long[0] = 200
	foreign := answer(9, 0)
	foreign[4] = 20
	for name, b := range map[string][]byte{"longer than it is": long, "no answer": foreign} {
		if _, _, err := answers(b, 9); err == nil {
			t.Errorf("%s: no error", name)
		}
	}
}
