// Command fleet measures what agents cost their API server: many of them, without kernels, in one process, against a real kube-apiserver.
// What it finds for each agent it multiplies for thousands. e2e/README.md says what the numbers mean.
package main

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"os/signal"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"go.uber.org/zap"

	"github.com/kube-ipvs/kube-ipvs/e2e/bench/fleet/herd"
	"github.com/kube-ipvs/kube-ipvs/e2e/bench/fleet/plane"
	"github.com/kube-ipvs/kube-ipvs/internal/source/kube"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	err := run(ctx, os.Args[1:], os.Stdout, os.Stderr)
	stop()
	if err != nil && !errors.Is(err, flag.ErrHelp) {
		fmt.Fprintln(os.Stderr, "fleet:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, args []string, out, log io.Writer) error {
	o, err := parse(args, log)
	if err != nil {
		return err
	}
	results, err := o.results(ctx)
	if err != nil {
		return err
	}
	all := forecasts(results, o.fleet, o.rates)
	if o.json {
		encoder := json.NewEncoder(out)
		encoder.SetIndent("", "  ")
		return encoder.Encode(document{results, all})
	}
	report(out, results, all)
	return nil
}

// document is what is written with -json, and read again.
type document struct {
	Results   []*result  `json:"results"`
	Forecasts []forecast `json:"forecasts"`
}

// results are measured, or read from files.
func (o *options) results(ctx context.Context) (results []*result, err error) {
	for _, file := range o.files {
		text, err := os.ReadFile(file)
		if err != nil {
			return nil, err
		}
		var one document
		if err := json.Unmarshal(text, &one); err != nil {
			return nil, fmt.Errorf("read %s: %w", file, err)
		}
		results = append(results, one.Results...)
	}
	if len(o.files) > 0 {
		return results, nil
	}
	kube.CatchKlog(zap.NewNop()) // informers write each failure of a storm
	for _, services := range o.services {
		some, err := measure(ctx, *o, services)
		if err != nil {
			return nil, fmt.Errorf("%d Services: %w", services, err)
		}
		results = append(results, some...)
	}
	return results, nil
}

// versions is more than the changes of one kind: no change is one that was there before.
const versions = 1_000_000

// measure is all kinds, one after the other, with one API server.
func measure(ctx context.Context, o options, services int) (results []*result, err error) {
	ctx, cancel := context.WithTimeoutCause(ctx, o.limit, fmt.Errorf("not done within %s", o.limit))
	defer cancel()
	since := time.Now()
	p, err := plane.Start(ctx, plane.Options{Services: services, Endpoints: o.endpoints, Nodes: o.nodes, Log: o.log})
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, p.Close()) }()
	for i, kind := range o.kinds {
		r := &result{Kind: kind, Services: services, Endpoints: o.endpoints, Nodes: o.nodes}
		t := &trial{options: o, plane: p, out: r, since: since, random: rand.New(rand.NewPCG(1, uint64(services))), version: i * versions}
		t.say("%s: %d Services of %d endpoints and %d Nodes are there", kind, services, o.endpoints, o.nodes)
		if err := t.run(ctx); err != nil {
			return results, fmt.Errorf("%s: %w", kind, err)
		}
		results = append(results, r)
	}
	return results, nil
}

const usage = `fleet measures what agents cost their API server, for each of many in one process. It needs the programs that
go run ./e2e/kube/build makes.

  fleet [flags]                       measures
  fleet [flags] report FILE...        makes tables, and forecasts, of what -json wrote, all of it together

Examples:
  fleet -n 1000 -k 1,10,50
  fleet -n 5000 -k 1,10,50 -kinds kube-ipvs -json >fleet-5000.json
  fleet -fleet 5000,10000 -rates 50 report fleet-*.json

Flags:
`

// parse reads flags. It prints its help where out is, and returns flag.ErrHelp.
func parse(args []string, out io.Writer) (options, error) {
	o := options{log: out}
	var services, agents, kinds, fleet, rates string
	flags := flag.NewFlagSet("fleet", flag.ContinueOnError)
	flags.SetOutput(out)
	flags.Usage = func() { fmt.Fprint(out, usage); flags.PrintDefaults() }
	flags.StringVar(&services, "n", "1000", "`numbers` of Services")
	flags.StringVar(&agents, "k", "1,10,50,100", "`numbers` of agents, in growing order")
	flags.StringVar(&kinds, "kinds", herd.Agent+","+herd.Informers, "who follows the API server")
	flags.IntVar(&o.endpoints, "endpoints", 10, "of each Service")
	flags.IntVar(&o.nodes, "nodes", 600, "beyond 500 an agent follows its own alone")
	flags.IntVar(&o.rate, "rate", 50, "of changes a second")
	flags.DurationVar(&o.window, "window", 5*time.Second, "of changes, in which the server's CPU is measured")
	flags.IntVar(&o.windows, "windows", 3, "of which the median counts")
	flags.DurationVar(&o.idle, "idle", 65*time.Second, "how long nothing changes; a watch has a bookmark a minute")
	flags.BoolVar(&o.storm, "storm", true, "cut all connections, and restart the API server")
	flags.StringVar(&fleet, "fleet", "5000", "`numbers` of agents to forecast for")
	flags.StringVar(&rates, "rates", "1,10,50", "of changes a second, to forecast for")
	flags.DurationVar(&o.limit, "limit", 20*time.Minute, "for each number of Services")
	flags.BoolVar(&o.json, "json", false, "JSON instead of tables")
	if err := flags.Parse(args); err != nil {
		return o, err
	}
	switch {
	case flags.NArg() > 1 && flags.Arg(0) == "report":
		o.files = flags.Args()[1:]
	case flags.NArg() > 0:
		return o, fmt.Errorf("unexpected %q; fleet -help says what there is", flags.Arg(0))
	}
	for _, one := range []struct {
		to         *[]int
		name, text string
	}{{&o.services, "n", services}, {&o.agents, "k", agents}, {&o.fleet, "fleet", fleet}, {&o.rates, "rates", rates}} {
		list, err := numbers(one.text)
		if err != nil {
			return o, fmt.Errorf("-%s: %w", one.name, err)
		}
		*one.to = list
	}
	o.kinds = words(kinds)
	return o, o.validate()
}

func (o *options) validate() error {
	switch {
	case len(o.services) == 0 || slices.Min(o.services) < 2:
		return errors.New("-n: want numbers of Services, of 2 or more")
	case len(o.agents) == 0 || !slices.IsSorted(o.agents) || o.agents[0] < 1:
		return errors.New("-k: want numbers of agents, in growing order")
	case o.nodes < o.agents[len(o.agents)-1]:
		return errors.New("-nodes: want one for each agent at least")
	case o.endpoints < 1 || o.endpoints > 100:
		return errors.New("-endpoints: want 1 to 100, which is what a slice has")
	case o.rate < 1 || o.windows < 1 || o.window <= 0:
		return errors.New("-rate, -windows and -window have to be more than 0")
	}
	for _, kind := range o.kinds {
		if kind != herd.Agent && kind != herd.Informers {
			return fmt.Errorf("-kinds: unknown %q: want %s, %s", kind, herd.Agent, herd.Informers)
		}
	}
	return nil
}

func words(list string) []string {
	return strings.FieldsFunc(list, func(r rune) bool { return r == ',' || r == ' ' })
}

func numbers(list string) (out []int, err error) {
	for _, word := range words(list) {
		n, err := strconv.Atoi(word)
		if err != nil {
			return nil, err
		}
		out = append(out, n)
	}
	return out, nil
}
