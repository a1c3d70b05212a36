package conntrack_test

import (
	"context"
	"net/netip"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/zap"

	"github.com/kube-ipvs/kube-ipvs/internal/kernel/conntrack"
)

// slowTable takes its time for the first sweep, and looks at flows after that.
type slowTable struct {
	begun, goOn chan struct{}
	answers     netip.AddrPort
	stale       []bool
}

func (s *slowTable) Sweep(_ context.Context, orders []conntrack.Order) (conntrack.Outcome, error) {
	if s.begun != nil {
		close(s.begun)
		s.begun = nil
		<-s.goOn
	}
	for _, o := range orders {
		s.stale = append(s.stale, o.Stale(netip.Addr{}, s.answers))
	}
	return conntrack.Outcome{}, nil
}

// A sweep that takes seconds meets flows to an endpoint that came after its order, and a
// newer order requires it.
func TestAnOutdatedOrderDeletesNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		begun, before, now := make(chan struct{}), netip.MustParseAddrPort("10.0.0.1:53"), netip.MustParseAddrPort("10.0.0.2:53")
		table := &slowTable{begun: begun, goOn: make(chan struct{}), answers: now}
		s := conntrack.NewSweeper(zap.NewNop(), table, conntrack.SweeperOptions{})
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error)
		go func() { done <- s.Run(ctx) }()
		key := conntrack.Key{Addr: netip.MustParseAddr("10.96.0.10"), Port: 53, Protocol: conntrack.ProtocolUDP}
		s.Order(conntrack.Order{Key: key, Keep: []netip.AddrPort{before}})
		<-begun
		s.Order(conntrack.Order{Key: key, Keep: []netip.AddrPort{now}})
		close(table.goOn)
		for s.Stats().Waiting > 0 {
			time.Sleep(time.Millisecond) // on the clock of the bubble
		}
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
		if len(table.stale) != 2 || table.stale[0] || table.stale[1] {
			t.Errorf("stale: %v, want two looks at a flow that goes on", table.stale)
		}
	})
}
