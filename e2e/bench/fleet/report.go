package main

import (
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"

	"github.com/kube-ipvs/kube-ipvs/e2e/bench/fleet/paper"
	"github.com/kube-ipvs/kube-ipvs/e2e/bench/stats"
)

// buckets is how many a histogram has.
const buckets = 10

// report writes tables of what was measured, in Markdown.
func report(out io.Writer, results []*result, forecasts []forecast) {
	fmt.Fprintln(out, "\n| | Services | agents | first list, each | sent, each | server CPU, each | until the last | heap, each | change: sent to each | asked by each | server CPU a change | server RSS |")
	fmt.Fprintln(out, "|---|---|---|---|---|---|---|---|---|---|---|---|")
	for _, r := range results {
		for _, s := range r.Steps {
			fmt.Fprintln(out, s.row(r))
		}
	}
	for _, r := range results {
		r.details(out)
	}
	if len(forecasts) > 0 {
		reportForecasts(out, forecasts)
	}
}

func (s step) row(r *result) string {
	cells := []string{r.Kind, fmt.Sprint(r.Services), fmt.Sprint(s.Agents), "", "", "", "", "", "", "", fmt.Sprintf("%.2f ms", s.ChangeCPU*1000), size(s.RSS)}
	if s.Agents > 0 {
		copy(cells[3:], []string{
			size(s.ListDown), size(s.ListUp), fmt.Sprintf("%.0f ms", s.ListCPU/float64(s.Added)*1000), fmt.Sprintf("%.1f s", s.InSync), size(s.Heap),
			size(s.ChangeDown), size(s.ChangeUp),
		})
	}
	return "| " + strings.Join(cells, " | ") + " |"
}

func (r *result) details(out io.Writer) {
	fmt.Fprintf(out, "\n%s, %d Services of %d endpoints, %d Nodes\n", r.Kind, r.Services, r.Endpoints, r.Nodes)
	fmt.Fprintf(out, "  server CPU of a change = %.2f ms + %.1f us x agents (R2 %.3f, %d points)\n", r.ChangeFit.Base*1e3, r.ChangeFit.Each*1e6, r.ChangeFit.R2, r.ChangeFit.Points)
	fmt.Fprintf(out, "  server CPU of first lists = %.2f s + %.1f ms x agents (R2 %.3f, %d points)\n", r.ListFit.Base, r.ListFit.Each*1e3, r.ListFit.R2, r.ListFit.Points)
	fmt.Fprintf(out, "  server RSS = %s + %s x agents (R2 %.3f)\n", size(r.RSSFit.Base), size(r.RSSFit.Each), r.RSSFit.R2)
	fmt.Fprintf(out, "  heap of all agents = %s + %s x agents (R2 %.3f)\n", size(r.HeapFit.Base), size(r.HeapFit.Each), r.HeapFit.R2)
	fmt.Fprintf(out, "  idle: %.1f B/s to and %.1f B/s from each agent; requests: %s\n", r.IdleDown, r.IdleUp, counts(r.IdleAsked))
	fmt.Fprintf(out, "  Nodes, each with an agent and as many others, write their status once: %s to each agent\n", size(r.BeatDown))
	fmt.Fprintf(out, "  a plain list of Services and EndpointSlices: %s, server %.0f ms CPU\n", size(r.PlainDown), r.PlainCPU*1e3)
	last := r.Steps[len(r.Steps)-1]
	r.Changed.print(out, fmt.Sprintf("%d changes for %d agents", last.Changes, last.Agents))
	r.Beaten.print(out, "those Nodes")
	r.Cut.print(out, "all connections cut")
	r.Restart.print(out, "API server restarted")
	if len(r.Timeouts) > 0 {
		fmt.Fprintf(out, "  lives that watches ask for: %.0f to %.0f s, median %.0f s\n", slices.Min(r.Timeouts), slices.Max(r.Timeouts), stats.Median(r.Timeouts))
	}
}

// followed are the resources that agents and informers ask for; the server itself watches others.
var followed = []string{"endpointslices", "nodes", "servicecidrs", "services"}

