package cli

import (
	"bytes"
	"context"
	"errors"
	"net/netip"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/kube-ipvs/kube-ipvs/internal/kernel/capture"
	"github.com/kube-ipvs/kube-ipvs/internal/testkit/golden"
	"github.com/kube-ipvs/kube-ipvs/internal/trace"
)

func TestTraceMistakes(t *testing.T) {
	for _, tt := range []struct {
		args []string
		want string
	}{
		{nil, "accepts 1 arg"},
		{[]string{"web"}, `"web" is not an address and a port`},
		{[]string{"10.96.0.10"}, "is not an address and a port"},
		{[]string{"10.96.0.10:0"}, "is not an address and a port"},
		{[]string{"[::ffff:10.96.0.10]:53"}, "is not an address and a port"},
		{[]string{"10.96.0.10:53/icmp"}, `protocol "icmp" is not one of tcp, udp, sctp`},
		{[]string{"10.96.0.10:53", "--from=fd00::1"}, "--from: "},
		{[]string{"10.96.0.10:53", "--from=pod"}, "--from: "},
		{[]string{"10.96.0.10:53", "--for=61s"}, "--for: 1m1s is not between"},
		{[]string{"10.96.0.10:53", "--packets=10001"}, "--packets: 10001"},
		{[]string{"10.96.0.10:53", "--packets=0"}, "--packets: 0"},
		{[]string{"10.96.0.10:53", "-o", "yaml"}, `--output: "yaml"`},
	} {
		if _, err := try(append([]string{"trace"}, tt.args...)...); err == nil || !strings.Contains(err.Error(), tt.want) {
			t.Errorf("%v: %v, want %q", tt.args, err, tt.want)
		}
	}
}

func TestTraceTarget(t *testing.T) {
	o := traceOptions{duration: time.Second, packets: 1, output: "text"}
	for text, want := range map[string]string{"10.96.0.10:53": "10.96.0.10:53/tcp", "10.96.0.10:53/UDP": "10.96.0.10:53/udp", "[fd00::a]:38412/sctp": "[fd00::a]:38412/sctp"} {
		got, err := o.target(text)
		if err != nil || tracedServer(got).String() != want {
			t.Errorf("%s: %s, %v; want %s", text, tracedServer(got), err, want)
		}
	}
}

// tape plays packets, and then nothing comes any more.
type tape struct{ packets []capture.Packet }

func (p *tape) Next(ctx context.Context) (capture.Packet, error) {
	if len(p.packets) == 0 {
		<-ctx.Done()
		return capture.Packet{}, ctx.Err()
	}
	next := p.packets[0]
	p.packets = p.packets[1:]
	return next, nil
}

func (p *tape) Queued() (next capture.Packet, ok bool, err error) {
	if len(p.packets) == 0 {
		return next, false, nil
	}
	next, err = p.Next(context.Background())
	return next, true, err
}

func (p *tape) Stats() (capture.Stats, error) { return capture.Stats{Passed: 9, Lost: 2}, nil }

const traced, tracedBackend, tracedClient, tracedPeer = "10.96.0.20:80", "10.244.1.5:8080", "203.0.113.5:40000", "10.0.0.1:61000"

func tracePackets() []capture.Packet {
	p := func(link string, d capture.Direction, src, dst string) capture.Packet {
		return capture.Packet{Link: link, Direction: d, Protocol: capture.TCP, Src: netip.MustParseAddrPort(src), Dst: netip.MustParseAddrPort(dst)}
	}
	return []capture.Packet{
		p("eth0", capture.In, tracedClient, traced), p("veth3", capture.Out, tracedPeer, tracedBackend),
		p("eth0", capture.In, "203.0.113.6:1", traced), p("eth0", capture.In, "203.0.113.6:1", "203.0.113.7:1"),
	}
}

func traceTarget() trace.Target {
	return trace.Target{VIP: netip.MustParseAddrPort(traced), Protocol: capture.TCP, Backends: []netip.AddrPort{netip.MustParseAddrPort(tracedBackend)}, Serving: 1}
}

// knownFlows has the flows of one client, and of another whose endpoint was not observed.
type knownFlows struct{}

func (knownFlows) origin(_ context.Context, a trace.Answer) (client, dialled netip.AddrPort, ok bool) {
	return netip.MustParseAddrPort(tracedClient), netip.MustParseAddrPort(traced), a.Peer == netip.MustParseAddrPort(tracedPeer)
}

