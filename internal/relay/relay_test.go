package relay_test

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"strings"
	"syscall"
	"testing"
	"time"

	"go.uber.org/zap"
	"go.uber.org/zap/zaptest/observer"

	"github.com/kube-ipvs/kube-ipvs/internal/model"
	"github.com/kube-ipvs/kube-ipvs/internal/relay"
	"github.com/kube-ipvs/kube-ipvs/internal/testkit/poll"
)

var (
	web = model.ServiceID{Origin: model.FromFile, Namespace: "shop", Name: "web"}
	api = model.ServiceID{Origin: model.FromFile, Namespace: "shop", Name: "api"}
)

// rig is a relay that runs until the test ends.
type rig struct {
	*relay.Relay
	t    *testing.T
	logs *observer.ObservedLogs
	stop func()
}

func start(t *testing.T, o relay.Options) *rig {
	t.Helper()
	core, logs := observer.New(zap.WarnLevel)
	r := &rig{relay.New(zap.New(core), o), t, logs, nil}
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error)
	go func() { ended <- r.Run(ctx); close(ended) }()
	r.stop = func() {
		cancel()
		if err := <-ended; err != nil {
			t.Errorf("run: %v", err)
		}
	}
	t.Cleanup(r.stop)
	return r
}

// eachFamily runs a test on both loopback addresses, if the machine has them.
func eachFamily(t *testing.T, f func(*testing.T, string)) {
	for _, addr := range []string{"127.0.0.1", "::1"} {
		t.Run(addr, func(t *testing.T) {
			l, err := net.Listen("tcp", net.JoinHostPort(addr, "0"))
			if err != nil {
				t.Skip(err)
			}
			l.Close()
			f(t, addr)
		})
	}
}

// free returns a key whose port has no socket of either protocol.
func free(t *testing.T, addr string, proto model.Protocol) model.FrontendKey {
	t.Helper()
	l, err := net.Listen("tcp", net.JoinHostPort(addr, "0"))
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	at := netip.MustParseAddrPort(l.Addr().String())
	return model.FrontendKey{Addr: at.Addr(), Port: at.Port(), Protocol: proto}
}

func to(k model.FrontendKey, targets ...netip.AddrPort) []model.Relay {
	return []model.Relay{{Key: k, Targets: targets}}
}

// backend answers each line and each datagram with its name, and ends where its client does.
func backend(t *testing.T, name string) netip.AddrPort {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	at := netip.MustParseAddrPort(l.Addr().String())
	u, err := net.ListenUDP("udp", net.UDPAddrFromAddrPort(at))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close(); u.Close() })
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			go func() {
				defer c.Close()
				for s := bufio.NewScanner(c); s.Scan(); {
					fmt.Fprintln(c, name, s.Text())
				}
				fmt.Fprintln(c, name, "ends")
			}()
		}
	}()
	go func() {
		for b := make([]byte, 1<<16); ; {
			n, from, err := u.ReadFromUDPAddrPort(b)
			if err != nil {
				return
			}
			_, _ = u.WriteToUDPAddrPort([]byte(name+" "+string(b[:n])), from)
		}
	}()
	return at
}

// dial connects until the port is open.
func (r *rig) dial(k model.FrontendKey) net.Conn {
	r.t.Helper()
	var c net.Conn
	var err error
	network := "tcp"
	if k.Protocol == model.UDP {
		network = "udp"
	}
	poll.Until(r.t, "the port "+k.String(), func() bool {
		if r.Counts().Open == 0 {
			return false
		}
		c, err = net.Dial(network, netip.AddrPortFrom(k.Addr, k.Port).String())
		return err == nil
	}, func() string { return fmt.Sprint(err, r.State(k, web)) })
	r.t.Cleanup(func() { c.Close() })
	return c
}

// ask sends a text and returns the answer, or the error.
func ask(t *testing.T, c net.Conn, text string) string {
	t.Helper()
	_ = c.SetDeadline(time.Now().Add(time.Minute))
	if _, err := io.WriteString(c, text+"\n"); err != nil {
		return err.Error()
	}
	b := make([]byte, 1<<16)
	n, err := c.Read(b)
	if err != nil {
		return err.Error()
	}
	return strings.TrimSpace(string(b[:n]))
}

func (r *rig) want(c net.Conn, text, answer string) {
	r.t.Helper()
	if got := ask(r.t, c, text); got != answer {
		r.t.Errorf("answer %q, want %q", got, answer)
	}
}

// closed fails unless the peer ended the connection.
func closed(t *testing.T, c net.Conn) {
	t.Helper()
	_ = c.SetDeadline(time.Now().Add(time.Minute))
	if n, err := c.Read(make([]byte, 1)); !errors.Is(err, syscall.ECONNRESET) && !errors.Is(err, io.EOF) {
		t.Errorf("read %d bytes, error %v; want the end", n, err)
	}
}

