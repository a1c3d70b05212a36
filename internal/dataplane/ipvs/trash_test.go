package ipvs_test

import (
	"net/netip"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/kube-ipvs/kube-ipvs/internal/dataplane"
	"github.com/kube-ipvs/kube-ipvs/internal/dataplane/ipvs"
	"github.com/kube-ipvs/kube-ipvs/internal/kernel/vserver"
	"github.com/kube-ipvs/kube-ipvs/internal/model"
)

const (
	rollout = 5000 // destinations that leave at once
	full    = 2048 // deleted ones beyond which those that have drained wait
)

// rolled is a Service with so many backends, whose connections go on for half a minute.
func rolled(n int) model.ServicePlan {
	return with(sized(n, "rr"), func(f *model.Frontend) { f.Drain = 30 * time.Second })
}

// udp is another Service, one over UDP.
func udp(backends ...string) model.ServicePlan {
	return with(service("dns", "10.96.0.53", backends...), func(f *model.Frontend) { f.Key.Protocol, f.Drain = model.UDP, 30*time.Second })
}

func inTrash(m *ipvs.Mode) int { return m.Drains().Trash.Len(time.Now()) }

func wantTrash(t *testing.T, m *ipvs.Mode, when string, want int) {
	t.Helper()
	if got := inTrash(m); got != want {
		t.Errorf("%s: %d destinations in the trash, want %d", when, got, want)
	}
}

// A destination that leaves, for any reason, is in the trash for four minutes; one that was missing
// or could not be deleted is not.
func TestTrashIsCounted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		k := newKernel()
		m := begin(t, k, draining(first, second, third), udp(first, second))
		apply(t, m)
		wantTrash(t, m, "at first", 0)
		m.Set(udp(first))
		apply(t, m)
		wantTrash(t, m, "one of UDP cut", 1)
		m.Set(draining(first, second))
		apply(t, m)
		wantTrash(t, m, "one draining", 1)
		wait(t, m, 6*time.Second)
		wantTrash(t, m, "drained", 2)
		time.Sleep(100 * time.Second)
		m.Set(gone("web"))
		k.servers.FailRow(webServer, errPlanned)
		m.Apply(t.Context(), dataplane.ApplyOptions{})
		wantTrash(t, m, "a server that could not be deleted", 2)
		k.servers.Heal()
		apply(t, m)
		wantTrash(t, m, "a server deleted with two", 4)
		time.Sleep(141 * time.Second)
		wantTrash(t, m, "what went first is free", 2)
		time.Sleep(99 * time.Second)
		wantTrash(t, m, "all is free", 0)
	})
}

// A rollout of thousands that have no connections does not put all of them into the trash
// at once, is over in a bounded time, and costs few looks.
func TestDrainedWaitForRoomInTheTrash(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		k := newKernel()
		m := begin(t, k, rolled(rollout))
		apply(t, m)
		m.Set(rolled(1))
		apply(t, m)
		wait(t, m, 6*time.Second)
		if left := len(k.weights(t)); left != rollout-full {
			t.Errorf("%d are left at first, want %d", left, rollout-full)
		}
		begun, looks, last := time.Now(), len(k.calls), len(k.weights(t))
		for time.Since(begun) < 230*time.Second {
			wait(t, m, 10*time.Second)
			now := len(k.weights(t))
			if went := last - now; went > 2*64 || went == 0 {
				t.Errorf("%s later: %d went at once", time.Since(begun), went)
			}
			last = now
		}
		for _, w := range k.weights(t) {
			if w > 1 {
				t.Fatalf("weight %d", w)
			}
		}
		if n := inTrash(m); n > full+25*64 {
			t.Errorf("%d in the trash", n)
		}
		looks = strings.Count(strings.Join(k.calls[looks:], "\n"), "count connections")
		if looks > 26 {
			t.Errorf("%d looks in four minutes", looks)
		}
		wait(t, m, 30*time.Second)
		wantWeights(t, k, "in the end", map[string]uint16{"10.244.1.1:8080": 1})
		wantEnds(t, m, map[dataplane.DrainEnd]uint64{dataplane.DrainEmpty: rollout - 1})
	})
}

// TestKeptEndpointsDoNotWaitForTheTrashForEver checks that drained destinations without a deadline leave once they have waited
// for four minutes, whether there is room for them by then or not.
func TestKeptEndpointsDoNotWaitForTheTrashForEver(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		k := newKernel()
		all := rolled(rollout)
		m := begin(t, k, all)
		apply(t, m)
		m.Set(with(rolled(1), func(f *model.Frontend) {
			for _, b := range all.Frontends[0].Backends[1:] {
				f.Kept = append(f.Kept, b.Addr)
			}
			slices.SortFunc(f.Kept, netip.AddrPort.Compare)
		}))
		apply(t, m)
		wait(t, m, 200*time.Second)
		if left := len(k.weights(t)); left < 1000 {
			t.Errorf("%d are left while the trash is full, want 1000 or more", left)
		}
		wait(t, m, 70*time.Second)
		if left := len(k.weights(t)); left != 1 {
			t.Errorf("%d are left in the end, want the backend", left)
		}
	})
}

