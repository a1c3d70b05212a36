// Command backend is a small server that answers with its name, and a client that counts the answers; see package backend.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"net/netip"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/kube-ipvs/kube-ipvs/e2e/backend"
)

const help = `backend serves one line about itself, or asks for such lines and counts them.

  backend serve -tcp :8080 -http :8080 -udp :8080 -sctp :8080 -name web-1
  backend ask -proto http -n 100 10.96.0.10:80
  backend ask -proto tcp -rate 50 -duration 10s 10.96.0.10:80
  backend ask -proto udp -stream 10.96.0.53:53        until SIGTERM
  backend ask -proto tcp -stream -connections 200 -life 15s -rate 1 10.96.0.10:80

Exit status of ask: 0 all requests were answered, 1 some were not, 2 it was called wrongly.
`

// errUnanswered ends the program with status 1; the tally has said everything.
var errUnanswered = errors.New("requests without an answer")

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	err := run(ctx, os.Args[1:], os.Stdout)
	stop()
	switch {
	case err == nil, errors.Is(err, flag.ErrHelp):
	case errors.Is(err, errUnanswered):
		os.Exit(1)
	default:
		fmt.Fprintln(os.Stderr, "backend:", err)
		os.Exit(2)
	}
}

func run(ctx context.Context, args []string, out io.Writer) error {
	verb := ""
	if len(args) > 0 {
		verb = args[0]
	}
	switch verb {
	case "serve":
		return serve(ctx, args[1:], out)
	case "ask":
		return ask(ctx, args[1:], out)
	case "help", "-h", "--help":
		fmt.Fprint(out, help)
		return nil
	default:
		return fmt.Errorf("%q is neither serve nor ask; backend help tells more", verb)
	}
}

func serve(ctx context.Context, args []string, out io.Writer) error {
	flags := flag.NewFlagSet("backend serve", flag.ContinueOnError)
	var c backend.Config
	host, _ := os.Hostname() // only a default
	flags.StringVar(&c.Name, "name", host, "`name` in every answer")
	flags.StringVar(&c.TCP, "tcp", "", "`address` for TCP: one line out for each line in")
	flags.StringVar(&c.HTTP, "http", "", "`address` for HTTP; may be that of -tcp")
	flags.StringVar(&c.UDP, "udp", "", "`address` for UDP: a datagram out for each one in")
	flags.StringVar(&c.SCTP, "sctp", "", "`address` for SCTP, as TCP")
	if err := flags.Parse(args); err != nil {
		return err
	}
	server, err := backend.Listen(c)
	if err != nil {
		return err
	}
	fmt.Fprintln(out, "ready")
	return server.Serve(ctx)
}

// asking is what the flags of ask say.
type asking struct {
	load     backend.Load
	n        int
	rate     float64
	duration time.Duration
	stream   bool

	connections int // streams of one connection each, 0: one stream as the other flags say
}

func parseAsk(args []string) (asking, error) {
	var a asking
	flags := flag.NewFlagSet("backend ask", flag.ContinueOnError)
	proto := flags.String("proto", "http", "http, tcp, udp or sctp")
	source := flags.String("source", "", "`address` to ask from")
	flags.IntVar(&a.n, "n", 1, "requests, one after the other, each over a new connection or socket")
	flags.DurationVar(&a.load.Timeout, "timeout", time.Second, "of each request")
	flags.BoolVar(&a.load.OneConn, "one-socket", false, "one connection or socket for all requests")
	flags.BoolVar(&a.load.Hold, "hold", false, "leave connections open until the last request is answered")
	flags.IntVar(&a.connections, "connections", 0, "streams side by side, of one connection each, with -rate for each; it implies -one-socket")
	flags.DurationVar(&a.load.Life, "life", 0, "with -one-socket: time after which a connection is closed between two requests and replaced; 0: never")
	flags.Float64Var(&a.rate, "rate", 20, "requests a second of a stream")
	flags.DurationVar(&a.duration, "duration", 0, "run a stream of requests that long, instead of -n")
	flags.BoolVar(&a.stream, "stream", false, "run a stream of requests until SIGTERM")
	if err := flags.Parse(args); err != nil {
		return a, err
	}
	if flags.NArg() != 1 || a.n < 1 || a.rate <= 0 || a.load.Timeout <= 0 || a.connections < 0 {
		return a, errors.New("ask: want one ADDR:PORT after the flags, and positive numbers")
	}
	var errs [3]error
	a.load.Proto, errs[0] = backend.ParseProto(*proto)
	a.load.To, errs[1] = netip.ParseAddrPort(flags.Arg(0))
	if *source != "" {
		a.load.Source, errs[2] = netip.ParseAddr(*source)
	}
	a.load.OneConn = a.load.OneConn || a.connections > 0
	if a.load.OneConn && a.load.Proto == backend.HTTP {
		return a, errors.New("ask: -one-socket does not go with http, whose answers end the connection; use tcp")
	}
	return a, errors.Join(errs[:]...)
}

func ask(ctx context.Context, args []string, out io.Writer) error {
	a, err := parseAsk(args)
	if err != nil {
		return err
	}
	tally := a.run(ctx)
	if err := tally.Print(out); err != nil {
		return err
	}
	if tally.Failures() > 0 || tally.OK == 0 {
		return errUnanswered
	}
	return nil
}

func (a asking) run(ctx context.Context) *backend.Tally {
	if !a.stream && a.duration == 0 && a.connections == 0 {
		return a.load.Repeat(ctx, a.n)
	}
	if a.duration > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, a.duration)
		defer cancel()
	}
	return a.load.Streams(ctx, max(1, a.connections), a.rate)
}
