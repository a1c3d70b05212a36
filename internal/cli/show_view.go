package cli

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/kube-ipvs/kube-ipvs/internal/config"
	"github.com/kube-ipvs/kube-ipvs/internal/inspect"
)

// A view is a verb that shows a list.
type view[R any] struct {
	use, short, long, example string
	// takes is the kind of its argument; filters are the flags that select rows.
	takes   argument
	filters filters
	table   func() inspect.Table[R]
	// hides selects rows that are shown only with --all, or by name; nil for none.
	hides func(R) bool
	// open returns the reader of the list.
	open func(cmd *cobra.Command, c config.Config) (reader[R], error)
}

// A reader reads the list of a view; close closes its handles.
type reader[R any] struct {
	read  func(ctx context.Context, q query) (inspect.List[R], error)
	close func()
}

// A query selects rows by a filter, and by the object that the argument names if that is no Service.
type query struct {
	inspect.Filter
	named string
}

// argument is the kind of the argument of a view.
type argument string

const (
	takesNothing argument = ""
	takesService argument = "[NAMESPACE/]NAME"
	takesSet     argument = "SET"
	takesChain   argument = "CHAIN"
)

// filters are flags that select rows.
type filters uint8

const (
	byService filters = 1 << iota
	byVIP
	byBackend
)

// fromAgent returns the opener of a reader of the running agent.
func fromAgent[R any](ask func(*inspect.Client, context.Context, inspect.Filter) (inspect.List[R], error)) func(*cobra.Command, config.Config) (reader[R], error) {
	return func(_ *cobra.Command, c config.Config) (reader[R], error) {
		client := inspect.NewClient(c.Socket())
		read := func(ctx context.Context, q query) (inspect.List[R], error) { return ask(client, ctx, q.Filter) }
		return reader[R]{read, func() {}}, nil
	}
}

// movingNow returns the table with the current time.
func movingNow() inspect.Table[inspect.MovingRow] { return inspect.MovingTable(time.Now()) }

func (v view[R]) command() *cobra.Command { return v.commandOr(nil) }

// commandOr returns a command that calls named, if not nil, when it has an argument.
func (v view[R]) commandOr(named func(*cobra.Command, []string, viewOptions) error) *cobra.Command {
	var o viewOptions
	cmd := &cobra.Command{
		Use:     strings.TrimSpace(v.use + " " + optional(v.takes)),
		Short:   v.short,
		Long:    strings.TrimSpace(strings.ToUpper(v.short[:1]) + v.short[1:] + ".\n\n" + v.long),
		Example: v.example,
		Args:    v.arguments,
		RunE: func(cmd *cobra.Command, args []string) error {
			if named != nil && len(args) > 0 {
				return named(cmd, args, o)
			}
			return v.run(cmd, args, o)
		},
	}
	cmd.Flags().SortFlags = false
	bindOutput(cmd, &o.output, "table", "wide", "json", "yaml")
	o.bindTable(cmd, v.table().Names())
	o.bindFilters(cmd.Flags(), v.filters)
	if v.hides != nil {
		cmd.Flags().BoolVar(&o.all, "all", false, "also Services that need no proxy: headless, ExternalName, label service-proxy-name")
	}
	o.bindWatch(cmd.Flags())
	return cmd
}

func optional(a argument) string {
	if a == takesNothing {
		return string(a)
	}
	return "[" + string(a) + "]"
}

func (v view[R]) arguments(cmd *cobra.Command, args []string) error {
	if v.takes == takesNothing {
		return noArguments(cmd, args)
	}
	return arguments(cobra.MaximumNArgs(1))(cmd, args)
}

func (v view[R]) run(cmd *cobra.Command, args []string, o viewOptions) error {
	c, err := check(cmd)
	if err != nil {
		return err
	}
	if err := o.valid("table", "wide", "json", "yaml"); err != nil {
		return err
	}
	if err := v.table().Sort(nil, o.sortBy); o.sortBy != "" && err != nil {
		return fmt.Errorf("--sort-by: %w", err)
	}
	q, err := v.query(args, o)
	if err != nil {
		return err
	}
	source, err := v.open(cmd, c)
	if err != nil {
		return err
	}
	defer source.close()
	return o.show(cmd, func(ctx context.Context, p page) error {
		list, err := source.read(ctx, q)
		if err == nil && len(list.Items) == 0 && !o.watch {
			err = knownService(ctx, inspect.NewClient(c.Socket()), q.Filter)
		}
		if err != nil {
			return err
		}
		if v.hides != nil && !o.all && len(args) == 0 {
			before := len(list.Items)
			list.Items = slices.DeleteFunc(list.Items, v.hides)
			if o.output != "json" && o.output != "yaml" {
				defer printHidden(p, before-len(list.Items))
			}
		}
		return v.print(p, o, list)
	})
}

// printHidden prints how many rows are not shown.
func printHidden(p page, n int) {
	if n > 0 {
		fmt.Fprintf(p.notes, "and %d that need no proxy: --all\n", n)
	}
}

// knownService returns an error if a filter names a Service that the agent does not know.
func knownService(ctx context.Context, client *inspect.Client, f inspect.Filter) error {
	if f.Name == "" {
		return nil
	}
	list, err := client.Services(ctx, inspect.Filter{Namespace: f.Namespace, Name: f.Name})
	if err != nil || len(list.Items) > 0 {
		return err
	}
	name := f.Name
	if f.Namespace != "" {
		name = f.Namespace + "/" + name
	}
	return asAnswer(fmt.Errorf("no Service %s is known to this node", name))
}

