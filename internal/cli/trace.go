package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/netip"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"go.uber.org/zap"

	"github.com/kube-ipvs/kube-ipvs/internal/config"
	"github.com/kube-ipvs/kube-ipvs/internal/inspect"
	"github.com/kube-ipvs/kube-ipvs/internal/kernel/capture"
	"github.com/kube-ipvs/kube-ipvs/internal/kernel/conntrack"
	"github.com/kube-ipvs/kube-ipvs/internal/kernel/vserver"
	"github.com/kube-ipvs/kube-ipvs/internal/netkey"
	"github.com/kube-ipvs/kube-ipvs/internal/printable"
	"github.com/kube-ipvs/kube-ipvs/internal/trace"
	"github.com/kube-ipvs/kube-ipvs/ipset"
)

const traceHelp = `Follow real packets to one address and port of a Service on all links of this node for
some seconds, and print the stations that each connection reached:

  arrived    the packet arrived from its client, on these links
  untouched  it left again with the service address as destination: this node does not serve it
  chosen     an endpoint was chosen
  left       the packet left for the endpoint, with its source kept or rewritten
  answered   the endpoint answered
  returned   the answer left for the client, from the service address
  refused    a reset or an ICMP message was the answer

The command only watches: it sends no packet and changes nothing. A filter in the kernel
selects the packets to and from the address and its endpoints. It ends after --for or
--packets, or on Ctrl-C, and prints how many packets it missed. It needs CAP_NET_RAW and
CAP_NET_ADMIN. The endpoints are those of IPVS or, in iptables mode, those that the agent
reports. For other endpoints connection tracking shows which one was chosen, but their
packets are not seen.`

// traceOptions bound a trace.
type traceOptions struct {
	duration time.Duration
	packets  int
	from     string
	output   string
}

const (
	longestTrace = time.Minute
	mostPackets  = 10_000
)

func newTrace() *cobra.Command {
	var o traceOptions
	cmd := &cobra.Command{
		Use:   "trace ADDRESS:PORT[/PROTOCOL]",
		Short: "follow real packets of one service address",
		Long:  traceHelp,
		Example: `  # what happens to the next connections to this Service?
  kube-ipvs trace 10.96.0.20:80

  # DNS queries of one pod, for 30 seconds or 500 packets
  kube-ipvs trace 10.96.0.10:53/udp --for 30s --packets 500 --from 10.244.1.7

  # a NodePort over IPv6, for a program
  kube-ipvs trace '[2001:db8::10]:30080' -o json`,
		Args: arguments(cobra.ExactArgs(1)),
		RunE: func(cmd *cobra.Command, args []string) error {
			c, err := check(cmd)
			if err != nil {
				return err
			}
			target, err := o.target(args[0])
			if err != nil {
				return err
			}
			return follow(cmd, inspect.NewClient(c.Socket()), target, o)
		},
	}
	cmd.Flags().DurationVar(&o.duration, "for", 10*time.Second, "how long to watch, 1m at most")
	cmd.Flags().IntVar(&o.packets, "packets", 200, "maximum of packets to watch, 10000 at most")
	cmd.Flags().StringVar(&o.from, "from", "", "follow only packets of the client with this address")
	bindOutput(cmd, &o.output, "text", "json")
	return cmd
}

// target returns the target of the argument and the flags.
func (o traceOptions) target(text string) (trace.Target, error) {
	t := trace.Target{Protocol: capture.TCP}
	addr, protocol, given := strings.Cut(text, "/")
	if given {
		numbers := map[string]uint8{"tcp": capture.TCP, "udp": capture.UDP, "sctp": capture.SCTP}
		if t.Protocol = numbers[strings.ToLower(protocol)]; t.Protocol == 0 {
			return t, fmt.Errorf("%q: protocol %q is not one of tcp, udp, sctp", text, protocol)
		}
	}
	vip, err := netip.ParseAddrPort(addr)
	if err != nil || vip.Port() == 0 || vip.Addr().Is4In6() || vip.Addr().Zone() != "" {
		return t, fmt.Errorf("%q is not an address and a port such as 10.96.0.10:53/udp or [fd00::a]:80", text)
	}
	t.VIP = vip
	if o.from != "" {
		if t.From, err = netip.ParseAddr(o.from); err != nil || t.From.Is4() != vip.Addr().Is4() {
			return t, fmt.Errorf("--from: %q is not an address of the family of %s", o.from, vip.Addr())
		}
	}
	switch {
	case o.duration <= 0 || o.duration > longestTrace:
		return t, fmt.Errorf("--for: %s is not between 0 and %s", o.duration, longestTrace)
	case o.packets < 1 || o.packets > mostPackets:
		return t, fmt.Errorf("--packets: %d is not between 1 and %d", o.packets, mostPackets)
	case o.output != "text" && o.output != "json":
		return t, fmt.Errorf("--output: %q is not one of text, json", o.output)
	}
	return t, nil
}

