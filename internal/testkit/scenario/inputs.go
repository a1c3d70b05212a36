package scenario

import (
	"context"
	"slices"
	"sync"

	"go.uber.org/zap"

	"github.com/kube-ipvs/kube-ipvs/internal/model"
	"github.com/kube-ipvs/kube-ipvs/internal/source"
	"github.com/kube-ipvs/kube-ipvs/internal/source/file"
)

// inputs are what agents on fakes are told, by a source while they run and at once where
// a plan is made. dir is the value of --source-dir; path is the one without the flag.
type inputs interface {
	path() string
	source(log *zap.Logger, dir string) source.Source
	deliver(sink source.Sink, dir string) error
}

// onDisk are manifests in a directory.
type onDisk struct{ dir string }

func (d onDisk) path() string { return d.dir }

func (onDisk) source(log *zap.Logger, dir string) source.Source {
	return file.New(log, dir, quickFiles)
}

func (onDisk) deliver(sink source.Sink, dir string) error {
	objects, _, err := file.Load(dir)
	if err == nil {
		objects.Deliver(sink)
	}
	return err
}

// Feed is what a source of files makes of a directory of manifests, without the directory: objects
// that are put here reach an agent before Put returns. If an object is in several files, the one in the
// first file by name counts. A bad file keeps its last good content, which the next agent does not
// know.
type Feed struct {
	mu    sync.Mutex
	files map[string]*manifest
	sink  source.Sink // sink of the agent that runs; nil if none does
	told  world
}

// manifest is one file.
type manifest struct {
	file.Objects
	bad  bool // as it is now
	good bool // once, for the agent that runs
}

// world is each object once.
type world struct {
	nodes    map[string]model.Node
	services map[model.ServiceID]model.Service
	slices   map[model.SliceID]model.Slice
}

var (
	_ source.Source = (*Feed)(nil)
	_ inputs        = (*Feed)(nil)
)

// NewFeed returns a feed without manifests.
func NewFeed() *Feed { return &Feed{files: map[string]*manifest{}} }

// Put replaces a file. One that cannot be read is no error: agents live with those.
func (f *Feed) Put(name, text string) {
	objects, err := file.Read(name, []byte(text))
	f.mu.Lock()
	defer f.mu.Unlock()
	m := f.files[name]
	if m == nil {
		m = &manifest{}
		f.files[name] = m
	}
	if m.bad = err != nil; !m.bad {
		m.Objects, m.good = objects, true
	}
	f.tell()
}

// Remove takes a file away, if it is there.
func (f *Feed) Remove(name string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	delete(f.files, name)
	f.tell()
}

// Run implements source.Source.
func (f *Feed) Run(ctx context.Context, sink source.Sink) error {
	f.mu.Lock()
	f.sink, f.told = sink, world{}
	for _, m := range f.files {
		if m.good = !m.bad; m.bad {
			m.Objects = file.Objects{}
		}
	}
	f.tell()
	f.mu.Unlock()
	<-ctx.Done()
	f.mu.Lock()
	defer f.mu.Unlock()
	f.sink = nil
	return nil
}

func (f *Feed) path() string { return "fed" }

func (f *Feed) source(*zap.Logger, string) source.Source { return f }

func (f *Feed) deliver(sink source.Sink, _ string) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.world().deliver(sink, world{})
	sink.SetState(model.FromFile, source.Complete)
	return nil
}

// tell brings the running agent up to date. The caller holds the lock.
func (f *Feed) tell() {
	if f.sink == nil {
		return
	}
	now := f.world()
	now.deliver(f.sink, f.told)
	f.told = now
	state := source.Complete
	for _, m := range f.files {
		if !m.good {
			state = source.Partial
		}
	}
	f.sink.SetState(model.FromFile, state)
}

// world settles which file's object is the one. The caller holds the lock.
func (f *Feed) world() world {
	w := world{map[string]model.Node{}, map[model.ServiceID]model.Service{}, map[model.SliceID]model.Slice{}}
	names := make([]string, 0, len(f.files))
	for name := range f.files {
		names = append(names, name)
	}
	slices.Sort(names)
	for _, name := range slices.Backward(names) {
		m := f.files[name]
		for _, n := range slices.Backward(m.Nodes) {
			w.nodes[n.Name] = n
		}
		for _, s := range slices.Backward(m.Services) {
			w.services[s.ID] = s
		}
		for _, s := range slices.Backward(m.Slices) {
			w.slices[s.ID] = s
		}
	}
	return w
}

// deliver tells what is there and then what of before is not, in the order of files: a
// sink knows by itself what it had.
func (w world) deliver(sink source.Sink, before world) {
	for _, n := range w.nodes {
		sink.SetNode(model.FromFile, n)
	}
	for _, s := range w.slices {
		sink.SetSlice(s)
	}
	for _, s := range w.services {
		sink.SetService(s)
	}
	for id := range before.services {
		if _, there := w.services[id]; !there {
			sink.DeleteService(id)
		}
	}
	for id := range before.slices {
		if _, there := w.slices[id]; !there {
			sink.DeleteSlice(id)
		}
	}
	for name := range before.nodes {
		if _, there := w.nodes[name]; !there {
			sink.DeleteNode(model.FromFile, name)
		}
	}
}
