// Command bench measures programs that carry Kubernetes Services, one after the other on one machine with one API server, and makes a
// table and a picture of it. e2e/bench-peers.sh builds what it needs and runs it where IPVS is; e2e/README.md says what is measured.
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

	"github.com/kube-ipvs/kube-ipvs/e2e/bench/cell"
	"github.com/kube-ipvs/kube-ipvs/e2e/bench/drive"
	"github.com/kube-ipvs/kube-ipvs/e2e/bench/report"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	err := run(ctx, os.Args[1:], os.Stdout)
	stop()
	if err != nil && !errors.Is(err, flag.ErrHelp) {
		fmt.Fprintln(os.Stderr, "bench:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, args []string, out io.Writer) error {
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
	// The candidate's connection to the API server goes through this process, and is not to wait for what else it does: on a machine with
	// one CPU the kernel changes over between threads sooner than Go does between goroutines.
	runtime.GOMAXPROCS(max(threads, runtime.GOMAXPROCS(0)))
	return drive.Run(ctx, o)
}

const threads = 4

const usage = `bench measures programs that carry Kubernetes Services, one after the other on one machine with one API server.
It needs root, and the programs that go run ./e2e/kube/build makes.

  bench [flags]        measures, and writes a cell of JSON for each candidate and number of Services
  bench report DIR     makes a table, a brief one, a picture and one file of all cells that are in a directory

Examples:
  bench -kube-ipvs bin/kube-ipvs -kube-proxy ~/.cache/kube-ipvs/controlplane-*/kube-proxy -out bin/bench
  bench -n 100 -candidates kube-proxy-iptables -parts start,endpoint -samples 20 -kube-proxy /usr/bin/kube-proxy
  bench -n 5000 -parts-of kube-proxy-nftables=start,endpoint -kube-ipvs bin/kube-ipvs -kube-proxy /usr/bin/kube-proxy
  bench -candidates kube-ipvs -candidate 'mine=/opt/mine --kubeconfig {kubeconfig} --node {node}' -kube-ipvs bin/kube-ipvs

In a command line {kubeconfig}, {node}, {dir} (empty, to write to), {config-ipvs}, {config-iptables} and {config-nftables} (files for
kube-proxy) are filled in. Known candidates:
%s
Flags:
`

// parse reads flags. It prints its help where out is, and returns flag.ErrHelp.
func parse(args []string, out io.Writer) (drive.Options, error) {
	o := drive.Options{Log: out}
	var services, parts, names string
	var others []drive.Candidate
	flags := flag.NewFlagSet("bench", flag.ContinueOnError)
	flags.SetOutput(out)
	flags.Usage = func() {
		var known strings.Builder
		for _, c := range drive.Known() {
			fmt.Fprintf(&known, "  %-20s %s\n", c.Name, c.Command)
		}
		fmt.Fprintf(out, usage, known.String())
		flags.PrintDefaults()
	}
	flags.StringVar(&services, "n", "100,1000,5000,10000", "`numbers` of Services, in growing order")
	flags.IntVar(&o.Endpoints, "endpoints", 10, "of each Service")
	flags.StringVar(&names, "candidates", "kube-ipvs,kube-proxy-ipvs,kube-ipvs-iptables,kube-proxy-iptables,kube-proxy-nftables", "known ones, in order; may be empty")
	flags.Func("candidate", "another one, as `NAME=COMMAND`; repeatable", func(text string) error {
		c, err := drive.ParseCandidate(text)
		others = append(others, c)
		return err
	})
	flags.StringVar(&parts, "parts", strings.Join(drive.Parts(), ","), "what is measured, of these and "+drive.Soaking+"; a start is always made")
	bindOwn(flags, &o)
	flags.IntVar(&o.Samples, "samples", 50, "of each kind of change, when all is quiet")
	flags.DurationVar(&o.Limit, "limit", 20*time.Minute, "for each answer that is waited for, and for each part")
	flags.DurationVar(&o.Churn, "churn", time.Minute, "how long endpoints change all the time")
	flags.IntVar(&o.Rate, "rate", 50, "of changes a second then")
	flags.DurationVar(&o.Settle, "settle", 30*time.Second, "how long the machine may take to be quiet before and after a candidate")
	flags.IntVar(&o.SoakChanges, "soak-changes", 180_000, "how many endpoints change in the part soak: an hour of 50 a second")
	flags.IntVar(&o.SoakRate, "soak-rate", 200, "of changes a second then, at most")
	flags.DurationVar(&o.Soak, "soak", time.Hour, "how long they may take")
	flags.DurationVar(&o.Drift, "drift", 15*time.Minute, "how long is waited for the repair of a destination that was taken away by hand")
	flags.StringVar(&o.Out, "out", "bench-out", "`directory` of cells, and of what candidates print")
	flags.StringVar(&o.KubeIPVS, "kube-ipvs", os.Getenv("KUBE_IPVS_BIN"), "the `program`")
	flags.StringVar(&o.KubeProxy, "kube-proxy", os.Getenv("KUBE_IPVS_KUBE_PROXY"), "the `program`")
	flags.StringVar(&o.Writer, "writer", "", "the `program` for the part limit: go build ./e2e/bench/limit")
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
	chosen, err := drive.Choose(words(names))
	if err != nil {
		return o, err
	}
	o.Candidates, o.Parts = append(chosen, others...), words(parts)
	return o, o.Validate()
}

// bindOwn declares the flags of what a candidate has for itself.
func bindOwn(flags *flag.FlagSet, o *drive.Options) {
	o.PartsOf, o.SamplesOf = map[string][]string{}, map[string]int{}
	flags.Func("parts-of", "other parts for one candidate, as `NAME=PARTS`; repeatable", func(text string) error {
		name, list, found := strings.Cut(text, "=")
		if !found {
			return fmt.Errorf("%q: want NAME=PARTS", text)
		}
		o.PartsOf[name] = words(list)
		return nil
	})
	flags.Func("samples-of", "another number of samples for one candidate, as `NAME=N`; repeatable", func(text string) (err error) {
		name, number, _ := strings.Cut(text, "=")
		o.SamplesOf[name], err = strconv.Atoi(number)
		return err
	})
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
			return nil, fmt.Errorf("numbers of Services %q: they have to grow, for Services are only ever added", list)
		}
		out = append(out, n)
	}
	return out, nil
}

// makeReport prints the table, and writes it, a brief one, the picture and all cells beside them.
func makeReport(dir string, out io.Writer) error {
	cells, err := cell.Load(dir)
	if err != nil {
		return err
	}
	var table, brief, bars strings.Builder
	if err := errors.Join(report.Table(&table, cells), report.Goals(&table, cells), report.Brief(&brief, cells), report.Bars(&bars, cells)); err != nil {
		return err
	}
	all, err := cell.Encode(cells)
	if err != nil {
		return err
	}
	for name, text := range map[string]string{"bench.md": table.String(), "brief.md": brief.String(), "bench.svg": bars.String(), "bench.json": string(all)} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o644); err != nil {
			return err
		}
	}
	_, err = io.WriteString(out, table.String())
	return err
}
