package healthcheck_test

import (
	"bufio"
	"io"
	"net"
	"net/http"
	"net/netip"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/google/go-cmp/cmp"
	"go.uber.org/zap/zaptest"

	"github.com/kube-ipvs/kube-ipvs/internal/healthcheck"
	"github.com/kube-ipvs/kube-ipvs/internal/model"
	"github.com/kube-ipvs/kube-ipvs/internal/testkit/poll"
)

const (
	onePod = "{\n\t\"service\": {\n\t\t\"namespace\": \"shop\",\n\t\t\"name\": \"web\"\n\t},\n\t\"localEndpoints\": 1,\n\t\"serviceProxyHealthy\": true\n}"
	noPod  = "{\n\t\"service\": {\n\t\t\"namespace\": \"shop\",\n\t\t\"name\": \"web\"\n\t},\n\t\"localEndpoints\": 0,\n\t\"serviceProxyHealthy\": true\n}"
	sick   = "{\n\t\"service\": {\n\t\t\"namespace\": \"shop\",\n\t\t\"name\": \"web\"\n\t},\n\t\"localEndpoints\": 12,\n\t\"serviceProxyHealthy\": false\n}"
)

func TestAnswers(t *testing.T) {
	for _, tt := range []struct {
		name    string
		request string // first line
		ready   int
		healthy bool
		status  int
		body    string
	}{
		{"endpoints here", "GET /healthz HTTP/1.1", 1, true, 200, onePod},
		{"none here", "GET /healthz HTTP/1.1", 0, true, 503, noPod},
		{"proxy is not healthy", "GET /healthz HTTP/1.1", 12, false, 503, sick},
		{"any path", "GET /a/../b//c?d HTTP/1.1", 1, true, 200, onePod},
		{"no path", "GET / HTTP/1.0", 1, true, 200, onePod},
		{"any method", "DELETE /healthz HTTP/1.1", 1, true, 200, onePod},
		{"a method of its own", "PROBE /healthz HTTP/1.1", 1, true, 200, onePod},
		{"question for the server", "OPTIONS * HTTP/1.1", 1, true, 200, onePod},
		{"head has no body", "HEAD /healthz HTTP/1.1", 1, true, 200, ""},
	} {
		t.Run(tt.name, func(t *testing.T) {
			h := start(t, healthcheck.Options{Healthy: func() bool { return tt.healthy }})
			at := h.serve(tt.ready)
			got := ask(t, at, tt.request)
			if got.status != tt.status {
				t.Errorf("status %d, want %d", got.status, tt.status)
			}
			if diff := cmp.Diff(tt.body, got.body); diff != "" {
				t.Errorf("body (-want +got):\n%s", diff)
			}
			want := map[string]string{
				"Content-Type": "application/json", "X-Content-Type-Options": "nosniff",
				"X-Load-Balancing-Endpoint-Weight": map[int]string{0: "0", 1: "1", 12: "12"}[tt.ready],
			}
			for name, value := range want {
				if got.header.Get(name) != value {
					t.Errorf("header %s: %q, want %q", name, got.header.Get(name), value)
				}
			}
		})
	}
}

func TestHealthIsAskedEachTime(t *testing.T) {
	var healthy atomic.Bool
	h := start(t, healthcheck.Options{Healthy: healthy.Load})
	at := h.serve(1)
	for _, want := range []int{503, 200, 503} {
		healthy.Store(want == 200)
		if r := ask(t, at, "GET / HTTP/1.1"); r.status != want {
			t.Errorf("status %d, want %d", r.status, want)
		}
	}
}

func TestHeadersAreBounded(t *testing.T) {
	h := start(t, healthcheck.Options{})
	at := h.serve(1)
	r := ask(t, at, "GET / HTTP/1.1\r\nX-Much: "+strings.Repeat("x", 32<<10))
	if r.status != http.StatusRequestHeaderFieldsTooLarge {
		t.Errorf("status %d, want 431", r.status)
	}
}

var (
	web = model.ServiceID{Origin: model.FromFile, Namespace: "shop", Name: "web"}
	api = model.ServiceID{Origin: model.FromFile, Namespace: "shop", Name: "api"}
)

// one is a Service of IPv4 with one endpoint here.
func one(port uint16) model.HealthCheck {
	return model.HealthCheck{Port: port, IPv4: model.LocalEndpoints{Served: true, Ready: 1}}
}

func row(at netip.AddrPort, id model.ServiceID, ready int) healthcheck.PortStatus {
	return healthcheck.PortStatus{Address: at, Service: id, Ready: ready, Listening: true}
}

// harness is a set of servers that runs until the test ends.
type harness struct {
	*healthcheck.Servers
	t *testing.T
}

func start(t *testing.T, o healthcheck.Options) *harness {
	t.Helper()
	h := &harness{healthcheck.New(zaptest.NewLogger(t), o), t}
	run(t, h.Servers)
	return h
}

// free finds a port without a listener.
func (h *harness) free(addr string) netip.AddrPort {
	h.t.Helper()
	l, err := net.Listen("tcp", net.JoinHostPort(addr, "0"))
	if err != nil {
		h.t.Fatal(err)
	}
	defer l.Close()
	return l.Addr().(*net.TCPAddr).AddrPort()
}

// serve has the Service web answer on loopback.
func (h *harness) serve(ready int) netip.AddrPort {
	h.t.Helper()
	at := h.free("127.0.0.1")
	h.Listen([]netip.Addr{at.Addr()}, false)
	h.Set(web, model.HealthCheck{Port: at.Port(), IPv4: model.LocalEndpoints{Served: true, Ready: ready}})
	h.wait(row(at, web, ready))
	return at
}

var byValue = cmp.Comparer(func(a, b netip.AddrPort) bool { return a == b })

// wait polls until the status is as wanted.
func (h *harness) wait(want ...healthcheck.PortStatus) {
	h.t.Helper()
	poll.Until(h.t, "the status", func() bool { return cmp.Equal(want, h.Status(), byValue) },
		func() string { return "status (-want +got):\n" + cmp.Diff(want, h.Status(), byValue) })
}

// reply is what came back.
type reply struct {
	status int
	header http.Header
	body   string
}

// ask sends one request on a connection of its own.
func ask(t *testing.T, at netip.AddrPort, first string) reply {
	t.Helper()
	conn, err := net.Dial("tcp", at.String())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	return talk(t, conn, first)
}

// talk sends one request and reads the answer.
func talk(t *testing.T, conn net.Conn, first string) reply {
	t.Helper()
	if _, err := io.WriteString(conn, first+"\r\nHost: node\r\n\r\n"); err != nil {
		t.Fatal(err)
	}
	method, _, _ := strings.Cut(first, " ")
	r, err := http.ReadResponse(bufio.NewReader(conn), &http.Request{Method: method})
	if err != nil {
		t.Fatal(err)
	}
	defer r.Body.Close()
	body, err := io.ReadAll(r.Body)
	if err != nil {
		t.Fatal(err)
	}
	return reply{r.StatusCode, r.Header, string(body)}
}
