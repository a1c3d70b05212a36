// Command evaluate asks what a dashboard asks of Prometheus' own engine, over scrapes that were kept in files, and writes what each of its
// panels shows as JSON. e2e/dashboard draws that.
package main

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"math"
	"os"
	"time"

	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/promql"
	"github.com/prometheus/prometheus/promql/parser"
	"github.com/prometheus/prometheus/storage"
	"github.com/prometheus/prometheus/tsdb"
)

// picture is what a dashboard shows.
type picture struct {
	Title     string   `json:"title"`
	Variables []string `json:"variables"` // as they are labelled
	Times     []int64  `json:"times"`     // seconds, Unix; those of all points
	Panels    []drawn  `json:"panels"`
}

// drawn is a panel with what it shows.
type drawn struct {
	panel
	Series []series `json:"series"`
}

// series is one line: a value for each time, null where it has none.
type series struct {
	Legend string     `json:"legend"`
	Values []*float64 `json:"values"`
}

func main() {
	dashboard := flag.String("dashboard", "../../manifests/monitoring/kube-ipvs.dashboard.json", "the dashboard, in Grafana's JSON")
	scrapes := flag.String("scrapes", "../../bin/scrapes", "the directory of scrapes, each in a file named by its Unix milliseconds")
	instance := flag.String("instance", "node-a", "the label instance of the target that was scraped")
	scraped := flag.Duration("interval", 15*time.Second, "the scrape interval of the data source in Grafana, whose default this is")
	flag.Parse()
	if err := run(*dashboard, *scrapes, *instance, *scraped); err != nil {
		fmt.Fprintln(os.Stderr, "evaluate:", err)
		os.Exit(1)
	}
}

func run(dashboard, scrapes, instance string, scraped time.Duration) error {
	d, err := readDashboard(dashboard)
	if err != nil {
		return err
	}
	kept, err := readScrapes(scrapes)
	if err != nil {
		return err
	}
	shown, err := evaluate(context.Background(), d, kept, instance, scraped)
	if err != nil {
		return err
	}
	return json.NewEncoder(os.Stdout).Encode(shown)
}

// evaluate asks each panel's questions in steps of the data source's interval that end with the last scrape.
func evaluate(ctx context.Context, d *dashboard, scrapes []scrape, instance string, scraped time.Duration) (out *picture, err error) {
	dir, err := os.MkdirTemp("", "kube-ipvs-dashboard-")
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	db, err := tsdb.Open(dir, nil, nil, tsdb.DefaultOptions(), nil)
	if err != nil {
		return nil, fmt.Errorf("open a database in %s: %w", dir, err)
	}
	defer func() { err = errors.Join(err, db.Close()) }()
	if err := store(ctx, db, scrapes, labels.FromStrings("job", "kube-ipvs", "instance", instance)); err != nil {
		return nil, err
	}
	engine := promql.NewEngine(promql.EngineOpts{MaxSamples: 50_000_000, Timeout: time.Minute, Parser: parser.NewParser(parser.Options{})})
	defer func() { err = errors.Join(err, engine.Close()) }()
	first, last := scrapes[0].at, scrapes[len(scrapes)-1].at
	e := &evaluation{engine: engine, db: db, variables: d.variables(scraped), from: last.Add(-last.Sub(first).Truncate(scraped)), to: last, step: scraped}
	out = &picture{Title: d.Title, Times: e.times()}
	for _, v := range d.Templating.List {
		if v.AllValue != "" {
			out.Variables = append(out.Variables, v.Label)
		}
	}
	for _, p := range d.Panels {
		lines, err := e.panel(ctx, p)
		if err != nil {
			return nil, fmt.Errorf("panel %s: %w", p.Title, err)
		}
		out.Panels = append(out.Panels, drawn{p, lines})
	}
	return out, nil
}

// evaluation is one of a dashboard.
type evaluation struct {
	engine    *promql.Engine
	db        storage.Queryable
	variables map[string]string
	from, to  time.Time
	step      time.Duration
}

func (e *evaluation) times() []int64 {
	var out []int64
	for at := e.from; !at.After(e.to); at = at.Add(e.step) {
		out = append(out, at.Unix())
	}
	return out
}

// panel is what a panel shows: the series of all its targets.
func (e *evaluation) panel(ctx context.Context, p panel) ([]series, error) {
	var out []series
	for _, t := range p.Targets {
		expr, err := fill(t.Expr, e.variables)
		if err != nil {
			return nil, err
		}
		lines, err := e.ask(ctx, expr, t)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", expr, err)
		}
		out = append(out, lines...)
	}
	return out, nil
}

func (e *evaluation) ask(ctx context.Context, expr string, t target) ([]series, error) {
	query, err := e.engine.NewRangeQuery(ctx, e.db, nil, expr, e.from, e.to, e.step)
	if err != nil {
		return nil, err
	}
	defer query.Close() // which takes the points away
	matrix, err := query.Exec(ctx).Matrix()
	if err != nil {
		return nil, err
	}
	var out []series
	for _, m := range matrix {
		line := series{Legend: t.legend(m.Metric), Values: make([]*float64, len(e.times()))}
		for _, point := range m.Floats {
			if v := point.F; !math.IsNaN(v) && !math.IsInf(v, 0) { // JSON has neither, and Grafana draws neither
				line.Values[time.UnixMilli(point.T).Sub(e.from)/e.step] = &v
			}
		}
		out = append(out, line)
	}
	return out, nil
}
