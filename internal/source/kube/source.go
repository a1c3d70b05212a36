package kube

import (
	"context"
	"sync"
	"time"

	"go.uber.org/zap"
	"golang.org/x/sync/errgroup"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/cache"
	"k8s.io/utils/clock"

	"github.com/kube-ipvs/kube-ipvs/internal/model"
	"github.com/kube-ipvs/kube-ipvs/internal/source"
)

// Options configure a Source.
type Options struct {
	// Node is the name of this node.
	Node string
	// AllNodes also follows the other Nodes, for whose addresses nothing is bound
	// (decision 10). In a cluster of thousands of Nodes that is most of the traffic
	// between agents and the API server.
	AllNodes bool
}

// Source implements source.Source. It can be run once.
type Source struct {
	log    *zap.Logger
	client kubernetes.Interface
	opts   Options

	mu    sync.Mutex
	kinds map[string]Progress
}

// Progress is how far one kind of object has come.
type Progress struct {
	// Synced: all objects of the kind were delivered once.
	Synced bool
	// Heard is when the server last said something about the kind: a list, an event
	// or a bookmark, of which a quiet watch has one a minute.
	Heard time.Time
	// Err is why the last call failed; nil once one succeeded after it.
	Err error
}

// New returns a source that reads from client.
func New(log *zap.Logger, client kubernetes.Interface, o Options) *Source {
	return &Source{log: log.Named("kube"), client: client, opts: o, kinds: map[string]Progress{}}
}

// Run follows the API until ctx ends; then it returns nil.
func (s *Source) Run(ctx context.Context, sink source.Sink) error {
	kinds := s.watched()
	s.begin(kinds)
	group, ctx := errgroup.WithContext(ctx)
	for _, k := range kinds {
		st := &store{kind: k, source: s, sink: sink, names: map[cache.ObjectName]struct{}{}}
		r := cache.NewReflectorWithOptions(k.lists, k.example, st, cache.ReflectorOptions{Name: k.name, TypeDescription: k.name})
		group.Go(func() error { s.follow(ctx, k.name, r); return nil })
	}
	return group.Wait()
}

// follow lists and watches until ctx ends, with pauses that grow while the server
// does not answer and are never two agents' at once.
func (s *Source) follow(ctx context.Context, kind string, r *cache.Reflector) {
	delay := wait.Backoff{Duration: firstPause, Cap: longestPause, Steps: pauses, Factor: 2, Jitter: 1}.DelayWithReset(clock.RealClock{}, calm)
	_ = delay.Until(ctx, true, true, func(ctx context.Context) (bool, error) { // it ends with ctx alone
		if err := r.ListAndWatchWithContext(ctx); err != nil {
			s.failed(ctx, kind, err)
		}
		return false, nil
	})
}

// The pauses between two attempts, as client-go's informers have them: with ten
// thousand agents a server that comes back sees 300 of them a second at most.
const (
	firstPause   = 800 * time.Millisecond
	longestPause = 30 * time.Second
	pauses       = 6 // until the longest
	calm         = 2 * time.Minute
)

// Progress tells how far each kind has come. It may be called from anywhere.
func (s *Source) Progress() map[string]Progress {
	s.mu.Lock()
	defer s.mu.Unlock()
	out := make(map[string]Progress, len(s.kinds))
	for name, p := range s.kinds {
		out[name] = p
	}
	return out
}

func (s *Source) begin(kinds []kind) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, k := range kinds {
		s.kinds[k.name] = Progress{}
	}
}

// heard notes that the server spoke, and that all was delivered where synced says
// so. It tells whether that made every kind complete for the first time.
func (s *Source) heard(kind string, synced bool) (complete bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	p := s.kinds[kind]
	first := synced && !p.Synced
	s.kinds[kind] = Progress{Synced: p.Synced || synced, Heard: time.Now()}
	if !first {
		return false
	}
	for _, p := range s.kinds {
		if !p.Synced {
			return false
		}
	}
	return true
}

// failed notes that a list or a watch ended badly; the reflector tries again.
func (s *Source) failed(ctx context.Context, kind string, err error) {
	if ctx.Err() != nil || ended(err) {
		return
	}
	s.mu.Lock()
	p := s.kinds[kind]
	news := p.Err == nil || p.Err.Error() != err.Error()
	p.Err = err
	s.kinds[kind] = p
	s.mu.Unlock()
	if news {
		s.log.Warn("API server does not answer as it should, will try again", zap.String("kind", kind), zap.Bool("synced", p.Synced), zap.Error(err))
	}
}

// complete tells the Sink that everything was delivered. What an outage of the
// server later hides is not gone, so this is never taken back.
func (s *Source) complete(sink source.Sink) { sink.SetState(model.FromKube, source.Complete) }
