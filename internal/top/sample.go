package top

import (
	"context"
	"errors"
	"maps"
	"time"

	"github.com/kube-ipvs/kube-ipvs/internal/kernel/vserver"
)

// Kernel is what is read of it; *vserver.Handle is one.
type Kernel interface {
	ListTraffic(ctx context.Context) (map[vserver.ServerKey]vserver.ServerTraffic, error)
	ListLoads(ctx context.Context) (map[vserver.ServerKey]vserver.Load, error)
	ListDestinationTraffic(ctx context.Context, server vserver.ServerKey) (map[vserver.DestinationKey]vserver.DestinationTraffic, error)
}

// Name is the Service of a virtual server.
type Name struct{ Namespace, Name string }

// String prints namespace/name.
func (n Name) String() string { return n.Namespace + "/" + n.Name }

// Names are what the agent knows of virtual servers.
type Names struct {
	Of map[vserver.ServerKey]Name
	// Draining are destinations whose endpoint is gone, with the time when their
	// connections are cut; the zero time is never.
	Draining map[vserver.DestinationKey]time.Time
}

// Sample has the counters of the kernel at one time.
type Sample struct {
	At      time.Time
	Servers map[vserver.ServerKey]vserver.ServerTraffic
	// Loads lacks servers that the kernel's list missed; nil if it cannot be read, for the reason
	// Unread.
	Loads  map[vserver.ServerKey]vserver.Load
	Unread error
	// Destinations are those of the servers that were asked for.
	Destinations map[vserver.DestinationKey]vserver.DestinationTraffic
	Names        Names
	// Unnamed is why names are missing, or old; nil if they are not.
	Unnamed error
}

// Source takes samples. One goroutine uses it at a time.
type Source struct {
	Kernel Kernel
	// Names asks the agent.
	Names func(ctx context.Context) (Names, error)

	names   Names
	asked   time.Time
	unnamed error
}

// nameRest is how long names are used: Services come and go, and a viewer of traffic need not see
// that at once.
const nameRest = 5 * time.Second

// Take reads the kernel, and the destinations of some servers. Without the list of
// connections, or names, a sample is one of less; without counters it is none.
func (s *Source) Take(ctx context.Context, ask []vserver.ServerKey) (Sample, error) {
	if s.asked.IsZero() || time.Since(s.asked) >= nameRest {
		var names Names
		if names, s.unnamed = s.Names(ctx); s.unnamed == nil {
			s.names = names
		}
		s.asked = time.Now()
	}
	out := Sample{Names: s.names, Unnamed: s.unnamed, Destinations: map[vserver.DestinationKey]vserver.DestinationTraffic{}}
	var err error
	if out.Servers, err = s.Kernel.ListTraffic(ctx); err != nil {
		return out, err
	}
	out.At = time.Now()
	out.Loads, out.Unread = s.Kernel.ListLoads(ctx)
	for _, k := range ask {
		found, err := s.Kernel.ListDestinationTraffic(ctx, k)
		if err != nil {
			return out, err
		}
		maps.Copy(out.Destinations, found)
	}
	return out, ctx.Err()
}

// troubles are the reasons why a sample is not complete.
func (s Sample) troubles() error { return errors.Join(s.Unnamed, s.Unread) }
