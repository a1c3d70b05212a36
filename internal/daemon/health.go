package daemon

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"go.uber.org/zap"

	"github.com/kube-ipvs/kube-ipvs/internal/agent"
	"github.com/kube-ipvs/kube-ipvs/internal/catalog"
	"github.com/kube-ipvs/kube-ipvs/internal/httpd"
	"github.com/kube-ipvs/kube-ipvs/internal/inspect"
	"github.com/kube-ipvs/kube-ipvs/internal/model"
	"github.com/kube-ipvs/kube-ipvs/internal/source"
	"github.com/kube-ipvs/kube-ipvs/internal/source/kube"
	"github.com/kube-ipvs/kube-ipvs/internal/wiring"
)

// tolerated is the number of applies in a row that may fail before the node is not ready. The first
// failures are often transient.
const tolerated = 2

// healthInputs are the inputs of the health checks of this node. Any goroutine may read them, also
// while the loop is stuck.
type healthInputs struct {
	settings wiring.Settings
	families []model.Family
	loop     interface{ Condition() agent.Condition }
	known    interface {
		Unsynced() map[model.Origin]source.State
		Eligible() bool
	}
	progress func() map[string]kube.Progress // nil without an API server
	// unreadable returns the inputs whose last good content stays in force; nil for none.
	unreadable func() []string
}

var _ interface {
	Unsynced() map[model.Origin]source.State
	Eligible() bool
} = (*catalog.Catalog)(nil)

// health returns the inputs of this daemon.
func (d *daemon) health() healthInputs {
	return healthInputs{settings: d.live.now, families: d.served, loop: d.loop, known: d.known, progress: d.sources.progress(), unreadable: d.sources.unreadable}
}

// report returns the health of this node (internal/DECISIONS.md, Health). /livez is red
// only for what a restart can cure, so an absent API server leaves it green.
func (o healthInputs) report(context.Context) httpd.Report {
	now, c := time.Now(), o.loop.Condition()
	r := httpd.Report{NodeEligible: o.known.Eligible(), Checks: []httpd.Check{
		o.inSync(), o.partial(), o.watch(now), carrying(c), applies(c), late(c, now), stuck(c, now),
	}}
	for _, f := range o.families {
		r.Families = append(r.Families, httpd.Family{Name: f.String(), Updated: c.Updated, Healthy: !c.Late(now) && !c.Stuck(now)})
	}
	return r
}

// rows returns the report with its reasons, for the socket, which only root may open.
func (o healthInputs) rows(ctx context.Context) []inspect.HealthRow {
	r := o.report(ctx)
	checks := r.Checks
	node := httpd.Check{Name: "node", Health: true}
	if !r.NodeEligible {
		node.Reason = "the Node object was never seen, is being deleted, or has the taint of a node that will be deleted"
	}
	var rows []inspect.HealthRow
	for _, c := range append(checks, node) {
		row := inspect.HealthRow{Check: c.Name, OK: c.Reason == "", Reason: c.Reason, Paths: []string{}}
		for _, p := range []struct {
			name string
			on   bool
		}{{"healthz", c.Health}, {"livez", c.Live}, {"readyz", c.Ready}} {
			if p.on {
				row.Paths = append(row.Paths, p.name)
			}
		}
		rows = append(rows, row)
	}
	return rows
}

// holds returns whether each check holds.
func (o healthInputs) holds() map[string]bool {
	out := map[string]bool{}
	for _, row := range o.rows(context.Background()) {
		out[row.Check] = row.OK
	}
	return out
}

// logInterval is the time between two looks of logChanges. During a start some checks fail for less.
const logInterval = 10 * time.Second

// logChanges logs each check that begins to fail, with the reason, and each that holds again,
// until ctx ends.
func (o healthInputs) logChanges(ctx context.Context, log *zap.Logger) error {
	tick := time.NewTicker(logInterval)
	defer tick.Stop()
	failing := map[string]bool{}
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
		}
		for _, row := range o.rows(ctx) {
			switch {
			case !row.OK && !failing[row.Check]:
				log.Warn("a health check fails", zap.String("check", row.Check), zap.Strings("paths", row.Paths), zap.String("reason", row.Reason))
			case row.OK && failing[row.Check]:
				log.Info("a health check holds again", zap.String("check", row.Check))
			}
			failing[row.Check] = !row.OK
		}
	}
}

