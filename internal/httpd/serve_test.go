package httpd_test

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"go.uber.org/zap"
	"go.uber.org/zap/zaptest"
	"go.uber.org/zap/zaptest/observer"

	"github.com/kube-ipvs/kube-ipvs/internal/httpd"
)

type listen func(ctx context.Context, network, address string) (net.Listener, error)

// start serves in the background; stop ends it and returns what Serve returned.
func start(t *testing.T, log *zap.Logger, l httpd.Listener) (stop func() error) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- httpd.Serve(ctx, log, l) }()
	return func() error { cancel(); return <-ended }
}

func TestAnEmptyAddressIsNotServed(t *testing.T) {
	err := httpd.Serve(t.Context(), zaptest.NewLogger(t), httpd.Listener{Listen: func(context.Context, string, string) (net.Listener, error) {
		t.Error("it listens")
		return nil, syscall.EADDRINUSE
	}})
	if err != nil {
		t.Errorf("serve: %v", err)
	}
}

func TestServeNeedsAHandler(t *testing.T) {
	defer func() {
		if recover() == nil {
			t.Error("the global handler of net/http would be served")
		}
	}()
	_ = httpd.Serve(t.Context(), zaptest.NewLogger(t), httpd.Listener{Address: "127.0.0.1:0"})
}

// The network is "tcp" for every host, as in kube-proxy: that makes 0.0.0.0 listen
// on both families.
func TestAddressesAreTriedAgain(t *testing.T) {
	for _, address := range []string{"0.0.0.0:10256", "127.0.0.1:10249", "[::]:10256", "[::1]:10249", ":10256", "localhost:10256"} {
		t.Run(address, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				before, p := time.Now(), newPipes()
				var got []string
				stop := start(t, zap.NewNop(), httpd.Listener{Name: "health", Address: address, Handler: says("here"), Listen: func(_ context.Context, network, at string) (net.Listener, error) {
					got = append(got, fmt.Sprint(time.Since(before), " ", network, " ", at))
					if len(got) < 4 {
						return nil, syscall.EADDRINUSE
					}
					return p, nil
				}})
				if got := p.do(t, call{target: "/"}); got.body != "GET here\n" {
					t.Errorf("answer %q", got.body)
				}
				if err := stop(); err != nil {
					t.Errorf("serve: %v", err)
				}
				want := []string{"0s tcp " + address, "5s tcp " + address, "10s tcp " + address, "15s tcp " + address}
				if diff := cmp.Diff(want, got); diff != "" {
					t.Errorf("attempts (-want +got):\n%s", diff)
				}
			})
		})
	}
}

func TestATakenPortThatIsFreed(t *testing.T) {
	taken, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	address := taken.Addr().String()
	tried := make(chan error)
	stop := start(t, zaptest.NewLogger(t), httpd.Listener{Name: "health", Address: address, Handler: says("here"), Retry: time.Millisecond,
		Listen: func(ctx context.Context, network, address string) (net.Listener, error) {
			socket, err := (&net.ListenConfig{}).Listen(ctx, network, address)
			tried <- err
			return socket, err
		}})
	for range 2 {
		if err := <-tried; !errors.Is(err, syscall.EADDRINUSE) {
			t.Errorf("listen on a taken port: %v", err)
		}
	}
	taken.Close()
	for err := range tried { // one attempt may have been under way
		if err == nil {
			break
		}
	}
	resp, err := http.Get("http://" + address)
	if err != nil {
		t.Fatalf("ask the port that was freed: %v", err)
	}
	resp.Body.Close()
	if err := stop(); err != nil {
		t.Errorf("serve: %v", err)
	}
	if again, err := net.Listen("tcp", address); err != nil {
		t.Errorf("the port is not free after the end: %v", err)
	} else {
		again.Close()
	}
}