// crowded is a mode with a full trash, some hundreds of drained destinations that wait, and
// two more Services.
func crowded(t *testing.T) (*kernel, *ipvs.Mode) {
	t.Helper()
	k := newKernel()
	other := with(service("other", "10.96.0.77", first, second), func(f *model.Frontend) { f.Drain = 30 * time.Second })
	m := begin(t, k, rolled(full+500), udp(first, second), other)
	apply(t, m)
	m.Set(rolled(1))
	apply(t, m)
	wait(t, m, 6*time.Second)
	if len(k.weights(t)) < 300 {
		t.Fatalf("%d destinations: nothing waits", len(k.weights(t)))
	}
	return k, m
}

func TestWhatDoesNotWaitForTheTrash(t *testing.T) {
	leaves := func(t *testing.T, k *kernel, text string) {
		t.Helper()
		if strings.Contains(k.servers.String(), text) {
			t.Errorf("still there: %s", text)
		}
	}
	t.Run("a destination of UDP", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			k, m := crowded(t)
			m.Set(udp(first))
			apply(t, m)
			leaves(t, k, "10.96.0.53:80 -r "+second)
		})
	})
	t.Run("a server and what drains there", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			k, m := crowded(t)
			m.Set(gone("web"))
			apply(t, m)
			leaves(t, k, vip)
		})
	})
	t.Run("connections whose time is over", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			k, m := crowded(t)
			key := vserver.ServerKey{Addr: netip.MustParseAddr("10.96.0.77"), Port: 80, Protocol: vserver.ProtocolTCP}
			to := netip.MustParseAddrPort(second)
			k.servers.SetConnections(vserver.DestinationKey{Server: key, Addr: to.Addr(), Port: to.Port()}, vserver.Connections{Active: 1})
			m.Set(with(service("other", "10.96.0.77", first), func(f *model.Frontend) { f.Drain = 30 * time.Second }))
			apply(t, m)
			wait(t, m, 31*time.Second)
			leaves(t, k, "10.96.0.77:80 -r "+second)
		})
	})
	t.Run("a few", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			k, m := crowded(t)
			wait(t, m, 200*time.Second) // all that waited is gone, and the trash is full
			if inTrash(m) < full {
				t.Fatalf("%d in the trash", inTrash(m))
			}
			m.Set(with(service("other", "10.96.0.77", first), func(f *model.Frontend) { f.Drain = 30 * time.Second }))
			apply(t, m)
			wait(t, m, 6*time.Second)
			leaves(t, k, "10.96.0.77:80 -r "+second)
		})
	})
}

// An endpoint that comes back while it waits costs no addition.
func TestBackFromWaiting(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		k, m := crowded(t)
		waiting := len(k.weights(t)) - 1
		m.Set(rolled(full + 500))
		r := apply(t, m)
		for _, s := range r.Stages {
			if s.Stage == "destinations" && s.Updates != waiting {
				t.Errorf("%d destinations updated, %d had waited", s.Updates, waiting)
			}
		}
		if got := m.Drains(); got.Now != 0 || got.Ended[dataplane.DrainBack] != uint64(waiting) {
			t.Errorf("%d drain, %d are back; %d had waited", got.Now, got.Ended[dataplane.DrainBack], waiting)
		}
	})
}

// connect gives one that waits a connection.
func connect(t *testing.T, k *kernel) (waiting string) {
	for to, w := range k.weights(t) {
		if w == 0 {
			waiting = to
		}
	}
	k.busy(waiting)
	return waiting
}

// A connection to a waiting destination, whose weight another program raised, gets its time as any
// other.
func TestConnectionOfOneThatWaits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		k, m := crowded(t)
		waiting := connect(t, k)
		wait(t, m, 12*time.Second)
		if _, there := k.weights(t)[waiting]; !there {
			t.Fatal("cut while it waited")
		}
		wait(t, m, 30*time.Second)
		if _, there := k.weights(t)[waiting]; there {
			t.Error("still there after its time")
		}
	})
}

// One that comes when the time is over has none left.
func TestLateConnectionOfOneThatWaits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		k, m := crowded(t)
		wait(t, m, time.Minute)
		waiting := connect(t, k)
		wait(t, m, 12*time.Second)
		if _, there := k.weights(t)[waiting]; there {
			t.Error("still there after its time")
		}
	})
}

// When connections cannot be counted any more, what waits goes in the end all the same.
func TestWaitingEndsWithoutCounts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		k, m := crowded(t)
		k.refuse = "count connections"
		wait(t, m, 5*time.Minute)
		wantWeights(t, k, "in the end", map[string]uint16{"10.244.1.1:8080": 1})
	})
}
