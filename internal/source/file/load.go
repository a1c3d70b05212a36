package file

import (
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"

	"go.uber.org/zap"

	"github.com/kube-ipvs/kube-ipvs/internal/model"
	"github.com/kube-ipvs/kube-ipvs/internal/source"
)

// Objects is everything that manifests define, sorted by namespace and name.
type Objects struct {
	Services []model.Service
	Slices   []model.Slice
	Nodes    []model.Node
}

// Deliver hands everything to a sink, complete.
func (o Objects) Deliver(sink source.Sink) {
	for _, n := range o.Nodes {
		sink.SetNode(model.FromFile, n)
	}
	for _, s := range o.Services {
		sink.SetService(s)
	}
	for _, s := range o.Slices {
		sink.SetSlice(s)
	}
	sink.SetState(model.FromFile, source.Complete)
}

// Load reads the manifests at path, a directory or one file, once. The error
// reports that they could not be listed, or that there are none. Objects of bad
// files are missing and the problems, sorted, say why (BadFile).
func Load(path string) (Objects, []Problem, error) {
	s := newStore(zap.NewNop(), path)
	if _, err := s.refresh(); err != nil {
		return Objects{}, nil, err
	}
	if len(s.files) == 0 {
		return Objects{}, nil, fmt.Errorf("no manifests in %s", path)
	}
	objects, bad := s.loaded()
	return objects, bad, nil
}

// LoadFrom is Load of one text, such as standard input. The name appears in problems. The error
// reports that the text could not be read, or is too long.
func LoadFrom(name string, r io.Reader) (Objects, []Problem, error) {
	data, err := io.ReadAll(io.LimitReader(r, maxSize+1))
	switch {
	case err != nil:
		return Objects{}, nil, fmt.Errorf("read %s: %w", name, err)
	case len(data) > maxSize:
		return Objects{}, nil, fmt.Errorf("%s: more than %d bytes", name, maxSize)
	}
	s, one := newStore(zap.NewNop(), name), text{name: name, data: data}
	s.update(reading{text: one}, parse([]text{one})[0])
	objects, bad := s.loaded()
	return objects, bad, nil
}

// loaded returns the content of a store. Kinds of others are worth a word only where nothing is to
// be served: an export of a cluster has many.
func (s *store) loaded() (Objects, []Problem) {
	var c collector
	s.registry.flush(&c)
	problems := s.problems()
	if len(c.Services) == 0 {
		problems = append(problems, s.passedOver()...)
	}
	return c.Objects, problems
}

// Read parses one manifest as a Source does. The error reports why the file is bad; a bad
// file has no objects.
func Read(name string, data []byte) (Objects, error) {
	c := parse([]text{{name: name, data: data}})[0]
	if len(c.faults) > 0 {
		return Objects{}, fmt.Errorf("bad manifest: %s", strings.Join(reasons(c.faults), "; "))
	}
	var out collector
	for i := range c.objects {
		c.objects[i].value.set(&out)
	}
	return out.Objects, nil
}

// passedOver returns, a problem a file, the other kinds in the manifests: a
// kind that is misspelled is one of them.
func (s *store) passedOver() []Problem {
	var out []Problem
	for _, name := range slices.Sorted(maps.Keys(s.files)) {
		if foreign := s.files[name].good.foreign; len(foreign) > 0 {
			out = append(out, Problem{File: name, Reason: "objects of other kinds are ignored: " + strings.Join(kinds(foreign), ", ")})
		}
	}
	return out
}

// collector is a Sink that keeps what it is given. Nothing is deleted from it: a
// registry deletes only what it sent before.
type collector struct {
	source.Sink
	Objects
}

func (c *collector) SetService(s model.Service)           { c.Services = append(c.Services, s) }
func (c *collector) SetSlice(s model.Slice)               { c.Slices = append(c.Slices, s) }
func (c *collector) SetNode(_ model.Origin, n model.Node) { c.Nodes = append(c.Nodes, n) }
