// Command bench measures programs that carry Kubernetes Services, one after the other on one machine with one API server, and makes a table
// and a picture. e2e/bench-peers.sh builds what bench needs and runs it where IPVS is available; e2e/bench/README.md lists the measurements.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/kube-ipvs/kube-ipvs/e2e/bench/report"
	"github.com/kube-ipvs/kube-ipvs/e2e/bench/run"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	err := bench(ctx, os.Args[1:], os.Stdout)
	stop()
	if err != nil && !errors.Is(err, flag.ErrHelp) {
		fmt.Fprintln(os.Stderr, "bench:", err)
		os.Exit(1)
	}
}

func bench(ctx context.Context, args []string, out io.Writer) error {
	if len(args) > 0 && args[0] == "report" {
		if len(args) != 2 {
			return errors.New("usage: bench report DIR")
		}
		return makeReport(args[1], out)
	}
	o, err := parse(args, out)
	if err != nil {
		return err
	}
	// The candidate's connection to the API server goes through this process and must not wait for its other work. On a machine with one
	// CPU the kernel switches threads sooner than Go switches goroutines.
	runtime.GOMAXPROCS(max(threads, runtime.GOMAXPROCS(0)))
	return run.Run(ctx, o)
}

const threads = 4

const usage = `bench measures programs that carry Kubernetes Services, one after the other on one machine with one API server.
It needs root, and the programs that go run ./e2e/kube/build makes.

  bench [flags]        measures, and writes a JSON file for each candidate and number of Services
  bench report DIR     makes a table and a picture of all results in a directory

Examples:
  bench -kube-ipvs bin/kube-ipvs -kube-proxy ~/.cache/kube-ipvs/controlplane-*/kube-proxy -out bin/bench
  bench -n 100 -candidates kube-proxy-iptables -parts start,endpoint -samples 20 -kube-proxy /usr/bin/kube-proxy
  bench -candidates kube-ipvs -candidate 'mine=/opt/mine --kubeconfig {kubeconfig} --node {node}' -kube-ipvs bin/kube-ipvs

A command line may contain {kubeconfig}, {node}, {dir} (an empty directory), {config-ipvs}, {config-iptables} and {config-nftables} (files
for kube-proxy). Known candidates:
%s
Flags:
`

// parse reads flags. It prints its help to out, and then returns flag.ErrHelp.
func parse(args []string, out io.Writer) (run.Options, error) {
	o := run.Options{Endpoints: 10, Churn: time.Minute, Rate: 50, Settle: 30 * time.Second, Log: out}
	var services, parts, names string
	var others []run.Candidate
	flags := flag.NewFlagSet("bench", flag.ContinueOnError)
	flags.SetOutput(out)
	flags.Usage = func() {
		var known strings.Builder
		for _, c := range run.Known() {
			fmt.Fprintf(&known, "  %-20s %s\n", c.Name, c.Command)
		}
		fmt.Fprintf(out, usage, known.String())
		flags.PrintDefaults()
	}
	flags.StringVar(&services, "n", "100,1000,5000,10000", "`numbers` of Services, in growing order")
	flags.StringVar(&names, "candidates", "kube-ipvs,kube-ipvs-nftables,kube-proxy-ipvs,kube-ipvs-iptables,kube-proxy-iptables,kube-proxy-nftables", "known ones, in order; may be empty")
	flags.Func("candidate", "another one, as `NAME=COMMAND`; repeatable", func(text string) error {
		c, err := run.ParseCandidate(text)
		others = append(others, c)
		return err
	})
	flags.StringVar(&parts, "parts", strings.Join(run.Parts(), ","), "what is measured; a start is always made")
	flags.IntVar(&o.Samples, "samples", 50, "of each kind of change")
	flags.DurationVar(&o.Limit, "limit", 20*time.Minute, "for each answer, and for each part")
	flags.StringVar(&o.Out, "out", "bench-out", "`directory` of results, and of the candidates' output")
	flags.StringVar(&o.KubeIPVS, "kube-ipvs", "", "the `program`")
	flags.StringVar(&o.KubeProxy, "kube-proxy", "", "the `program`")
	if err := flags.Parse(args); err != nil {
		return o, err
	}
	if flags.NArg() > 0 {
		return o, fmt.Errorf("unexpected %q; bench -help says what there is", flags.Arg(0))
	}
	var err error
	if o.Services, err = numbers(services); err != nil {
		return o, err
	}
	chosen, err := run.Choose(words(names))
	if err != nil {
		return o, err
	}
	o.Candidates, o.Parts = append(chosen, others...), words(parts)
	return o, o.Validate()
}

func words(list string) []string {
	return strings.FieldsFunc(list, func(r rune) bool { return r == ',' || r == ' ' })
}

func numbers(list string) ([]int, error) {
	var out []int
	for _, word := range words(list) {
		n, err := strconv.Atoi(word)
		if err != nil {
			return nil, fmt.Errorf("number of Services %q: %w", word, err)
		}
		if len(out) > 0 && n <= out[len(out)-1] {
			return nil, fmt.Errorf("numbers of Services %q: they have to grow, because Services are only added", list)
		}
		out = append(out, n)
	}
	return out, nil
}

// makeReport prints the table, and writes table and picture beside the results.
func makeReport(dir string, out io.Writer) error {
	results, err := report.Load(dir)
	if err != nil {
		return err
	}
	var table, bars strings.Builder
	if err := errors.Join(report.Table(&table, results), report.Bars(&bars, results)); err != nil {
		return err
	}
	for name, text := range map[string]string{"bench.md": table.String(), "bench.svg": bars.String()} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o644); err != nil {
			return err
		}
	}
	_, err = io.WriteString(out, table.String())
	return err
}
