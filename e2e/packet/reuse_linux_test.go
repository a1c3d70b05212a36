package packet

import (
	"bufio"
	"fmt"
	"net"
	"net/netip"
	"sync"
	"testing"
	"time"

	"github.com/kube-ipvs/kube-ipvs/e2e/load"
)

// door is a backend that notes when each client came in.
type door struct {
	worker

	mu   sync.Mutex
	came []time.Time
}

// doors makes so many, on two pods in turn.
func (w *world) doors(t *testing.T, first, n int) []*door {
	t.Helper()
	var out []*door
	for i := first; i < first+n; i++ {
		p := []*pod{w.pod1, w.pod2}[i%2]
		at := p.another(t, 100+i)
		d := &door{worker: worker{endpoint: endpoint{addr: at, node: p.node}, name: fmt.Sprintf("door-%d", i)}}
		var l net.Listener
		p.must(t, p.do(func() (err error) {
			l, err = net.Listen("tcp", at+":8080")
			return err
		}))
		t.Cleanup(func() { l.Close() })
		go d.admit(l)
		out = append(out, d)
	}
	return out
}

// admit answers each client once.
func (d *door) admit(l net.Listener) {
	for {
		conn, err := l.Accept()
		if err != nil {
			return
		}
		d.mu.Lock()
		d.came = append(d.came, time.Now())
		d.mu.Unlock()
		go func() {
			defer conn.Close()
			in := bufio.NewReader(conn)
			for {
				if _, err := in.ReadString('\n'); err != nil {
					return
				}
				fmt.Fprintf(conn, "%s local=%s client=%s\n", d.name, conn.LocalAddr(), conn.RemoteAddr())
			}
		}()
	}
}

// after counts those who came later than a moment, and tells how much later the last was.
func (d *door) after(moment time.Time) (n int, last time.Duration) {
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, at := range d.came {
		if at.After(moment) {
			n++
			last = at.Sub(moment)
		}
	}
	return n, last
}

// Clients that use the same few source ports again and again.
const (
	reusePace  = 200.0
	reusePorts = 150 // of each of two clients
	reuseGrace = time.Second
)

// TestReusedSourcePorts: a busy client comes again from ports that it had before, while IPVS still
// keeps entries of where those went. Once a backend takes no new connections, none arrives there, although
// it still listens: neither while it drains nor after it is gone or cut. No client fails except
// those with a connection that was cut.
func TestReusedSourcePorts(t *testing.T) {
	w := newWorld(t)
	n := newAgent(t, w.node, "--cluster-cidr", clusters)
	n.start(t)
	clients := w.pod3.clients(t, 30, 2)
	w.pod3.sysctl(t, "ipv4/tcp_tw_reuse", "1")
	watch := w.node.watch(t)
	for i, end := range []string{"in order", "by a reset"} {
		t.Run("connections end "+end, func(t *testing.T) {
			doors := w.doors(t, 3*i, 3)
			s := service{name: fmt.Sprintf("reuse-%d", i), vip: pair{v4: fmt.Sprintf("10.96.0.8%d", i+1)}, ports: webPorts()[:1], annotations: annotations{"drain": "3s"}}
			for _, d := range doors {
				s.backends = append(s.backends, d.endpoint)
			}
			n.write(t, s)
			watch.wait(t, doors[0].at(s), "1")
			run := w.pod3.load(t, load.Profile{
				To: netip.MustParseAddrPort(s.vip.v4 + ":80"), Sources: clients, New: reusePace,
				Ports: load.Ports{First: 40000, Last: 40000 + reusePorts - 1}, Reset: i == 1,
			})
			const wrap = 2 * reusePorts
			more(t, run, wrap)
			// One that terminates, and then has gone.
			s.backends[0].terminating = true
			n.write(t, s)
			watch.wait(t, doors[0].at(s), "0")
			more(t, run, 3*wrap)
			s.backends = s.backends[1:]
			n.write(t, s)
			watch.wait(t, doors[0].at(s), gone)
			more(t, run, 3*wrap)
			// One that is cut, and with it what is under way there, for up to a second on a busy machine.
			cut := time.Now()
			s.backends, s.annotations = s.backends[1:], annotations{"drain": "0s"}
			n.write(t, s)
			watch.wait(t, doors[1].at(s), gone)
			more(t, run, 3*wrap)

			r, err := run.Stop()
			turns := watch.turns(doors[1].at(s))
			lost := failedWithin(r, cut.Add(-reuseGrace), turns[len(turns)-1].at.Add(reuseGrace))
			t.Logf("figure: %d connections, %.0f a second from %d source ports, %d failed as their backend was cut, %d otherwise, the slowest %s",
				r.Started, r.Rate(), wrap, lost, r.Failures()-lost, r.Worst().Round(time.Millisecond))
			if err != nil || r.Failures() > lost {
				t.Errorf("%v\n%s", err, report(r))
			}
			for _, d := range doors[:2] {
				watch.noneAfter(t, d, s)
			}
		})
	}
}

// failedWithin counts the failures of the seconds that a time has part in.
func failedWithin(r load.Report, from, to time.Time) int {
	n := 0
	for i, s := range r.Series {
		began := r.Began.Add(time.Duration(i) * time.Second)
		if began.Before(to) && began.Add(time.Second).After(from) {
			n += s.Failed
		}
	}
	return n
}

// noneAfter requires that no client reached a backend later than a second after its destination
// stopped taking new connections.
func (w *watch) noneAfter(t *testing.T, d *door, s service) {
	t.Helper()
	turns := w.turns(d.at(s))
	closed := turns[1].at // the first is its coming
	late, last := d.after(closed)
	t.Logf("figure: %s (weights %s): %d came after the change, the last %s after it", d.name, w.weights(d.at(s)), late, last.Round(time.Millisecond))
	if n, _ := d.after(closed.Add(reuseGrace)); n > 0 {
		t.Errorf("%d connections came to %s more than %s after it took no more, the last after %s", n, d.name, reuseGrace, last)
	}
}
