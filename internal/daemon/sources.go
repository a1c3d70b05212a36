package daemon

import (
	"context"
	"errors"
	"fmt"
	"time"

	"go.uber.org/zap"
	"golang.org/x/sync/errgroup"

	"github.com/kube-ipvs/kube-ipvs/internal/catalog"
	"github.com/kube-ipvs/kube-ipvs/internal/config"
	"github.com/kube-ipvs/kube-ipvs/internal/model"
	"github.com/kube-ipvs/kube-ipvs/internal/source"
	"github.com/kube-ipvs/kube-ipvs/internal/source/file"
	"github.com/kube-ipvs/kube-ipvs/internal/source/kube"
	"github.com/kube-ipvs/kube-ipvs/internal/wiring"
)

// sources are those that the settings name. With --source-dir alone there is no API server.
type sources struct {
	origins []model.Origin
	list    []source.Source
	files   *file.Source // nil without --source-dir
	kube    *kube.Source // nil without an API server
	client  *kube.Client // of it
	// reached has the addresses of the API server.
	reached *kube.Reached
	// The rest is set by start.
	known   *catalog.Catalog
	running *errgroup.Group
	cancel  context.CancelFunc
}

func openSources(log *zap.Logger, c config.Config) (sources, error) {
	s := sources{reached: &kube.Reached{}}
	if c.SourceDir == "-" {
		return s, errors.New("--source-dir -: the agent follows files; plan and diff read standard input")
	}
	if c.SourceDir != "" {
		s.files = file.New(log, c.SourceDir, file.Options{})
		s.add(model.FromFile, s.files)
	}
	if c.SourceDir != "" && c.Client.Kubeconfig == "" && c.Client.Master == "" {
		return s, nil
	}
	client, err := wiring.NewClient(c, s.reached)
	if err != nil {
		return s, err
	}
	s.client = client
	s.kube = kube.New(log, client, kube.Options{
		Node: c.NodeName, AllNodes: c.WatchNodes != config.WatchOwn, ManyNodes: wiring.ManyNodes(c),
	})
	s.add(model.FromKube, s.kube)
	return s, nil
}

// serviceCIDRsLimit bounds how long a start waits for the ranges of cluster IPs.
const serviceCIDRsLimit = 10 * time.Second

// withServiceCIDRs returns the settings with the ranges of the API server, if there is one and they
// need it.
func (s *sources) withServiceCIDRs(ctx context.Context, log *zap.Logger, c config.Config) config.Config {
	if s.client == nil {
		return c
	}
	ctx, cancel := context.WithTimeout(ctx, serviceCIDRsLimit)
	defer cancel()
	return wiring.WithServiceCIDRs(ctx, log, c, s.client)
}

// progress returns the progress of the API server; nil without one.
func (s *sources) progress() func() map[string]kube.Progress {
	if s.kube == nil {
		return nil
	}
	return s.kube.Progress
}

// unreadable names the first few manifests that cannot be read, whose last good content stays in force, and how many more.
func (s *sources) unreadable() []string {
	const most = 8
	if s.files == nil {
		return nil
	}
	all := s.files.Unreadable()
	if len(all) > most {
		return append(all[:most], fmt.Sprintf("and %d more", len(all)-most))
	}
	return all
}

// unreadableCount returns the number of all of them.
func (s *sources) unreadableCount() int {
	if s.files == nil {
		return 0
	}
	return len(s.files.Unreadable())
}

func (s *sources) add(o model.Origin, src source.Source) {
	s.origins = append(s.origins, o)
	s.list = append(s.list, src)
}

// endpointGrace is the time for which a new Service waits for its first EndpointSlice before it is
// written as one without endpoints. A busy API server takes tens of milliseconds from one to the
// other.
const endpointGrace = 100 * time.Millisecond

// start runs the sources into a catalog until ctx ends, or the first of them fails.
func (s *sources) start(ctx context.Context, log *zap.Logger, c config.Config) {
	ctx, s.cancel = context.WithCancel(ctx)
	s.known = catalog.New(log, c.NodeName, s.origins...)
	s.known.Remember(wiring.NewNodeClaims(log, c.RunDir).Load())
	s.known.SetEndpointGrace(endpointGrace)
	s.running, ctx = errgroup.WithContext(ctx)
	for _, one := range s.list {
		s.running.Go(func() error { return one.Run(ctx, s.known) })
	}
}

// wait returns when all sources have ended, at the latest when ctx ends.
func (s *sources) wait(ctx context.Context) error {
	defer context.AfterFunc(ctx, s.cancel)()
	return s.running.Wait()
}

// end ends the sources. Their errors come from wait.
func (s *sources) end() {
	s.cancel()
	_ = s.running.Wait()
}
