package apiprobe_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"go.uber.org/zap"
	"go.uber.org/zap/zaptest/observer"

	"github.com/kube-ipvs/kube-ipvs/internal/apiprobe"
)

// plane is a control plane in memory: what each endpoint answers.
type plane struct {
	mu      sync.Mutex
	answers map[netip.AddrPort]error // an endpoint that is not in it answers
	hangs   map[netip.AddrPort]bool
	dialled map[netip.AddrPort][]time.Time
	running map[netip.AddrPort]int // probes at once
	most    int
	period  time.Duration
	changes []string // what Changed received
}

func (p *plane) Dial(ctx context.Context, to netip.AddrPort) error {
	p.mu.Lock()
	p.dialled[to] = append(p.dialled[to], time.Now())
	p.running[to]++
	p.most = max(p.most, p.running[to])
	err, hangs := p.answers[to], p.hangs[to]
	p.mu.Unlock()
	if hangs {
		<-ctx.Done()
		err = errors.New("it hangs")
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.running[to]--
	return err
}

func (p *plane) set(to netip.AddrPort, err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.answers[to] = err
}

func (p *plane) hang(to netip.AddrPort, hangs bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.hangs[to] = hangs
}

// since returns the times of probes of an endpoint and clears them.
func (p *plane) since(to netip.AddrPort) []time.Time {
	p.mu.Lock()
	defer p.mu.Unlock()
	all := p.dialled[to]
	delete(p.dialled, to)
	return all
}

// told returns what Changed received and clears it.
func (p *plane) told() []string {
	p.mu.Lock()
	defer p.mu.Unlock()
	all := p.changes
	p.changes = nil
	return all
}

func (p *plane) changed(_ context.Context, failing map[netip.AddrPort]string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	var out []string
	for _, at := range slices.SortedFunc(maps.Keys(failing), netip.AddrPort.Compare) {
		out = append(out, fmt.Sprintf("%s %s", at, failing[at]))
	}
	p.changes = append(p.changes, "["+strings.Join(out, ", ")+"]")
}

func (p *plane) every() time.Duration {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.period
}

// endpoint is the nth API server.
func endpoint(n int) netip.AddrPort {
	return netip.AddrPortFrom(netip.AddrFrom4([4]byte{192, 0, 2, byte(n)}), 6443)
}

func endpoints(n int) (out []netip.AddrPort) {
	for i := range n {
		out = append(out, endpoint(i+1))
	}
	return out
}

// bubble runs a prober in a time of its own. Everything has ended when it returns.
func bubble(t *testing.T, f func(*testing.T, *apiprobe.Prober, *plane, *observer.ObservedLogs)) {
	synctest.Test(t, func(t *testing.T) {
		core, logs := observer.New(zap.InfoLevel)
		net := &plane{answers: map[netip.AddrPort]error{}, hangs: map[netip.AddrPort]bool{}, dialled: map[netip.AddrPort][]time.Time{},
			running: map[netip.AddrPort]int{}, period: 10 * time.Second}
		p := apiprobe.New(zap.New(core), apiprobe.Options{Period: net.every, Dial: net.Dial, Changed: net.changed})
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error)
		go func() { done <- p.Run(ctx) }()
		f(t, p, net, logs)
		cancel()
		if err := <-done; err != nil {
			t.Errorf("Run ended with %v", err)
		}
		for at, n := range net.running {
			if n != 0 {
				t.Errorf("%d probes of %s run after Run has returned", n, at)
			}
		}
	})
}

// pass lets time pass.
func pass(d time.Duration) {
	time.Sleep(d)
	synctest.Wait()
}

func wantTold(t *testing.T, net *plane, want ...string) {
	t.Helper()
	if diff := cmp.Diff(want, net.told()); diff != "" {
		t.Errorf("changes (-want +got):\n%s", diff)
	}
}

var errDown = errors.New("down")

