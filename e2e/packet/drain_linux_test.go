package packet

import (
	"context"
	"fmt"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/kube-ipvs/kube-ipvs/e2e/backend"
	"github.com/kube-ipvs/kube-ipvs/e2e/load"
)

// destination is a pod as a destination of a port 80 of a Service.
func destination(s service, proto backend.Proto, p *pod, family int) serving {
	return serving{
		strings.ToUpper(string(proto)), netip.MustParseAddrPort(hostPort(s.vip.of(family), 80)),
		netip.MustParseAddrPort(hostPort(p.addr.of(family), 8080)),
	}
}

// dead fails while a connection that was held open still answers.
func (h held) dead() error {
	ctx, cancel := context.WithTimeout(context.Background(), silence)
	defer cancel()
	if r, err := h.conn.Ask(ctx); err == nil {
		return fmt.Errorf("%s still answers", r.Name)
	}
	return nil
}

// holdAt holds a connection to a Service open at one of its pods.
func (p *pod) holdAt(t *testing.T, proto backend.Proto, addr string, at *pod) held {
	t.Helper()
	for range most {
		h := p.hold(t, proto, addr)
		if h.name == at.name {
			return h
		}
		h.conn.Close()
	}
	t.Fatalf("%d connections by %s to %s, none at %s", most, proto, addr, at.name)
	return held{}
}

// TestDrainSurvivesACrash kills the agent in the middle of a drain. The next one finds the
// destination and continues to drain it, with connections of TCP and SCTP that live until its time
// is over. UDP, which has none, left at once.
func TestDrainSurvivesACrash(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	web := w.web(t)
	n := newAgent(t, w.node, "--cluster-cidr", clusters, "--drain", "10s")
	n.write(t, web)
	n.start(t)
	watch := w.node.watch(t)
	var leaving, staying []held
	for _, family := range families {
		for _, proto := range []backend.Proto{backend.TCP, backend.SCTP} {
			leaving = append(leaving, w.visitor.holdAt(t, proto, web.vip.of(family), w.pod1))
			staying = append(staying, w.visitor.holdAt(t, proto, web.vip.of(family), w.pod2))
		}
	}
	web.backends = endpoints(w.pod2, w.remote1)
	n.write(t, web)
	each := func(weight string, protos ...backend.Proto) {
		t.Helper()
		for _, proto := range protos {
			for _, family := range families {
				watch.wait(t, destination(web, proto, w.pod1, family), weight)
			}
		}
	}
	each("0", backend.TCP, backend.SCTP)
	each(gone, backend.UDP)
	n.kill(t)
	n.start(t)
	again := time.Now()
	each("0", backend.TCP, backend.SCTP)
	for _, h := range leaving {
		h.ask(t)
	}
	each(gone, backend.TCP, backend.SCTP)
	t.Logf("figure: a drain of 10s was over %s after the start of the next agent", time.Since(again).Round(100*time.Millisecond))
	for _, h := range leaving {
		if err := h.dead(); err != nil {
			t.Errorf("a connection after its deadline: %v", err)
		}
	}
	for _, h := range staying {
		h.ask(t)
	}
	for _, proto := range protos {
		for _, family := range families {
			want := "1 0 gone"
			if proto == backend.UDP {
				want = "1 gone"
			}
			if got := watch.weights(destination(web, proto, w.pod1, family)); got != want {
				t.Errorf("%s, IPv%d: weights %s, want %s", proto, family, got, want)
			}
		}
	}
}

// TestDrainEnds: a Service with a drain time of 0 is cut at once. One with a drain time of an hour
// keeps its destination only as long as there is a connection.
func TestDrainEnds(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	web := w.web(t)
	n := newAgent(t, w.node, "--cluster-cidr", clusters)
	cut, patient := web, web
	cut.name, cut.annotations = "cut", annotations{"drain": "0s"}
	patient.name, patient.annotations, patient.vip = "patient", annotations{"drain": "1h"}, pair{"10.96.0.85", "fd00:96::85"}
	n.write(t, cut, patient)
	n.start(t)
	watch := w.node.watch(t)
	short := w.visitor.holdAt(t, backend.TCP, cut.vip.v4, w.pod1)
	long := w.visitor.load(t, load.Profile{ // one at each of three backends
		To: netip.MustParseAddrPort(hostPort(patient.vip.v4, 80)), Sources: []netip.Addr{w.visitor.source(patient.vip.v4)},
		Long: 3, Every: time.Second, Reset: true,
	})
	until(t, long, "connections held open", func(r load.Report) bool { return r.Long.Alive == 3 })
	cut.backends, patient.backends = endpoints(w.pod2), endpoints(w.pod2)
	n.write(t, cut, patient)
	watch.wait(t, destination(cut, backend.TCP, w.pod1, 4), gone)
	if got := watch.weights(destination(cut, backend.TCP, w.pod1, 4)); got != "1 gone" {
		t.Errorf("cut: weights %s, want 1 gone", got)
	}
	if err := short.dead(); err != nil {
		t.Errorf("cut: %v", err)
	}
	busy := destination(patient, backend.TCP, w.pod1, 4)
	watch.wait(t, busy, "0")
	// The other family has no connection: its destination goes, and shows that the agent has looked.
	watch.wait(t, destination(patient, backend.TCP, w.pod1, 6), gone)
	if err := watch.is(busy, "0"); err != nil {
		t.Errorf("with a connection: %v", err)
	}
	if got, err := long.Stop(); err != nil || got.Long.Alive != 3 {
		t.Errorf("while draining: %v\n%s", err, report(got))
	}
	start := time.Now() // IPVS keeps a connection that was reset for 10 s
	watch.wait(t, busy, gone)
	t.Logf("figure: gone %s after its last connection had ended", time.Since(start).Round(100*time.Millisecond))
}
