package run

import (
	"context"
	"net/netip"
	"time"

	"github.com/kube-ipvs/kube-ipvs/e2e/backend"
	"github.com/kube-ipvs/kube-ipvs/e2e/bench/measure"
	"github.com/kube-ipvs/kube-ipvs/e2e/bench/report"
	"github.com/kube-ipvs/kube-ipvs/e2e/bench/topology"
)

// Rounds through the Service and rounds to an endpoint alternate, so that a slow second of the machine meets both.
const (
	trafficRounds = 5
	trafficRound  = time.Second
)

// traffic asks through a Service and asks an endpoint itself, one request after the other: first each over a new connection, then all over one
// connection.
func (s *session) traffic(ctx context.Context) error {
	if _, _, err := s.process.Rest(ctx, longRest, s.Limit); err != nil {
		return err
	}
	service, direct := s.api.VIP(0), netip.AddrPortFrom(topology.Endpoint(0), topology.BackendPort)
	out := &report.Traffic{}
	err := s.network.Inside(func() (err error) {
		if out.Connections, err = compare(ctx, service, direct, s.connections); err != nil {
			return err
		}
		out.Requests, err = compare(ctx, service, direct, s.requests)
		return err
	})
	if err != nil {
		return err
	}
	s.result.Traffic = out
	for _, kind := range []struct {
		name string
		of   report.Paths
	}{{"new connections", out.Connections}, {"requests over one connection", out.Requests}} {
		s.log("%s: %.0f a second through a Service, %.0f without; p99 %.2f ms, %.2f ms", kind.name,
			kind.of.Service.Rate(), kind.of.Direct.Rate(), 1e3*kind.of.Service.P99, 1e3*kind.of.Direct.P99)
	}
	return nil
}

// asking asks one target until the time is over, and returns how long each request took.
type asking func(ctx context.Context, to netip.AddrPort, until time.Time) ([]measure.Wait, error)

// compare measures two targets in turns.
func compare(ctx context.Context, service, direct netip.AddrPort, ask asking) (report.Paths, error) {
	var took [2][]measure.Wait
	var length [2]time.Duration
	for range trafficRounds {
		for i, to := range []netip.AddrPort{service, direct} {
			began := time.Now()
			waits, err := ask(ctx, to, began.Add(trafficRound))
			if err != nil {
				return report.Paths{}, err
			}
			length[i] += time.Since(began)
			took[i] = append(took[i], waits...)
		}
	}
	path := func(i int) report.Path {
		all := measure.Summarize(took[i])
		return report.Path{Requests: len(took[i]), Length: measure.Took(length[i]), P99: all.Percentile(99).Seconds}
	}
	return report.Paths{Service: path(0), Direct: path(1)}, nil
}

// connections makes a connection for each request, and each from an address of its own.
func (s *session) connections(ctx context.Context, to netip.AddrPort, until time.Time) (waits []measure.Wait, err error) {
	for start := time.Now(); start.Before(until); {
		if _, err := s.network.Ask(ctx, to); err != nil {
			return nil, err
		}
		end := time.Now()
		waits = append(waits, measure.Since(start, end))
		start = end
	}
	return waits, nil
}

// requests makes one connection.
func (s *session) requests(ctx context.Context, to netip.AddrPort, until time.Time) (waits []measure.Wait, err error) {
	conn, err := backend.Dial(ctx, backend.TCP, to, s.network.Source())
	if err != nil {
		return nil, err
	}
	defer func() { _ = conn.Close() }() // all answers are there
	for start := time.Now(); start.Before(until); {
		if _, err := conn.Ask(ctx); err != nil {
			return nil, err
		}
		end := time.Now()
		waits = append(waits, measure.Since(start, end))
		start = end
	}
	return waits, nil
}
