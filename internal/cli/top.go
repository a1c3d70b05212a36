package cli

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"slices"
	"time"

	"github.com/spf13/cobra"
	"go.uber.org/zap"

	"github.com/kube-ipvs/kube-ipvs/internal/config"
	"github.com/kube-ipvs/kube-ipvs/internal/inspect"
	"github.com/kube-ipvs/kube-ipvs/internal/kernel/vserver"
	"github.com/kube-ipvs/kube-ipvs/internal/model"
	"github.com/kube-ipvs/kube-ipvs/internal/printable"
	"github.com/kube-ipvs/kube-ipvs/internal/top"
)

const topHelp = `Show the live traffic of Services and their backends: connections, packets and bytes a
second, open connections, weights, draining backends with their remaining time, and the
balance of the load (SKEW is the load of the busiest backend divided by its fair share).
The command needs IPVS: iptables mode has no such counters.

The counters come from the kernel, which updates them every two seconds. The names come
from the agent; without an agent, addresses are shown instead.`

const topExamples = `  # live; the last line lists the keys
  kube-ipvs top

  # the ten Services with most bytes a second, once
  kube-ipvs top --once --limit 10

  # the backends of one
  kube-ipvs top shop/cart --once

  # for programs; the schema is manifests/schemas/top.schema.json
  kube-ipvs top --once -o json`

// topFlags are the flags of the verb.
type topFlags struct {
	once      bool
	interval  time.Duration
	sort      string
	limit     int
	namespace string
	output    string
}

// words returns values as strings.
func words[T ~string](list []T) []string {
	out := make([]string, len(list))
	for i, one := range list {
		out[i] = string(one)
	}
	return out
}

// estimated is the interval in which the kernel adds up the counters of its processors (ip_vs_est.c).
const estimated = 2 * time.Second

func newTop() *cobra.Command {
	var f topFlags
	cmd := &cobra.Command{
		Use: "top [namespace/service]", Short: "show live traffic of Services and backends", Long: topHelp, Example: topExamples,
		Args: arguments(cobra.MaximumNArgs(1)),
		RunE: func(cmd *cobra.Command, args []string) error {
			c, err := check(cmd)
			if err == nil {
				err = f.check(cmd.Flags().Changed("limit"))
			}
			if err != nil {
				return err
			}
			agent := inspect.NewClient(c.Socket())
			if err := carriesByIPVS(cmd.Context(), agent); err != nil {
				return err
			}
			h, err := vserver.New(zap.NewNop(), vserver.Options{})
			if errors.Is(err, vserver.ErrUnsupported) {
				return fmt.Errorf("%w: top shows the counters of IPVS", err)
			}
			if err != nil {
				return err
			}
			defer h.Close()
			from := &top.Source{Kernel: h, Names: func(ctx context.Context) (top.Names, error) { return namesFrom(ctx, agent) }}
			return f.show(cmd, from, slices.Concat(args, []string{""})[0])
		},
	}
	flags := cmd.Flags()
	flags.SortFlags = false
	flags.BoolVar(&f.once, "once", false, "print one table of the difference between two samples, and exit")
	flags.DurationVar(&f.interval, "interval", estimated, "time between two samples; the kernel updates its counters every 2s")
	flags.StringVar(&f.sort, "sort", string(top.ByBytes), fmt.Sprintf("column to sort by, one of %v", top.Sorts()))
	flags.IntVar(&f.limit, "limit", 0, "maximum of lines that --once prints, 0 for all")
	flags.StringVarP(&f.namespace, "namespace", "n", "", "only Services of this namespace")
	bindOutput(cmd, &f.output, "text", "json")
	choose(cmd, "sort", words(top.Sorts())...)
	return cmd
}

// carriesByIPVS returns an error if the running agent is in iptables mode, which has no counters of
// Services. Without an agent the kernel may have virtual servers.
func carriesByIPVS(ctx context.Context, agent *inspect.Client) error {
	s, err := agent.Status(ctx)
	if err != nil || s.Mode != string(config.ModeIPTables) {
		return nil //nolint:nilerr // the table reports an agent that does not answer
	}
	return errors.New("the agent is in iptables mode, and top shows the counters of IPVS; new connections of each Service are counted by its rules: iptables -t nat -nvL KUBE-SERVICES")
}

func (f topFlags) check(limited bool) error {
	switch {
	case !slices.Contains(top.Sorts(), top.Sort(f.sort)):
		return fmt.Errorf("--sort: %q is not one of %v", f.sort, top.Sorts())
	case f.interval < time.Second:
		return fmt.Errorf("--interval: %s is too short, at least 1s: the kernel updates its counters every 2s", f.interval)
	case f.limit < 0:
		return fmt.Errorf("--limit: %d is less than 0", f.limit)
	case f.output != "text" && f.output != "json":
		return fmt.Errorf("--output: %q is not one of text, json", f.output)
	case !f.once && (f.output != "text" || limited):
		return errors.New("--output and --limit are for --once")
	}
	return nil
}

// show runs the live view, or prints one table.
func (f topFlags) show(cmd *cobra.Command, from *top.Source, service string) error {
	if !f.once {
		if info, err := os.Stdout.Stat(); err != nil || info.Mode()&os.ModeCharDevice == 0 {
			return errors.New("standard output is no terminal: use --once")
		}
		return top.Run(cmd.Context(), from, top.Screen{Every: f.interval, Sort: top.Sort(f.sort), Namespace: f.namespace, Detail: service})
	}
	q := top.Question{Interval: f.interval, Sort: top.Sort(f.sort), Limit: f.limit, Namespace: f.namespace, Service: service}
	r, err := top.Once(cmd.Context(), from, q, func(err error) { fmt.Fprintln(cmd.ErrOrStderr(), "warning:", printable.OneLine(err)) })
	switch {
	case errors.Is(err, top.ErrNoServer):
		return asAnswer(err)
	case err != nil:
		return err
	case f.output == "json":
		return r.WriteJSON(cmd.OutOrStdout())
	}
	return r.WriteText(cmd.OutOrStdout())
}

// namesFrom returns the Services of virtual servers, and the destinations that drain.
func namesFrom(ctx context.Context, agent *inspect.Client) (top.Names, error) {
	out := top.Names{Of: map[vserver.ServerKey]top.Name{}, Draining: map[vserver.DestinationKey]time.Time{}}
	names, err := agent.Names(ctx, inspect.Filter{})
	if err != nil {
		return out, err
	}
	moving, err := agent.Draining(ctx, inspect.Filter{})
	if err != nil {
		return out, err
	}
	for _, n := range names.Items {
		out.Of[serverKey(n.Addr, n.Port, n.Protocol)] = top.Name{Namespace: n.Namespace, Name: n.Service}
	}
	for _, d := range moving.Items {
		at, errAt := model.ParseFrontendKey(d.Frontend)
		to, errTo := netip.ParseAddrPort(d.Backend)
		if err := errors.Join(errAt, errTo); err != nil {
			return out, fmt.Errorf("read draining destinations: %w", err)
		}
		if d.State == inspect.Draining && d.Until != nil {
			out.Draining[vserver.DestinationKey{Server: serverKey(at.Addr, at.Port, at.Protocol), Addr: to.Addr(), Port: to.Port()}] = *d.Until
		}
	}
	return out, nil
}

func serverKey(addr netip.Addr, port uint16, protocol model.Protocol) vserver.ServerKey {
	return vserver.ServerKey{Addr: addr, Port: port, Protocol: protocol}
}
