package packet

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/moby/ipvs"
	"golang.org/x/sys/unix"
)

// serving is a destination of a virtual server, by addresses.
type serving struct {
	proto       string // as the kernel prints it: TCP
	server, pod netip.AddrPort
}

func (s serving) String() string { return s.proto + " " + s.server.String() + " -> " + s.pod.String() }

// row is what the kernel tells of one; inactive connections are above all those that have ended and are kept for a while.
type row struct {
	weight, active, inactive int
	scheduled                uint32 // connections since it was made
	upper, lower             uint32 // connection thresholds
}

// rowPause is between two reads of a watch. The agent looks for what has drained once a second, so that nothing is gone before it
// was seen to drain.
const rowPause = 50 * time.Millisecond

// watch reads a node's destinations all the time, and keeps each change of a weight and each that goes or comes.
type watch struct {
	mu    sync.Mutex
	looks []time.Time
	rows  map[serving]row
	past  map[serving][]turn
	reset map[serving]int // how often the counter of a row was seen to fall
}

// turn is a change of one destination: to a weight, or away.
type turn struct {
	at   time.Time
	look int    // the number of the look that saw it
	now  string // its weight, or gone
	last row    // before the change
}

// gone is the weight of what is not there.
const gone = "gone"

// watch begins to look, and goes on until the test ends.
func (n *node) watch(t *testing.T) *watch {
	t.Helper()
	w := &watch{rows: map[serving]row{}, past: map[serving][]turn{}, reset: map[serving]int{}}
	stop, ended := make(chan struct{}), make(chan error, 1)
	go func() {
		ended <- n.do(func() error { return w.run(stop) })
	}()
	t.Cleanup(func() {
		close(stop)
		if err := <-ended; err != nil {
			t.Errorf("watch destinations: %v", err)
		}
	})
	w.until(t, "the first look", func(map[serving]row) bool { return len(w.looks) > 0 })
	return w
}

func (w *watch) run(stop <-chan struct{}) error {
	handle, err := ipvs.New("")
	if err != nil {
		return err
	}
	defer handle.Close()
	for {
		rows, err := readRows(handle)
		if err != nil {
			return err
		}
		w.seen(rows)
		select {
		case <-stop:
			return nil
		case <-time.After(rowPause):
		}
	}
}

func (w *watch) seen(rows map[serving]row) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.looks = append(w.looks, time.Now())
	note := func(key serving, now string) {
		w.past[key] = append(w.past[key], turn{time.Now(), len(w.looks), now, w.rows[key]})
	}
	for key, r := range rows {
		old, had := w.rows[key]
		if !had || old.weight != r.weight {
			note(key, strconv.Itoa(r.weight))
		}
		if r.scheduled < old.scheduled {
			w.reset[key]++
		}
	}
	for key := range w.rows {
		if _, has := rows[key]; !has {
			note(key, gone)
		}
	}
	w.rows = rows
}

// lookedAt is when a look ended, by its number.
func (w *watch) lookedAt(number int) time.Time {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.looks[max(number, 1)-1]
}

// until waits for a state of the destinations.
func (w *watch) until(t *testing.T, what string, ok func(rows map[serving]row) bool) {
	t.Helper()
	poll(t, what, settleTimeout, func() error {
		w.mu.Lock()
		defer w.mu.Unlock()
		if !ok(w.rows) {
			return fmt.Errorf("destinations are %v", w.rows)
		}
		return nil
	})
}

// is fails unless the last change of a destination was to this weight.
func (w *watch) is(key serving, now string) error {
	turns := w.turns(key)
	if len(turns) == 0 || turns[len(turns)-1].now != now {
		return fmt.Errorf("%v: weights %s, want %s", key, w.weights(key), now)
	}
	return nil
}

// wait waits until the last change of a destination was to this weight.
func (w *watch) wait(t *testing.T, key serving, now string) {
	t.Helper()
	poll(t, fmt.Sprintf("%v to be %s", key, now), settleTimeout, func() error { return w.is(key, now) })
}

// turns are the changes of one so far.
func (w *watch) turns(key serving) []turn {
	w.mu.Lock()
	defer w.mu.Unlock()
	return slices.Clone(w.past[key])
}

// looksSince is how often it was looked from a moment until a change was seen.
func (w *watch) looksSince(from time.Time, end turn) int {
	w.mu.Lock()
	defer w.mu.Unlock()
	n := 0
	for _, at := range w.looks[:end.look] {
		if at.After(from) {
			n++
		}
	}
	return n
}

// weights are the changes of one, for a comparison.
func (w *watch) weights(key serving) string {
	turns := w.turns(key)
	var out []string
	for _, x := range turns {
		out = append(out, x.now)
	}
	return strings.Join(out, " ")
}

// unbroken fails unless a destination had these weights and was never created again, even for a
// short time. The kernel counts the connections that it gives to a destination, and starts at 0 for
// a new one. It has to have scheduled something, or it would not tell.
func (w *watch) unbroken(t *testing.T, key serving, weights string) {
	t.Helper()
	if got := w.weights(key); got != weights {
		t.Errorf("%v: weights %s, want %s", key, got, weights)
	}
	poll(t, fmt.Sprintf("%v to have counted a connection", key), settleTimeout, func() error {
		w.mu.Lock()
		defer w.mu.Unlock()
		if w.rows[key].scheduled == 0 {
			return fmt.Errorf("%+v", w.rows[key])
		}
		return nil
	})
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.reset[key] > 0 {
		t.Errorf("%v was made again %d times", key, w.reset[key])
	}
}

// readRows reads all destinations, in a dump for each server: /proc/net/ip_vs leaves servers out where another namespace has some
// too, and each test has a namespace.
func readRows(handle *ipvs.Handle) (map[serving]row, error) {
	servers, err := handle.GetServices()
	if err != nil {
		return nil, fmt.Errorf("list virtual servers: %w", err)
	}
	rows := map[serving]row{}
	for _, s := range servers {
		destinations, err := handle.GetDestinations(s)
		if errors.Is(err, unix.ESRCH) {
			continue // it has gone meanwhile
		}
		if err != nil {
			return nil, fmt.Errorf("list destinations: %w", err)
		}
		for _, d := range destinations {
			rows[serving{protocols[s.Protocol], addrPort(s.Address, s.Port), addrPort(d.Address, d.Port)}] = row{
				d.Weight, d.ActiveConnections, d.InactiveConnections, d.Stats.Connections, d.UpperThreshold, d.LowerThreshold,
			}
		}
	}
	return rows, nil
}

var protocols = map[uint16]string{unix.IPPROTO_TCP: "TCP", unix.IPPROTO_UDP: "UDP", unix.IPPROTO_SCTP: "SCTP"}

func addrPort(ip net.IP, port uint16) netip.AddrPort {
	addr, _ := netip.AddrFromSlice(ip)
	return netip.AddrPortFrom(addr.Unmap(), port)
}

// countServers is how many virtual servers a node has.
func (n *node) countServers(t *testing.T) (count int) {
	t.Helper()
	n.must(t, n.do(func() error {
		handle, err := ipvs.New("")
		if err != nil {
			return err
		}
		defer handle.Close()
		servers, err := handle.GetServices()
		count = len(servers)
		return err
	}))
	return count
}