func (w watched) print(out io.Writer, what string) {
	for _, name := range followed {
		if w.Events[name] == 0 {
			continue
		}
		fmt.Fprintf(out, "  watch events by %s: %.0f of %s, %s\n", what, w.Events[name], name, size(w.Sizes[name]))
	}
}

func (s *storm) print(out io.Writer, what string) {
	if s == nil {
		return
	}
	fmt.Fprintf(out, "\n  %s: away %.1f s, takes writes %.1f s and is ready %.1f s after it listens; %s to and %s from each agent; server %.1f s CPU\n", what, s.Away, s.Writes, s.Ready, size(s.Down), size(s.Up), s.CPU)
	fmt.Fprintf(out, "  in sync again after: p50 %.1f s, p90 %.1f s, all %.1f s\n", stats.Median(s.InSync), stats.Percentile(s.InSync, 90), stats.Percentile(s.InSync, 100))
	fmt.Fprintf(out, "  requests: %s\n", counts(s.Asked))
	fmt.Fprintf(out, "  flow control, workload-high: %.0f let through, %.0f refused, %.1f seats each of %.0f, %.1f s in queues\n", s.Dispatched, s.Rejected, s.Seats, s.Limit, s.Waited)
	fmt.Fprintf(out, "  connections, %.1f of each agent:\n", float64(len(s.Connects))/float64(max(1, len(s.InSync))))
	fmt.Fprint(out, paper.Histogram(paper.Buckets(s.Connects, buckets), "s"))
	fmt.Fprintln(out, "  agents in sync:")
	fmt.Fprint(out, paper.Histogram(paper.Buckets(s.InSync, buckets), "s"))
}

func counts(of map[string]int) string {
	var out []string
	for _, name := range slices.Sorted(maps.Keys(of)) {
		out = append(out, fmt.Sprintf("%d %s", of[name], name))
	}
	if len(out) == 0 {
		return "none"
	}
	return strings.Join(out, ", ")
}

// forecast is one for a kind.
type forecast struct {
	Kind string `json:"kind"`
	paper.Forecast
}

// forecasts are those of each kind, for numbers of Services that were measured and for twice the most of them.
func forecasts(results []*result, fleet, rates []int) (out []forecast) {
	costs := map[string][]paper.Cost{}
	for _, r := range results {
		costs[r.Kind] = append(costs[r.Kind], r.Cost)
	}
	for _, kind := range slices.Sorted(maps.Keys(costs)) {
		var services []float64
		for _, c := range costs[kind] {
			services = append(services, c.Services)
		}
		slices.Sort(services)
		for _, n := range append(slices.Compact(services), 2*slices.Max(services)) {
			for _, agents := range fleet {
				for _, rate := range rates {
					out = append(out, forecast{kind, paper.Scale(costs[kind], n).At(float64(agents), float64(rate))})
				}
			}
		}
	}
	return out
}

func reportForecasts(out io.Writer, list []forecast) {
	fmt.Fprintln(out, "\n| on paper | Services | agents | changes/s | events/s | sent/s | server cores | idle/s | all list once: sent | server CPU |")
	fmt.Fprintln(out, "|---|---|---|---|---|---|---|---|---|---|")
	for _, f := range list {
		fmt.Fprintf(out, "| %s | %.0f | %.0f | %.0f | %.0f | %s | %.1f | %s | %s | %.0f s |\n", f.Kind, f.Services, f.Agents, f.Rate, f.Events, size(f.EventBytes),
			f.EventCores, size(f.IdleBytes), size(f.StormBytes), f.StormCPU)
	}
}

// size is bytes for people.
func size(bytes float64) string {
	sign := ""
	if bytes < 0 {
		sign, bytes = "-", -bytes
	}
	for _, unit := range []string{"B", "kB", "MB"} {
		if bytes < 1000 {
			if unit == "B" {
				return fmt.Sprintf("%s%.0f B", sign, bytes)
			}
			return fmt.Sprintf("%s%.3g %s", sign, bytes, unit)
		}
		bytes /= 1000
	}
	return fmt.Sprintf("%s%.3g GB", sign, bytes)
}
