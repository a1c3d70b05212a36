package destinations

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"net/netip"
	"testing"
	"time"

	"github.com/kube-ipvs/kube-ipvs/internal/dataplane"
	"github.com/kube-ipvs/kube-ipvs/internal/kernel/vserver"
)

func drained(i int) vserver.DestinationKey {
	return vserver.DestinationKey{
		Server: vserver.ServerKey{Addr: netip.AddrFrom4([4]byte{10, 96, 0, byte(i % 7)}), Port: 80, Protocol: 6},
		Addr:   netip.AddrFrom4([4]byte{10, 244, byte(i >> 8), byte(i)}), Port: 8080,
	}
}

// For any sequence of drains, the expired ones are those that a walk over all drains finds, each
// once, and the memory for deadlines stays bounded.
func TestEndsAreThoseOfAWalk(t *testing.T) {
	for seed := range uint64(20) {
		random := rand.New(rand.NewPCG(seed, 1))
		d, now := newDrains(), time.Now()
		for step := range 2000 {
			k := drained(random.IntN(40))
			one, there := d.get(k)
			switch op := random.IntN(6); {
			case op < 2: // begins, or has another limit
				one.limit = time.Duration(random.IntN(30)) * time.Second
				if one.stopped.IsZero() {
					one.stopped = now
				}
				d.set(k, one, now)
			case op == 2 && there: // its endpoint is ready again
				one.stopped = time.Time{}
				d.set(k, one, now)
			case op == 3 && there:
				d.judge(k, vserver.Connections{Active: uint32(random.IntN(2)), Inactive: uint32(random.IntN(2))}, now)
			case op == 4:
				d.end(k, dataplane.DrainServiceDeleted)
			default:
				now = now.Add(time.Duration(random.IntN(4000)) * time.Millisecond)
			}
			want := map[vserver.DestinationKey]dataplane.DrainEnd{}
			for k, one := range d.all() {
				if end, limited := one.end(); limited && !now.Before(end) {
					want[k] = map[bool]dataplane.DrainEnd{true: dataplane.DrainEmpty, false: dataplane.DrainDeadline}[one.noActive]
				}
			}
			got := map[vserver.DestinationKey]dataplane.DrainEnd{}
			for more := true; more; more = d.over(now) { // 32 at a time
				some := map[vserver.DestinationKey]dataplane.DrainEnd{}
				d.overdue(now, some, maxExpiriesPerPass)
				for k, how := range some {
					d.end(k, how)
					got[k] = how
				}
			}
			if !maps.Equal(want, got) {
				t.Fatalf("seed %d, step %d: ended %v, want %v", seed, step, got, want)
			}
			if len(d.deadlines) > fewDeadlines+2*d.count+1 {
				t.Fatalf("seed %d, step %d: %d ends of %d drains", seed, step, len(d.deadlines), d.count)
			}
		}
	}
}

// BenchmarkEndDrain ends one drain beside others, which are not looked at.
func BenchmarkEndDrain(b *testing.B) {
	for _, n := range []int{100, 10_000} {
		b.Run(fmt.Sprintf("draining=%d", n), func(b *testing.B) {
			d, now := newDrains(), time.Now()
			for i := range n {
				d.set(drained(i), drain{stopped: now, limit: time.Hour}, now)
			}
			one := drained(n)
			b.ReportAllocs()
			for b.Loop() {
				d.set(one, drain{stopped: now}, now)
				ended := map[vserver.DestinationKey]dataplane.DrainEnd{}
				if d.overdue(now, ended, maxExpiriesPerPass); len(ended) != 1 {
					b.Fatalf("%d ended", len(ended))
				}
				d.end(one, ended[one])
			}
		})
	}
}

// Draining destinations let passes with changes go first, but only for a limited time.
func TestChangesGoFirst(t *testing.T) {
	d, now := newDrains(), time.Now()
	want := func(what string, changed, may bool) {
		t.Helper()
		if d.mayEnd(changed, now) != may {
			t.Errorf("%s: may end %t, want %t", what, !may, may)
		}
	}
	want("nothing drains", true, true)
	d.set(drained(1), drain{stopped: now, limit: time.Second}, now)
	want("nothing to do yet", true, true)
	now = now.Add(10 * time.Second)
	want("a change, and a drain that is over", true, false)
	now = now.Add(maxDeferral - 1)
	want("changes all the time", true, false)
	want("a pass without one", false, true)
	want("a change after it", true, false)
	now = now.Add(maxDeferral)
	want("changes for too long", true, true)
	want("the next change", true, false)
}
