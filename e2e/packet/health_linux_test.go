package packet

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

// healthPort is where a load balancer asks about the Service of these tests.
const healthPort = 32100

// health is what it finds there.
type health struct {
	Status, Mime, Sniff, Weight, Body string
}

// healthy is kube-proxy's answer for so many ready endpoints on this node.
func healthy(endpoints int) health {
	status := "200 OK"
	if endpoints == 0 {
		status = "503 Service Unavailable"
	}
	return health{
		Status: status, Mime: "application/json", Sniff: "nosniff", Weight: fmt.Sprint(endpoints),
		Body: fmt.Sprintf("{\n\t\"service\": {\n\t\t\"namespace\": \"test\",\n\t\t\"name\": \"service-1\"\n\t},\n"+
			"\t\"localEndpoints\": %d,\n\t\"serviceProxyHealthy\": true\n}", endpoints),
	}
}

// health asks as a load balancer does.
func (p *pod) health(addr string) (health, error) {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	var conn net.Conn
	err := p.do(func() (err error) {
		conn, err = (&net.Dialer{}).DialContext(ctx, "tcp", hostPort(addr, healthPort))
		return err
	})
	if err != nil {
		return health{}, err
	}
	defer conn.Close()
	_ = conn.SetDeadline(time.Now().Add(patience)) // only a closed connection has none
	fmt.Fprintf(conn, "GET /any/path HTTP/1.1\r\nHost: %s\r\nConnection: close\r\n\r\n", hostPort(addr, healthPort))
	resp, err := http.ReadResponse(bufio.NewReader(conn), nil)
	if err != nil {
		return health{}, err
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	h := resp.Header
	return health{
		resp.Status, h.Get("Content-Type"), h.Get("X-Content-Type-Options"), h.Get("X-Load-Balancing-Endpoint-Weight"), string(body),
	}, err
}

// TestHealthCheckNodePort goes with a Service through its endpoints on this node, as a load balancer sees it from outside, past
// a firewall that lets nothing in by itself.
func TestHealthCheckNodePort(t *testing.T) {
	t.Parallel()
	for _, rules := range ruleStores {
		t.Run("rules in "+rules, func(t *testing.T) {
			w := newWorld(t)
			w.node.shell(t, locked)
			w.healthChecks(t, "--rules", rules)
		})
	}
}

// healthChecks asks in whatever mode the agent runs.
func (w *world) healthChecks(t *testing.T, flags ...string) {
	t.Helper()
	web := numberedService(1)
	web.externalLocal, web.healthPort = true, healthPort
	const onlyIPv4 = "two here, of IPv4 alone"
	both := web
	n := newAgent(t, w.node, append([]string{"--detect-local-mode", "NodeCIDR"}, flags...)...)
	n.writeFile(t, "nodes.yaml", w.nodes())
	leaving := endpoints(w.pod1)
	for i := range leaving {
		leaving[i].terminating = true
	}
	table := newTable("endpoints", "asked at", "status", "weight")
	for i, tt := range []struct {
		name     string
		backends []endpoint
		want     int
	}{
		{"one here", endpoints(w.pod1, w.remote1), 1},
		{"two here", endpoints(w.pod1, w.pod2, w.remote1), 2},
		{onlyIPv4, endpoints(w.pod1, w.pod2), 2}, // answers on IPv6 addresses, too
		{"none here", endpoints(w.remote1), 0},
		{"one here that leaves", append(leaving, endpoints(w.remote1)...), 0},
		{"one here again", endpoints(w.pod2, w.remote1), 1},
		{"none anywhere", nil, 0},
	} {
		web.backends, web.vip, web.lb = tt.backends, both.vip, both.lb
		if tt.name == onlyIPv4 {
			web.vip.v6, web.lb.v6 = "", ""
		}
		n.write(t, web)
		if i == 0 && n.start(t).Rules == "nftables" {
			n.open(t, web)
		}
		for _, addr := range append(fabAddr.all(), extAddr.all()...) {
			var last health
			poll(t, fmt.Sprintf("the health of %q at %s", tt.name, addr), settleTimeout, func() error {
				got, err := w.outside.health(addr)
				if err != nil {
					return err
				}
				if diff := cmp.Diff(healthy(tt.want), got); diff != "" {
					return fmt.Errorf("health (-want +got):\n%s", diff)
				}
				last = got
				return nil
			})
			table.row(tt.name, addr, last.Status, last.Weight)
		}
	}
	t.Logf("health\n%s", table)

	web.externalLocal, web.healthPort = false, 0
	n.write(t, web)
	for _, addr := range fabAddr.all() {
		poll(t, "the port to be closed at "+addr, settleTimeout, func() error {
			_, err := w.host().health(addr)
			switch {
			case err == nil:
				return errors.New("it answers the host")
			case !errors.Is(err, syscall.ECONNREFUSED):
				return fmt.Errorf("want the host to be refused: %w", err)
			}
			return nil
		})
	}
}