// reset fails unless a new client is reset. That may come before its connect has returned.
func (r *rig) reset(k model.FrontendKey) {
	r.t.Helper()
	c, err := net.Dial("tcp", netip.AddrPortFrom(k.Addr, k.Port).String())
	switch {
	case err == nil:
		defer c.Close()
		closed(r.t, c)
	case !errors.Is(err, syscall.ECONNRESET):
		r.t.Error(err)
	}
}

// refused blocks until nothing listens.
func (r *rig) refused(k model.FrontendKey) {
	r.t.Helper()
	poll.Until(r.t, "the port "+k.String()+" to close", func() bool {
		c, err := net.Dial("tcp", netip.AddrPortFrom(k.Addr, k.Port).String())
		if err == nil {
			c.Close()
		}
		return errors.Is(err, syscall.ECONNREFUSED)
	}, func() string { return fmt.Sprint(r.Counts()) })
}

func TestTCP(t *testing.T) {
	eachFamily(t, func(t *testing.T, addr string) {
		r, k, one, two := start(t, relay.Options{}), free(t, addr, model.TCP), backend(t, "one"), backend(t, "two")
		r.Set(web, to(k, one))
		c := r.dial(k)
		r.want(c, "hello", "one hello")
		// The end of one direction is passed on, and the other continues.
		if err := c.(*net.TCPConn).CloseWrite(); err != nil {
			t.Fatal(err)
		}
		if rest, err := io.ReadAll(c); string(rest) != "one ends\n" || err != nil {
			t.Errorf("read %q, error %v", rest, err)
		}

		c = r.dial(k)
		r.want(c, "before", "one before")
		r.Set(web, to(k, two))
		r.Set(api, to(free(t, addr, model.TCP), two))
		poll.Until(t, "the new target", func() bool { return ask(t, r.dial(k), "new") == "two new" })
		r.want(c, "old", "one old")

		r.Set(web, to(k)) // no endpoint
		r.refused(k)
		r.want(c, "old", "one old")
		r.Set(web, to(k, two))
		r.want(r.dial(k), "again", "two again")

		r.Set(web, nil)
		r.refused(k)
		closed(t, c)
	})
}

func TestUDP(t *testing.T) {
	eachFamily(t, func(t *testing.T, addr string) {
		r, k, one, two := start(t, relay.Options{}), free(t, addr, model.UDP), backend(t, "one"), backend(t, "two")
		r.Set(web, to(k, one))
		a, b := r.dial(k), r.dial(k)
		for _, text := range []string{"x", strings.Repeat("y", 32<<10)} {
			r.want(a, text, "one "+text)
			r.want(b, text, "one "+text)
		}
		if n := r.Counts().Connections[model.UDP]; n != 2 {
			t.Errorf("%d flows, want 2", n)
		}
		r.Set(web, to(k, two)) // a flow to a target that is gone ends
		poll.Until(t, "the new target", func() bool { return ask(t, a, "x") == "two x" })
		r.Set(web, nil)
		poll.Until(t, "no flow", func() bool { return r.Counts().Connections[model.UDP] == 0 })
	})
}

// TestSilence: a client that sends nothing keeps no connection and no flow.
func TestSilence(t *testing.T) {
	for _, proto := range []model.Protocol{model.TCP, model.UDP} {
		r := start(t, relay.Options{Idle: time.Second, IdleUDP: time.Second})
		k := free(t, "127.0.0.1", proto)
		r.Set(web, to(k, backend(t, "one")))
		c := r.dial(k)
		r.want(c, "x", "one x")
		poll.Until(t, "no connection", func() bool { return r.Counts().Connections[proto] == 0 })
		if proto == model.TCP {
			closed(t, c)
		} else {
			r.want(c, "y", "one y") // by another flow
		}
	}
}

// TestAffinity: all connections stay with one target, until it goes.
func TestAffinity(t *testing.T) {
	r, k := start(t, relay.Options{}), free(t, "127.0.0.1", model.TCP)
	targets, names := []netip.AddrPort{}, map[netip.AddrPort]string{}
	for _, name := range []string{"one", "two", "three"} {
		at := backend(t, name)
		targets, names[at] = append(targets, at), name
	}
	r.Set(web, []model.Relay{{Key: k, Targets: targets, Affinity: time.Hour}})
	first := ask(t, r.dial(k), "x")
	for range 20 {
		r.want(r.dial(k), "x", first)
	}
	left := targets[:0:0]
	for _, at := range targets {
		if names[at]+" x" != first {
			left = append(left, at)
		}
	}
	r.Set(web, []model.Relay{{Key: k, Targets: left, Affinity: time.Hour}})
	poll.Until(t, "another target", func() bool { return ask(t, r.dial(k), "x") != first })
}

