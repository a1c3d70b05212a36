package main

import (
	"context"
	"errors"
	"fmt"

	"go.uber.org/zap"
	"golang.org/x/sync/errgroup"

	"github.com/kube-ipvs/kube-ipvs/internal/catalog"
	"github.com/kube-ipvs/kube-ipvs/internal/config"
	"github.com/kube-ipvs/kube-ipvs/internal/model"
	"github.com/kube-ipvs/kube-ipvs/internal/source"
	"github.com/kube-ipvs/kube-ipvs/internal/source/file"
	"github.com/kube-ipvs/kube-ipvs/internal/source/kube"
)

// errNoSource is what a person sees who starts the agent with nothing to serve.
var errNoSource = errors.New("nothing says what to serve; give one of\n" +
	"  --source-dir DIR     a directory of manifests, or one file\n" +
	"  --kubeconfig FILE    a Kubernetes API server (clientConnection.kubeconfig in --config)\n" +
	"or run it in a cluster")

// sources are what the settings ask to follow. With --source-dir alone no API
// server is looked for.
type sources struct {
	origins []model.Origin
	list    []source.Source
	files   *file.Source // nil without --source-dir
	kube    *kube.Source // nil without an API server
	client  *kube.Client // of it
	// reached has the addresses at which the API server is reached.
	reached *kube.Reached
	// Of sources that were started:
	known   *catalog.Catalog
	running *errgroup.Group
	cancel  context.CancelFunc
}

func openSources(log *zap.Logger, c config.Config) (sources, error) {
	s := sources{reached: &kube.Reached{}}
	if c.SourceDir == standardInput {
		return s, errors.New("--source-dir -: the agent follows files; plan and diff read standard input")
	}
	if c.SourceDir != "" {
		s.files = file.New(log, c.SourceDir, file.Options{})
		s.add(model.FromFile, s.files)
	}
	if c.SourceDir != "" && c.Client.Kubeconfig == "" && c.Client.Master == "" {
		return s, nil
	}
	client, err := newClient(c, s.reached)
	if err != nil {
		return s, err
	}
	s.client = client
	s.kube = kube.New(log, client, kube.Options{
		Node: c.NodeName, AllNodes: c.WatchNodes != config.WatchOwn, ManyNodes: manyNodes(c),
	})
	s.add(model.FromKube, s.kube)
	return s, nil
}

// newClient makes a client of the API server that the settings name.
func newClient(c config.Config, reached *kube.Reached) (*kube.Client, error) {
	client, err := kube.NewClient(kube.ClientOptions{
		Kubeconfig: c.Client.Kubeconfig, Master: c.Client.Master,
		ContentType: c.Client.ContentType, AcceptContentTypes: c.Client.AcceptContentTypes,
		QPS: c.Client.QPS, Burst: c.Client.Burst, UserAgent: "kube-ipvs/" + buildVersion(),
		Reached: reached,
	})
	if errors.Is(err, kube.ErrNoCluster) {
		return nil, errNoSource
	}
	if err != nil {
		return nil, fmt.Errorf("cannot reach an API server: %w", err)
	}
	return client, nil
}

// progress is that of the API server; nil without one.
func (s *sources) progress() func() map[string]kube.Progress {
	if s.kube == nil {
		return nil
	}
	return s.kube.Progress
}

// unreadable names manifests that cannot be read, whose last good content stays in force: the first few, and how many more.
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

// unreadableCount counts them all.
func (s *sources) unreadableCount() int {
	if s.files == nil {
		return 0
	}
	return len(s.files.Unreadable())
}

// manyNodes is how many Nodes are too many to follow them all.
func manyNodes(c config.Config) int {
	if c.WatchNodes == config.WatchAuto {
		return kube.DefaultManyNodes
	}
	return 0
}

func (s *sources) add(o model.Origin, src source.Source) {
	s.origins = append(s.origins, o)
	s.list = append(s.list, src)
}

// start runs the sources into a catalog until ctx ends, or the first of them fails.
func (s *sources) start(ctx context.Context, log *zap.Logger, c config.Config) {
	ctx, s.cancel = context.WithCancel(ctx)
	s.known = catalog.New(log, c.NodeName, s.origins...)
	s.known.Remember(newNodeClaims(log, c.RunDir).load())
	s.known.Await(slicePatience)
	s.running, ctx = errgroup.WithContext(ctx)
	for _, one := range s.list {
		s.running.Go(func() error { return one.Run(ctx, s.known) })
	}
}

// wait returns when all sources have ended, which they do with ctx at the latest.
func (s *sources) wait(ctx context.Context) error {
	defer context.AfterFunc(ctx, s.cancel)()
	return s.running.Wait()
}

// end ends the sources; wait tells of their errors.
func (s *sources) end() {
	s.cancel()
	_ = s.running.Wait()
}
