package clusterui

import (
	"context"
	"errors"
	"net/http"
	"strings"
	"time"

	"github.com/kube-ipvs/kube-ipvs/internal/cluster"
)

// errNoName is a request without the name of a Service.
var errNoName = errors.New("the page wants ?name=namespace/name")

// detail is what nodes answered about one Service.
type detail struct {
	At                             time.Time
	explain, services, top, drains cluster.Report
}

// longestName bounds the name of a Service: two labels and a slash.
const longestName = 253 + 1 + 63

// service returns the page of one Service.
func (s *Server) service(req *http.Request) (document, error) {
	name := req.URL.Query().Get("name")
	namespace, service, both := strings.Cut(name, "/")
	if !both || namespace == "" || service == "" || strings.HasPrefix(name, "-") || len(name) > longestName || strings.ContainsFunc(name, outsideNames) {
		return nil, errNoName
	}
	d, err := s.cacheOf(name).get(s.every, func() (detail, error) { return s.askAll(req.Context(), name) })
	if err != nil {
		return nil, err
	}
	return servicePageOf(name, d, s.every), nil
}

// outsideNames reports whether a character is in no name of a Service.
func outsideNames(r rune) bool {
	return r != '/' && r != '-' && r != '.' && (r < 'a' || r > 'z') && (r < '0' || r > '9')
}

// cacheOf returns the cache of a Service. When there are many all are dropped.
func (s *Server) cacheOf(name string) *cache[detail] {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.services[name] == nil {
		if len(s.services) >= mostServices {
			clear(s.services)
		}
		s.services[name] = &cache[detail]{}
	}
	return s.services[name]
}

// askAll asks all that a page has. Counters are missing where IPVS is missing; top reports that.
func (s *Server) askAll(ctx context.Context, name string) (d detail, err error) {
	d.At = time.Now()
	for _, step := range []struct {
		into *cluster.Report
		q    cluster.Question
	}{
		{&d.explain, &cluster.Explain{Target: name}}, {&d.services, &cluster.Services{Target: name}},
		{&d.drains, &cluster.Drains{Target: name}}, {&d.top, &cluster.Top{Service: name}},
	} {
		if *step.into, err = s.asked(ctx, step.q); err != nil {
			return d, err
		}
	}
	return d, nil
}

// servicePage is the page of a Service.
type servicePage struct {
	Title, At, Name, Verdict string
	Seconds                  int
	Problems                 []problem
	More                     int
	Sentences                []cluster.ExplainRow
	Frontends                []string
	Backends                 []backend
	Drains                   []cluster.DrainRow
}

// A backend is drawn with the share that it has of the connections.
type backend struct {
	cluster.TopRow
	// Share is in percent.
	Share int
	State string
}

func servicePageOf(name string, d detail, every time.Duration) servicePage {
	p := servicePage{Title: name + " on all nodes", At: at(d.At), Name: name, Verdict: d.explain.Verdict, Seconds: max(int(every.Seconds()), 1)}
	p.Problems, p.More = problemsOf(d.explain)
	for _, item := range d.explain.Items {
		if r, ok := item.(cluster.ExplainRow); ok {
			p.Sentences = append(p.Sentences, r)
		}
	}
	for _, item := range d.services.Items {
		if r, ok := item.(cluster.ServiceRow); ok {
			for _, a := range r.VIPs {
				p.Frontends = append(p.Frontends, a.String()+" ("+strings.Join(r.Ports, ", ")+")")
			}
		}
	}
	for _, item := range d.drains.Items {
		if r, ok := item.(cluster.DrainRow); ok {
			p.Drains = append(p.Drains, r)
		}
	}
	p.Backends = backendsOf(d.top)
	return p
}

func backendsOf(top cluster.Report) (out []backend) {
	var all uint64
	for _, item := range top.Items {
		if r, ok := item.(cluster.TopRow); ok {
			all += r.Active
			out = append(out, backend{TopRow: r, State: stateOf(r)})
		}
	}
	for i := range out {
		out[i].Share = int(100 * out[i].Active / max(all, 1)) //nolint:gosec // at most 100
	}
	return out
}

func stateOf(r cluster.TopRow) string {
	switch {
	case r.Draining == r.Nodes:
		return "draining"
	case r.Draining > 0:
		return "draining on some nodes"
	}
	return "serving"
}
