package file_test

import (
	"context"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"
	"go.uber.org/zap/zaptest/observer"

	"github.com/kube-ipvs/kube-ipvs/internal/model"
	"github.com/kube-ipvs/kube-ipvs/internal/source"
	"github.com/kube-ipvs/kube-ipvs/internal/source/file"
	"github.com/kube-ipvs/kube-ipvs/internal/testkit/poll"
)

// recorder is a Sink that keeps what is in force and what was called.
type recorder struct {
	mu      sync.Mutex
	objects map[string]string
	calls   []string
	state   source.State
}

func (r *recorder) note(call, key, value string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.calls = append(r.calls, call+" "+key)
	if call == "set" {
		r.objects[key] = value
	} else {
		delete(r.objects, key)
	}
}

func (r *recorder) SetService(s model.Service) {
	r.note("set", "service "+s.ID.String(), showService(s))
}
func (r *recorder) DeleteService(id model.ServiceID) { r.note("delete", "service "+id.String(), "") }
func (r *recorder) SetSlice(s model.Slice) {
	r.note("set", "slice "+s.ID.String(), fmt.Sprintf("%s %d", s.Service, len(s.Endpoints)))
}
func (r *recorder) DeleteSlice(id model.SliceID)           { r.note("delete", "slice "+id.String(), "") }
func (r *recorder) SetNode(_ model.Origin, n model.Node)   { r.note("set", "node "+n.Name, n.Zone) }
func (r *recorder) DeleteNode(_ model.Origin, name string) { r.note("delete", "node "+name, "") }
func (r *recorder) SetState(_ model.Origin, s source.State) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.state = s
}

// showService prints "[addresses] [ports]" and whatever else answers.
func showService(s model.Service) string {
	ports := make([]string, 0, len(s.Ports))
	for _, p := range s.Ports {
		number := fmt.Sprint(p.Port)
		if p.NodePort != 0 {
			number += fmt.Sprintf(":%d", p.NodePort)
		}
		ports = append(ports, fmt.Sprintf("{%s %s %s}", p.Name, p.Protocol, number))
	}
	out := fmt.Sprintf("%v %v", s.ClusterIPs, ports)
	if len(s.ExternalIPs)+len(s.Ingress)+len(s.SourceRanges) > 0 {
		out += fmt.Sprintf(" external %v balancer %v for %v", s.ExternalIPs, s.Ingress, s.SourceRanges)
	}
	return out
}

// has tells what is in force for "service default/web" and the like.
func (r *recorder) has(key string) string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.objects[key]
}

// names lists what is in force.
func (r *recorder) names() string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return strings.Join(slices.Sorted(maps.Keys(r.objects)), ", ")
}

func (r *recorder) now() source.State {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.state
}

// takeCalls returns the calls since it was asked last.
func (r *recorder) takeCalls() []string {
	r.mu.Lock()
	defer r.mu.Unlock()
	defer func() { r.calls = nil }()
	return r.calls
}

// rig is a source on a directory of its own.
type rig struct {
	*testing.T
	dir    string
	source *file.Source
	sink   *recorder
	logs   *observer.ObservedLogs
}

// quick makes changes come through in milliseconds; polling is left out so that
// what a test sees was noticed by the watch.
var quick = file.Options{Poll: time.Hour, Quiet: 5 * time.Millisecond, Patience: 50 * time.Millisecond}

// newRig makes a source of path, which is within a fresh directory.
func newRig(t *testing.T, path string, opts file.Options) *rig {
	t.Helper()
	core, logs := observer.New(zapcore.InfoLevel)
	g := &rig{T: t, dir: t.TempDir(), logs: logs, sink: &recorder{objects: map[string]string{}}}
	g.source = file.New(zap.New(core), filepath.Join(g.dir, path), opts)
	return g
}

// run starts the source and ends it with the test.
func (g *rig) run() *rig {
	g.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- g.source.Run(ctx, g.sink) }()
	g.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			g.Errorf("run ended with %v", err)
		}
	})
	return g
}

// write puts a file in place the way editors and kubelets do: by renaming.
func (g *rig) write(name, text string) {
	g.Helper()
	tmp := filepath.Join(g.dir, ".tmp")
	g.must(os.WriteFile(tmp, []byte(text), 0o600))
	g.must(os.Rename(tmp, filepath.Join(g.dir, name)))
}

func (g *rig) must(err error) {
	g.Helper()
	if err != nil {
		g.Fatal(err)
	}
}

// until waits for a state.
func (g *rig) until(what string, cond func() bool) {
	g.Helper()
	poll.Until(g, what, cond, func() string {
		return fmt.Sprintf("in force: %s\nstate: %s\nstatus: %+v\nlog: %v", g.sink.names(), g.sink.now(), g.source.Status(), g.logs.All())
	})
}

func (g *rig) untilHas(names string) {
	g.Helper()
	g.until("in force are "+names, func() bool { return g.sink.names() == names })
}

func (g *rig) untilState(s source.State) {
	g.Helper()
	g.until("the state is "+s.String(), func() bool { return g.sink.now() == s })
}

// problems prints the status, a line for each problem.
func (g *rig) problems() string { return problemLines(g.source.Status().Problems) }

func problemLines(list []file.Problem) string {
	var b strings.Builder
	for _, p := range list {
		b.WriteString(p.String() + "\n")
	}
	return b.String()
}

// service is a manifest of a Service with one port.
func service(name string, port int) string {
	return fmt.Sprintf("apiVersion: v1\nkind: Service\nmetadata:\n  name: %s\nspec:\n  clusterIP: 10.96.0.1\n  ports:\n  - port: %d\n", name, port)
}
