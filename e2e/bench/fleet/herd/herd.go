// Package herd is many followers of one API server in one process: agents of this project without a kernel, or the informers of
// kube-proxy. Each has a client, a key and a connection of its own, and a wire on which its bytes are counted.
package herd

import (
	"context"
	"fmt"
	"net"
	"net/netip"
	"runtime"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kube-ipvs/kube-ipvs/e2e/bench/fleet/plane"
	"github.com/kube-ipvs/kube-ipvs/internal/source/kube"
)

// Member is one follower.
type Member struct {
	Wire    *Wire
	holds   any // its objects, which live as long as it does
	running sync.WaitGroup
	ready   chan struct{}
	once    sync.Once
	herd    *Herd
	seen    atomic.Int64 // when it saw what is wanted: nanoseconds since the herd's beginning; 0 before
}

func (m *Member) synced() { m.once.Do(func() { close(m.ready) }) }

// saw notes that an address is in the marker's slice.
func (m *Member) saw(addr netip.Addr) {
	if wanted := m.herd.wanted.Load(); wanted != nil && *wanted == addr {
		m.seen.CompareAndSwap(0, int64(time.Since(m.herd.begun)))
	}
}

// Herd grows, and ends as a whole. Its methods are not for concurrent use.
type Herd struct {
	Kind    string
	plane   *plane.Plane
	begun   time.Time
	wanted  atomic.Pointer[netip.Addr]
	wires   []*Wire
	Members []*Member
	cancel  context.CancelFunc
	ctx     context.Context
}

// New prepares wires for so many members, and starts none.
func New(ctx context.Context, kind string, p *plane.Plane, most int) (*Herd, error) {
	h := &Herd{Kind: kind, plane: p, begun: time.Now()}
	h.ctx, h.cancel = context.WithCancel(ctx)
	for port := firstPort; len(h.wires) < most; {
		w, next, err := newWire(p.Target(), port)
		if err != nil {
			h.Close()
			return nil, err
		}
		h.wires, port = append(h.wires, w), next
	}
	return h, nil
}

// Grow starts members at once, until there are n, and returns when all have everything, with how long each of the new ones took.
func (h *Herd) Grow(ctx context.Context, n int) ([]time.Duration, error) {
	first := len(h.Members)
	files := make([]string, n-first)
	for i := range files {
		var err error
		if files[i], err = h.plane.Kubeconfig(ctx, h.wires[first+i].addr); err != nil {
			return nil, err
		}
	}
	begun := time.Now()
	for i, file := range files {
		m := &Member{Wire: h.wires[first+i], ready: make(chan struct{}), herd: h}
		h.Members = append(h.Members, m)
		if err := h.run(file, first+i, m); err != nil {
			return nil, err
		}
	}
	took := make([]time.Duration, len(files))
	group, ctx := errgroup.WithContext(ctx)
	for i, m := range h.Members[first:] {
		group.Go(func() error {
			select {
			case <-m.ready:
				took[i] = time.Since(begun)
				return nil
			case <-ctx.Done():
				return fmt.Errorf("member %d of %d is not in sync: %w", first+i, n, context.Cause(ctx))
			}
		})
	}
	return took, group.Wait()
}

func (h *Herd) run(file string, i int, m *Member) error {
	options := kube.ClientOptions{Kubeconfig: file, UserAgent: fmt.Sprintf("fleet-%s/%d", h.Kind, i)}
	switch h.Kind {
	case Agent:
		return runAgent(h.ctx, options, plane.NodeName(i), m)
	case Informers:
		return runInformers(h.ctx, options, plane.NodeName(i), m)
	}
	return fmt.Errorf("unknown kind %q: want %s or %s", h.Kind, Agent, Informers)
}

// List asks once for all Services and EndpointSlices, as clients do that do not have lists streamed, over the first wire.
func (h *Herd) List(ctx context.Context) error {
	file, err := h.plane.Kubeconfig(ctx, h.wires[0].addr)
	if err != nil {
		return err
	}
	client, err := kube.NewClient(kube.ClientOptions{Kubeconfig: file, UserAgent: "fleet-list"})
	if err != nil {
		return err
	}
	if _, err := client.Services(metav1.NamespaceAll).List(ctx, metav1.ListOptions{ResourceVersion: "0"}); err != nil {
		return fmt.Errorf("list Services: %w", err)
	}
	if _, err := client.EndpointSlices(metav1.NamespaceAll).List(ctx, metav1.ListOptions{ResourceVersion: "0"}); err != nil {
		return fmt.Errorf("list EndpointSlices: %w", err)
	}
	return nil
}

// Want has members note when they see an address at the marker.
func (h *Herd) Want(addr netip.Addr) {
	for _, m := range h.Members {
		m.seen.Store(0)
	}
	h.wanted.Store(&addr)
}

// poll is how often Await looks.
const poll = 5 * time.Millisecond

// Await returns when all members have seen what is wanted, with when each did.
func (h *Herd) Await(ctx context.Context) ([]time.Time, error) {
	ticker := time.NewTicker(poll)
	defer ticker.Stop()
	out := make([]time.Time, len(h.Members))
	for i, m := range h.Members {
		for m.seen.Load() == 0 {
			select {
			case <-ticker.C:
			case <-ctx.Done():
				return nil, fmt.Errorf("member %d of %d has not seen a change: %w", i, len(h.Members), context.Cause(ctx))
			}
		}
		out[i] = h.begun.Add(time.Duration(m.seen.Load()))
	}
	return out, nil
}

// Bytes are those of all members so far, to them and to the server.
func (h *Herd) Bytes() (down, up int64) {
	for _, w := range h.wires {
		d, u := w.Bytes()
		down, up = down+d, up+u
	}
	return down, up
}

// Accepted is when members connected since it was last asked.
func (h *Herd) Accepted() (out []time.Time) {
	for _, w := range h.wires {
		out = append(out, w.Accepted()...)
	}
	return out
}

// Cut ends all connections.
func (h *Herd) Cut() {
	for _, w := range h.wires {
		w.Cut()
	}
}

// Shut refuses new connections.
func (h *Herd) Shut() {
	for _, w := range h.wires {
		w.Shut()
	}
}

// Reopen lets connections in when the API server listens again, and returns when that was.
func (h *Herd) Reopen(ctx context.Context) (time.Time, error) {
	ticker := time.NewTicker(4 * poll)
	defer ticker.Stop()
	for {
		if c, err := (&net.Dialer{}).DialContext(ctx, "tcp", h.plane.Target()); err == nil {
			_ = c.Close()
			break
		}
		select {
		case <-ticker.C:
		case <-ctx.Done():
			return time.Time{}, fmt.Errorf("the API server does not listen: %w", context.Cause(ctx))
		}
	}
	now := time.Now()
	for _, w := range h.wires {
		if err := w.Open(); err != nil {
			return now, err
		}
	}
	return now, nil
}

// Close ends all members and wires.
func (h *Herd) Close() {
	h.cancel()
	for _, m := range h.Members {
		m.running.Wait()
	}
	for _, w := range h.wires {
		w.Close()
	}
	h.Members = nil
}

// Memory is what is in use after a collection: bytes of the heap, and of stacks.
func Memory() (heap, stacks uint64) {
	// What finalizers and pools hold goes with the second and third.
	for range 3 {
		runtime.GC()
	}
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return m.HeapAlloc, m.StackInuse
}
