package top

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"
	"text/tabwriter"
	"time"
)

// Report is one table of what was carried between two samples. Field names in JSON never change:
// manifests/schemas/top.schema.json.
type Report struct {
	At time.Time `json:"at"`
	// Seconds lie between the two samples.
	Seconds  float64         `json:"seconds"`
	Services []ServiceReport `json:"services"`
	// Backends are those of the Service that was asked for.
	Backends []BackendReport `json:"backends,omitempty"`
}

// ServiceReport is one Service, or a virtual server without a known Service, named by its address.
type ServiceReport struct {
	Namespace  string   `json:"namespace,omitempty"`
	Name       string   `json:"name"`
	Addresses  []string `json:"addresses"`
	Schedulers []string `json:"schedulers"`
	Rates
	// Load is missing where the kernel does not tell.
	Load *Load `json:"load,omitempty"`
}

// BackendReport is one backend.
type BackendReport struct {
	Address  string `json:"address"`
	Weight   uint16 `json:"weight"`
	Active   uint64 `json:"active"`
	Inactive uint64 `json:"inactive"`
	Draining bool   `json:"draining"`
	// Until is when its connections are cut, where that is known.
	Until *time.Time `json:"until,omitempty"`
	Rates

	line Backend
}

// Question selects the parts of a report.
type Question struct {
	Interval time.Duration
	Sort     Sort
	// Limit is how many lines, 0 for all.
	Limit     int
	Namespace string
	// Service is the label of one whose backends are wanted; empty is none.
	Service string
}

// ErrNoServer means that the kernel has no virtual server of the Service that was asked for.
var ErrNoServer = errors.New("no virtual server on this node belongs to Service")

// Once takes two samples and reports what lies between. Errors that do not stop it are passed to
// trouble.
func Once(ctx context.Context, from *Source, q Question, trouble func(error)) (Report, error) {
	screen := Screen{Sort: q.Sort, Namespace: q.Namespace, Detail: q.Service}
	steps := 2
	if q.Service != "" {
		steps = 3 // the first one tells which servers are its own
	}
	for i := range steps {
		next, err := from.Take(ctx, screen.Asks())
		if err != nil {
			return Report{}, err
		}
		screen = screen.Sampled(next, nil)
		if q.Service != "" && len(screen.Asks()) == 0 {
			return Report{}, fmt.Errorf("%w %s", ErrNoServer, q.Service)
		}
		last := i == steps-1
		if last && screen.trouble != nil {
			trouble(screen.trouble)
		}
		if last || steps == 3 && i == 0 {
			continue
		}
		select {
		case <-time.After(q.Interval):
		case <-ctx.Done():
			return Report{}, ctx.Err()
		}
	}
	return screen.report(q.Limit), nil
}

func (s Screen) report(limit int) Report {
	out := Report{At: s.is.At, Seconds: s.is.At.Sub(s.was.At).Seconds(), Services: []ServiceReport{}}
	for _, o := range s.all {
		if s.Detail != "" && o.Label() != s.Detail {
			continue
		}
		r := ServiceReport{Namespace: o.Namespace, Name: o.Name, Schedulers: o.Schedulers, Rates: o.Rates, Load: o.Load}
		for _, k := range o.Servers {
			r.Addresses = append(r.Addresses, k.String())
		}
		out.Services = append(out.Services, r)
	}
	if s.Detail != "" {
		out.Backends = []BackendReport{}
	}
	for _, b := range s.backends {
		r := BackendReport{Address: b.Addr.String(), Weight: b.Weight, Active: b.Active, Inactive: b.Inactive, Draining: b.Draining, Rates: b.Rates, line: b}
		if !b.Until.IsZero() {
			r.Until = &b.Until
		}
		out.Backends = append(out.Backends, r)
	}
	if limit > 0 {
		out.Services = out.Services[:min(limit, len(out.Services))]
		out.Backends = out.Backends[:min(limit, len(out.Backends))]
	}
	return out
}

// WriteJSON prints a report for programs.
func (r Report) WriteJSON(w io.Writer) error {
	enc := json.NewEncoder(w)
	enc.SetIndent("", "  ")
	return enc.Encode(r)
}

// WriteText prints a report for people.
func (r Report) WriteText(w io.Writer) error {
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	if r.Backends != nil {
		row(t, names(backendColumns))
		for _, b := range r.Backends {
			row(t, b.line.cells(r.At))
		}
		return t.Flush()
	}
	row(t, names(serviceColumns))
	for _, s := range r.Services {
		row(t, Service{Namespace: s.Namespace, Name: s.Name, Rates: s.Rates, Load: s.Load}.cells())
	}
	return t.Flush()
}

func row(w io.Writer, cells []string) { fmt.Fprintln(w, strings.Join(cells, "\t")) }