func TestHardFail(t *testing.T) {
	broken := newPipes()
	broken.broken <- syscall.EINVAL
	tests := []struct {
		name   string
		listen listen
		failed bool // whether there is a function to tell
		want   string
	}{
		{"listen", func(context.Context, string, string) (net.Listener, error) { return nil, syscall.EADDRINUSE }, true,
			"listen for metrics at 127.0.0.1:10249: address already in use"},
		{"accept", broken.listen, true, "serve metrics at 127.0.0.1:10249: invalid argument"},
		{"no receiver", func(context.Context, string, string) (net.Listener, error) { return nil, syscall.EACCES }, false,
			"listen for metrics at 127.0.0.1:10249: permission denied"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			var told []error
			l := httpd.Listener{Name: "metrics", Address: "127.0.0.1:10249", Handler: says("here"), HardFail: true, Listen: tt.listen}
			if tt.failed {
				l.Failed = func(err error) { told = append(told, err) }
			}
			err := httpd.Serve(t.Context(), zaptest.NewLogger(t), l)
			if err == nil || err.Error() != tt.want {
				t.Errorf("serve: %v, want %s", err, tt.want)
			}
			if tt.failed && (len(told) != 1 || !errors.Is(told[0], err)) {
				t.Errorf("told %v, want once what was returned", told)
			}
		})
	}
}

// An end while the port is taken is no failure, hard or not.
func TestAnEndIsNoFailure(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	err := httpd.Serve(ctx, zaptest.NewLogger(t), httpd.Listener{Name: "metrics", Address: "x:1", Handler: says("here"), HardFail: true,
		Failed: func(err error) { t.Errorf("told %v", err) },
		Listen: func(context.Context, string, string) (net.Listener, error) { cancel(); return nil, context.Canceled },
	})
	if err != nil {
		t.Errorf("serve: %v", err)
	}
}

func TestASocketThatBreaksIsOpenedAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		first, second := newPipes(), newPipes()
		sockets := []net.Listener{first, second}
		stop := start(t, zap.NewNop(), httpd.Listener{Name: "health", Address: "x:1", Handler: says("here"), Listen: func(context.Context, string, string) (net.Listener, error) {
			socket := sockets[0]
			sockets = sockets[1:]
			return socket, nil
		}})
		idle := first.dial(t)
		first.broken <- syscall.EINVAL
		if _, err := idle.Read(make([]byte, 1)); !errors.Is(err, io.EOF) {
			t.Errorf("a connection of the broken socket reads %v, want EOF", err)
		}
		if got := second.do(t, call{target: "/"}); got.body != "GET here\n" {
			t.Errorf("answer %q", got.body)
		}
		if err := stop(); err != nil {
			t.Errorf("serve: %v", err)
		}
	})
}

func TestFailuresAreLoggedAtABoundedRate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		before := time.Now()
		core, logs := observer.New(zap.InfoLevel)
		stop := start(t, zap.New(core), httpd.Listener{Name: "health", Address: "x:1", Handler: says("here"), Listen: func(context.Context, string, string) (net.Listener, error) {
			if time.Since(before) < 11*time.Minute {
				return nil, syscall.EADDRINUSE
			}
			if time.Since(before) < 12*time.Minute {
				return nil, syscall.EACCES
			}
			broken := newPipes() // works and breaks at once, again and again
			broken.broken <- syscall.EINVAL
			return broken, nil
		}})
		time.Sleep(16 * time.Minute)
		if err := stop(); err != nil {
			t.Errorf("serve: %v", err)
		}
		var got []string
		for _, e := range logs.All() {
			got = append(got, fmt.Sprintln(e.Time.Sub(before), e.Level, e.Message, e.ContextMap()["attempt"], e.ContextMap()["error"]))
		}
		want := []string{
			"0s warn cannot serve the listener, will be tried again 1 listen for health at x:1: address already in use\n",
			"5m0s warn cannot serve the listener, will be tried again 61 listen for health at x:1: address already in use\n",
			"10m0s warn cannot serve the listener, will be tried again 121 listen for health at x:1: address already in use\n",
			"11m0s warn cannot serve the listener, will be tried again 133 listen for health at x:1: permission denied\n",
			"12m0s info serving 145 <nil>\n",
			"12m0s warn cannot serve the listener, will be tried again 1 serve health at x:1: invalid argument\n",
			"12m5s info serving 2 <nil>\n",
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("log (-want +got):\n%s", diff)
		}
	})
}