func (knownFlows) answers(_ context.Context, client netip.AddrPort) (trace.Answer, bool) {
	return trace.Answer{Backend: netip.MustParseAddrPort("10.244.3.3:8080"), Peer: client}, client.Port() == 1
}

// watchTape is what a person gets of the tape.
func watchTape(t *testing.T, o traceOptions) traceReport {
	t.Helper()
	var r traceReport
	synctest.Test(t, func(t *testing.T) { // o.duration is a time of the bubble's clock
		var err error
		if r, err = watch(t.Context(), &tape{tracePackets()}, knownFlows{}, traceTarget(), o); err != nil {
			t.Fatal(err)
		}
	})
	if r.took > o.duration {
		t.Errorf("it took %s, want at most %s", r.took, o.duration)
	}
	r.took, r.served, r.carrier = 1500*time.Millisecond, true, "ipvs"
	for i := range r.connections {
		for j := range r.connections[i].Stations {
			r.connections[i].Stations[j].At = 0
		}
	}
	return r
}

func TestTraceText(t *testing.T) {
	var b bytes.Buffer
	// A connection without further packets is not reported as broken within the first second.
	if err := writeTrace(&b, "text", watchTape(t, traceOptions{duration: 1100 * time.Millisecond, packets: 100})); err != nil {
		t.Fatal(err)
	}
	golden.Check(t, "trace.txt", b.String()) // the page of troubleshooting shows it
}

func TestTraceForPrograms(t *testing.T) {
	for _, r := range []traceReport{watchTape(t, traceOptions{duration: 50 * time.Millisecond, packets: 100}), {target: traceTarget()}} {
		var b bytes.Buffer
		if err := writeTrace(&b, "json", r); err != nil {
			t.Fatal(err)
		}
		fits(t, "trace", b.String())
	}
}

// It ends with the last packet that was asked for.
func TestTraceIsBounded(t *testing.T) {
	r := watchTape(t, traceOptions{duration: time.Hour, packets: 2})
	if r.packets != 2 || len(r.connections) != 1 {
		t.Errorf("%d packets of %d connections, want 2 of 1", r.packets, len(r.connections))
	}
}

// More endpoints than a filter holds are no secret.
func TestTraceOfManyEndpoints(t *testing.T) {
	many := make([]netip.AddrPort, 500)
	for i := range many {
		many[i] = netip.AddrPortFrom(netip.AddrFrom4([4]byte{10, 244, byte(i >> 8), byte(i)}), 80)
	}
	f := capture.Filter{Protocol: capture.TCP, Endpoints: append([]netip.AddrPort{netip.MustParseAddrPort(traced)}, watched(many)...)}
	if err := f.Check(); err != nil || len(f.Endpoints) != capture.MostEndpoints {
		t.Errorf("%d endpoints, %v", len(f.Endpoints), err)
	}
	var b bytes.Buffer
	if err := writeTrace(&b, "text", traceReport{target: traceTarget(), served: true, carrier: "ipvs", unwatched: 405}); err != nil || !strings.Contains(b.String(), "405 endpoints are not watched") {
		t.Errorf("%v, text\n%s", err, &b)
	}
}

// A trace that is stopped early prints the packets seen so far.
func TestTraceEndedEarly(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	r, err := watch(ctx, &tape{}, conntrackLookup{}, traceTarget(), traceOptions{duration: time.Hour, packets: 2})
	if err != nil || r.lost != 2 {
		t.Errorf("%+v, %v", r, err)
	}
	if r, err := watch(ctx, &tape{tracePackets()}, conntrackLookup{}, traceTarget(), traceOptions{duration: time.Hour, packets: 2}); err != nil || r.packets != 2 {
		t.Errorf("%d packets, %v; want the 2 that had come", r.packets, err)
	}
	broken := errors.New("broken")
	if _, err := watch(t.Context(), failing{broken}, conntrackLookup{}, traceTarget(), traceOptions{duration: time.Hour, packets: 2}); !errors.Is(err, broken) {
		t.Errorf("error %v, want %v", err, broken)
	}
	var b bytes.Buffer
	if err := writeTrace(&b, "text", r); err != nil || !strings.Contains(b.String(), "no known Service has this address") || !strings.Contains(b.String(), "no packets were seen") {
		t.Errorf("%v, text\n%s", err, &b)
	}
}

type failing struct{ err error }

func (f failing) Next(context.Context) (capture.Packet, error) { return capture.Packet{}, f.err }
func (f failing) Queued() (capture.Packet, bool, error)        { return capture.Packet{}, false, nil }
func (f failing) Stats() (capture.Stats, error)                { return capture.Stats{}, nil }