func TestAnEndpointThatHangsIsOutAndComesBack(t *testing.T) {
	bubble(t, func(t *testing.T, p *apiprobe.Prober, net *plane, logs *observer.ObservedLogs) {
		p.Want(endpoints(3))
		pass(time.Minute)
		wantTold(t, net)
		net.hang(endpoint(2), true)
		pass(time.Minute)
		wantTold(t, net, "[192.0.2.2:6443 it hangs]")
		if s := p.Status(); s.Probed != 3 || s.Out != 1 || s.Ignored != 0 || s.Failed < 3 || s.Answered < 10 || s.Unknown != 0 {
			t.Errorf("status %+v", s)
		}
		net.hang(endpoint(2), false)
		pass(time.Minute)
		wantTold(t, net, "[]")
		var messages []string
		for _, e := range logs.All() {
			messages = append(messages, e.Message)
		}
		want := []string{"an API server endpoint does not answer probes", "an API server endpoint answers probes again"}
		if diff := cmp.Diff(want, messages); diff != "" {
			t.Errorf("log (-want +got):\n%s", diff)
		}
		if net.most != 1 {
			t.Errorf("%d probes of one endpoint at once", net.most)
		}
	})
}

// Two failures are not three, and one answer is not two. A failure between two answers starts the count again.
func TestHysteresis(t *testing.T) {
	for _, tt := range []struct {
		name    string
		answers string // answers of one endpoint, probe by probe: + answers, - fails, ? cannot be made
		want    []string
	}{
		{"two failures", "--+++", nil},
		{"three", "---", []string{"[192.0.2.1:6443 down]"}},
		{"two and two", "--+--+", nil},
		{"unknown ones do not count", "-?-?+", nil},
		{"and do not end a row", "-?--", []string{"[192.0.2.1:6443 down]"}},
		{"one answer", "---+-", []string{"[192.0.2.1:6443 down]"}},
		{"two answers", "---++", []string{"[192.0.2.1:6443 down]", "[]"}},
		{"two answers with a failure between", "---+-+", []string{"[192.0.2.1:6443 down]"}},
		{"unknown between two answers", "---+?+", []string{"[192.0.2.1:6443 down]", "[]"}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var told []string
				asked := 0
				net := &plane{}
				ctx, cancel := context.WithCancel(t.Context())
				p := apiprobe.New(zap.NewNop(), apiprobe.Options{
					Period:  func() time.Duration { return 10 * time.Second },
					Changed: net.changed,
					Dial: func(context.Context, netip.AddrPort) error {
						if asked == len(tt.answers) {
							cancel()
							return nil
						}
						asked++
						return map[byte]error{'+': nil, '-': errDown, '?': fmt.Errorf("%w: no memory", apiprobe.ErrLocal)}[tt.answers[asked-1]]
					},
				})
				p.Want(endpoints(1))
				_ = p.Run(ctx)
				told = net.told()
				if diff := cmp.Diff(tt.want, told); diff != "" {
					t.Errorf("changes (-want +got):\n%s", diff)
				}
			})
		})
	}
}

// Where fewer than half answer, the failing ones are counted as ignored, by family.
func TestPanicIsReported(t *testing.T) {
	bubble(t, func(t *testing.T, p *apiprobe.Prober, net *plane, logs *observer.ObservedLogs) {
		six := netip.MustParseAddrPort("[2001:db8::1]:6443")
		p.Want(append(endpoints(3), six, netip.MustParseAddrPort("[2001:db8::2]:6443")))
		net.set(endpoint(1), errDown)
		net.set(six, errDown)
		pass(time.Minute)
		if s := p.Status(); s.Probed != 5 || s.Out != 2 || s.Ignored != 0 {
			t.Errorf("status %+v, want 2 out", s)
		}
		net.set(endpoint(2), errDown)
		pass(time.Minute)
		if s := p.Status(); s.Out != 1 || s.Ignored != 2 {
			t.Errorf("status %+v, want 2 ignored", s)
		}
		net.set(endpoint(1), nil)
		pass(time.Minute)
		if s := p.Status(); s.Out != 2 || s.Ignored != 0 {
			t.Errorf("status %+v, want 2 out again", s)
		}
		if n := logs.FilterMessageSnippet("too few").Len(); n != 1 {
			t.Errorf("%d warnings of too few, want 1", n)
		}
		if n := logs.FilterMessageSnippet("enough").Len(); n != 1 {
			t.Errorf("%d lines of enough, want 1", n)
		}
	})
}