// follow captures packets and prints a report, also when it is interrupted.
func follow(cmd *cobra.Command, agent *inspect.Client, target trace.Target, o traceOptions) error {
	log := zap.NewNop()
	served, err := findBackends(cmd.Context(), log, &target)
	if err != nil {
		return err
	}
	var carrier string
	if served {
		carrier = string(config.ModeIPVS)
	} else if carrier, err = agentBackends(cmd.Context(), agent, &target); err != nil {
		fmt.Fprintln(cmd.ErrOrStderr(), "note: endpoints are unknown:", printable.OneLine(err))
	}
	all := len(target.Backends)
	target.Backends = watched(target.Backends)
	socket, err := capture.Open(capture.Filter{Protocol: target.Protocol, Endpoints: append([]netip.AddrPort{target.VIP}, target.Backends...)})
	if errors.Is(err, os.ErrPermission) {
		return fmt.Errorf("%w\n  remedy: run as root, or with CAP_NET_RAW", err)
	}
	if err != nil {
		return err
	}
	defer socket.Close()
	known := newConntrackLookup(log, target)
	defer known.close()
	fmt.Fprintf(cmd.ErrOrStderr(), "watching %s and %d endpoints for %s or %d packets; Ctrl-C stops it\n",
		tracedServer(target), len(target.Backends), o.duration, o.packets)
	report, err := watch(cmd.Context(), socket, known, target, o)
	report.served, report.carrier, report.unwatched = served, carrier, all-len(target.Backends)
	return errors.Join(err, writeTrace(cmd.OutOrStdout(), o.output, report))
}

func tracedServer(t trace.Target) vserver.ServerKey {
	return vserver.ServerKey{Addr: t.VIP.Addr(), Port: t.VIP.Port(), Protocol: netkey.Protocol(t.Protocol)}
}