// query returns the query of the argument and the flags.
func (v view[R]) query(args []string, o viewOptions) (q query, err error) {
	q.Namespace = o.namespace
	if len(args) > 0 && v.takes != takesService {
		q.named = args[0]
	} else if len(args) > 0 {
		namespace, name, both := strings.Cut(args[0], "/")
		switch {
		case !both:
			q.Name = args[0]
		case o.namespace != "" && o.namespace != namespace:
			return q, fmt.Errorf("%s is not in namespace %s", args[0], o.namespace)
		default:
			q.Namespace, q.Name = namespace, name
		}
	}
	for _, p := range []struct {
		flag, text string
		place      *inspect.Place
	}{{"vip", o.vip, &q.VIP}, {"backend", o.backend, &q.Backend}} {
		if p.text == "" {
			continue
		}
		if *p.place, err = inspect.ParsePlace(p.text); err != nil {
			return q, fmt.Errorf("--%s: %w", p.flag, err)
		}
	}
	return q, nil
}

// print writes a list in the format of --output.
func (v view[R]) print(p page, o viewOptions, list inspect.List[R]) error {
	table := v.table()
	if o.sortBy != "" {
		if err := table.Sort(list.Items, o.sortBy); err != nil {
			return err
		}
	}
	if o.output == "json" || o.output == "yaml" {
		return p.encode(o.output, list)
	}
	if err := table.Write(p.out, list.Items, inspect.TableOptions{Wide: o.output == "wide", NoHeaders: o.noHeaders, Colour: p.colour}); err != nil {
		return err
	}
	if len(list.Items) == 0 {
		fmt.Fprintln(p.notes, "none")
	}
	for _, what := range sortedKeys(list.More) {
		fmt.Fprintf(p.notes, "and %d more: %s\n", list.More[what], what)
	}
	return nil
}

func sortedKeys(m map[string]int) []string {
	var keys []string
	for k := range m {
		keys = append(keys, k)
	}
	slices.Sort(keys)
	return keys
}

// viewOptions are the flags of a view.
type viewOptions struct {
	output, sortBy, namespace, vip, backend string
	noHeaders, watch, all                   bool
	interval                                time.Duration
}

// bindOutput declares --output with the formats that it takes, of which the first is the default.
func bindOutput(cmd *cobra.Command, output *string, formats ...string) {
	last := len(formats) - 1
	cmd.Flags().StringVarP(output, "output", "o", formats[0], strings.Join(formats[:last], ", ")+" or "+formats[last])
	choose(cmd, "output", formats...)
}

func (o *viewOptions) bindTable(cmd *cobra.Command, columns []string) {
	fs := cmd.Flags()
	fs.StringVar(&o.sortBy, "sort-by", "", "column to sort by, -COLUMN for descending order: "+strings.Join(columns, ", "))
	fs.BoolVar(&o.noHeaders, "no-headers", false, "print tables without headings")
	for _, c := range columns {
		columns = append(columns, "-"+c)
	}
	choose(cmd, "sort-by", columns...)
}

func (o *viewOptions) bindFilters(fs *pflag.FlagSet, f filters) {
	if f&byService != 0 {
		fs.StringVarP(&o.namespace, "namespace", "n", "", "only rows of this namespace")
	}
	if f&byVIP != 0 {
		fs.StringVar(&o.vip, "vip", "", "only rows with this frontend address: 10.96.0.10, 10.96.0.10:80 or 10.96.0.0/16")
	}
	if f&byBackend != 0 {
		fs.StringVar(&o.backend, "backend", "", "only rows with this backend: 10.244.0.5, 10.244.0.5:8080 or 10.244.0.0/24")
	}
}

func (o *viewOptions) bindWatch(fs *pflag.FlagSet) {
	fs.BoolVarP(&o.watch, "watch", "w", false, "repeat the output: in place on a terminal, otherwise one below the other")
	fs.DurationVar(&o.interval, "interval", time.Second, "time between two outputs of --watch")
}

// shortestInterval is the minimum of --interval.
const shortestInterval = 100 * time.Millisecond

func (o *viewOptions) valid(outputs ...string) error {
	var errs []error
	if !slices.Contains(outputs, o.output) {
		errs = append(errs, fmt.Errorf("--output: %q is not one of %s", o.output, strings.Join(outputs, ", ")))
	}
	if o.interval < shortestInterval {
		errs = append(errs, fmt.Errorf("--interval: %s is less than %s", o.interval, shortestInterval))
	}
	return errors.Join(errs...)
}

// show draws once, or repeatedly with --watch. An error of the first page is returned. A later one is printed, and the next
// page is tried, because the agent may restart.
func (o *viewOptions) show(cmd *cobra.Command, draw func(context.Context, page) error) error {
	s := newScreen(cmd.OutOrStdout(), cmd.ErrOrStderr())
	if !o.watch {
		return draw(cmd.Context(), s.page())
	}
	ctx := cmd.Context()
	tick := time.NewTicker(o.interval)
	defer tick.Stop()
	for first := true; ; first = false {
		text, err := s.compose(o.output, func(p page) error { return draw(ctx, p) })
		switch {
		case ctx.Err() != nil:
			return nil
		case err != nil && first:
			return err
		case err != nil:
			text, _ = s.compose(o.output, func(p page) error { fmt.Fprintln(p.notes, "kube-ipvs:", err); return nil })
		}
		if err := s.put(text); err != nil {
			return err
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return nil
		}
	}
}