func TestAnEndpointThatLeavesIsForgotten(t *testing.T) {
	bubble(t, func(t *testing.T, p *apiprobe.Prober, net *plane, _ *observer.ObservedLogs) {
		net.hang(endpoint(1), true)
		p.Want(endpoints(3))
		pass(time.Minute)
		wantTold(t, net, "[192.0.2.1:6443 it hangs]")
		p.Want(endpoints(3)[1:])
		pass(0)
		wantTold(t, net, "[]")
		net.since(endpoint(1))
		pass(time.Hour)
		if n := len(net.since(endpoint(1))); n != 0 {
			t.Errorf("%d probes of an endpoint that has left", n)
		}
		p.Want(endpoints(3)) // it begins as one that holds
		pass(5 * time.Second)
		wantTold(t, net)
		pass(time.Minute)
		wantTold(t, net, "[192.0.2.1:6443 it hangs]")
	})
}

// A probe of an endpoint that has left meanwhile is ended, and proves nothing about the one that came
// to its address.
func TestALateAnswerIsDropped(t *testing.T) {
	bubble(t, func(t *testing.T, p *apiprobe.Prober, net *plane, _ *observer.ObservedLogs) {
		net.hang(endpoint(1), true)
		p.Want(endpoints(1))
		for len(net.since(endpoint(1))) == 0 {
			pass(100 * time.Millisecond)
		}
		p.Want(nil)
		pass(0)
		if n := net.running[endpoint(1)]; n != 0 {
			t.Errorf("%d probes run of an endpoint that has left", n)
		}
		if s := p.Status(); s.Failed != 0 || s.Probed != 0 {
			t.Errorf("status %+v", s)
		}
	})
}

func TestProbesAreSpreadAndBounded(t *testing.T) {
	bubble(t, func(t *testing.T, p *apiprobe.Prober, net *plane, logs *observer.ObservedLogs) {
		p.Want(endpoints(40))
		pass(10 * time.Minute)
		if s := p.Status(); s.Probed != apiprobe.MaxEndpoints {
			t.Errorf("%d endpoints are probed, want %d", s.Probed, apiprobe.MaxEndpoints)
		}
		if n := len(net.since(endpoint(apiprobe.MaxEndpoints + 1))); n != 0 {
			t.Errorf("%d probes beyond the maximum", n)
		}
		if n := logs.FilterMessageSnippet("too many").Len(); n != 1 {
			t.Errorf("%d warnings of too many, want 1", n)
		}
		times := net.since(endpoint(1))
		if len(times) < 54 || len(times) > 67 {
			t.Errorf("%d probes in 10 minutes, want one every 9 to 11 s", len(times))
		}
		different := map[time.Duration]bool{}
		for i := 1; i < len(times); i++ {
			pause := times[i].Sub(times[i-1])
			if different[pause] = true; pause < 9*time.Second || pause > 11*time.Second {
				t.Errorf("%s between two probes", pause)
			}
		}
		if len(different) < 10 {
			t.Errorf("%d different pauses: they are not spread", len(different))
		}
	})
}

// The setting applies while probes run: 0 ends them, and what failed is served again.
func TestThePeriodChanges(t *testing.T) {
	bubble(t, func(t *testing.T, p *apiprobe.Prober, net *plane, _ *observer.ObservedLogs) {
		period := func(d time.Duration) {
			net.mu.Lock()
			net.period = d
			net.mu.Unlock()
			p.Want(endpoints(3)) // as after each reload
		}
		net.hang(endpoint(1), true)
		period(10 * time.Second)
		pass(time.Minute)
		wantTold(t, net, "[192.0.2.1:6443 it hangs]")
		period(0)
		pass(time.Minute)
		wantTold(t, net, "[]")
		net.since(endpoint(2))
		pass(time.Hour)
		if n := len(net.since(endpoint(2))); n != 0 {
			t.Errorf("%d probes with period 0", n)
		}
		period(time.Hour)
		pass(time.Minute)
		net.since(endpoint(2))
		period(time.Second)
		pass(time.Minute)
		if n := len(net.since(endpoint(2))); n < 50 {
			t.Errorf("%d probes in a minute after the period became 1 s", n)
		}
	})
}

// A receiver that is stuck delays probes, and does not keep Run from ending.
func TestAReceiverThatIsStuck(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		p := apiprobe.New(zap.NewNop(), apiprobe.Options{
			Period: func() time.Duration { return time.Second },
			Dial:   func(context.Context, netip.AddrPort) error { return errDown },
			Changed: func(ctx context.Context, _ map[netip.AddrPort]string) {
				<-ctx.Done()
			},
		})
		p.Want(endpoints(16))
		done := make(chan error)
		go func() { done <- p.Run(ctx) }()
		pass(time.Minute)
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
}
