package vserver_test

import (
	"errors"
	"io/fs"
	"math"
	"net/netip"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/kube-ipvs/kube-ipvs/internal/kernel/vserver"
)

var addresses = cmpopts.EquateComparable(netip.Addr{}, netip.AddrPort{})

// Counters are read in 64 bits where there are so many, and else in what there is.
func TestTrafficOfWideAndOldKernels(t *testing.T) {
	key := serverKey("10.96.0.1:80", vserver.ProtocolTCP)
	dk := destinationKey(key, "10.0.0.1:8080")
	carried := vserver.Traffic{Connections: 1 << 40, PacketsIn: 1<<32 + 1, PacketsOut: 1<<33 + 2, BytesIn: math.MaxUint64, BytesOut: 1 << 50}
	narrow := vserver.Traffic{PacketsIn: 1, PacketsOut: 2, BytesIn: math.MaxUint64, BytesOut: 1 << 50}
	server := serverRow(key, vserver.Server{Scheduler: "wlc"}, carried)[4:]
	dest := destinationRow(dk, vserver.Destination{Weight: 7}, vserver.Connections{Active: 2, Inactive: 3}, carried)
	for name, tt := range map[string]struct {
		cut  int // bytes of the wide statistics
		want vserver.Traffic
	}{"recent": {0, carried}, "before Linux 4.1": {len(wideStats(carried)), narrow}} {
		t.Run(name, func(t *testing.T) {
			gotKey, s, mine, err := vserver.DecodeServerTraffic(shortened(server, tt.cut))
			if err != nil || !mine || gotKey != key || s != (vserver.ServerTraffic{Scheduler: "wlc", Traffic: tt.want}) {
				t.Errorf("server %v %+v, mine %v, error %v; want %+v", gotKey, s, mine, err, tt.want)
			}
			gotDest, d, err := vserver.DecodeDestinationTraffic(key, shortened(dest, tt.cut))
			want := vserver.DestinationTraffic{Weight: 7, Connections: vserver.Connections{Active: 2, Inactive: 3}, Carried: tt.want}
			if err != nil || gotDest != dk || d != want {
				t.Errorf("destination %v %+v, error %v; want %+v", gotDest, d, err, want)
			}
		})
	}
	if _, _, _, err := vserver.DecodeServerTraffic(shortened(server, len(wideStats(carried))+len(narrowStats(carried)))); err == nil {
		t.Error("a row without statistics is read as one that carried nothing")
	}
}

// shortened takes bytes off the end of a nest.
func shortened(nest []byte, bytes int) []byte {
	value := nest[4 : len(nest)-bytes]
	return attr(uint16(nest[2]), value)
}

func TestTrafficOfFirewallMarksIsForeign(t *testing.T) {
	p := newPeer()
	h := open(t, p, vserver.Options{})
	defer h.Close()
	p.marks = []uint32{7}
	if errs := h.WriteServers(ctx, servers(vserver.Add, 3)); errs != nil {
		t.Fatal(errs)
	}
	got, err := h.ListTraffic(ctx)
	if err != nil || len(got) != 3 {
		t.Errorf("%d servers, error %v, want 3", len(got), err)
	}
	if n := h.Counters().Dumps; n != 1 {
		t.Errorf("%d dumps, want 1", n)
	}
}

// The kernel's own text, and every way in which a buffer may cut it.
func TestLoadsOfTheKernelsText(t *testing.T) {
	web, mail := serverKey("10.96.0.1:443", vserver.ProtocolTCP), serverKey("10.96.0.2:25", vserver.ProtocolTCP)
	text := listHead +
		"TCP  0A600001:01BB wlc persistent 10800 FFFFFFFF\n" +
		"  -> 0A000001:1F90      Masq    1      7          12        \n" +
		"  -> 0A000002:1F90      Masq    0      9          -1        \n" +
		"FWM  00000007 rr \n" +
		"  -> 0A000003:1F90      Masq    1      70         120       \n" +
		"TCP  0A600002:0019 rr \n" +
		"TCP  0A600001:01BB wlc persistent 10800 FFFFFFFF\n" + // once more, and quieter
		"  -> 0A000001:1F90      Masq    1      1          1         \n"
	want := map[vserver.ServerKey]vserver.Load{
		web:  {Destinations: 2, Active: 16, Inactive: 12, MostActive: 9, Quiet: []netip.AddrPort{netip.MustParseAddrPort("10.0.0.2:8080")}},
		mail: {},
	}
	for _, size := range []int{80, 97, 200, 64 << 10} {
		got, err := vserver.ReadLoads(strings.NewReader(text), size)
		if diff := cmp.Diff(want, got, addresses); err != nil || diff != "" {
			t.Errorf("with a buffer of %d: error %v (-want +got):\n%s", size, err, diff)
		}
	}
	if _, err := vserver.ReadLoads(strings.NewReader(text[:len(text)-9]), 200); err == nil {
		t.Error("half a line is read as a whole one")
	}
}

func TestLoadsThatNobodyMayRead(t *testing.T) {
	p := newPeer()
	h := open(t, p, vserver.Options{})
	defer h.Close()
	p.family = 0
	if _, err := h.ListLoads(ctx); !errors.Is(err, vserver.ErrUnsupported) || !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("error %v, want %v", err, vserver.ErrUnsupported)
	}
}

// A dump in which rows moved is read again, and one that never holds still is an error.
func TestTrafficIsReadWholeOrNotAtAll(t *testing.T) {
	p := newPeer()
	h := open(t, p, vserver.Options{DumpAttempts: 2})
	defer h.Close()
	if errs := h.WriteServers(ctx, servers(vserver.Add, 3)); errs != nil {
		t.Fatal(errs)
	}
	p.twice = func(dump int) bool { return dump == 1 }
	if got, err := h.ListTraffic(ctx); err != nil || len(got) != 3 {
		t.Errorf("%d servers, error %v", len(got), err)
	}
	p.interrupt = func(int) bool { return true }
	if _, err := h.ListTraffic(ctx); !errors.Is(err, vserver.ErrInterrupted) {
		t.Errorf("error %v, want %v", err, vserver.ErrInterrupted)
	}
}