// findBackends returns the destinations of the address in IPVS, those that take new connections
// first; served is false if IPVS has no such server.
func findBackends(ctx context.Context, log *zap.Logger, t *trace.Target) (served bool, err error) {
	h, err := vserver.New(log, vserver.Options{})
	if errors.Is(err, vserver.ErrUnsupported) {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	defer h.Close()
	_, err = h.GetServer(ctx, tracedServer(*t))
	if errors.Is(err, vserver.ErrNotExist) {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	destinations, err := h.ListDestinations(ctx, tracedServer(*t))
	if err != nil {
		return false, err
	}
	var draining []netip.AddrPort
	for k, d := range destinations {
		if at := netip.AddrPortFrom(k.Addr, k.Port); d.Weight > 0 {
			t.Backends = append(t.Backends, at)
		} else {
			draining = append(draining, at)
		}
	}
	setBackends(t, t.Backends, draining)
	return true, nil
}

func setBackends(t *trace.Target, serving, draining []netip.AddrPort) {
	slices.SortFunc(serving, netip.AddrPort.Compare)
	slices.SortFunc(draining, netip.AddrPort.Compare)
	t.Serving, t.Backends = len(serving), append(serving, draining...)
}

// carriedByNone is the carrier of an address that no Service has.
const carriedByNone = ""

// agentBackends sets the endpoints of an address that IPVS does not have, from the agent, and
// returns the mode that carries it.
func agentBackends(ctx context.Context, agent *inspect.Client, t *trace.Target) (carrier string, err error) {
	s, err := agent.Status(ctx)
	if err != nil {
		return carriedByNone, err
	}
	at, err := inspect.ParsePlace(t.VIP.String())
	if err != nil {
		return carriedByNone, err
	}
	list, err := agent.Backends(ctx, inspect.Filter{VIP: at})
	if err != nil {
		return carriedByNone, err
	}
	var serving, others []netip.AddrPort
	for _, b := range list.Items {
		to := netip.AddrPortFrom(b.Address, b.Port)
		switch {
		case b.Protocol != ipset.ProtocolName(t.Protocol):
		case b.State == inspect.BackendServing:
			serving = append(serving, to)
		default:
			others = append(others, to)
		}
	}
	if len(serving)+len(others) == 0 {
		return carriedByNone, nil
	}
	setBackends(t, serving, others)
	return s.Mode, nil
}

// watched returns the backends that fit into a filter beside the address.
func watched(backends []netip.AddrPort) []netip.AddrPort {
	return backends[:min(len(backends), capture.MostEndpoints-1)]
}

// flows looks up connections: the client and the dialled address of an answer, and the endpoint that
// answers a client.
type flows interface {
	origin(context.Context, trace.Answer) (client, dialled netip.AddrPort, ok bool)
	answers(ctx context.Context, client netip.AddrPort) (trace.Answer, bool)
}

// A conntrackLookup looks up the connections of one service address in connection tracking. Without a
// handle it finds none, and the tracer relies on packets.
type conntrackLookup struct {
	handle *conntrack.Handle
	target trace.Target
}

func newConntrackLookup(log *zap.Logger, t trace.Target) conntrackLookup {
	h, err := conntrack.New(log, conntrack.Options{Deadline: time.Second})
	if err != nil {
		h = nil
	}
	return conntrackLookup{h, t}
}

func (t conntrackLookup) close() {
	if t.handle != nil {
		t.handle.Close()
	}
}

func (t conntrackLookup) origin(ctx context.Context, a trace.Answer) (client, dialled netip.AddrPort, ok bool) {
	if t.handle == nil {
		return client, dialled, false
	}
	client, key, err := t.handle.Origin(ctx, netkey.Protocol(t.target.Protocol), a.Backend, a.Peer)
	return client, netip.AddrPortFrom(key.Addr, key.Port), err == nil
}

func (t conntrackLookup) answers(ctx context.Context, client netip.AddrPort) (trace.Answer, bool) {
	if t.handle == nil {
		return trace.Answer{}, false
	}
	from, to, err := t.handle.Answers(ctx, client, conntrack.Key{Addr: t.target.VIP.Addr(), Port: t.target.VIP.Port(), Protocol: netkey.Protocol(t.target.Protocol)})
	return trace.Answer{Backend: from, Peer: to}, err == nil
}

// packets is a capture.Socket.
type packets interface {
	Next(context.Context) (capture.Packet, error)
	Queued() (capture.Packet, bool, error)
	Stats() (capture.Stats, error)
}

// watch captures until the time is over, the packets are enough, or ctx ends. It reads packets that
// were queued by then, too.
func watch(ctx context.Context, from packets, known flows, target trace.Target, o traceOptions) (traceReport, error) {
	w := watcher{Tracer: trace.New(target), start: time.Now(), flows: known, most: o.packets}
	limited, cancel := context.WithTimeout(ctx, o.duration)
	defer cancel()
	var failed error
	for failed == nil && limited.Err() == nil && w.taken < w.most {
		var p capture.Packet
		if p, failed = from.Next(limited); failed == nil {
			w.take(limited, p)
		}
	}
	if limited.Err() != nil {
		failed = w.rest(context.WithoutCancel(ctx), from)
	}
	w.choose(context.WithoutCancel(ctx))
	stats, err := from.Stats()
	took := time.Since(w.start)
	return traceReport{target: target, took: took, packets: w.taken, lost: stats.Lost, left: w.Left(), connections: w.Report(took)}, errors.Join(failed, err)
}

// A watcher passes packets to a tracer, and looks up connections that the tracer does not know.
type watcher struct {
	*trace.Tracer
	flows
	start       time.Time
	taken, most int
}

func (w *watcher) take(ctx context.Context, p capture.Packet) {
	if !w.Add(time.Since(w.start), p) {
		return
	}
	w.taken++
	for _, a := range w.Unknown() {
		if client, dialled, ok := w.origin(ctx, a); ok {
			w.Resolve(a, client, dialled)
		}
	}
}

// restWithin bounds the reading of queued packets at the end.
const restWithin = time.Second

// rest takes the packets that are queued.
func (w *watcher) rest(ctx context.Context, from packets) error {
	ctx, cancel := context.WithTimeout(ctx, restWithin)
	defer cancel()
	for w.taken < w.most && ctx.Err() == nil {
		p, ok, err := from.Queued()
		if err != nil || !ok {
			return err
		}
		w.take(ctx, p)
	}
	return nil
}

// choose looks up the endpoints of connections whose endpoint was not seen.
func (w *watcher) choose(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, restWithin)
	defer cancel()
	for _, client := range w.Unchosen() {
		if a, ok := w.answers(ctx, client); ok {
			w.Choose(client, a)
		}
	}
}

// traceReport is the result of a trace.
type traceReport struct {
	target      trace.Target
	took        time.Duration
	packets     int
	lost        uint64
	left        int
	connections []trace.Connection
	served      bool   // IPVS has the address
	carrier     string // the mode that carries it, or carriedByNone
	unwatched   int    // endpoints that no filter had room for
}

// The same for programs (manifests/schemas/trace.schema.json).
type (
	traceJSON struct {
		VIP         string                `json:"vip"`
		Served      bool                  `json:"served"`
		CarriedBy   string                `json:"carriedBy,omitempty"`
		Endpoints   int                   `json:"endpoints"`
		Unwatched   int                   `json:"unwatched"`
		Seconds     float64               `json:"seconds"`
		Packets     int                   `json:"packets"`
		Lost        uint64                `json:"lost"`
		Unfollowed  int                   `json:"unfollowed"`
		Connections []traceConnectionJSON `json:"connections"`
	}
	traceConnectionJSON struct {
		Client   string             `json:"client"`
		Backend  string             `json:"backend,omitempty"`
		Stations []traceStationJSON `json:"stations"`
		Why      []string           `json:"why,omitempty"`
		UnderWay bool               `json:"underWay,omitempty"`
	}
	traceStationJSON struct {
		Station string   `json:"station"`
		Seconds float64  `json:"seconds"`
		Links   []string `json:"links,omitempty"`
		Text    string   `json:"text"`
	}
)

func writeTrace(w io.Writer, output string, r traceReport) error {
	if output == "json" {
		return page{out: w}.encode(output, r.json())
	}
	return r.write(printable.NewWriter(w))
}

func (r traceReport) json() traceJSON {
	j := traceJSON{VIP: tracedServer(r.target).String(), Served: r.served, CarriedBy: r.carrier, Endpoints: r.target.Serving, Unwatched: r.unwatched, Seconds: r.took.Seconds(),
		Packets: r.packets, Lost: r.lost, Unfollowed: r.left, Connections: []traceConnectionJSON{}}
	for _, c := range r.connections {
		one := traceConnectionJSON{Client: c.Client.String(), Why: c.Why, UnderWay: c.UnderWay}
		if c.Backend.IsValid() {
			one.Backend = c.Backend.String()
		}
		for _, s := range c.Stations {
			one.Stations = append(one.Stations, traceStationJSON{s.Name, s.At.Seconds(), s.Links, s.Text})
		}
		j.Connections = append(j.Connections, one)
	}
	return j
}

func (r traceReport) write(w io.Writer) error {
	var b strings.Builder
	fmt.Fprintf(&b, "%s: %d packets of %d connections in %.1f s, %d lost; endpoints for new connections: %d\n",
		tracedServer(r.target), r.packets, len(r.connections), r.took.Seconds(), r.lost, r.target.Serving)
	if r.unwatched > 0 {
		fmt.Fprintf(&b, "%d endpoints are not watched, because the filter is limited to %d; connection tracking shows when one was chosen\n", r.unwatched, capture.MostEndpoints-1)
	}
	switch {
	case r.carrier == carriedByNone:
		fmt.Fprintln(&b, "no known Service has this address, so packets of endpoints were not watched")
	case !r.served && r.carrier == string(config.ModeIPVS):
		fmt.Fprintln(&b, "a Service has this address, but IPVS has no virtual server for it: kube-ipvs explain shows why")
	}
	if r.left > 0 {
		fmt.Fprintf(&b, "%d packets belong to connections beyond the limit of %d: select a client with --from\n", r.left, trace.MostConnections)
	}
	if len(r.connections) == 0 {
		fmt.Fprintln(&b, "no packets were seen: no client connects through this node, or packets do not reach it")
	}
	for i, c := range r.connections {
		fmt.Fprintf(&b, "\nconnection %d, of %s\n", i+1, c.Client)
		for n, s := range c.Stations {
			fmt.Fprintf(&b, "  %d  %+7.3fs  %-9s  %s\n", n+1, s.At.Seconds(), s.Name, s.Text)
		}
		if c.UnderWay {
			fmt.Fprintf(&b, "  not finished when the trace ended\n")
		}
		if len(c.Why) > 0 {
			fmt.Fprintf(&b, "  no further packet was seen; possible causes:\n")
		}
		for _, why := range c.Why {
			fmt.Fprintf(&b, "    - %s\n", why)
		}
	}
	_, err := io.WriteString(w, b.String())
	return err
}