// TestLimit: a port has a quarter of all connections at most. Those of TCP beyond are reset; with UDP
// the flow that was used longest ago ends.
func TestLimit(t *testing.T) {
	for _, proto := range []model.Protocol{model.TCP, model.UDP} {
		r, k, other := start(t, relay.Options{Most: 8}), free(t, "127.0.0.1", proto), free(t, "127.0.0.1", proto)
		target := backend(t, "one")
		r.Set(web, to(k, target))
		r.Set(api, to(other, target))
		a, b := r.dial(k), r.dial(k)
		r.want(a, "a", "one a")
		r.want(b, "b", "one b")
		if proto == model.TCP {
			r.reset(k)
		} else {
			r.want(r.dial(k), "c", "one c")
		}
		counts := r.Counts()
		if counts.Connections[proto] != 2 || counts.Limited[proto] != 1 {
			t.Errorf("%d connections, %d limited, want 2 and 1", counts.Connections[proto], counts.Limited[proto])
		}
		r.want(a, "again", "one again")
		if proto == model.TCP {
			r.reset(k)
		}
		r.want(r.dial(other), "x", "one x") // another port is not affected
		if n := r.logs.FilterMessageSnippet("as many connections").Len(); n != 1 {
			t.Errorf("%d warnings, want 1", n)
		}
	}
}

// TestTakenPort: a port of another process is named once and tried again, and nothing else is lost.
func TestTakenPort(t *testing.T) {
	for _, proto := range []model.Protocol{model.TCP, model.UDP} {
		r := start(t, relay.Options{Retry: 20 * time.Millisecond})
		k, other, target := free(t, "127.0.0.1", proto), free(t, "127.0.0.1", proto), backend(t, "one")
		at := netip.AddrPortFrom(k.Addr, k.Port)
		var taken io.Closer
		var err error
		if proto == model.TCP {
			taken, err = net.Listen("tcp", at.String())
		} else {
			taken, err = net.ListenUDP("udp", net.UDPAddrFromAddrPort(at))
		}
		if err != nil {
			t.Fatal(err)
		}
		r.Set(web, append(to(k, target), to(other, target)...))
		r.want(r.dial(other), "x", "one x")
		poll.Until(t, "the failure", func() bool { return strings.Contains(r.State(k, web), "address already in use") })
		if c := r.Counts(); c.Open != 1 || c.Failed != 1 {
			t.Errorf("%d ports open, %d failed", c.Open, c.Failed)
		}
		taken.Close()
		poll.Until(t, "both ports", func() bool { return r.Counts().Open == 2 })
		r.want(r.dial(k), "x", "one x")
		if r.State(k, web) != "" {
			t.Errorf("state %q", r.State(k, web))
		}
		if n := r.logs.FilterMessageSnippet("cannot be opened").Len(); n != 1 {
			t.Errorf("%d warnings, want 1", n)
		}
	}
}

// TestContestedPort: a Service keeps its port from another one until it releases it.
func TestContestedPort(t *testing.T) {
	r, k := start(t, relay.Options{}), free(t, "127.0.0.1", model.TCP)
	one, two := backend(t, "one"), backend(t, "two")
	r.Set(web, to(k, one))
	c := r.dial(k)
	r.want(c, "x", "one x")
	r.Set(api, to(k, two))
	poll.Until(t, "the conflict", func() bool { return r.State(k, api) == "the port belongs to shop/web" })
	r.want(r.dial(k), "x", "one x")
	r.Set(web, nil)
	poll.Until(t, "the other Service", func() bool { return r.State(k, api) == "" && ask(t, r.dial(k), "x") == "two x" })
	closed(t, c)
}

// TestUnreachableTarget: a client is reset, and not left waiting.
func TestUnreachableTarget(t *testing.T) {
	r, k, dead := start(t, relay.Options{}), free(t, "127.0.0.1", model.TCP), free(t, "127.0.0.1", model.TCP)
	r.Set(web, to(k, netip.AddrPortFrom(dead.Addr, dead.Port)))
	poll.Until(t, "the port", func() bool { return r.Counts().Open == 1 })
	r.reset(k)
}

// TestStop: connections end with the relay, and another Run opens the ports again.
func TestStop(t *testing.T) {
	r, k := start(t, relay.Options{}), free(t, "127.0.0.1", model.TCP)
	u := free(t, "127.0.0.1", model.UDP)
	target := backend(t, "one")
	r.Set(web, append(to(k, target), to(u, target)...))
	c, d := r.dial(k), r.dial(u)
	r.want(c, "x", "one x")
	r.want(d, "x", "one x")
	r.stop()
	closed(t, c)
	if c := r.Counts(); c.Open+c.Failed != 0 || c.Connections[model.TCP]+c.Connections[model.UDP] != 0 {
		t.Errorf("counts %+v", c)
	}
}
