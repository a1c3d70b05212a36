package packet

import (
	"context"
	"fmt"
	"net/netip"
	"strings"
	"sync"
	"testing"
	"time"
)

// Of the slow start: how long it takes, and how many connections are made each second.
const (
	climb     = 20 * time.Second
	climbPace = 100
)

// TestSlowStartFollowsTheRamp: a new backend beside three others gets few new connections at first,
// and its fair share at the end of its slow start. In between its share grows with its weight. Each
// connection is a datagram from a port of its own.
func TestSlowStartFollowsTheRamp(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	sinks := w.sinks(t, 4)
	s := service{
		name: "climbing", vip: pair{v4: "10.96.0.68"}, ports: sinkPorts(), annotations: annotations{"scheduler": "wrr", "slow-start": climb.String()},
	}
	for _, k := range sinks[:3] {
		s.backends = append(s.backends, k.endpoint)
	}
	n := newAgent(t, w.node, "--cluster-cidr", clusters)
	n.write(t, s)
	n.start(t)
	watch := w.node.watch(t)
	w.pod3.drizzle(t, netip.MustParseAddrPort(s.vip.v4+":80"), climbPace)
	poll(t, "each old backend to be met", settleTimeout, func() error {
		for _, k := range sinks[:3] {
			if len(k.arrivals()) < climbPace/4 {
				return fmt.Errorf("%s got %d datagrams", k.name, len(k.arrivals()))
			}
		}
		return nil
	})
	fresh := sinks[3]
	s.backends = append(s.backends, fresh.endpoint)
	n.write(t, s)
	key := serving{"UDP", netip.MustParseAddrPort(s.vip.v4 + ":80"), netip.MustParseAddrPort(hostPort(fresh.addr, sinkPort))}
	watch.until(t, "the new backend", func(rows map[serving]row) bool { _, there := rows[key]; return there })
	born := watch.turns(key)[0].at
	poll(t, "the slow start to be over for a while", settleTimeout, func() error {
		if left := climb + climb/4 - time.Since(born); left > 0 {
			return fmt.Errorf("%s are left", left)
		}
		return nil
	})
	plotShare(t, sinks, born)
	t.Logf("figure: weights of the new backend: %s", watch.weights(key))
	fair := 1 / float64(len(sinks))
	first, last := shareWithin(sinks, born, born.Add(climb/4)), shareWithin(sinks, born.Add(climb*3/4), born.Add(climb))
	t.Logf("figure: the new backend got %.1f%% of the first quarter, %.1f%% of the last, and %.1f%% after that; fair are %.1f%%",
		100*first, 100*last, 100*shareWithin(sinks, born.Add(climb), born.Add(climb+climb/4)), 100*fair)
	if first > fair/2 {
		t.Errorf("the new backend got %.1f%% of the first quarter, want less than half of %.1f%%", 100*first, 100*fair)
	}
	if last < 0.75*fair || last > 1.25*fair {
		t.Errorf("the new backend got %.1f%% of the last quarter, want about %.1f%%", 100*last, 100*fair)
	}
}

// shareWithin is which part of what came within a time came to the last of some sinks.
func shareWithin(sinks []*sink, from, to time.Time) float64 {
	all, mine := 0, 0
	for i, s := range sinks {
		for _, at := range s.arrivals() {
			if at.Before(from) || !at.Before(to) {
				continue
			}
			all++
			if i == len(sinks)-1 {
				mine++
			}
		}
	}
	return float64(mine) / float64(max(all, 1))
}

// plotShare logs the share of the last sink in each second from a moment on, beside that of a weight that grows evenly.
func plotShare(t *testing.T, sinks []*sink, from time.Time) {
	t.Helper()
	table := newTable("second", "share", "expected", "")
	for at := time.Duration(0); at < climb+climb/4; at += time.Second {
		share := shareWithin(sinks, from.Add(at), from.Add(at+time.Second))
		weight := min(1, (at+time.Second/2).Seconds()/climb.Seconds())
		expected := weight / (weight + float64(len(sinks)-1))
		table.row(at.Seconds(), fmt.Sprintf("%.1f%%", 100*share), fmt.Sprintf("%.1f%%", 100*expected), strings.Repeat("#", int(100*share+0.5)))
	}
	t.Logf("share of the new backend\n%s", table)
}

// drizzle scatters so many datagrams a second, each from a port of its own, until the test ends.
func (p *pod) drizzle(t *testing.T, to netip.AddrPort, pace int) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	var running sync.WaitGroup
	running.Go(func() {
		err := p.do(func() error { return drizzle(ctx, p.source(to.Addr().String()), to, pace) })
		if err != nil {
			t.Errorf("%s scatters datagrams: %v", p.name, err)
		}
	})
	t.Cleanup(func() { cancel(); running.Wait() })
}

func drizzle(ctx context.Context, source netip.Addr, to netip.AddrPort, pace int) error {
	tick := time.NewTicker(time.Second / time.Duration(pace))
	defer tick.Stop()
	const ports = 1<<16 - scatterPort
	for i := 0; ; i++ {
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
		}
		if err := datagram(netip.AddrPortFrom(source, uint16(scatterPort+i%ports)), to); err != nil {
			return err
		}
	}
}
