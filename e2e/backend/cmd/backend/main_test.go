package main

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net/netip"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/kube-ipvs/kube-ipvs/e2e/backend"
)

func TestParseAsk(t *testing.T) {
	to := netip.MustParseAddrPort("10.96.0.10:80")
	tests := []struct {
		name string
		args string
		want asking
	}{
		{"defaults", "10.96.0.10:80", asking{load: backend.Load{Proto: backend.HTTP, To: to, Timeout: time.Second}, n: 1, rate: 20}},
		{"count", "-proto UDP -n 5 -timeout 2s -one-socket 10.96.0.10:80", asking{
			load: backend.Load{Proto: backend.UDP, To: to, Timeout: 2 * time.Second, OneConn: true}, n: 5, rate: 20,
		}},
		{"stream", "-proto sctp -source 10.0.0.7 -hold -rate 2.5 -duration 3s -stream 10.96.0.10:80", asking{
			load: backend.Load{Proto: backend.SCTP, To: to, Source: netip.MustParseAddr("10.0.0.7"), Timeout: time.Second, Hold: true},
			n:    1, rate: 2.5, duration: 3 * time.Second, stream: true,
		}},
		{"long connections", "-proto tcp -stream -connections 200 -life 15s -rate 1 10.96.0.10:80", asking{
			load: backend.Load{Proto: backend.TCP, To: to, Timeout: time.Second, OneConn: true, Life: 15 * time.Second},
			n:    1, rate: 1, stream: true, connections: 200,
		}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			got, err := parseAsk(strings.Fields(tt.args))
			if err != nil {
				t.Fatal(err)
			}
			compare := []cmp.Option{
				cmp.AllowUnexported(asking{}),
				cmp.Comparer(func(a, b netip.AddrPort) bool { return a == b }), cmp.Comparer(func(a, b netip.Addr) bool { return a == b }),
			}
			if diff := cmp.Diff(tt.want, got, compare...); diff != "" {
				t.Errorf("asking (-want +got):\n%s", diff)
			}
		})
	}
}

func TestWrongCallsAreRefused(t *testing.T) {
	for _, args := range []string{
		"", "sing", "serve", "serve -tcp 127.0.0.1:port", "serve -no-such-flag", "ask", "ask 10.0.0.1", "ask 10.0.0.1:80 10.0.0.2:80",
		"ask -proto icmp 10.0.0.1:80", "ask -n 0 10.0.0.1:80", "ask -rate 0 10.0.0.1:80", "ask -source me 10.0.0.1:80",
		"ask -one-socket 10.0.0.1:80", "ask -connections 2 10.0.0.1:80", "ask -proto tcp -connections -1 10.0.0.1:80",
	} {
		err := run(context.Background(), strings.Fields(args), io.Discard)
		if err == nil || errors.Is(err, errUnanswered) {
			t.Errorf("%q: %v, want a complaint about the call", args, err)
		}
	}
}

func TestServeAndAsk(t *testing.T) {
	server, err := backend.Listen(backend.Config{Name: "web-1", HTTP: "127.0.0.1:0"})
	if err != nil {
		t.Fatal(err)
	}
	to := server.Addr(backend.HTTP).String()
	ctx, stop := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- server.Serve(ctx) }()

	var out bytes.Buffer
	if err := run(context.Background(), []string{"ask", "-n", "3", to}, &out); err != nil {
		t.Error(err)
	}
	want := regexp.MustCompile(`(?s)^3 requests, 3 answered, 0 failed\n  backend +web-1 +3 .*\n  client +127\.0\.0\.1 +3 `)
	if !want.MatchString(out.String()) {
		t.Errorf("output %q does not match %s", &out, want)
	}
	out.Reset()
	if err := run(context.Background(), []string{"ask", "-duration", "100ms", "-rate", "50", to}, &out); err != nil {
		t.Errorf("stream: %v\n%s", err, &out)
	}

	stop()
	if err := <-ended; err != nil {
		t.Error(err)
	}
	out.Reset()
	err = run(context.Background(), []string{"ask", "-n", "2", to}, &out)
	if !errors.Is(err, errUnanswered) || !strings.Contains(out.String(), "2 refused from ") {
		t.Errorf("%v and output %q, want two refused requests", err, &out)
	}
}

func TestServeSaysWhenItIsReady(t *testing.T) {
	ctx, stop := context.WithCancel(context.Background())
	reader, writer := io.Pipe()
	ended := make(chan error, 1)
	go func() { ended <- run(ctx, []string{"serve", "-tcp", "127.0.0.1:0", "-udp", "127.0.0.1:0"}, writer) }()
	line := make([]byte, len("ready\n"))
	if _, err := io.ReadFull(reader, line); err != nil || string(line) != "ready\n" {
		t.Errorf("%q, %v", line, err)
	}
	stop()
	if err := <-ended; err != nil {
		t.Error(err)
	}
}