// At the end short requests get their answer, and no other connection delays it.
func TestTheEndTakesLessThanASecond(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newPipes()
		started := make(chan struct{}, 2)
		mux := http.NewServeMux()
		mux.HandleFunc("/short", func(w http.ResponseWriter, _ *http.Request) {
			started <- struct{}{}
			time.Sleep(300 * time.Millisecond)
			_, _ = io.WriteString(w, "done")
		})
		mux.HandleFunc("/endless", func(_ http.ResponseWriter, r *http.Request) {
			started <- struct{}{}
			<-r.Context().Done()
		})
		stop := start(t, zap.NewNop(), httpd.Listener{Name: "health", Address: "x:1", Handler: mux, Listen: p.listen})
		idle, short, endless := p.dial(t), p.dial(t), p.dial(t)
		defer idle.Close()
		for path, conn := range map[string]net.Conn{"/short": short, "/endless": endless} {
			if _, err := fmt.Fprintf(conn, "GET %s HTTP/1.1\r\nHost: node\r\n\r\n", path); err != nil {
				t.Fatal(err)
			}
			<-started
		}
		answer := make(chan string, 1)
		go func() {
			resp, err := http.ReadResponse(bufio.NewReader(short), nil)
			if err != nil {
				answer <- err.Error()
				return
			}
			defer resp.Body.Close()
			body, _ := io.ReadAll(resp.Body)
			answer <- string(body)
		}()
		before := time.Now()
		if err := stop(); err != nil {
			t.Errorf("serve: %v", err)
		}
		if took := time.Since(before); took >= time.Second {
			t.Errorf("the end took %v", took)
		}
		if got := <-answer; got != "done" {
			t.Errorf("the short request got %q", got)
		}
		if _, err := endless.Read(make([]byte, 1)); !errors.Is(err, io.EOF) {
			t.Errorf("the endless request reads %v, want EOF", err)
		}
	})
}

// TestManyClientsDoNotKeepAProbeOut: clients that hold all connections, silent or between
// two requests, lose the oldest of them to one that asks.
func TestManyClientsDoNotKeepAProbeOut(t *testing.T) {
	for _, tt := range []struct{ name, sends string }{{"silent", ""}, {"between requests", "GET / HTTP/1.1\r\nHost: node\r\n\r\n"}} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				p := newPipes()
				stop := start(t, zap.NewNop(), httpd.Listener{Name: "health", Address: "x:1", Handler: says("here"), Listen: p.listen})
				var held []net.Conn
				for range 300 {
					conn := p.dial(t)
					defer conn.Close()
					if tt.sends != "" {
						if _, err := io.WriteString(conn, tt.sends); err != nil {
							t.Fatal(err)
						}
						resp, err := http.ReadResponse(bufio.NewReader(conn), nil)
						if err != nil {
							t.Fatal(err)
						}
						_, _ = io.Copy(io.Discard, resp.Body)
						resp.Body.Close()
					}
					synctest.Wait()
					held = append(held, conn)
				}
				if got := p.do(t, call{target: "/"}); got.body != "GET here\n" {
					t.Errorf("a probe gets %q", got.body)
				}
				open := 0
				for _, conn := range held {
					_ = conn.SetReadDeadline(time.Now().Add(time.Millisecond))
					if _, err := conn.Read(make([]byte, 1)); errors.Is(err, os.ErrDeadlineExceeded) {
						open++
					}
				}
				if open != 255 {
					t.Errorf("%d connections are open after 300 and the probe's, want 255", open)
				}
				if err := stop(); err != nil {
					t.Errorf("serve: %v", err)
				}
			})
		})
	}
}

// Any client that reaches the node can open connections and say nothing.
func TestSlowClientsAreCutOff(t *testing.T) {
	tests := []struct {
		name, sends string
		after       time.Duration
	}{
		{"nothing", "", 5 * time.Second},
		{"half a request", "GET /healthz HTTP/1.1\r\nHost:", 5 * time.Second},
		{"a request without its body", "POST /healthz HTTP/1.1\r\nHost: node\r\nContent-Length: 100\r\n\r\n", 10 * time.Second},
		{"idle after a request", "HEAD / HTTP/1.1\r\nHost: node\r\n\r\n", 2 * time.Minute},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				conn := serve(t, says("here")).dial(t)
				before := time.Now()
				if _, err := io.WriteString(conn, tt.sends); err != nil {
					t.Fatal(err)
				}
				if _, err := io.Copy(io.Discard, conn); err != nil {
					t.Errorf("read: %v", err)
				}
				if took := time.Since(before); took != tt.after {
					t.Errorf("cut off after %v, want %v", took, tt.after)
				}
			})
		})
	}
}
