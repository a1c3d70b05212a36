// Command limit measures how fast rows can be programmed at all. It reads the virtual servers, sets and bound addresses that the kernel
// holds (of whichever agent), packs the same rows into netlink messages, and writes them to a network namespace made for it. What it
// takes is the floor under every agent's programming time.
//
//	a kernel (dump) ─┐
//	a file          ─┼─► rows ──► pack, in memory ──► send, send, ... ──► the kernel, an empty namespace
//	-services 5000  ─┘                                └── measured ──┘            │
//	                                      the same rows? ◄──── dump ──────────────┘
//
// The packing is its own, not that of the rooms that the agent uses: nothing is checked, compared, counted or repeated, many messages
// go to a send, and only the last of a send asks for an answer. What is measured begins with the first send and ends with the last
// answer; packing is given apart, and is part of what the rooms take. Reading before and after is done by the rooms' own readers, and a row that is missing, too many or
// different afterwards is an error.
//
// The same rows are then written once more by the rooms that the agent uses, in batches of its size, to a namespace of their own: what
// the agent's way of programming costs beyond the floor when nothing else goes on, as reading and compiling do while it starts.
//
// Three things favour the floor: a set begins with the number of buckets it had grown to, modules are loaded by a small write beforehand,
// and no rules are written. One is against it: the kernel keeps the servers of all namespaces in one table, so where the rows came from
// should be empty again; -save and -from are for that.
//
//	limit -save rows.json                   the rows of this kernel, to a file; nothing is written
//	limit -from rows.json -took 1.9s        writes them, and prints how many times as long 1.9 s is
//	limit -services 5000 -endpoints 10      rows of its own making
package main

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"slices"
	"strings"
	"syscall"
	"time"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	err := run(ctx, os.Args[1:], os.Stdout)
	stop()
	if errors.Is(err, flag.ErrHelp) {
		return
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "limit:", err)
		os.Exit(1)
	}
}

// options are the flags.
type options struct {
	services, endpoints int
	from, save          string
	device, kind        string
	tables              string
	perSend, runs       int
	took                time.Duration
	json                bool
}

func parse(args []string) (options, error) {
	var o options
	flags := flag.NewFlagSet("limit", flag.ContinueOnError)
	flags.IntVar(&o.services, "services", 0, "make the rows of so many Services instead of reading them")
	flags.IntVar(&o.endpoints, "endpoints", 10, "endpoints of each Service that is made")
	flags.StringVar(&o.from, "from", "", "read the rows from this `file`, which -save wrote")
	flags.StringVar(&o.save, "save", "", "write the rows to this `file`, and nothing to the kernel")
	flags.StringVar(&o.device, "device", "kube-ipvs0", "the `link` whose addresses are read")
	flags.StringVar(&o.kind, "kind", "dummy", "the `type` of the link that gets the addresses, for kernels without dummy links")
	flags.StringVar(&o.tables, "tables", strings.Join(tableNames, ","), "what to write, of these")
	flags.IntVar(&o.perSend, "per-send", 512, "messages a send")
	flags.IntVar(&o.runs, "runs", 3, "write so often, and tell the fastest: whatever else runs can only make it slower")
	flags.DurationVar(&o.took, "took", 0, "the time an agent took for the same rows; it is printed as a multiple")
	flags.BoolVar(&o.json, "json", false, "print JSON")
	if err := flags.Parse(args); err != nil {
		return o, err
	}
	return o, o.check(flags.Args())
}

func (o options) check(rest []string) error {
	var errs []error
	if len(rest) > 0 {
		errs = append(errs, fmt.Errorf("unexpected %q", rest))
	}
	if o.from != "" && o.services != 0 {
		errs = append(errs, errors.New("-from and -services exclude each other"))
	}
	if o.services < 0 || o.services > maxServices || o.endpoints < 0 || o.endpoints > maxEndpoints {
		errs = append(errs, fmt.Errorf("want at most %d services of %d endpoints", maxServices, maxEndpoints))
	}
	if o.perSend < 1 || o.runs < 1 {
		errs = append(errs, errors.New("-per-send and -runs have to be 1 or more"))
	}
	for name := range strings.SplitSeq(o.tables, ",") {
		if !slices.Contains(tableNames, name) {
			errs = append(errs, fmt.Errorf("table %q: want %s", name, strings.Join(tableNames, ", ")))
		}
	}
	return errors.Join(errs...)
}

// wants tells whether a table is to be written.
func (o options) wants(table string) bool {
	return slices.Contains(strings.Split(o.tables, ","), table)
}

func run(ctx context.Context, args []string, out io.Writer) error {
	o, err := parse(args)
	if err != nil {
		return err
	}
	all, err := o.rows(ctx)
	if err != nil {
		return err
	}
	if o.save != "" {
		return saveRows(o.save, all)
	}
	report, err := measure(ctx, o, all)
	if err != nil {
		return err
	}
	if o.json {
		return json.NewEncoder(out).Encode(report)
	}
	return report.print(out)
}

// rows come from where the flags say.
func (o options) rows(ctx context.Context) (rows, error) {
	var all rows
	var err error
	switch {
	case o.services > 0:
		all = makeRows(o.services, o.endpoints)
	case o.from != "":
		all, err = loadRows(o.from)
	default:
		all, err = readKernel(ctx, o)
	}
	if err != nil {
		return rows{}, err
	}
	all = all.only(o.wants)
	if all.empty() {
		return rows{}, errors.New("there are no rows to write")
	}
	return all, nil
}

func saveRows(name string, all rows) error {
	text, err := json.Marshal(all)
	if err != nil {
		return fmt.Errorf("save rows: %w", err)
	}
	return os.WriteFile(name, append(text, '\n'), 0o600)
}

func loadRows(name string) (rows, error) {
	text, err := os.ReadFile(name)
	if err != nil {
		return rows{}, fmt.Errorf("load rows: %w", err)
	}
	var all rows
	if err := json.Unmarshal(text, &all); err != nil {
		return rows{}, fmt.Errorf("load rows from %s: %w", name, err)
	}
	return all, nil
}
