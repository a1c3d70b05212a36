package kube

import (
	"context"
	"sync"
	"time"

	"go.uber.org/zap"
	"golang.org/x/sync/errgroup"
	"k8s.io/client-go/tools/cache"

	"github.com/kube-ipvs/kube-ipvs/internal/source"
)

// Options configure a Source.
type Options struct {
	// Node is the name of this node.
	Node string
	// AllNodes also follows the other Nodes, so that none of their addresses is bound. In a
	// cluster of thousands of Nodes that is most of the traffic between agents and the API
	// server.
	AllNodes bool
	// ManyNodes is the number of Nodes in the cluster beyond which the others are not
	// followed after all; 0 is no bound. It is looked at once, at the start.
	ManyNodes int
}

// DefaultManyNodes keeps what all agents of a cluster cost its API server within
// reason. Each Node is written every five minutes even when nothing happens, 20 kB
// with its images, and sent to each agent: 500 Nodes make 800 of these a second.
const DefaultManyNodes = 500

// Source implements source.Source. It can be run once.
type Source struct {
	log  *zap.Logger
	api  API
	opts Options

	// haveNodes is closed when all Nodes were delivered.
	haveNodes chan struct{}

	mu    sync.Mutex
	kinds map[string]*record
	state source.State // the last reported state
	// mostList and mostEvent bound bytes; a test has smaller ones.
	maxListBytes, maxEventBytes int64
	waits                       waits
}

// waits are times that a Source waits for a server that may need them; a test sets shorter
// ones.
type waits struct{ firstPause, priorityList, reconnectJitter time.Duration }

// New returns a source that reads from api.
func New(log *zap.Logger, api API, o Options) *Source {
	return &Source{
		log: log.Named("kube"), api: api, opts: o, kinds: map[string]*record{}, haveNodes: make(chan struct{}),
		maxListBytes: maxListBytes, maxEventBytes: maxEventBytes, waits: waits{firstPause, priorityListLimit, reconnectJitter},
	}
}

// Run follows the API until ctx ends; then it returns nil.
func (s *Source) Run(ctx context.Context, sink source.Sink) error {
	kinds := s.watched()
	s.begin(kinds)
	group, ctx := errgroup.WithContext(withLog(ctx, s.log))
	stores := make(map[string]*store, len(kinds))
	for i := range kinds {
		stores[kinds[i].name] = newStore(&kinds[i], s, sink)
	}
	started := make(chan struct{})
	group.Go(func() error {
		defer close(started)
		s.listPriorityObjects(ctx, group, stores)
		return nil
	})
	for name, into := range stores {
		r := cache.NewReflectorWithOptions(&listWatcher{kind: into.kind, source: s, store: into}, &converted{}, into,
			cache.ReflectorOptions{Name: name, TypeDescription: name})
		group.Go(func() error {
			if name != nodes {
				<-started
			}
			s.follow(ctx, name, r)
			return nil
		})
	}
	return group.Wait()
}