// inSync checks that every source has delivered all that it can.
func (o healthInputs) inSync() httpd.Check {
	var reasons []string
	for _, origin := range slices.Sorted(maps.Keys(o.known.Unsynced())) {
		if o.known.Unsynced()[origin] >= source.Partial {
			continue
		}
		reasons = append(reasons, fmt.Sprintf("source %s has not delivered everything yet", origin))
		if origin == model.FromKube {
			reasons = append(reasons, o.missing()...)
		}
	}
	return httpd.Check{Name: "sources", Reason: strings.Join(reasons, "; "), Health: true, Ready: true}
}

// missing names the kinds of object that the API server has not delivered yet, by reason.
func (o healthInputs) missing() (out []string) {
	progress, kinds := o.progress(), map[string][]string{}
	for _, kind := range slices.Sorted(maps.Keys(progress)) {
		if p := progress[kind]; !p.Synced {
			why := orSilence(p.Err)
			kinds[why] = append(kinds[why], kind)
		}
	}
	for why, list := range kinds {
		out = append(out, strings.Join(list, ", ")+": "+why)
	}
	slices.Sort(out)
	return out
}

func orSilence(err error) string {
	if err == nil {
		err = errors.New("no answer yet")
	}
	return err.Error()
}

// partial checks that every source can read all of its input. It fails also while the last good content stays in force.
func (o healthInputs) partial() httpd.Check {
	var reasons []string
	for origin, state := range o.known.Unsynced() {
		if state == source.Partial {
			reasons = append(reasons, fmt.Sprintf("source %s: some input cannot be read", origin))
		}
	}
	if o.unreadable != nil {
		reasons = append(reasons, o.unreadable()...)
	}
	return httpd.Check{Name: "input", Ready: true, Reason: strings.Join(reasons, "; ")}
}

// watch checks that the API server has sent something lately for each kind of object, at least a
// bookmark. /healthz, which load balancers ask, fails much later than /readyz: the kernel stays
// right for most Services, and every node has the same problem.
func (o healthInputs) watch(now time.Time) httpd.Check {
	check := httpd.Check{Name: "watch", Ready: true}
	if o.progress == nil {
		return check
	}
	c, progress := o.settings(), o.progress()
	var silent []string
	for _, kind := range slices.Sorted(maps.Keys(progress)) {
		p := progress[kind]
		age := now.Sub(p.Heard)
		if !p.Synced || age <= c.ReadyzWatchBound {
			continue // the check of sources reports one that was never complete
		}
		silent = append(silent, fmt.Sprintf("the API server has sent nothing about %s for %s: %s", kind, age.Truncate(time.Second), orSilence(p.Err)))
		check.Health = check.Health || c.HealthzWatchBound > 0 && age > c.HealthzWatchBound
	}
	check.Reason = strings.Join(silent, "; ")
	return check
}

func carrying(c agent.Condition) httpd.Check {
	check := httpd.Check{Name: "first sync", Health: true, Ready: true}
	if !c.Served {
		check.Reason = "most desired rows are not in the kernel yet"
	}
	return check
}

func applies(c agent.Condition) httpd.Check {
	check := httpd.Check{Name: "apply", Ready: true}
	if c.Failures > tolerated {
		check.Reason = fmt.Sprintf("failed %d times in a row: %s", c.Failures, c.LastError)
	}
	return check
}

func late(c agent.Condition, now time.Time) httpd.Check {
	check := httpd.Check{Name: "changes", Health: true, Live: true, Ready: true}
	if c.Late(now) {
		check.Reason = fmt.Sprintf("a change has waited %s to be written to the kernel", now.Sub(c.PendingSince).Truncate(time.Second))
	}
	return check
}

func stuck(c agent.Condition, now time.Time) httpd.Check {
	check := httpd.Check{Name: "loop", Health: true, Live: true, Ready: true}
	if c.Stuck(now) {
		check.Reason = fmt.Sprintf("has been busy with one action for %s", now.Sub(c.Busy).Truncate(time.Second))
	}
	return check
}
